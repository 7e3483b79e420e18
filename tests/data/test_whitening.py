"""Whitened pictures: contrast normalization and ZCA by their defining properties."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.whitening import CONTRAST_BIAS, ZCA_BIAS, Whitened, normalize_contrast, zca


def test_by_hand_a_picture_loses_its_mean_and_its_contrast() -> None:
    image = np.array([[[[10], [30]], [[10], [30]]]], np.uint8)  # deviations -10, 10; variance 100
    found = normalize_contrast(image)
    np.testing.assert_allclose(found, np.array([[-10, 10, -10, 10]]) / np.sqrt(110), rtol=1e-6)
    assert CONTRAST_BIAS == 10
    flat = np.full((1, 2, 2, 3), 7, np.uint8)
    np.testing.assert_array_equal(normalize_contrast(flat), np.zeros((1, 12)))


def test_zca_is_symmetric_and_whitens_up_to_its_bias() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((6_000, 5)) @ rng.standard_normal((5, 5)) + 3).astype(np.float32)
    mean, matrix = zca(rows)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)
    whitened = (rows - mean) @ matrix
    variances, axes = np.linalg.eigh(np.cov(rows.T, bias=True))
    expected = axes * (variances / (variances + ZCA_BIAS)) @ axes.T
    np.testing.assert_allclose(np.cov(whitened.T, bias=True), expected, atol=1e-4)
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-4)


def test_the_training_part_alone_makes_the_matrix(digits: Path) -> None:
    some: Any = datasets.load("digits", 300, {"whitened": True})
    other: Any = datasets.load("digits", 299, {"whitened": True})
    assert isinstance(some.train, Whitened)
    plain: Any = datasets.load("digits", 300)
    rows = normalize_contrast(plain.train.images)
    mean, matrix = zca(rows)
    for part in ("train", "val", "test"):
        pixels = normalize_contrast(getattr(plain, part).images)
        expected = ((pixels - mean) @ matrix).reshape(getattr(plain, part).images.shape)
        np.testing.assert_allclose(getattr(some, part).x, expected, atol=1e-5)
        np.testing.assert_array_equal(getattr(some, part).y, getattr(plain, part).labels)
    assert not np.allclose(some.test.x, other.test.x, atol=1e-7)


def test_whitened_pictures_are_cut_and_flipped_as_others_are(digits: Path) -> None:
    splits: Any = datasets.load("digits", 300, {"whitened": True})
    x, y = splits.train.train_batch(3, 32, 7, 2)
    plain, labels = splits.train.train_batch(3, 32, 7, None)
    np.testing.assert_array_equal(y, labels)
    assert y.dtype == np.int32
    assert x.shape == plain.shape
    assert any(np.array_equal(one, other[:, ::-1]) for one, other in zip(x, plain, strict=True))
    assert not np.array_equal(x, plain)


def test_all_pictures_can_be_whitened(digits: Path) -> None:
    splits = datasets.load("digits", None, {"whitened": True}, validation=False)
    assert (len(splits.train), len(splits.val)) == (1_347, 0)


@pytest.mark.slow
def test_a_network_trains_on_them_and_is_stored(home: Path, digits: Path) -> None:
    from pipelines.recipes.catalog import get_recipe
    from pipelines.results import evaluation
    from pipelines.running.run import run

    recipe = get_recipe("allconv-digits", "smoke").override(
        data_args={"whitened": True}, augment=True, steps=30
    )
    result = run(recipe)
    assert evaluation.evaluate(result.run_id)["agrees"]
