"""Batches: what an epoch holds, that a step needs no other, crops, flips and standardization."""

import subprocess
import sys

import numpy as np
import pytest

from pipelines.data.datasets import Splits
from pipelines.data.splits import Pictures, Split, channel_moments
from tests.conftest import ROOT


def split(n: int, shape: tuple[int, int, int] = (6, 5, 2), seed: int = 0) -> Pictures:
    """Random pictures, each labelled by its own index."""
    images = np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)
    return Pictures(images, np.arange(n), *channel_moments(images))


def labels(data: Split, steps: range, batch_size: int, seed: int = 0) -> list[int]:
    batches = [data.train_batch(step, batch_size, seed, shift=None) for step in steps]
    return [int(label) for _, y in batches for label in y]


def crops(image: np.ndarray) -> list[np.ndarray]:
    """All 81 crops of the picture inside a border of 4 zeros, and their mirror images."""
    h, w, c = image.shape
    padded = np.zeros((h + 8, w + 8, c), image.dtype)
    padded[4 : 4 + h, 4 : 4 + w] = image
    straight = [padded[i : i + h, j : j + w] for i in range(9) for j in range(9)]
    return straight + [np.flip(crop, axis=1) for crop in straight]


def test_batches_have_the_types_the_network_reads() -> None:
    x, y = split(20).train_batch(0, 4, 0, shift=4)
    assert (x.dtype, x.shape) == (np.float32, (4, 6, 5, 2))
    assert (y.dtype, y.shape) == (np.int32, (4,))


def test_the_order_is_stable() -> None:
    # A run killed under one version and continued under another reads the same examples.
    assert labels(split(8), range(4), 4, seed=0) == [2, 4, 3, 6, 5, 0, 1, 7, 4, 1, 5, 3, 6, 7, 2, 0]
    assert labels(split(8), range(2), 4, seed=1) == [5, 0, 1, 4, 2, 6, 3, 7]


@pytest.mark.parametrize("shift", [None, 4])
def test_a_batch_depends_on_seed_and_step_alone(shift: int | None) -> None:
    steps = [7, 0, 123, 7, 1, 0, 122]
    once = {step: split(20).train_batch(step, 4, 5, shift) for step in sorted(set(steps))}
    data = split(20)
    for step in steps:
        np.random.default_rng(0).random()
        x, y = data.train_batch(step, 4, 5, shift)
        np.testing.assert_array_equal(x, once[step][0])
        np.testing.assert_array_equal(y, once[step][1])


def test_a_step_can_be_made_in_another_process_without_those_before() -> None:
    code = (
        "from tests.data.test_batches import split; import sys\n"
        "x, y = split(20).train_batch(4321, 4, 5, shift=4)\n"
        "sys.stdout.buffer.write(x.tobytes() + y.tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    x, y = split(20).train_batch(4321, 4, 5, shift=4)
    assert done.stdout == x.tobytes() + y.tobytes()


def test_a_batch_leaves_global_random_state_alone() -> None:
    before = repr(np.random.get_state())
    split(20).train_batch(0, 4, 0, shift=4)
    assert repr(np.random.get_state()) == before


@pytest.mark.parametrize(("n", "batch_size"), [(12, 4), (13, 4), (7, 7), (9, 1), (10, 6)])
def test_an_epoch_visits_no_example_twice_and_all_of_whole_batches(n: int, batch_size: int) -> None:
    per_epoch = n // batch_size
    for epoch in range(5):
        seen = labels(split(n), range(epoch * per_epoch, (epoch + 1) * per_epoch), batch_size)
        assert len(seen) == len(set(seen)) == per_epoch * batch_size
        assert set(seen) <= set(range(n))


def test_examples_left_out_of_one_epoch_come_in_others() -> None:
    seen = labels(split(13), range(3 * 20), 4)
    assert set(seen) == set(range(13))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        tuple(labels(split(40), range(10 * epoch, 10 * (epoch + 1)), 4, seed))
        for epoch in range(5)
        for seed in range(5)
    }
    assert len(orders) == 25


