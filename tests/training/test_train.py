"""Training on the real digits and on samples of a linear teacher.

Curves, determinism, devices, divergence, the stored model, and agreement with theory.
"""

import gc
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.splits import Pictures
from pipelines.errors import Diverged, Pruned, UserError
from pipelines.recipes import checks
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.tracking import history, store
from tests.conftest import ROOT
from tests.training.trainings import Log, equal, trained

STEPS = 20


def small(**changes: object) -> Recipe:
    return get_recipe("mlp-digits", "smoke").override(steps=STEPS, **changes)


def test_curves_have_every_step_once_and_the_rate_of_the_table(digits: Path) -> None:
    from pipelines.training.job import plan

    log, recipe = Log(), small(warmup=0.5)
    result = trained(recipe, log)
    assert log.curves["learning_rate"] == dict(enumerate(plan(recipe, 256), 1))
    assert list(log.curves["batch_loss"]) == list(range(1, STEPS + 1))
    assert list(log.curves["val_loss"]) == [8, 16, 20]  # 8 batches of 32 an epoch
    assert result.metrics["val_loss"] == log.curves["val_loss"][STEPS]
    assert 0 <= result.metrics["test_error_pct"] <= 100


def test_batch_losses_average_to_the_epoch_loss(digits: Path) -> None:
    log = Log()
    trained(small(), log)
    batch = log.curves["batch_loss"]
    assert math.isclose(
        np.mean([batch[step] for step in range(1, 9)]), log.curves["train_loss"][8], rel_tol=1e-5
    )


def test_the_first_batch_loss_is_the_cross_entropy_without_the_decay_term(digits: Path) -> None:
    logs = [Log(), Log()]
    trained(small(weight_decay=0.0), logs[0])
    trained(small(weight_decay=10.0, learning_rate=1e-9), logs[1])
    assert math.isclose(
        logs[0].curves["batch_loss"][1], logs[1].curves["batch_loss"][1], rel_tol=1e-6
    )


def test_the_same_recipe_gives_the_same_weights(digits: Path) -> None:
    first, second, other = (trained(small(seed=seed)) for seed in (3, 3, 4))
    assert equal(first, second)
    assert not equal(first, other)


def test_the_test_set_is_not_read_where_it_must_not_be(digits: Path) -> None:
    assert "test_error_pct" not in trained(small(), test=False).metrics


@pytest.mark.slow
def test_a_training_leaves_its_data_to_be_collected(digits: Path) -> None:
    def held() -> int:
        gc.collect()
        return sum(type(each) is Pictures for each in gc.get_objects())

    before = held()
    trained(small())
    assert held() == before


def test_divergence_names_step_and_rate_and_fails_the_run(home: Path, digits: Path) -> None:
    from pipelines.running.run import run

    with pytest.raises(Diverged, match=r"at step \d+ with learning rate 1e\+06"):
        run(small(learning_rate=1e6))
    (row,) = history.rows("FAILED", kind="training")
    assert "learning rate 1e+06" in row.tags["failure"]


class Prunes(Log):
    def __call__(self, metrics: Mapping[str, float], step: int) -> None:
        super().__call__(metrics, step)
        if step == 16 and "val_error_pct" in metrics:
            raise Pruned(step)


