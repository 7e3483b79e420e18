"""Training on the real digits: curves, determinism, devices, divergence, the stored model."""

import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from pipelines import data, history, store
from pipelines.errors import Diverged, UserError
from pipelines.recipes import Recipe, named
from tests.conftest import ROOT

STEPS = 20


class Log:
    """Keeps what is logged, by metric and step."""

    def __init__(self) -> None:
        self.points: list[tuple[str, int, float]] = []

    def __call__(self, metrics: Mapping[str, float], step: int) -> None:
        self.points += [(key, step, value) for key, value in metrics.items()]

    def curve(self, metric: str) -> dict[int, float]:
        return {step: value for key, step, value in self.points if key == metric}


def small(**changes: object) -> Recipe:
    return named("allconv-digits", "smoke").override(steps=STEPS, **changes)


def trained(recipe: Recipe, log: Log | None = None, test: bool = True):  # type: ignore[no-untyped-def]
    from pipelines import devices
    from pipelines.train import plan, train

    strategy = devices.strategy(recipe)
    splits = data.load(recipe.data, recipe.train_examples)
    rates = plan(recipe, len(splits.train))
    return train(recipe, splits, rates, strategy, log or Log(), test=test)


def test_curves_have_every_step_once_and_the_rate_of_the_table(digits: Path) -> None:
    from pipelines.train import plan

    log, recipe = Log(), small(warmup=0.5)
    result = trained(recipe, log)
    assert log.curve("learning_rate") == dict(enumerate(plan(recipe, 256), 1))
    assert list(log.curve("batch_loss")) == list(range(1, STEPS + 1))
    assert len({(key, step) for key, step, _ in log.points}) == len(log.points)
    assert list(log.curve("val_loss")) == [8, 16, 20]  # 8 batches of 32 an epoch
    assert result.metrics["val_loss"] == log.curve("val_loss")[STEPS]
    assert 0 <= result.metrics["test_error_pct"] <= 100


def test_batch_losses_average_to_the_epoch_loss(digits: Path) -> None:
    log = Log()
    trained(small(), log)
    batch = log.curve("batch_loss")
    assert math.isclose(
        np.mean([batch[step] for step in range(1, 9)]), log.curve("train_loss")[8], rel_tol=1e-5
    )


def test_the_first_batch_loss_is_the_cross_entropy_without_the_decay_term(digits: Path) -> None:
    logs = [Log(), Log()]
    trained(small(weight_decay=0.0), logs[0])
    trained(small(weight_decay=10.0, learning_rate=1e-9), logs[1])
    assert math.isclose(
        logs[0].curve("batch_loss")[1], logs[1].curve("batch_loss")[1], rel_tol=1e-6
    )


def test_the_same_recipe_gives_the_same_weights(digits: Path) -> None:
    first, second, other = (trained(small(seed=seed)).model.get_weights() for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_test_set_is_not_read_where_it_must_not_be(digits: Path) -> None:
    assert "test_error_pct" not in trained(small(), test=False).metrics


def test_divergence_names_step_and_rate_and_fails_the_run(home: Path, digits: Path) -> None:
    from pipelines.run import run

    with pytest.raises(Diverged, match=r"at step \d+ with learning rate 1e\+06"):
        run(small(learning_rate=1e6))
    (row,) = history.rows("FAILED", kind="training")
    assert "learning rate 1e+06" in row.tags["failure"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 300}, "at most the number of training examples"),
        ({"schedule_args": {"slope": 1}}, "slope"),
        ({"model_args": {"blocks": 1}}, "blocks_per_stage"),
        ({"model": "mlpp"}, "mlp"),
        ({"devices": 3}, "multiple of the number of devices"),
        ({"model": "mlp", "model_args": {"width": 8}}, "weight_decay acts on convolution"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    digits: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        trained(small(**changes))


def test_a_run_is_recorded_whole_and_its_model_serves_pixels(home: Path, digits: Path) -> None:
    import mlflow.pyfunc

    from pipelines.run import run

    result = run(small())
    row = history.row(result.run_id)
    assert row.status == "FINISHED"
    assert row.params["model_args.widths"] == "[8, 16, 32]"
    assert row.tags["device"] == "1 CPU"
    assert {"test_error_pct", "images_per_s", "wall_s", "parameters"} <= row.metrics.keys()
    assert any(key.startswith("system/") for key in row.metrics)
    artifacts = [a.path for a in store.client().list_artifacts(result.run_id)]
    assert "learning_rate.png" in artifacts
    (source,) = store.client().get_run(result.run_id).inputs.dataset_inputs
    assert source.dataset.name == "digits"
    model = mlflow.pyfunc.load_model(f"runs:/{result.run_id}/model")
    splits = data.load("digits", 256)
    logits = model.predict(splits.test.images.astype("float32"))
    error = 100 * np.mean(logits.argmax(1) != splits.test.labels)
    assert math.isclose(error, row.metrics["test_error_pct"], abs_tol=1e-4)


TWO_DEVICES = """
import sys
import numpy as np
from pipelines.recipes import named
from tests.test_train import trained
done = trained(named("allconv-digits", "smoke").override(steps=20, devices=int(sys.argv[1])))
np.savez(sys.argv[2], *done.model.get_weights(), device=done.device,
         test=done.metrics["test_error_pct"])
"""


def test_two_devices_agree_with_one_after_20_steps(digits: Path, tmp_path: Path) -> None:
    saved = []
    for devices in ("1", "2"):
        target = str(tmp_path / f"{devices}.npz")
        subprocess.run([sys.executable, "-c", TWO_DEVICES, devices, target], cwd=ROOT, check=True)
        saved.append(np.load(target))
    assert str(saved[1]["device"]) == "2 CPU"
    names = [name for name in saved[0].files if name.startswith("arr_")]
    moved = max(np.abs(saved[0][name] - saved[1][name]).max() for name in names)
    assert moved < 1e-4
    assert math.isclose(saved[0]["test"], saved[1]["test"], abs_tol=0.5)