def test_every_example_is_equally_likely_to_come_first() -> None:
    data = split(4)
    first = [labels(data, range(step, step + 1), 1)[0] for step in range(0, 4 * 1000, 4)]
    # 250 expected of each; the standard deviation is sqrt(1000 * 1/4 * 3/4) = 13.7.
    assert np.abs(np.bincount(first) - 250).max() < 5 * 13.7


def test_an_augmented_picture_is_one_of_the_crops_of_its_own_label() -> None:
    data = split(30)
    every = [crops(image) for image in data.take(slice(None))[0]]
    for step in range(30):
        x, y = data.train_batch(step, 8, 3, shift=4)
        for image, label in zip(x, y, strict=True):
            assert sum(np.array_equal(image, crop) for crop in every[label]) == 1


def test_augmentation_draws_every_crop_and_flip_as_often() -> None:
    data = split(16, shape=(9, 9, 1))
    index = [{crop.tobytes(): i for i, crop in enumerate(crops(im))} for im in data.take(...)[0]]
    drawn = [
        index[label][image.tobytes()]
        for step in range(1000)
        for image, label in zip(*data.train_batch(step, 16, 0, shift=4), strict=True)
    ]
    counts = np.bincount(drawn, minlength=162)
    # 16,000 draws of 162: 98.8 expected of each, standard deviation 9.9.
    assert counts.sum() == 16_000
    assert np.abs(counts - 98.8).max() < 5 * 9.9
    assert counts[:81].sum() == pytest.approx(8_000, abs=5 * 63)


@pytest.mark.parametrize("seed", range(3))
def test_pictures_move_by_4_pixels_as_they_always_did(seed: int) -> None:
    data, step = split(20), 7
    x, labels = data.train_batch(step, 4, seed, shift=4)
    rng = np.random.default_rng([seed, 1, step])  # a run of before goes on with the same pictures
    corners, flips = rng.integers(0, 9, (4, 2)), rng.random(4) < 0.5
    padded = np.pad(data.take(labels)[0], ((0, 0), (4, 4), (4, 4), (0, 0)))
    for i, (row, column) in enumerate(corners):
        expected = padded[i, row : row + 6, column : column + 5]
        np.testing.assert_array_equal(x[i], np.flip(expected, axis=1) if flips[i] else expected)


@pytest.mark.parametrize("shift", [0, 2, 8])
def test_a_picture_moves_by_every_distance_up_to_the_shift(shift: int) -> None:
    images = np.zeros((1, 33, 33, 1), np.uint8)
    images[0, 16, 16] = 255  # a dot in the middle of black
    data = Pictures(images, np.zeros(1, int), np.zeros(1, np.float32), np.ones(1, np.float32))
    drawn = [data.train_batch(step, 1, 0, shift)[0] for step in range(300)]
    places = np.array([np.argwhere(x)[0, 1:3] for x in drawn]) - 16
    for axis in (0, 1):
        assert set(places[:, axis].tolist()) == set(range(-shift, shift + 1))


def test_augmentation_keeps_the_examples_and_their_order() -> None:
    data = split(20)
    for step in range(10):
        plain, augmented = (data.train_batch(step, 4, 0, shift) for shift in (None, 4))
        np.testing.assert_array_equal(plain[1], augmented[1])
        np.testing.assert_array_equal(plain[0], data.take(plain[1])[0])
        assert not np.array_equal(plain[0], augmented[0])


@pytest.mark.parametrize("shift", [None, 4])
def test_the_parts_of_a_batch_are_cut_from_the_whole(shift: int | None) -> None:
    data = split(20)
    whole = data.train_batch(7, 6, 5, shift)
    parts = [data.train_batch(7, 6, 5, shift, (i, 3)) for i in range(3)]
    for number in (0, 1):
        joined = np.concatenate([part[number] for part in parts])
        np.testing.assert_array_equal(joined, whole[number])


def test_the_same_example_is_cropped_anew_in_every_epoch_and_seed() -> None:
    data = split(1, shape=(8, 8, 1))
    for runs in ([(0, epoch) for epoch in range(40)], [(seed, 0) for seed in range(40)]):
        drawn = {data.train_batch(step, 1, seed, shift=4)[0].tobytes() for seed, step in runs}
        assert len(drawn) > 25  # of 162 crops


