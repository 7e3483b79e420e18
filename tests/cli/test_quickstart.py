"""The newcomer's first command, whole, twice."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pipelines.tracking import history
from pipelines.tracking.bundles.shape import IMPORTING
from tests.conftest import ROOT, command, journals

pytestmark = pytest.mark.slow


def counts() -> dict[str, int]:
    kinds = ("claim", "setting", "training", "study", "trial")
    return {kind: len(history.rows(kind=kind)) for kind in kinds}


def test_quickstart_records_everything_once(home: Path, digits: Path) -> None:
    first = command("pipelines", "quickstart", timeout=900)
    assert first.returncode == 0, first.stderr
    found = counts()
    assert found["claim"] == 3
    assert found["training"] == 3 + 2  # seeds of sgd-follows-descent; the study's best, its start
    (study,) = history.rows(kind="study")
    below = {"mlflow.parentRunId": study.id}
    trials = history.rows(kind="trial", **below)
    assert len(trials) == found["trial"] == 8
    assert len({row.params["learning_rate"] for row in trials}) == 1 + 3  # published, its own
    assert len(history.rows(**below)) == 8 + 2  # its best and the published one, tested
    verdict_lines = [line for line in first.stdout.splitlines() if "holds, " in line]
    assert "[1/6] gradient-formula" in verdict_lines[0]  # of seconds, before all that take longer
    verdicts = {row.tags["claim"]: row.tags["verdict"] for row in history.rows(kind="claim")}
    assert verdicts["small-norm-factorization"] == verdicts["gradient-formula"] == "holds"
    results = (home / "report" / "RESULTS.md").read_text()
    for name in verdicts:
        assert name in results
        assert (home / "report" / "figures" / f"{name}.png").stat().st_size > 5_000

    second = command("pipelines", "quickstart", timeout=120)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("(found finished)") == 4
    assert counts() == found
    assert (home / "report" / "RESULTS.md").read_text() == results


def test_a_stopped_quickstart_leaves_nothing_running(home: Path, digits: Path) -> None:
    source = (
        "import sys\n"
        "from pipelines.cli import quickstart, shell\n"
        "sys.exit(shell.run_command_safely(lambda _: quickstart.quickstart(False), []))\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], cwd=ROOT) as process:
        while not ("batch_loss" in journals(home) and history.rows("RUNNING", kind="trial")):
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
    assert process.returncode == 143
    assert history.rows("RUNNING") == []
    ended = [row.tags for row in history.rows("KILLED")]
    killed = Counter(tags["kind"] for tags in ended if IMPORTING not in tags)
    assert killed["study"] == 1  # and the trial, unless it ended at that moment
    assert killed.keys() <= {"study", "trial", "claim", "setting", "training"}
    assert max(killed.values()) == 1  # of a claim that was measured beside it, one of each
