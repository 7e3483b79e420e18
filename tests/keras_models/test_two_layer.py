"""Two-layer ReLU networks: their weights, students, teacher, and the distance that is recorded."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_models
from keras_models import draw_relu_weights as draw
from keras_models import singular_values
from keras_models.two_layer import matrix
from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from tests.training.trainings import Killed, Log, equal, trained, untimed

SIZES = {
    "dimension": 8,
    "teacher_frobenius": 1.6,
    "train_size": 256,
    "val_size": 64,
    "test_size": 64,
}


def network(d: int, **arguments: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras_models.build(
        "two_layer", (d,), **{"classes": 1, "start_frobenius": 1.6} | arguments
    )


@pytest.mark.parametrize(
    ("d", "frobenius"),
    [(100, 5.7), (100, 5.0), (8, 1.6), (1, 0.6), (4, 1.2), (1, 0.6 * (1 + 1e-13))],
)
def test_singular_values_are_in_a_line_with_both_norms(d: int, frobenius: float) -> None:
    s = singular_values(d, 0.6, frobenius)
    assert s.min() >= 0
    assert s.max() == pytest.approx(0.6, rel=1e-12)
    assert np.linalg.norm(s) == pytest.approx(frobenius, rel=1e-12)
    assert np.abs(np.diff(s, 2)).max(initial=0) < 1e-12
    W = draw(d, 0.6, frobenius, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.svd(W, compute_uv=False)[::-1], s, atol=1e-12)


@pytest.mark.parametrize("frobenius", [3.0, 6.1, float("nan")])
def test_norms_that_exclude_each_other_are_one_sentence(frobenius: float) -> None:
    sentence = (
        rf"must be between 3\.\d+ and 6. Received: frobenius={frobenius} with norm=0.6. Change one"
    )
    with pytest.raises(ValueError, match=sentence):
        singular_values(100, 0.6, frobenius)
    with pytest.raises(UserError, match=sentence + " .*--teacher-frobenius"):
        datasets.load("relu-teacher", 1, {"dimension": 100, "teacher_frobenius": frobenius})


@pytest.mark.parametrize(("variant", "expected"), [("reslink", [4, 7]), ("vanilla", [2, 5])])
def test_outputs_by_hand(variant: str, expected: list[float]) -> None:
    model = network(2, variant=variant, start_frobenius=0.7)
    W = np.array([[1, -1], [0, 2]])
    model.get_layer("W").kernel.assign(W)
    np.testing.assert_allclose(
        model.predict(np.array([[1, 1], [-1, 2]]), verbose=0)[:, 0], expected
    )
    np.testing.assert_array_equal(matrix(model), W + np.eye(2) * (variant == "reslink"))


def test_the_students_start_at_the_same_weights_with_the_norms_asked_for() -> None:
    starts = [network(16, variant=v, start_frobenius=2.0) for v in ("reslink", "vanilla")]
    residual, plain = (np.asarray(matrix(model)) for model in starts)
    np.testing.assert_allclose(residual - np.eye(16), plain, atol=1e-7)
    values = np.linalg.svd(plain, compute_uv=False)[::-1]
    np.testing.assert_allclose(values, singular_values(16, 0.6, 2.0), atol=1e-6)
    assert np.linalg.norm(plain - plain.T) > 0.1  # two rotations


def test_three_blocks_are_normalized_and_have_no_matrix() -> None:
    model = network(8, variant="three-block", hidden=6)
    kinds = [type(layer).__name__ for layer in model.layers[1:10]]
    assert kinds == ["Dense", "BatchNormalization", "ReLU"] * 3
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == 8 * 6 + 2 * 36 + 6 * 6
    assert matrix(model) is None
    assert matrix(keras_models.build("mlp", (8,), 1, width=8)) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"variant": "resnet"},
            r"one of: reslink, vanilla, three-block. Received: variant='resnet'",
        ),
        ({"classes": 3}, r"divide evenly among the classes.*Received: 8 units and classes=3"),
        ({"hidden": 0}, r"hidden=0"),
        ({"start_frobenius": 5.0}, r"between .*Received: frobenius=5.0 with norm=0.6"),
    ],
)
def test_error_sentences(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        network(8, **arguments)


@pytest.mark.parametrize("identity", [True, False])
def test_targets_are_those_of_a_network_with_the_teachers_matrix(identity: bool) -> None:
    arguments = SIZES | {"noise": 0.0, "teacher_identity": identity}
    splits = datasets.load("relu-teacher", None, arguments)
    model = network(8, variant="reslink" if identity else "vanilla")
    distance = splits.task.of_model(model)["distance"]  # type: ignore[misc]
    assert distance > 1
    W = draw(8, 0.6, 1.6, np.random.default_rng([0, 0]))  # the teacher's random stream
    model.get_layer("W").kernel.assign(W)
    assert splits.task.of_model(model)["distance"] < 1e-6  # type: ignore[misc]
    np.testing.assert_allclose(model.predict(splits.val.x, verbose=0), splits.val.y, rtol=1e-5)


def student(**changes: Any) -> Recipe:
    tiny = {"model_args": {"start_frobenius": 1.4}, "data_args": SIZES, "batch_size": 16}
    tiny |= {"steps": 40, "learning_rate": 0.02, "steps_per_execution": 8}
    return get_recipe("relu-teacher").override(**tiny | changes)


@pytest.mark.slow
def test_calls_of_several_steps_train_the_same_and_log_means() -> None:
    one, four, recipe = Log(), Log(), student(warmup=0.5)
    single = trained(recipe.override(steps_per_execution=1), one)
    assert equal(single, trained(recipe.override(steps_per_execution=4), four))
    for metric in ("val_loss", "distance", "test_loss"):
        assert one.curves[metric] == four.curves[metric]
    losses = np.array(list(one.curves["batch_loss"].values()))
    assert list(one.curves["batch_loss"]) == list(range(1, 41))
    assert list(four.curves["batch_loss"]) == list(range(4, 41, 4))
    means = list(four.curves["batch_loss"].values())
    np.testing.assert_allclose(means, losses.reshape(-1, 4).mean(axis=1), rtol=1e-4)
    rates = one.curves["learning_rate"]
    assert four.curves["learning_rate"] == {step: rates[step] for step in range(4, 41, 4)}


def test_the_distance_is_recorded_at_every_validation_and_falls() -> None:
    log, recipe = Log(), student()
    B = np.asarray(matrix(trained(recipe, log).model))
    distances = log.curves["distance"]
    assert list(distances) == [16, 32, 40] == list(log.curves["val_loss"])
    W = draw(8, 0.6, 1.6, np.random.default_rng([0, 0]))
    assert distances[40] == pytest.approx(np.linalg.norm(B - np.eye(8) - W), rel=1e-6)
    assert distances[40] < distances[32] < distances[16]


@pytest.mark.slow
def test_a_run_stopped_between_calls_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    from pipelines.training.checkpoints import Saving

    saving, whole, rest = Saving(tmp_path, every=5), Log(), Log()
    expected = trained(student(), whole)
    with pytest.raises(Killed):
        trained(student(), Log(stop_at=32), saving)
    found = saving.latest()
    assert found is not None
    assert found.step == 24  # the end of the call in which step 20 was done
    assert equal(trained(student(), rest, saving), expected)
    ends = {key: {s: n for s, n in c.items() if s > 24} for key, c in whole.curves.items()}
    assert untimed(rest.curves) == untimed(ends)


def test_a_loss_that_diverges_names_the_steps_of_its_call() -> None:
    from pipelines.errors import Diverged

    with pytest.raises(Diverged, match=r"in steps (\d+) to (\d+) with learning rate 1e\+06"):
        trained(student(learning_rate=1e6))