@pytest.mark.parametrize(("n", "batch_size", "batches"), [(10, 4, 3), (8, 4, 2), (3, 500, 1)])
def test_evaluation_weighs_every_example_once_in_order(
    n: int, batch_size: int, batches: int
) -> None:
    data = split(n)
    found = [data.eval_batch(number, batch_size) for number in range(batches)]
    assert [[len(part) for part in batch] for batch in found] == [[batch_size] * 3] * batches
    x, y, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert weight.dtype == np.float32
    assert weight.tolist() == [1.0] * n + [0.0] * (batches * batch_size - n)
    assert y[:n].tolist() == list(range(n))
    np.testing.assert_array_equal(x[:n], data.take(slice(n))[0])


def test_vectors_are_read_as_they_are_stored() -> None:
    x = np.linspace(-300, 300, 20, dtype=np.float32).reshape(10, 2)
    data = Split(x, -x)
    inputs, targets = data.train_batch(1, 4, seed=0, shift=None)
    rows = [x.tolist().index(row) for row in inputs.tolist()]
    assert rows == labels(split(10), range(1, 2), 4, seed=0)  # the order that pictures have
    np.testing.assert_array_equal(targets, -inputs)
    batches = [data.eval_batch(number, 4) for number in range(3)]
    parts = [np.concatenate(part) for part in zip(*batches, strict=True)]
    np.testing.assert_array_equal(parts[0][:10], x)
    np.testing.assert_array_equal(parts[1][:10], -x)
    assert parts[2].tolist() == [1.0] * 10 + [0.0] * 2


def test_splits_of_vectors_know_their_shape_and_digest() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    digests = set()
    for y in (x[:, :2].copy(), x[:, 1:].copy()):
        part = Split(x, y)
        splits = Splits("x", 2, part, part, part)
        assert splits.input_shape == (3,)
        digests.add(splits.digest)
    assert len(digests) == 2


def test_standardized_training_pictures_have_mean_0_and_deviation_1() -> None:
    images = split(200).images
    images[..., 0] //= 4  # channels of different moments
    data = Pictures(images, np.arange(200), *channel_moments(images))
    x, _ = data.take(slice(None))
    assert x.mean(axis=(0, 1, 2), dtype=np.float64) == pytest.approx([0, 0], abs=1e-5)
    assert x.std(axis=(0, 1, 2), dtype=np.float64) == pytest.approx([1, 1], abs=1e-5)


def test_standardization_by_hand() -> None:
    images = np.array([[[[0]], [[255]]], [[[51]], [[102]]]], np.uint8)  # [2, 2, 1, 1]
    moments = np.array([0.4], np.float32), np.array([0.2], np.float32)
    data = Pictures(images, np.array([3, 4]), *moments)
    x, y = data.take(np.array([1, 0]))
    assert x.ravel() == pytest.approx([-1.0, 0.0, -2.0, 3.0], abs=1e-6)
    assert y.tolist() == [4, 3]


@pytest.mark.parametrize("shape", [(50, 7, 5, 3), (3, 8, 8, 1), (1, 1, 2, 4), (10_003, 2, 1, 2)])
def test_channel_moments_are_numpys(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    mean, std = channel_moments(images)
    assert (mean.dtype, std.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 1, 2)), rtol=1e-6)


def test_a_channel_of_one_value_stays_finite() -> None:
    images = np.full((3, 4, 4, 1), 7, np.uint8)
    x, _ = Pictures(images, np.arange(3), *channel_moments(images)).take(slice(None))
    assert np.isfinite(x).all()
    assert np.abs(x).max() < 1


def test_the_digest_changes_with_one_pixel_and_with_one_label() -> None:
    one = split(10)
    pixel, label = one.images.copy(), one.labels.copy()
    pixel[3, 2, 1, 0] ^= 1
    label[3] += 1
    variants = [
        one,
        Pictures(pixel, one.labels, one.mean, one.std),
        Pictures(one.images, label, one.mean, one.std),
    ]
    digests = [Splits("x", 10, variant, split(3), split(3)).digest for variant in variants]
    assert len(set(digests)) == 3
    assert digests[0] == Splits("x", 10, split(10), split(4), split(4)).digest
    assert all(len(digest) == 8 for digest in digests)
