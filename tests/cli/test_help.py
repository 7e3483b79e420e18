"""What --help says: of every command and every option something, within the terminal's width."""

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cyclopts import App

import keras_models
from pipelines.__main__ import whole_program
from pipelines.cli.overrides import recipe_options
from pipelines.cli.parsing import options_of
from pipelines.data import datasets
from pipelines.measurement import claim_catalog
from pipelines.recipes import catalog, lr
from pipelines.recipes.recipe import Recipe
from tests import terminal
from tests.conftest import ROOT

ELSEWHERE = ("{None}", "options options", "[STR", "default: None", "Parameters", "Arguments")
NAMED = [f"run {name}" for name in [*claim_catalog.names(), *catalog.RECIPES]] + [
    "sweep gradient-formula",
    "tune run s --recipe mlp-digits",
    "pipeline train-and-register mlp-digits",
    "run mlp-digits --schedule one-cycle --model resnet --data relu-teacher",
]


def walk(app: App, *words: str) -> Iterator[tuple[str, App]]:
    """The commands of a program, by the words that are typed."""
    yield " ".join(words), app
    for name in app:
        if not name.startswith("-"):
            yield from walk(app[name], *words, name)


COMMANDS = dict(walk(whole_program()))


def test_every_command_and_every_option_is_described() -> None:
    assert {"data check", "evidence add", "tune best", "schedule run-now"} <= COMMANDS.keys()
    for words, command in COMMANDS.items():
        assert command.help.strip(), words
        for argument in command.assemble_argument_collection() if command.default_command else ():
            assert argument.parameter.help, (words, argument.name)


def test_every_setting_of_a_claim_and_of_a_recipe_is_described() -> None:
    claims = map(claim_catalog.load, claim_catalog.names())
    settings = [each for claim in claims for each in claim.scales.values()]
    options = [options_of(each) for each in settings if not isinstance(each, Recipe)]
    recipe = catalog.get_recipe("mlp-digits")
    changes = [
        *({"model": model} for model in keras_models.names()),
        *({"schedule": schedule} for schedule in lr.SCHEDULES),
        *({"data_args": datasets.get(data).defaults()} for data in datasets.DATASETS),
    ]
    options += [recipe_options(recipe.override(**each)) for each in changes]
    undescribed = {each.name for each in itertools.chain(*options) if not each.text}
    assert undescribed == set()


@pytest.mark.parametrize("columns", [80, 140])
def test_help_fits_the_terminal(columns: int) -> None:
    lines = dict.fromkeys(f"{words} --help" for words in (*COMMANDS, *NAMED))
    shown = "".join(terminal.commands(*lines, columns=columns).values())
    assert len(re.findall("^Usage: ", shown, flags=re.M)) == len(lines)
    assert [line for line in shown.splitlines() if len(line) > columns] == []
    assert [text for text in ELSEWHERE if text in shown] == []


TAB = """
source <(python -m pipelines completion bash)
tab() {
    COMP_WORDS=(near-identity "$@"); COMP_CWORD=$#; COMPREPLY=()
    "$(complete -p near-identity | sed 's/.*-F \\([^ ]*\\).*/\\1/')" near-identity "${@: -1}" ""
    echo "${COMPREPLY[*]}"
}
tab evide; tab data check --js; tab tune r; tab run small-n; tab run mlp-digits --scale sm
"""


def test_tab_completes_commands_options_and_names() -> None:
    script = TAB.replace("python", sys.executable)
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    said = ["evidence", "--json", "run resume", "small-norm-factorization", "smoke"]
    assert done.stdout.splitlines() == said


def test_help_has_the_values_of_what_is_asked() -> None:
    words = ["pipeline", "train-and-register", "mlp-digits", "--steps", "None", "--help"]
    shown = terminal.output("-m", "pipelines", *words)
    for panel in ("Options", "Recipe", "Architecture mlp", "Schedule steps"):
        assert f"─ {panel} ─" in shown
    assert "[default: mlp]" in " ".join(shown.split())
    general = terminal.output("-m", "pipelines", *words[:2], "--help")
    assert "--learning-rate" not in general
    assert "train-and-register RECIPE --help" in " ".join(general.split())
