"""Pictures that stay on the device: the batches of the host, and the training they make."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.datasets import Splits
from pipelines.data.splits import Pictures
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.training.checkpoints import Saving
from tests.training.trainings import Killed, Log, trained

STEPS = 20  # epochs of 8, and half of one


def recipe(**changes: Any) -> Recipe:
    small = {"steps": STEPS, "augment": True, "weight_decay": 1e-4}
    return get_recipe("allconv-digits", "smoke").override(**{**small, **changes})


def placed(chosen: Recipe, splits: Splits) -> Splits:
    from pipelines.training import _device_data, devices

    return _device_data.place_pictures(chosen, splits, devices.place(chosen.devices))


@pytest.mark.parametrize("shift", [None, 2, 4])
def test_the_device_makes_the_batches_of_the_host(shift: int | None) -> None:
    import keras

    from pipelines.training import _device_data

    host = datasets.load("synthetic", 200)
    there = placed(recipe(data="synthetic", pictures="device"), host)
    echo = keras.Model(layer := keras.Input(host.input_shape), layer)
    device = _device_data.wrap(echo, there)
    for part in ("train", "val", "test"):
        one, two = getattr(host, part), getattr(there, part)
        for step in (0, 5):
            x, y = one.train_batch(step, 32, 7, shift)
            where, labels = two.train_batch(step, 32, 7, shift)
            assert where.nbytes < x.nbytes / 100
            np.testing.assert_array_equal(labels, y)
            np.testing.assert_allclose(device(where), x, rtol=1e-6, atol=1e-6)
        x, y, weight = one.eval_batch(len(one) // 32, 32)  # the last one, filled up
        where, labels, weights = two.eval_batch(len(one) // 32, 32)
        np.testing.assert_array_equal([*labels, *weights], [*y, *weight])
        np.testing.assert_allclose(device(where), x, rtol=1e-6, atol=1e-6)


def test_pictures_are_cut_on_the_device_alone(digits: Path) -> None:
    host = datasets.load("digits", 256)
    assert isinstance(host.train, Pictures)
    assert placed(recipe(), host) is host  # on a CPU, unasked
    there = placed(recipe(pictures="device"), host)
    done = trained(recipe(pictures="device", model="mlp", steps=1))
    assert done.device == "1 CPU, pictures on it"
    assert done.model.input_shape == (None, *host.input_shape)
    assert there.digest == host.digest
    assert there.input_shape == host.input_shape


@pytest.mark.slow
def test_a_training_on_the_device_goes_on_on_the_host(digits: Path, tmp_path: Path) -> None:
    expected = trained(recipe(pictures="host", model="mlp"))
    saving = Saving(tmp_path, every=4)
    held = recipe(pictures="device", model="mlp", steps_per_execution=4)
    with pytest.raises(Killed):
        trained(held, Log(12), saving)
    assert saving.latest().step == 8  # type: ignore[union-attr]
    found = trained(recipe(pictures="host", model="mlp"), saving=saving)
    for one, two in zip(expected.model.get_weights(), found.model.get_weights(), strict=True):
        assert np.max(np.abs(one - two)) <= 1e-5 * np.max(np.abs(one))
    assert found.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-5)


def test_what_cannot_stay_on_one_device_is_one_sentence(digits: Path) -> None:
    from pipelines.training import _device_data, devices

    chosen = recipe(pictures="device")
    several = devices.Place(2, "CPU")
    with pytest.raises(UserError, match=r"stay on one device.*device for digits on 2 CPU"):
        _device_data.place_pictures(chosen, datasets.load("digits", 256), several)
    drawn = get_recipe("linear-teacher").override(pictures="device")
    with pytest.raises(UserError, match="device for linear"):
        placed(drawn, datasets.load(drawn.data, None, drawn.data_args))
