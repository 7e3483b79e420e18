"""Pairs of digits: thresholds, the gradient, the cut of W, and what a training does."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.claims.li_yuan.digit_pairs import (
    CLAIM,
    PAIRS,
    Pair,
    best_threshold,
    clip_norm,
    customary,
    descent,
    gradient,
    load_images,
    make_pair,
    measure,
    output,
    training_images,
)
from pipelines.measurement.grid import Cell, Cells, list_cells
from tests.conftest import needs

OTHERS = {
    "at_zero_unit_interval": lambda x: x,
    "at_zero_symmetric": lambda x: 2 * x - 1,
    "at_zero_centred": lambda x: x - x.mean(axis=0),
    "at_zero_unit_length": lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
}
SETTING = {"data": "digits", "norm": 0.6, "rate": 2e-3, "batch_size": 64}


def random_pair(n, d, blank=0):
    """Images of which the first `blank` pixels are 0, and random sides; in double precision."""
    rng = np.random.default_rng(d)
    x = rng.uniform(size=(n, d))
    x[:, :blank] = 0
    return Pair(x, rng.choice([-1.0, 1.0], n), threshold=d / 2, spread=1.3)


def test_split_by_hand():
    side = np.array([-1, 1, -1, 1, 1])
    assert best_threshold(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), side) == (1.5, 0.2)
    # the two in the middle are equal: no threshold comes between them
    assert best_threshold(np.array([1.0, 2.0, 2.0, 2.0, 3.0]), np.array([-1, -1, 1, 1, 1])) == (
        1.5,
        0.2,
    )
    assert best_threshold(np.array([1.0, 1.0, 1.0]), np.array([-1, 1, -1])) == (
        2.0,
        pytest.approx(1 / 3),
    )


def test_split_is_the_best_of_all_thresholds():
    rng = np.random.default_rng(0)
    for _ in range(20):
        f, side = rng.integers(0, 9, 30) / 2, rng.choice([-1, 1], 30)
        threshold, share = best_threshold(f, side)
        errors = [np.mean((f > t) != (side > 0)) for t in np.arange(-0.25, 5, 0.5)]
        assert share == min(errors) == np.mean((f > threshold) != (side > 0))


def test_gradient_is_that_of_the_mean_logistic_loss():
    pair, rng = random_pair(12, 5), np.random.default_rng(1)
    W, V = rng.normal(size=(2, 5, 5)) / 5
    index = np.array([3, 0, 11, 7])

    def loss(t):
        margin = 4 / pair.spread * (output(pair.x[index], W + t * V) - pair.threshold)
        return np.mean(np.log1p(np.exp(-pair.side[index] * margin)))

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert np.sum(gradient(pair, index, W) * V) == pytest.approx(slope, rel=1e-7)


def test_a_cut_changes_the_large_singular_values_only():
    U, s, Vt = np.linalg.svd(np.random.default_rng(2).normal(size=(6, 6)))
    clipped = clip_norm(U * s @ Vt, 1.0)
    np.testing.assert_allclose(clipped, U * np.minimum(s, 1) @ Vt, atol=1e-6)
    np.testing.assert_allclose(clip_norm(clipped / 2, 1.0), clipped / 2, atol=1e-6)


def test_a_training_starts_at_lys_threshold_and_lowers_its_errors(digits: Path):
    training_images.cache_clear()
    images, labels = training_images("digits")
    axes = {**{key: (value,) for key, value in SETTING.items()}, "pair": ("0-1", "4-9")}
    chosen = list_cells(axes | {"steps": (80,), "clip_every": (20,)}, seeds=2)
    steps, curves = measure(Cells(tuple(chosen)))
    np.testing.assert_array_equal(steps, [0, 20, 40, 60, 80])
    np.testing.assert_array_equal(
        curves["train_error_pct"][:, 0], curves["best_error_pct"][:, 0]
    )  # the threshold is the optimal one at W = 0
    for i, cell in enumerate(chosen):
        one, other = (int(digit) for digit in cell.point["pair"].split("-"))
        for curve, change in (("train_error_pct", customary), *OTHERS.items()):
            x = change(images / 255)
            ink = [np.maximum(x[labels == digit], 0).sum(axis=1) for digit in (one, other)]
            every = np.concatenate([[-np.inf], *ink])
            wrong = [np.sum(ink[0] > t) + np.sum(ink[1] <= t) for t in every]
            total = sum(map(len, ink))
            least = min(*wrong, *(total - each for each in wrong))  # either digit may be above
            assert curves[curve][i, 0] == pytest.approx(100 * least / total, abs=0.6), curve
    assert np.all(curves["train_error_pct"][:, -1] < curves["train_error_pct"][:, 0])
    assert np.all(curves["best_error_pct"] <= curves["train_error_pct"] + 1e-12)
    assert np.all(curves["norm"] <= 0.6 * (1 + 1e-5))
    assert np.any(curves["train_error_pct"][0] != curves["train_error_pct"][1]), "the seed's order"


def test_pixels_are_normalized_by_the_moments_of_mnist():
    white = customary(np.ones((1, 1), np.float32))
    assert white[0, 0] == pytest.approx((1 - 0.1307) / 0.3081)
    assert customary(np.zeros((1, 1), np.float32))[0, 0] == pytest.approx(-0.1307 / 0.3081)


@needs("mnist")
def test_the_errors_at_zero_on_mnist_round_to_lys():
    pair = make_pair(*load_images("mnist", 0, 1))
    assert pair.x.shape == (12665, 784)
    f = np.maximum(pair.x, 0).sum(axis=1)
    wrong = 100 * np.mean((f > pair.threshold) != (pair.side > 0))
    assert wrong == pytest.approx(6.89, abs=0.01)  # LY: 7 %


def test_a_pair_with_fewer_images_than_a_batch_is_one_batch():
    pair = random_pair(40, 3)
    ends = [
        [
            W
            for _, W in descent(
                pair, Cell({**SETTING, "steps": 3, "clip_every": 1, "batch_size": size}, seed=0)
            )
        ]
        for size in (40, 64)
    ]
    np.testing.assert_array_equal(*ends)


def test_there_are_45_pairs():
    assert len(PAIRS) == len(set(PAIRS)) == 45


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "holds"),
        ({"zero_one_at_zero_train_error_pct": 6.19}, "holds"),  # decides nothing: other pixels
        ({"zero_one_near_zero_train_error_pct": 1.6}, "broken"),
        ({"mean_near_zero_train_error_pct": 16.0}, "broken"),
    ],
)
def test_each_of_the_errors_near_zero_can_refute(changed: dict[str, float], verdict: str) -> None:
    measured = {
        "zero_one_at_zero_train_error_pct": 6.89,
        "mean_at_zero_train_error_pct": 33.81,
        "zero_one_near_zero_train_error_pct": 0.93,
        "mean_near_zero_train_error_pct": 8.0,
    }
    values = {key: [value, value] for key, value in (measured | changed).items()}
    assert CLAIM.outcome(values, "paper") == verdict
    assert CLAIM.outcome(values, "cpu") == "not judged (smaller run)"


def test_a_better_w_than_the_papers_contradicts_nothing_and_no_number_accuses() -> None:
    [quoted] = CLAIM.printed
    values = {name: [value + 0.4, value + 0.4] for name, value in CLAIM.reported.items()}
    assert quoted.judge(values).grade == "holds"
    better = values | {"mean_near_zero_train_error_pct": [8.0, 8.0]}
    assert quoted.judge(better).grade == "holds"
    for worse in (
        {"mean_near_zero_train_error_pct": [16.0, 16.0]},
        {"mean_at_zero_train_error_pct": [31.0, 31.0]},  # nothing is trained there
    ):  # LY state neither their pixels nor how W was found
        assert quoted.judge(values | worse).grade == "not tested"
