"""Pipelines: a step that fails ends them, started again they go on; the runs of steps are below."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.__main__ import dispatch
from pipelines.cli.pipeline_command import pipeline_command
from pipelines.cli.shell import run_command_safely
from pipelines.data import packed
from pipelines.errors import Ended, UserError
from pipelines.runtime import subcommands
from pipelines.scheduling import attempt, pipeline
from pipelines.scheduling.pipeline import Step, run_pipeline
from pipelines.tracking import history, store, tracked_run
from pipelines.tracking.store import NOTE, PARENT
from tests.conftest import ROOT

THREE = (
    Step("drawn", lambda _: ("data", "check", "linear-teacher"), lambda found: found["state"]),
    Step("stored", lambda _: ("data", "check", "mnist")),
    Step("again", lambda answers: ("data", "check", answers["drawn"]["name"])),
)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with nothing in it."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands of steps run in this process."""

    def run_json(*words: str) -> Any:
        printed, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code = run_command_safely(dispatch, [*words[1:], "--json"])
        if code:
            raise Ended(errors.getvalue(), code)
        return json.loads(printed.getvalue())

    monkeypatch.setattr(subcommands, "run_json", run_json)


def fix(folder: Path) -> None:
    """Put a small data set there that can be read."""
    images, labels = np.zeros((200, 28, 28, 1), np.uint8), np.arange(200) % 10
    packed.write(folder / "mnist.npz", "mnist", "1", 10, [(images, labels)] * 2)


def states(document: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in document["steps"]}


def run_three() -> dict[str, Any]:
    return run_pipeline("three", "three steps", THREE, params={"scale": "smoke"})


def test_a_step_that_fails_ends_the_pipeline_and_one_needs_the_answers_before(
    home: Path, empty: Path, in_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty / "mnist.npz").write_text("no data")
    with pytest.raises(Ended) as caught:
        run_three()
    document = caught.value.document
    assert caught.value.code == 2
    assert states(document) == {"drawn": "done", "stored": "failed"}
    broken = history.row(document["run_id"])
    assert (broken.status, broken.tags["pipeline"]) == ("FAILED", "three")
    assert "must hold mnist" in broken.tags["failure"]
    assert "| again | not done | 0 |" in broken.tags[NOTE]
    fix(empty)
    found = run_three()
    assert states(found) == dict.fromkeys(("drawn", "stored", "again"), "done")
    assert [step["output"]["name"] for step in found["steps"]][::2] == ["linear-teacher"] * 2
    row = history.row(found["run_id"])
    assert row.status == "FINISHED"
    assert b"linear-teacher" in (store.artifact(row.id, "steps/drawn.json") or b"")
    assert row.metrics.keys() == {f"step_s/{step.name}" for step in THREE}
    assert "`data check linear-teacher` |" in row.tags[NOTE]
    assert "[1/3] drawn: generated, " in capsys.readouterr().out


def test_what_an_earlier_attempt_at_the_due_time_has_measured_is_not_forced_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forced(moment: str) -> list[bool]:
        monkeypatch.setenv(attempt.WORKFLOW, moment)
        steps = pipeline.verification(["one", "two"], report=["report"], force=True)
        return ["--force" in step.words({}) for step in steps[1:3]]

    tags = {"job": "j", "due": "t", "attempt": "1"}
    for moment, status in (("today", "FAILED"), ("yesterday", "FINISHED")):
        with (
            contextlib.suppress(Ended),
            tracked_run.track(
                "j", experiment="t", kind="scheduled", tags=tags | {"workflow": moment}
            ) as run,
        ):
            name = "one" if moment == "today" else "two"
            with tracked_run.track(
                name, experiment="t", kind="x", tags={"claim": name}, parent=run
            ):
                pass
            if status == "FAILED":
                raise Ended("no", 1)
    assert forced("today") == [False, True]
    assert forced("yesterday") == [True, False]
    assert forced("tomorrow") == [True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("verfy", "Did you mean verify"),
        ("verify --claims nothing", "A claim must be a known name"),
        ("verify --claims recorded", "none at scale cpu"),
        ("verify --seeds 0", "seeds must be >= 1"),
        ("verify --frm report", "frm"),
        ("train-and-register", "RECIPE must be given"),
        ("train-and-register mlp-digits --scale paper", "Choices: cpu, smoke"),
        ("train-and-register mlp-digits --momentum 2", "momentum must be in"),
        ("train-and-register mlp-digits --seeds 2", "seeds"),
    ],
)
def test_wrong_words_are_said_before_the_first_step(words: str, said: str, home: Path) -> None:
    with pytest.raises(UserError, match=said):
        pipeline_command(words.split())
    assert history.rows(None) == []


VERIFY = ("pipeline", "verify", "--claims", "small-norm-factorization", "--scale", "smoke")


@pytest.mark.slow
def test_a_verification_goes_on_after_a_kill_and_ends_with_a_regression(
    home: Path, empty: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pipelines", *VERIFY],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("small-norm-factorization ..." in line for line in process.stdout)  # it begins
        os.killpg(process.pid, signal.SIGKILL)
    capfd.readouterr()
    assert run_command_safely(dispatch, [*VERIFY, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    steps = ("data", "small-norm-factorization", "report", "watch")
    assert states(document) == dict.fromkeys(steps, "done")
    (killed, row) = reversed(history.rows(None, kind="pipeline"))
    assert (killed.status, row.id) == ("KILLED", document["run_id"])
    (claim,) = history.rows(kind="claim")
    assert claim.tags[PARENT] == row.id

    own = (*history.NEEDED["claim"], *history.JUDGED, "as_stated")
    tags = {key: claim.tags[key] for key in own} | {"verdict": "refuted"}
    with tracked_run.track("flip", experiment="linear theory", kind="claim", tags=tags) as run:
        run.log({"wall_s": 1.0})
    assert run_command_safely(dispatch, [*VERIFY, "--force", "--json"]) == 3
    said = capfd.readouterr()
    document = json.loads(said.out)
    assert (document["status"], states(document)["watch"]) == ("FAILED", "failed")
    (change,) = document["steps"][-1]["output"]["changes"]
    assert (change["before"], change["after"]) == ("refuted", "holds")
    (broken,) = history.rows("FAILED", kind="pipeline")
    assert "refuted -> holds" in broken.tags["failure"]
    assert said.err.count("error: ") == 1


@pytest.mark.slow
def test_a_recipe_is_trained_evaluated_and_registered(
    home: Path, empty: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("pipeline", "train-and-register", "linear-teacher", "--scale", "smoke", "--steps", "4")
    assert run_command_safely(dispatch, [*words, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    gave = {step["name"]: step["output"] for step in document["steps"]}
    assert list(gave) == ["data", "train", "evaluate", "compare", "register", "report"]
    (training,) = history.rows(kind="training")
    assert training.tags[PARENT] == document["run_id"]
    assert training.params["steps"] == "4"
    assert {gave[k]["run_id"] for k in ("train", "evaluate", "register")} == {training.id}
    assert gave["compare"]["champion_now"] is None
    assert (gave["register"]["version"], gave["register"]["new"]) == ("1", True)
    assert Path(gave["report"]["results"]).exists()
