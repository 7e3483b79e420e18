"""Wrong options in a terminal: one sentence without a frame, as in a pipe, with what was meant."""

import re
from typing import Any

import pytest

import keras_models
from pipelines.cli.overrides import recipe_options
from pipelines.cli.parsing import parse
from pipelines.data import datasets
from pipelines.recipes import catalog, lr
from pipelines.recipes.settings import SCALES
from tests import terminal

WRONG = [
    ("pipelines run allconv-digits --learning-rte 0.1", "Did you mean --learning-rate?"),
    ("pipelines run gradient-formula --sedes 3", "Did you mean --seeds?"),
    ("pipelines run allconv-digits --batch-size many", "must be a whole number. Received: 'many'"),
    ("pipelines run allconv-digits --widths 8 wide", "must be whole numbers. Received: '8 wide'"),
    ("pipelines run allconv-digits --precision float33", "Did you mean float32?"),
    ("pipelines run allconv-digits --steps", "--steps needs a value after it"),
    ("pipelines run --seeds 3 allconv-digits", "python -m pipelines run NAME"),
    ("pipelines run mlp-digits --lr 0.1", "Did you mean --learning-rate?"),
    ("pipelines run mlp-digits -lr 0.1", "Did you mean --learning-rate?"),
    ("pipelines run mlp-digits --bs 8", "Did you mean --batch-size?"),
    ("pipelines run mlp-digits --epoch 8", "Did you mean --epochs?"),
    ("pipelines run mlp-digits --dataset mnist", "Did you mean --data?"),
    ("pipelines run mlp-digits --wd=1e-4", "Did you mean --weight-decay?"),
    ("pipelines run mlp-digits --num_seeds 3", "Did you mean --seeds?"),
    ("pipelines run mlp-digits --gpus 2", "Did you mean --devices?"),
    ("tuning run s --recipe mlp-digits --n-trials 3", "Did you mean --trials?"),
    ("pipelines run allconv-digits 3", "No option takes the word '3'"),
    ("pipelines sweep gradient-formula --gird d=8", "Did you mean --grid?"),
    ("pipelines lst", "There is no command 'lst'. Did you mean list?"),
    ("pipelines list --jsn", "Did you mean --json? See: python -m pipelines list --help"),
    ("pipelines --json list", "--json must stand after the command"),
    ("pipelines data prepar", "Did you mean prepare?"),
    ("pipelines data --json check", "check must stand before its options"),
    ("pipelines evidence --again 5 check", "--again must stand after the command"),
    ("pipelines ui --port none", "--port must be a whole number"),
    ("pipelines export", "Write: python -m pipelines export FILE"),
    ("pipelines", "A command must be named"),
    ("pipelines pipeline verify --clams all", "Did you mean --claims?"),
    ("pipelines pipeline train-and-register mlp-digits --sceduel cosine", "--schedule?"),
    ("pipelines schedule lst", "See: python -m pipelines schedule --help"),
    ("pipelines schedule add x --evry 5m -- list", "Did you mean --every?"),
    ("tuning run s --recipe mlp-digits --trails 3", "Did you mean --trials?"),
    ("tuning run s --recipe mlp-digits --hours long", "--hours must be a number or None"),
    ("tuning resume s --trails 3", "Did you mean --trials?"),
    ("tuning show s --jsn", "Did you mean --json?"),
    ("tuning run", "STUDY must be given. Received: nothing. Write: python -m tuning run STUDY"),
    ("tuning resume --trials 3", "Write: python -m tuning resume STUDY"),
    ("tuning show a b", "No option takes the word 'b'. See: python -m tuning show --help"),
    ("tuning nothing", "There is no command 'nothing'. See: python -m tuning --help"),
    ("tuning", "A command must be named. Received: none. See: python -m tuning --help"),
    ("tuning run s --recipe mlp-digits --seeds-per-trial 0", "Set --seeds-per-trial 1"),
]
SOURCE = """
import importlib, shlex, sys
from pipelines.cli.shell import run_command_safely
for line in sys.stdin.read().splitlines():
    package, *words = shlex.split(line)
    dispatch = importlib.import_module(f"{package}.__main__").dispatch
    print("exit", run_command_safely(dispatch, words, False), file=sys.stderr, flush=True)
"""


def test_a_wrong_option_is_one_sentence_in_a_terminal() -> None:
    lines = [line for line, _ in WRONG]
    answers = terminal.output("-c", SOURCE, typed="\n".join(lines)).split("exit 2\n")
    assert answers.pop() == ""
    for (line, expected), answer in zip(WRONG, answers, strict=True):
        assert answer.startswith("error: "), (line, answer)
        assert answer.count("\n") == 1, (line, answer)
        assert expected in answer, (line, answer)
        assert not set("│╭─╮╰╯") & set(answer), (line, answer)


@pytest.mark.parametrize(
    "command", ["pipelines run mlp-digits", "tuning run s --recipe mlp-digits"]
)
def test_help_lists_choices_and_describes_arguments(command: str) -> None:
    shown = _squeeze(terminal.output("-m", *command.split(), "--help"))
    for option, choices in {
        "scale": SCALES,
        "model": [*keras_models.names(), "FILE.py", "PACKAGE.MODULE"],
        "data": [*datasets.DATASETS, "FOLDER", "FILE.npz", "tfds:NAME"],
        "schedule": lr.SCHEDULES,
        "init": ["small", "standard", "he"],
    }.items():
        row = re.search(rf"--{option}(?:CHOICE|NAME).*?\[choices:(.*?)\]", shown)
        assert row and row[1] == ",".join(choices), option
    for name in catalog.get_recipe("mlp-digits").model_args:
        assert _squeeze(keras_models.describe("mlp")[name]) in shown


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--batch_size=16 --steps None", {"batch_size": 16, "steps": None}),
        ("--seed 1 --seed 2", {"seed": 2}),
        ("--no-augment --augment", {"augment": True}),
        ("--widths 8 16 32 --no-fixed-projection", {"widths": (8, 16, 32)}),
        ("--boundaries --learning-rate -1e-3", {"boundaries": (), "learning_rate": -1e-3}),
        ("--ema=-inf --train-examples -5", {"ema": float("-inf"), "train_examples": -5}),
    ],
)
def test_words_say_what_they_always_said(words: str, values: dict[str, Any]) -> None:
    options = recipe_options(catalog.get_recipe("allconv-digits"))
    said = parse(options, words.split(), "run", "")
    assert said.items() >= values.items()


def _squeeze(text: str) -> str:
    """The text without its line breaks and frames."""
    return re.sub(r"[│\s]", "", text)


def test_of_a_repeated_option_the_last_one_counts() -> None:
    options = recipe_options(catalog.get_recipe("allconv-digits"))
    words = ["--boundaries", "0.25", "0.5", "--steps", "3", "--boundaries", "0.9", "--steps", "4"]
    values = parse(options, words, "run", "")
    assert (values["boundaries"], values["steps"]) == ((0.9,), 4)
