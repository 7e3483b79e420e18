"""The quickstart: claims, a learning-rate study, a table. No finished part is repeated.

The first verdict is there after seconds. What takes longer then goes on side by side, in processes
of their own: the study, and the project's evidence on its way into the database.
"""

import time
from collections.abc import Callable
from typing import Any

from pipelines.cli import tables
from pipelines.measurement import claim_catalog, sweep
from pipelines.recipes.catalog import get_recipe
from pipelines.results import reference_runs, scoreboard
from pipelines.running.run_options import RunOptions
from pipelines.runtime import places
from pipelines.runtime.durations import format_duration
from pipelines.runtime.subcommands import run_json_beside

CLAIMS = ("gradient-formula", "small-norm-factorization", "sgd-follows-descent")  # quickest first
RECIPE = "mlp-digits"  # the study's name ends in its fingerprint: a new recipe, a new study
TRIALS = 8  # five published schedules, then its own
BUDGET = 0.5  # share of the recipe's steps
EVIDENCE = ("pipelines", "evidence", "import")
PARTS = len(CLAIMS) + 3


def quickstart(force: bool) -> None:
    """Run every part, print its result, and end with the scoreboard."""
    started = time.perf_counter()
    _measure(1, force)
    words = ["tuning", "run", f"quickstart-{get_recipe(RECIPE).fingerprint}", "--recipe", RECIPE]
    words += ["--trials", str(TRIALS), "--budget", str(BUDGET), *["--force"] * force]
    with run_json_beside(*words) as study, run_json_beside(*EVIDENCE) as evidence:
        for number in range(2, len(CLAIMS) + 1):
            _measure(number, force)
        _report(PARTS - 2, "learning-rate study", lambda: _describe_study(study()))
        _report(
            PARTS - 1,
            "what the project measured",
            lambda: (
                f"{len({b['claim'] for b in evidence()['evidence'] if b['here']})} claims "
                "in the database"
            ),
        )
    reference_runs.write()
    _report(PARTS, "results table", lambda: str(scoreboard.write()["results"]))
    tables.show_scoreboard([scoreboard.entries(name)[0].document() for name in CLAIMS])
    print("The project's numbers of every other claim: python -m pipelines report")
    took = format_duration(time.perf_counter() - started)
    look = "make ui" if places.is_checkout() else f"{places.NAME} ui"
    print(f"Done in {took}. See every run and curve: {look}")


def _report(number: int, title: str, part: Callable[[], str]) -> None:
    """Print that a part begins, and what came of it."""
    print(f"[{number}/{PARTS}] {title} ...", flush=True)
    started = time.perf_counter()
    result = part()
    took = format_duration(time.perf_counter() - started)
    print(f"[{number}/{PARTS}] {title}: {result}, {took}", flush=True)


def _measure(number: int, force: bool) -> None:
    """Measure a claim and print its verdict."""
    name, run_options = CLAIMS[number - 1], RunOptions(force=force)

    def verdict() -> str:
        settings = claim_catalog.load(name).scales["cpu"]
        document = sweep.check(name, "cpu", settings, run_options=run_options)
        return f"{document['verdict']}{_reuse_note(document)}"

    _report(number, name, verdict)


def _describe_study(document: dict[str, Any]) -> str:
    metrics = document["metrics"]
    if not metrics:
        return f"not finished; go on with: python -m tuning resume {document['study']}"
    best, published = (metrics[f"{key}_val_error_pct"] for key in ("best", "baseline"))
    gain = f"validation error {published:.2f} % at the start, {best:.2f} % at best of {TRIALS}"
    return f"{gain} trials{_reuse_note(document)}"


def _reuse_note(document: dict[str, Any]) -> str:
    return " (found finished)" if document["reused"] else ""
