"""The newcomer's first command, whole, twice."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.tracking import history
from tests.conftest import ROOT, command

pytestmark = pytest.mark.slow


def counts() -> dict[str, int]:
    kinds = ("claim", "setting", "training", "study", "trial")
    return {kind: len(history.rows(kind=kind)) for kind in kinds}


def test_quickstart_records_everything_once(home: Path, digits: Path) -> None:
    first = command("pipelines", "quickstart", timeout=900)
    assert first.returncode == 0, first.stderr
    found = counts()
    assert found["claim"] == 3
    assert found["training"] >= 10
    (study,) = history.rows(kind="study")
    below = {"mlflow.parentRunId": study.id}
    assert len(history.rows(kind="trial", **below)) == found["trial"] == 6
    assert len(history.rows(**below)) == 6 + 1  # its best; a claim has trained the published one
    verdicts = {row.tags["claim"]: row.tags["verdict"] for row in history.rows(kind="claim")}
    assert verdicts["small-norm-factorization"] == verdicts["gradient-formula"] == "reproduced"
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
        "sys.exit(shell.run_command_safely(lambda _: quickstart._run_study(False), []))\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], cwd=ROOT) as process:
        while not any(
            "batch_loss" in journal.read_text() for journal in (home / "live").glob("*.jsonl")
        ):
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
    assert process.returncode == 143
    assert history.rows("RUNNING") == []
    assert len(history.rows("KILLED")) == 2  # the study and its trial
