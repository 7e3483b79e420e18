"""Wrong options of every kind: one sentence, code 2, no TensorFlow for it, and no run left behind.

A group of command lines is tried in one process of its own.
"""

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets, packed
from pipelines.errors import UserError
from pipelines.recipes import checks
from pipelines.recipes.catalog import get_recipe
from pipelines.running.seeds import repeat
from tests.conftest import ROOT

HUGE = "1" + 30 * "0"
NO_WORD = ("cosin",)
NO_COUNT = ("many", "-1", "0")
NO_SIZE = ("high", "NaN", "inf", "-1")

RECIPE = {  # options of a recipe on pictures
    "--scale": NO_WORD,
    "--seeds": (*NO_COUNT, "", "0x10", "NaN", "inf", "1.5", "2 3", HUGE),
    "--checkpoint-every": NO_COUNT,
    "--max-minutes": (*NO_SIZE, "", "0x10", "0"),
    "--data-dir": ("", " "),
    "--model": (*NO_WORD, "", "a b", "linear_resnet"),
    "--data": (*NO_WORD, "linear-teacher", "cifar10"),
    "--train-examples": NO_COUNT,
    "--augment": ("maybe",),
    "--shift": ("far", "1.5", "-1", "9", HUGE),
    "--batch-size": (*NO_COUNT, "257", HUGE),
    "--accumulate": (*NO_COUNT, "3", HUGE),
    "--epochs": (*NO_SIZE, "0", HUGE, "1e300"),
    "--steps": (*NO_COUNT, HUGE),
    "--learning-rate": (*NO_SIZE, "0", "1e300", "1e-300"),
    "--schedule": (*NO_WORD, "NaN"),
    "--warmup": (*NO_SIZE, "1", HUGE),
    "--momentum": (*NO_SIZE, "1"),
    "--weight-decay": (*NO_SIZE, "1e300"),
    "--seed": ("many", "NaN", "-1", HUGE),
    "--label-smoothing": (*NO_SIZE, "1"),
    "--ema": (*NO_SIZE, "1"),
    "--precision": (*NO_WORD, "float64"),
    "--pictures": NO_WORD,
    "--devices": (*NO_COUNT, "3", HUGE),
    "--blocks-per-stage": (*NO_COUNT, HUGE),
    "--widths": ("wide", "8 8", "0", "-1", HUGE),
    "--stem-width": (*NO_COUNT, "9", HUGE),
    "--shortcut": (*NO_WORD, "pad"),
    "--init": (*NO_WORD, "NaN"),
    "--boundaries": ("half", "NaN", "-1", "0", "1", HUGE),
    "--factor": (*NO_SIZE, "0", HUGE),
    "--facter": ("0.1",),
}
DRAWN = {  # of recipes on samples that are drawn
    "--dimension": (*NO_COUNT, HUGE),
    "--condition": (*NO_SIZE, "0", HUGE),
    "--noise": (*NO_SIZE, HUGE),
    "--train-size": (*NO_COUNT, HUGE),
    "--data-seed": ("many", "NaN", "-1", HUGE),
    "--augment": (None,),
    "--label-smoothing": ("0.1",),
    "--pictures": ("device",),
}
CLAIMS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "gradient-formula": {  # a theorem
        "--scale": NO_WORD,
        "--seeds": (*NO_COUNT, HUGE),
        "--d": (*NO_COUNT, HUGE),
        "--l": (*NO_COUNT, HUGE),
    },
    "zero-init": {  # an experiment of several arms
        "--scale": (*NO_WORD, "paper"),
        "--epochs": (*NO_SIZE, "0", HUGE),
        "--depth": (*NO_COUNT, HUGE),
        "--batch-size": (*NO_COUNT, "2000", HUGE),
        "--learning-rate": (*NO_SIZE, "0", "1e300"),
    },
    "better-schedule-exists": {  # with a study
        "--trials": (*NO_COUNT, HUGE),
        "--workers": (*NO_COUNT, HUGE),
        "--width": (*NO_COUNT, HUGE),
        "--steps": (*NO_COUNT, HUGE),
        "--scale": ("paper",),
    },
    "allcnn-cifar10": {  # a cell of a table, whose settings are a recipe
        "--seed": ("1", "-1"),
        "--seeds": (*NO_COUNT, HUGE),
        "--model": NO_WORD,
        "--width": (*NO_SIZE, "0", HUGE),
        "--schedule": NO_WORD,
        "--scale": ("paper",),
    },
    "two-phases": {"--frobenius": (*NO_SIZE, "1e300"), "--trace": ("NaN", "1e300")},
    "finite-sample-expressivity": {"--data": (*NO_WORD, "linear-teacher", "mnist")},
    "digit-pairs": {"--data": (*NO_WORD, "cifar10", "mnist"), "--pair": ("0-0", "")},
}
SWEEPS = {
    "--grid": (*NO_WORD, "d=", "d=NaN", "d=-1", "d=0x10", "d=1:inf:2x", f"d={HUGE}", "q=1"),
    "--scale": NO_WORD,
    "--seeds": (*NO_COUNT, HUGE),
    "--workers": (*NO_COUNT, HUGE),
    "--scheduler": ("",),
}
STUDY = {
    "--recipe": NO_WORD,
    "--scale": NO_WORD,
    "--space": NO_WORD,
    "--sampler": NO_WORD,
    "--pruner": NO_WORD,
    "--proxy": NO_WORD,
    "--storage": NO_WORD,
    "--trials": (*NO_COUNT, HUGE),
    "--hours": (*NO_SIZE, "0"),
    "--patience": (*NO_COUNT, HUGE),
    "--workers": (*NO_COUNT, HUGE),
    "--seeds-per-trial": (*NO_COUNT, HUGE),
    "--budget": (*NO_SIZE, "0", "2"),
    "--schedule": NO_WORD,
    "--init": NO_WORD,
    "--model": NO_WORD,
    "--data": (*NO_WORD, "linear-teacher", "cifar10"),
    "--batch-size": (*NO_COUNT, HUGE),
    "--learning-rate": (*NO_SIZE, "0"),
    "--data-dir": ("",),
}
MISTAKES = [
    (("run", "no-such-claim"), "no-such-claim"),
    (("run", "small-norm-factorisation"), "Did you mean small-norm-factorization"),
    (("run", "allconv-digits", "--batch-sise", "3"), "--batch-size"),
    (("run", "allconv-digits", "--batch-size", "-1"), "batch_size must be > 0"),
    (("run", "allconv-digits", "--batch-size", "many"), "many"),
    (("run", "allconv-digits", "--learning-rate", "nan"), "learning_rate must be finite"),
    (("run", "allconv-digits", "--learning-rate", "inf"), "learning_rate must be finite"),
    (("run", "allconv-digits", "--scale", "paper"), "smoke"),
    (("run", "allconv-digits", "--data", "cifar11"), "cifar10"),
    (("run", "allconv-digits", "--seeds", "0"), "seeds must be >= 1"),
    (("run", "allconv-cifar10", "--data-dir", "{tmp}"), "data prepare cifar10"),
    (("run", "allconv-digits", "--data", "imagenet2012"), "ILSVRC2012_img_train.tar"),
    (("run", "gradient-formula", "--d", "two"), "two"),
    (("run", "gradient-formula", "--seeds", "0"), "seeds must be >= 1"),
    (("run", "gradient-formula", "--l", "0"), "l must be"),
    (("run", "small-norm-factorization", "--l", "4"), "l must be"),
    (("run", "small-norm-factorization", "--gamma", "100"), "at least 3 gamma"),
    (
        ("sweep", "gradient-formul"),
        "Did you mean gradient-formula? All: python -m pipelines list\n",
    ),
    (("sweep", "gradient-formula", "--grid", "d"), "NAME=VALUES"),
    (("sweep", "gradient-formula", "--grid", "q=1"), "Choices: d, l"),
    (("sweep", "gradient-formula", "--grid", "l=0:8:2x"), "NAME=VALUES"),
    (("sweep", "gradient-formula", "--scale", "huge"), "smoke"),
    (("sweep", "linear-teacher"), "linear-teacher is a recipe"),
    (("sweep", "sgd-follows-descent", "--grid", "batch_size=0"), "batch_size must be"),
    (("sweep", "identity-beats-plain", "--grid", "plain_rate=-1"), "learning_rate must be"),
    (("sweep", "gradient-formula", "--seeds", "two"), "two"),
    (("sweep", "gradient-formula", "d=8"), "d=8"),
    (("sweep", "gradient-formula", "--seeds", "0"), "seeds must be >= 1"),
    (("sweep", "gradient-formula", "--workers", "0"), "workers must be >= 1"),
    (("run", "allconv-digits", "--seed", "5000000000"), "seed must be"),
    (("run", "allconv-digits", "--epochs", "2", "--steps", "3"), "one length"),
    (("run", "allconv-digits", "--max-minutes", "0"), "max_minutes must be finite and > 0"),
    (("run", "allconv-digits", "--max-minutes", "9", "--force"), "would begin anew each time"),
    (("run", "allconv-digits", "--label-smoothing", "1"), "label_smoothing must be in [0, 1)"),
    (("run", "allconv-digits", "--ema", "-0.5"), "ema must be in [0, 1)"),
    (("data", "check", "mnist", "--data-dir", "{tmp}"), "data prepare mnist"),
    (("data", "prepare"), "Write: python -m pipelines data prepare NAME"),
    (("schedule", "add", "x", "--cron", "0 3 * * *"), "Write it after --"),
    (("schedule", "add", "x", "--", "list"), "--every 20m"),
    (("schedule", "add", "x", "--cron", "0 3 * *", "--", "list"), "five fields"),
    (("schedule", "add", "x", "--every", "soon", "--", "list"), "90s, 20m"),
    (("schedule", "add", "x", "--every", "1h", "--tz", "Berlin", "--", "list"), "Europe/Berlin"),
    (("schedule", "add", "x", "--every", "1h", "--", "runn", "x"), "runn"),
    (("schedule", "add", "x", "--every", "1h", "--notify", "no-such", "--", "list"), "--notify"),
    (("schedule", "pause", "nightly"), "Did you mean nightly-claims"),
    (("schedule", "history", "--last", "0"), "last must be >= 1"),
    (("schedule", "list", "--storage", "nowhere://x"), "postgresql://"),
    (("schedule", "list", "--storage", "sqlite:///{tmp}/file/x.db"), "{tmp}/file/x.db"),
    (("report", "--out", "{tmp}/file/folder"), "{tmp}/file/folder"),
]
EMPTY = [
    ["report", "--out", ""],
    ["report", "--out="],
    ["data", "check", "digits", "--data-dir", ""],
    ["doctor", "--data-dir", " "],
    ["quickstart", "--data-dir", ""],
    ["pipeline", "verify", "--out", ""],
    ["export", ""],
    ["import", ""],
    ["run", ""],
]


