"""Crops and colours of photographs as Krizhevsky et al. and He et al. have them."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets, streamed
from pipelines.data.streamed import MEAN, Photographs
from pipelines.errors import UserError
from tests.conftest import PREPARED, needs
from tests.data.test_photographs import SIDE, arrays, files, split  # noqa: F401 - fixtures


def boxes(size: tuple[int, int], sides: tuple[int, int], count: int = 300) -> np.ndarray:
    """Boxes of a picture of that height and width by numbers at random; [count, 4]."""
    numbers = np.random.default_rng(0).random((count, streamed.DRAWS), np.float32)
    box = streamed.sided_box
    return np.array([box(np.array(size), each, sides, 224).numpy() for each in numbers])


def test_by_hand_a_crop_of_a_picture_of_256_pixels_is_224_of_them() -> None:
    numbers = np.zeros(streamed.DRAWS, np.float32)
    box = streamed.sided_box(np.array([256, 300]), numbers, (256, 256), 224).numpy()
    assert box.tolist() == [0, 22, 224, 224]  # of the central 256 columns the first
    numbers[2 * streamed.TRIES : 2 * streamed.TRIES + 2] = 0.9999
    box = streamed.sided_box(np.array([256, 300]), numbers, (256, 256), 224).numpy()
    assert box.tolist() == [32, 54, 224, 224]
    box = streamed.sided_box(np.array([512, 600]), numbers, (256, 256), 224).numpy()
    assert box.tolist() == [64, 108, 448, 448]


def test_crops_of_one_size_lie_in_the_central_square_and_reach_its_edges() -> None:
    found = boxes((512, 1000), (256, 256))
    assert {*found[:, 2]} == {*found[:, 3]} == {448}
    assert (found[:, 0].min(), found[:, 0].max()) == (0, 64)
    assert (found[:, 1].min(), found[:, 1].max()) == (244, 308)  # the square begins at 244


def test_crops_of_several_sizes_lie_anywhere() -> None:
    found = boxes((480, 960), (256, 480), 2_000)
    assert (found[:, 2] == found[:, 3]).all()
    assert found[:, 2].min() == 224  # of 480 pixels
    assert found[:, 2].max() == 420  # 224 * 480 / 256
    assert (found[:, :2] >= 0).all()
    assert (found[:, 0] + found[:, 2]).max() == 480
    assert (found[:, 1] + found[:, 3]).max() > 950
    assert found[:, 1].min() < 10


def test_ten_crops_are_centre_and_corners_and_their_mirror_images(
    split: Photographs,  # noqa: F811
) -> None:
    ten = dataclasses.replace(split, ten_crops=True)
    (x, y, weight), *_ = arrays(ten.eval_dataset(4))
    assert x.shape == (4, 10, SIDE, SIDE, 3)
    assert (y.tolist(), weight.tolist()) == ([0, 1, 2, 3], [1, 1, 1, 1])
    np.testing.assert_array_equal(x[:, 5:], x[:, :5, :, ::-1])
    side = round(SIDE / streamed.CENTRE)  # 37: corners lie 5 apart, the centre 2 from the first
    centre, first, right, below, last = np.moveaxis(x[:, :5], 1, 0)
    most, middle = side - SIDE, (side - SIDE) // 2
    np.testing.assert_array_equal(first[:, :, most:], right[:, :, :-most])
    np.testing.assert_array_equal(first[:, most:], below[:, :-most])
    np.testing.assert_array_equal(first[:, most:, most:], last[:, :-most, :-most])
    np.testing.assert_array_equal(first[:, middle:, middle:], centre[:, :-middle, :-middle])


def test_the_last_batch_of_ten_crops_is_filled_up_by_weight_0(
    split: Photographs,  # noqa: F811
) -> None:
    batches = arrays(dataclasses.replace(split, ten_crops=True).eval_dataset(7))
    assert [part.shape[0] for part, _, _ in batches] == [7] * 5
    assert sum(weight.sum() for _, _, weight in batches) == len(split)


def test_colours_are_shifted_along_their_principal_components(
    split: Photographs,  # noqa: F811
) -> None:
    shifted = dataclasses.replace(split, colours=True)
    plain, moved = (arrays(each.train_dataset(range(3), 8, 5)) for each in (split, shifted))
    for step, ((x, y, *_), (z, labels, *_)) in enumerate(zip(plain, moved, strict=True)):
        np.testing.assert_array_equal(y, labels)
        shifts = (z - x) * split.std  # of pixels in [0, 1]
        np.testing.assert_allclose(
            shifts, shifts[:, :1, :1].repeat(SIDE, 1).repeat(SIDE, 2), atol=1e-6
        )
        weights = np.random.default_rng([5, 2, step]).standard_normal((8, 3)) * 0.1
        np.testing.assert_allclose(shifts[:, 0, 0], weights @ streamed.COLOURS, atol=1e-6)
    lengths = np.linalg.norm(streamed.COLOURS, axis=1)
    np.testing.assert_allclose(lengths, [0.2175, 0.0188, 0.0045], rtol=2e-3)
    cosines = streamed.COLOURS @ streamed.COLOURS.T / np.outer(lengths, lengths)
    np.testing.assert_allclose(cosines, np.eye(3), atol=2e-3)


@pytest.mark.parametrize("crops", ["side256", "side256-480"])
def test_a_step_of_published_crops_is_made_again(
    split: Photographs,  # noqa: F811
    crops: str,
) -> None:
    chosen = dataclasses.replace(split, crops=crops, colours=True)
    whole = arrays(chosen.train_dataset(range(4), 6, 1))
    again = arrays(chosen.train_dataset(range(2, 3), 6, 1))
    np.testing.assert_array_equal(whole[2][0], again[0][0])
    assert any(
        not np.array_equal(one[0], other[0])
        for one, other in zip(whole, arrays(split.train_dataset(range(4), 6, 1)), strict=True)
    )
    assert whole[0][0].shape == (6, SIDE, SIDE, 3)


@needs("imagenet2012")
def test_the_data_arguments_of_photographs_reach_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    given = {"byte_scale": True, "colours": True, "crops": "side256", "ten_crops": True}
    splits: Any = datasets.load("imagenet2012", None, given)
    assert [part.ten_crops for part in (splits.train, splits.val, splits.test)] == [0, 0, 1]
    assert (splits.train.crops, splits.train.colours) == ("side256", True)
    by_bytes, _, _ = arrays(splits.val.eval_dataset(2))[0]
    plain: Any = datasets.load("imagenet2012")
    standard, _, _ = arrays(plain.val.eval_dataset(2))[0]
    pixels = 255 * (standard * plain.val.std + MEAN)
    np.testing.assert_allclose(by_bytes, pixels - 255 * MEAN, atol=1e-2)


def test_other_crops_are_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"crops of training pictures must be a known name.*'side25'"
    ):
        datasets.get("imagenet2012").check_arguments({"crops": "side25"})
    with pytest.raises(UserError, match=r"ten_crops must be True or False. Received: ten_crops=3"):
        datasets.get("imagenet2012").check_arguments({"ten_crops": 3})
