"""Training on several machines: the command line in real processes on loopback."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.recipes.catalog import get_recipe
from pipelines.tracking import history, store
from pipelines.training import devices, train
from pipelines.training.job import build_job
from tests.training.loopback import Cluster

STEPS = 20  # epochs of 8
HE = ("--init", "he", "--augment")  # weights that move, batches whose parts differ
NOTICED_S = 60  # a machine that leaves is noticed

Start = Callable[..., Cluster]


@pytest.fixture
def cluster(home: Path, digits: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts clusters, which have ended when the test has."""
    started: list[Cluster] = []

    def start(*options: str, folder: Path = home, **counts: int) -> Cluster:
        started.append(Cluster(folder, options, counts))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.end()


def curve(metric: str) -> dict[int, float]:
    """A curve of the one training run, by step; no step is there twice."""
    (row,) = history.rows(None, kind="training")
    points = store.client().get_metric_history(row.id, metric)
    found = {point.step: point.value for point in points}
    assert len(found) == len(points), metric
    return found


def weights(home: Path) -> list[Any]:
    """Those of the network that the one finished run has stored."""
    (path,) = home.glob("artifacts/**/*.keras")
    found: list[Any] = keras.saving.load_model(path).get_weights()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 2])
def test_two_machines_train_as_one(cluster: Start, home: Path, pieces: int) -> None:
    changes = {"steps": STEPS, "accumulate": pieces, "augment": True}
    recipe = get_recipe("allconv-digits", "smoke").override(model_args={"init": "he"}, **changes)
    options = ("--steps", str(STEPS), "--accumulate", str(pieces))
    two = cluster(*options, *HE, worker=2)
    splits = datasets.load(recipe.data, recipe.train_examples)
    logged: dict[tuple[str, int], float] = {}
    alone = train.train(
        build_job(recipe, splits, devices.place(recipe.devices)),
        lambda metrics, step: logged.update({(key, step): v for key, v in metrics.items()}),
    )
    assert two.codes() == {"worker0": 0, "worker1": 0}, two.everything()
    assert not (home / "other").exists()
    for one, other in zip(alone.model.get_weights(), weights(home), strict=True):
        assert np.abs(one - other).max() < 1e-4
    for metric in ("batch_loss", "learning_rate", "train_loss", "val_error_pct", "test_loss"):
        expected = {step: value for (key, step), value in logged.items() if key == metric}
        assert curve(metric) == pytest.approx(expected, rel=1e-4), metric
    assert curve("val_loss").keys() == {8, 16, 20}


INTERRUPTED = 160
LEAVING = [  # who leaves, how, and the exit codes of worker 0 and 1
    ("worker1", signal.SIGKILL, (1, -9)),
    ("worker1", signal.SIGTERM, (143, 143)),
    ("worker0", signal.SIGSTOP, (-9, 1)),
]


@pytest.mark.slow
def test_a_machine_that_leaves_ends_the_other_and_the_same_command_goes_on(
    cluster: Start, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--steps", str(INTERRUPTED), "--checkpoint-every", "7", *HE)
    pair = cluster(*options, worker=2)
    for number, (victim, how, codes) in enumerate(LEAVING):
        other = "worker1" if victim == "worker0" else "worker0"
        pair.reach(40 * (number + 1))
        pair.send(victim, how)
        pair.processes[other].wait(NOTICED_S)
        if how == signal.SIGSTOP:
            pair.send(victim, signal.SIGKILL)
        assert tuple(pair.codes(NOTICED_S).values()) == codes, pair.everything()
        assert "Traceback" not in pair.everything()
        if how != signal.SIGTERM:
            *_, last = pair.said(other).splitlines()
            who = f"(worker {victim[-1]}|another machine)"  # TensorFlow does not always say
            said = f"error: .* no answer from {who}. Start the same command"
            assert re.match(said, last), pair.said(other)
        if victim != "worker0":
            (row,) = history.rows(None, kind="training")
            assert row.status in ("FAILED", "KILLED")
        pair.start()
    assert pair.codes() == {"worker0": 0, "worker1": 0}, pair.everything()
    assert list(curve("batch_loss")) == list(range(1, INTERRUPTED + 1))
    assert list(curve("val_loss")) == list(range(8, INTERRUPTED + 1, 8))
    interrupted = weights(home)

    pair.start()
    assert pair.codes() == {"worker0": 0, "worker1": 0}, pair.everything()
    assert "found this run finished" in pair.said("worker1")

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}/mlflow.db")
    whole = cluster(*options, folder=elsewhere, worker=2)
    assert whole.codes() == {"worker0": 0, "worker1": 0}, whole.everything()
    for one, two in zip(interrupted, weights(elsewhere), strict=True):
        assert np.array_equal(one, two)