def commands(options: Any, *words: str) -> list[list[str]]:
    """The command with each of these values of each option; None: the option alone."""
    return [
        [*words, option, *([] if value is None else [value])]
        for option, values in options.items()
        for value in values
    ]


GROUPS = {
    "recipe": ("pipelines", commands(RECIPE, "run", "allconv-digits", "--scale", "smoke")),
    "drawn": (
        "pipelines",
        [
            *commands(DRAWN, "run", "linear-teacher", "--scale", "smoke"),
            *commands({"--gamma": (*NO_SIZE, HUGE)}, "run", "linear-teacher", "--scale", "smoke"),
            *commands(
                {"--teacher-norm": (*NO_SIZE, "0", "1e300"), "--ema": ("0.5",)},
                *("run", "relu-teacher", "--scale", "smoke"),
            ),
            *commands(
                {"--start-norm": (*NO_SIZE, "0", "1e300"), "--variant": NO_WORD},
                *("run", "relu-teacher", "--scale", "smoke"),
            ),
        ],
    ),
    "claims": (
        "pipelines",
        [
            line
            for name, options in CLAIMS.items()
            for line in commands(options, "run", name, "--scale", "smoke")
        ],
    ),
    "sweeps": ("pipelines", commands(SWEEPS, "sweep", "gradient-formula", "--scale", "smoke")),
    "studies": (
        "tuning",
        [
            *commands(STUDY, "run", "s", "--recipe", "allconv-digits", "--scale", "smoke"),
            ["run", "a b"],
            ["run", ""],
            ["compare", "s", "--out", ""],
        ],
    ),
    "empty": ("pipelines", EMPTY),
    "said": ("pipelines", [[*words] for words, _ in MISTAKES]),
}
SOURCE = """
import contextlib, importlib, io, json, sys
from pipelines.cli.shell import run_command_safely
dispatch = importlib.import_module(f"{sys.argv[1]}.__main__").dispatch
for words in json.load(sys.stdin):
    errors, printed = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(printed):
            code = run_command_safely(dispatch, words)
    except BaseException as error:
        code = repr(error)
    heavy = sorted({"tensorflow", "keras"} & set(sys.modules))
    print(json.dumps([code, errors.getvalue(), heavy]), flush=True)
"""


