# Everything a newcomer types. `make help` lists it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help run setup setup-jax backends test test-all check docs bench ui pins
help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: setup  ## Install what is missing, then the quickstart: claims, a study, a results table
	$(BIN)/python -m pipelines quickstart

setup: .venv/requirements.installed  ## Create or update .venv from requirements.txt

setup-jax: .venv/requirements-jax.installed  ## The same with JAX and without TensorFlow

test: .venv/requirements-dev.installed  ## Install the test tools, then the fast tests
	$(BIN)/python -m pytest

test-all: test  ## All tests, the slow ones too
	$(BIN)/python -m pytest -m slow

backends: .venv/requirements-dev.installed .venv/requirements-torch.installed  ## Install PyTorch too: the slow tests compare backends

check: .venv/requirements-dev.installed  ## Lint, types and fast tests: what CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

docs: .venv/requirements-dev.installed  ## Build the site into site/, of the evidence and the code that are here
	$(BIN)/python -m docs.write_pages
	$(BIN)/python -m zensical build --strict --config-file .site/mkdocs.yml
	$(BIN)/python -m docs.check_site .site/html
	rm -rf site && mv .site/html site
	@echo "Open site/index.html, or to search it: $(BIN)/python -m http.server --directory site 8000"

bench: setup  ## Speed, as ratios measured side by side
	for name in train_step accelerator reading; do $(BIN)/python -m benchmarks.$$name || exit 1; done

ui: setup  ## Serve the MLflow UI on the recorded runs
	$(BIN)/python -m pipelines ui

pins: .venv/requirements-dev.installed  ## Compile the requirement files anew from pyproject.toml
	$(BIN)/uv pip compile $(PIN) --extra tensorflow pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile $(PIN) -c requirements.txt --extra tensorflow --extra jax --extra docs --extra dev pyproject.toml -o requirements-dev.txt
	$(BIN)/uv pip compile $(PIN) -c requirements-dev.txt --extra jax pyproject.toml -o requirements-jax.txt
	sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml | $(BIN)/uv pip compile $(PIN) -c requirements-dev.txt - -o requirements-torch.txt
	echo uv==0.13.8 | $(BIN)/uv pip compile $(PIN) - -o requirements-uv.txt
PIN := -q --no-emit-index-url --no-header --universal --python-version 3.11 --fork-strategy fewest --generate-hashes

# uv installs in a tenth of pip's time; where it cannot be had, pip does the same.
.venv/%.installed: %.txt | $(BIN)/python
	$(BIN)/uv --version >/dev/null 2>&1 || $(BIN)/pip install --quiet --require-hashes -r requirements-uv.txt || true
	if $(BIN)/uv --version >/dev/null 2>&1; \
	then $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $<; \
	else $(BIN)/pip install --quiet --require-hashes -r $<; fi
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("Python 3.11, 3.12 or 3.13 is needed. Received: %d.%d. Name one: make PYTHON=/path/to/python3.12" % v)'
	$(PYTHON) -m venv .venv