def test_a_training_that_is_cut_short_keeps_its_best_epoch_if_it_had_one(digits: Path) -> None:
    pruned, lost = Prunes(), Log()
    with pytest.raises(Pruned):
        trained(small(), pruned, test=False)
    errors = pruned.curves["val_error_pct"]
    best = min(errors, key=lambda step: errors[step])
    assert list(errors) == [8, 16]
    assert pruned.curves["best_val_error_pct"] == {16: errors[best]}
    assert pruned.curves["best_val_loss"] == {16: pruned.curves["val_loss"][best]}
    assert pruned.curves["best_step"] == {16: best}
    with pytest.raises(Diverged):
        trained(small(learning_rate=1e6), lost, test=False)
    assert lost.curves["wall_s"]
    assert not any(key.startswith("best_") for key in lost.curves)  # not infinite ones


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 300}, "at most the number of training examples"),
        ({"schedule_args": {"slope": 1}}, "slope"),
        ({"model_args": {"blocks": 1}}, "accepts: .* depth"),
        ({"model": "mlpp"}, "mlp"),
        ({"devices": 3}, "multiple of the number of devices"),
        ({"batch_size": 32, "accumulate": 5}, "accumulate must be > 0 and divide"),
        ({"model": "linear_resnet", "model_args": {}}, r"input_shape must be 1 .*\(8, 8, 1\)"),
        ({"data_args": {"noise": 0.0}}, "data argument of digits .*'noise'"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(
    digits: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        checks.check_here(small(**changes))


def test_a_run_is_recorded_whole_and_its_model_serves_pixels(home: Path, digits: Path) -> None:
    import mlflow.pyfunc

    from pipelines.running.run import run
    from pipelines.running.run_options import RunOptions

    recipe = get_recipe("allconv-digits", "smoke").override(steps=STEPS)
    result = run(recipe, RunOptions(system_metrics=True))
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
    splits = datasets.load("digits", 256)
    logits = model.predict(splits.test.images.astype("float32"))
    error = 100 * np.mean(logits.argmax(1) != splits.test.labels)
    assert math.isclose(error, row.metrics["test_error_pct"], abs_tol=1e-4)


def linear(**changes: object) -> Recipe:
    return get_recipe("linear-teacher").override(**changes)


def test_the_training_error_at_the_end_is_that_of_the_stored_network(home: Path) -> None:
    """Evaluated as a user would: the stored network predicts the training pictures as they are."""
    import mlflow.keras

    from pipelines.running.run import run

    recipe = get_recipe("allconv-digits", "smoke").override(augment=True)
    row = history.row(run(recipe).run_id)
    train = datasets.load(recipe.data, recipe.train_examples, recipe.data_args).train
    logits = mlflow.keras.load_model(f"runs:/{row.id}/model").predict(train.images, verbose=0)
    wrong = 100 * np.mean(logits.argmax(axis=1) != train.labels)
    assert math.isclose(row.metrics["final_train_error_pct"], wrong, abs_tol=1e-4)
    assert row.metrics["final_train_error_pct"] != row.metrics["train_error_pct"]


def test_regression_records_squared_errors_and_no_classification(home: Path) -> None:
    import mlflow.keras
    import mlflow.pyfunc

    from pipelines.running.run import run
    from theory.factorization import compose

    recipe = linear(steps=32, data_args={"condition": 4.0})
    row = history.row(run(recipe).run_id)
    numbers = {key for key in row.metrics if "/" not in key}
    assert numbers == {
        *("batch_loss", "learning_rate", "train_loss", "val_loss", "best_val_loss", "test_loss"),
        *("best_step", "final_train_loss", "images_per_s", "parameters", "wall_s"),
    }
    assert row.metrics["best_val_loss"] == row.metrics["val_loss"]  # still falling
    assert row.metrics["best_step"] == 32
    assert row.params["data_args.condition"] == "4.0"
    (source,) = store.client().get_run(row.id).inputs.dataset_inputs
    assert (source.dataset.name, source.dataset.source_type) == ("linear-teacher", "code")
    where, test = f"runs:/{row.id}/model", datasets.load(recipe.data, None, recipe.data_args).test
    served = mlflow.pyfunc.load_model(where).predict(test.x)
    loss = np.mean(np.sum((served - test.y) ** 2, axis=1))
    assert math.isclose(loss, row.metrics["test_loss"], rel_tol=1e-5)
    A = layers_of(mlflow.keras.load_model(where))
    np.testing.assert_allclose(test.x @ compose(A).T, served, atol=1e-4)


def test_the_first_step_is_a_gradient_step_on_the_mean_of_summed_squares() -> None:
    recipe = linear(steps=1, batch_size=300, model_args={"depth": 3})
    x, y = datasets.load(recipe.data, None, recipe.data_args).train.train_batch(0, 300, 0, None)
    log = Log()
    A = layers_of(trained(recipe, log).model)
    # At A = 0 every layer's gradient is that of |x - y|^2 with respect to one linear map.
    G = 2 * (x - y).T.astype(np.float64) @ x / 300
    np.testing.assert_allclose(A, np.stack([-recipe.learning_rate * G] * 3), rtol=1e-4, atol=1e-6)
    assert math.isclose(log.curves["batch_loss"][1], np.sum((x - y) ** 2) / 300, rel_tol=1e-5)


@pytest.mark.parametrize("condition", [pytest.param(1.0, marks=pytest.mark.slow), 4.0])
def test_training_follows_the_theorys_gradient_descent(condition: float) -> None:
    from pipelines.data.generated import covariance, linear_target
    from theory.linear_resnet import excess_risk, gradient

    d, depth, noise, rate, steps = 4, 6, 0.1, 0.01, 120
    arguments = {"dimension": d, "condition": condition, "noise": noise, "data_seed": 2}
    sizes = {"train_size": 40_000, "val_size": 40_000, "test_size": 100}
    recipe = linear(
        model_args={"depth": depth, "init": "small"},
        data_args=arguments | sizes,
        batch_size=4_000,
        learning_rate=rate,
        steps=steps,
    )
    log = Log()
    sgd = layers_of(trained(recipe, log).model)
    R, sigma = linear_target(d, 0.5, 2), covariance(d, condition, 2)
    A, risks = start(recipe), []
    for _ in range(steps):
        A = A - rate * gradient(A, R, sigma)
        risks.append(excess_risk(A, R, sigma))
    curve = log.curves["val_loss"]
    population = np.array([risks[step - 1] for step in curve])
    measured = np.array(list(curve.values())) - d * noise**2
    assert population[0] > 10 * population[-1]
    np.testing.assert_allclose(measured, population, rtol=0.04, atol=1e-3)
    assert np.linalg.norm(sgd - A) < 0.02 * np.linalg.norm(A)


def layers_of(model: Any) -> np.ndarray:
    """The layers A [l, d, d] of a linear residual network, A_1 first."""
    return np.stack([kernel.T for kernel in model.get_weights()]).astype(np.float64)


def start(recipe: Recipe) -> np.ndarray:
    """The layers at the start of a linear recipe's training, as its seed draws them."""
    import keras

    import keras_models

    keras.utils.set_random_seed(recipe.seed)
    d = recipe.data_args["dimension"]
    return layers_of(keras_models.build(recipe.model, (d,), d, **recipe.model_args))


@pytest.mark.slow
def test_any_network_learns_from_samples_and_only_pictures_are_augmented() -> None:
    result = trained(linear(model="mlp", model_args={"width": 32, "depth": 1}, steps=40))
    assert result.model.output_shape == (None, 8)
    assert math.isfinite(result.metrics["test_loss"])
    with pytest.raises(UserError, match=r"augment .*Received: augment=True for linear-teacher"):
        trained(linear(augment=True))


@pytest.mark.slow
def test_averages_are_validated_and_kept_while_training_goes_on_without_them(digits: Path) -> None:
    plain, averaged = Log(), Log()
    last = trained(small(), plain).model
    result = trained(small(ema=0.9), averaged)
    assert averaged.curves["batch_loss"] == plain.curves["batch_loss"]
    assert result.model.get_weights()[0].tolist() != last.get_weights()[0].tolist()
    x, y = datasets.load("digits").val.take(slice(None))  # type: ignore[union-attr]
    logits = result.model.predict(x, verbose=0)
    wrong = 100 * float(np.mean(np.argmax(logits, axis=1) != y))
    assert averaged.curves["val_error_pct"][STEPS] == pytest.approx(wrong)


@pytest.mark.slow
def test_labels_are_smoothed_in_training_alone(digits: Path) -> None:
    plain, smoothed = Log(), Log()
    trained(small(), plain)
    trained(small(label_smoothing=0.2), smoothed)
    assert smoothed.curves["batch_loss"][1] == plain.curves["batch_loss"][1]
    assert smoothed.curves["batch_loss"][2] != plain.curves["batch_loss"][2]
    with pytest.raises(UserError, match=r"must suit the data.*Set --label-smoothing 0"):
        trained(linear(label_smoothing=0.2))


def test_the_steps_of_a_call_divide_what_is_left_and_several_devices_take_one(
    digits: Path,
) -> None:
    from pipelines.training import _device_data, devices
    from pipelines.training.job import TrainingJob, plan

    recipe = get_recipe("allconv-digits").override(pictures="device")
    splits = _device_data.place_pictures(recipe, datasets.load("digits"), devices.Place(1, "GPU"))

    def steps(place: devices.Place, left: int, **changes: object) -> int:
        own = recipe.override(**changes)
        return TrainingJob(own, splits, plan(own, len(splits.train)), place).steps_per_execution(
            left
        )

    gpu = devices.Place(1, "GPU")
    assert [steps(gpu, left) for left in (351, 118, 50, 53, 1)] == [39, 2, 50, 1, 1]
    assert steps(gpu, 351, steps_per_execution=13) == 13
    assert steps(gpu, 351, accumulate=2) == 1
    assert steps(devices.Place(1, "CPU"), 351) == 1
    assert steps(devices.Place(2, "GPU"), 351, steps_per_execution=13) == 1


def test_a_recipe_says_whether_products_may_be_rounded() -> None:
    import tensorflow as tf

    from pipelines.training.precision import set_matmul_precision

    for precision, rounded in (("tensorfloat32", True), ("float32", False)):
        set_matmul_precision(precision)
        assert tf.config.experimental.tensor_float_32_execution_enabled() == rounded


ON_DEVICES = """
import sys
import numpy as np
from pipelines.recipes.catalog import get_recipe
from tests.training.trainings import trained
done = trained(get_recipe(sys.argv[1], "smoke").override(steps=20, devices=int(sys.argv[2])))
np.savez(sys.argv[3], *done.model.get_weights(), device=done.device,
         test_loss=done.metrics["test_loss"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["allconv-digits", "linear-teacher"])
def test_two_devices_agree_with_one_after_20_steps(name: str, digits: Path, tmp_path: Path) -> None:
    saved = []
    for devices in ("1", "2"):
        target = str(tmp_path / f"{devices}.npz")
        words = [sys.executable, "-c", ON_DEVICES, name, devices, target]
        subprocess.run(words, cwd=ROOT, check=True)
        saved.append(dict(np.load(target)))
    assert [str(each.pop("device")) for each in saved] == ["1 CPU", "2 CPU"]
    one, two = saved
    assert one.keys() == two.keys()
    assert max(np.abs(one[key] - two[key]).max() for key in one) < 1e-4