def runs(home: Path) -> int:
    """How many runs the database holds."""
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database:
        return int(database.execute("SELECT COUNT(*) FROM runs").fetchone()[0])


@pytest.mark.parametrize("group", GROUPS)
def test_a_wrong_option_is_one_sentence_and_leaves_no_run(
    group: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "file").write_text("")
    package, every = GROUPS[group]
    lines = [[word.replace("{tmp}", str(tmp_path)) for word in words] for words in every]
    assert runs(home) == 0
    done = subprocess.run(
        [sys.executable, "-c", SOURCE, package],
        input=json.dumps(lines),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wrong = []
    for line, answer in zip(lines, done.stdout.splitlines(), strict=True):
        code, said, heavy = json.loads(answer)
        *begun, error = said.splitlines()
        one_sentence = error.startswith("error: ") and "error" not in " ".join(begun)
        one_sentence = one_sentence and len(begun) <= 1  # what begins, where libraries are loaded
        if (code, one_sentence) != (2, True) or (heavy and group != "said"):
            wrong.append((line, code, said, heavy))
    assert wrong == []
    assert runs(home) == 0
    if group == "said":
        for (_, expected), answer in zip(MISTAKES, done.stdout.splitlines(), strict=True):
            assert expected.replace("{tmp}", str(tmp_path)) in json.loads(answer)[1]


def test_what_has_finished_is_found_also_where_its_data_are_gone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (100, 28, 28, 1), np.uint8), rng.integers(0, 10, 100)
    file = packed.write(tmp_path / "mnist.npz", "mnist", "3.0.1", 10, [(images, labels)] * 2)
    recipe = get_recipe("mlp-digits", "smoke").override(data="mnist", steps=1, batch_size=8)
    first = repeat(recipe)
    with pytest.raises(UserError, match="Received: batch_size=91 for 90 examples of mnist"):
        checks.check_here(recipe.override(batch_size=91))
    file.unlink()
    assert repeat(recipe)["run_id"] == first["run_id"]
    again = repeat(recipe, seeds=1)["metrics"]
    assert again["test_error_pct"] == first["metrics"]["test_error_pct"]
    before = runs(home)
    with pytest.raises(UserError, match="data prepare mnist"):
        repeat(recipe, seeds=2)
    assert runs(home) == before


def test_several_seeds_are_the_first_ones_whatever_the_recipe_has(home: Path) -> None:
    before = runs(home)
    with pytest.raises(UserError, match="Received: --seeds 3 with --seed 7"):
        repeat(get_recipe("mlp-digits", "smoke").override(seed=7), seeds=3)
    assert runs(home) == before


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_examples_are_counted_as_they_are_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    before = datasets.get(name).examples({})  # of a set that is not prepared yet
    assert list(tmp_path.iterdir()) == []
    assert before == len(datasets.load(name).train) == datasets.get(name).examples({})
    datasets.get(name).pack()
    assert datasets.get(name).examples({}) == before
