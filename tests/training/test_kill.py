"""kill -9 of the command line at random steps, on real CIFAR-10: nothing lost, nothing twice."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.tracking import history, store
from tests.conftest import ROOT, journals, needs

STEPS, EVERY, KILLS = 150, 10, 5
COMMAND = [
    *("allconv-cifar10", "--seeds", "1", "--steps", str(STEPS), "--train-examples", "2000"),
    *("--batch-size", "32", "--widths", "8", "16", "32"),
    *("--blocks-per-stage", "1", "--stem-width", "8"),
    *("--checkpoint-every", str(EVERY), "--json"),
]


def start() -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "pipelines", "run", *COMMAND]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)


def written(home: Path) -> int:
    """The last step of a training that its journal holds; 0 where there is none."""
    steps = re.findall(r'\["batch_loss", [^,]+, (\d+),', journals(home))
    return max(map(int, steps), default=0)


def kill_after(home: Path, step: int) -> None:
    """Start the command, and kill it as soon as that step is written down."""
    process, left = start(), written(home)
    while left and written(home) >= left:  # what the last kill left is not delivered yet
        assert process.poll() is None
        time.sleep(0.005)
    while written(home) < step:
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def weights(run_id: str) -> list[Any]:
    import mlflow.keras

    found: list[Any] = mlflow.keras.load_model(f"runs:/{run_id}/model").get_weights()
    return found


@pytest.mark.slow
@needs("cifar10")
def test_killed_five_times_it_ends_as_an_uninterrupted_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = np.random.default_rng(0).choice(np.arange(5, STEPS - 5), KILLS, replace=False)
    for step in sorted(steps.tolist()):
        kill_after(home, step)
    assert start().wait() == 0
    (run,) = history.rows(None, kind="training")
    assert run.status == "FINISHED"
    assert {row.status for row in history.rows(None)} == {"FINISHED"}
    for metric in ("batch_loss", "learning_rate"):
        points = store.client().get_metric_history(run.id, metric)
        assert [point.step for point in points] == list(range(1, STEPS + 1))
    killed = weights(run.id)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    assert start().wait() == 0
    (whole,) = history.rows(kind="training")
    for one, two in zip(killed, weights(whole.id), strict=True):
        assert np.array_equal(one, two)
    timing = {"images_per_s", "wall_s"}
    same = {key for key in whole.metrics if "/" not in key} - timing
    assert {key: run.metrics[key] for key in same} == {key: whole.metrics[key] for key in same}
