"""Pairs of digits: thresholds, the gradient, the cut of W, and what a training does."""

from pathlib import Path

import numpy as np
import pytest

from pipelines.claims.li_yuan.digit_pairs import (
    CLAIM,
    PAIRS,
    Pair,
    Setting,
    best_threshold,
    clip_norm,
    descent,
    gradient,
    load_pair,
    measure,
    output,
    training_images,
)
from pipelines.errors import UserError
from pipelines.measurement.grid import Cell, Cells, list_cells

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


def test_blank_pixels_take_no_part_in_a_training():
    whole = random_pair(40, 7, blank=3)
    used = Pair(whole.x[:, 3:], whole.side, whole.threshold, whole.spread)
    cell = Cell({**SETTING, "batch_size": 8, "steps": 12, "clip_every": 5}, seed=4)
    paths = [list(descent(pair, cell)) for pair in (whole, used)]
    assert [step for step, _ in paths[0]] == [0, 5, 10, 12]
    for (_, W), (_, V) in zip(*paths, strict=True):
        np.testing.assert_array_equal(W[:3], 0)
        np.testing.assert_array_equal(W[:, :3], 0)
        np.testing.assert_allclose(W[3:, 3:], V, atol=1e-7)


def test_a_training_starts_at_the_ink_and_lowers_its_errors(digits: Path):
    training_images.cache_clear()
    images, labels = training_images("digits")
    axes = {**{key: (value,) for key, value in SETTING.items()}, "pair": ("0-1", "4-9")}
    chosen = list_cells(axes | {"steps": (80,), "clip_every": (20,)}, seeds=2)
    steps, curves = measure(Cells(tuple(chosen)))
    np.testing.assert_array_equal(steps, [0, 20, 40, 60, 80])
    start, best = (curves[key][:, 0] for key in ("train_error_pct", "best_error_pct"))
    for i, cell in enumerate(chosen):
        one, other = (int(digit) for digit in cell.point["pair"].split("-"))
        ink = [images[labels == digit].sum(axis=1, dtype=float) for digit in (one, other)]
        light, dark = sorted(ink, key=np.mean)
        middle = (light.mean() + dark.mean()) / 2
        wrong = [np.sum(light > t) + np.sum(dark <= t) for t in [middle, *light, *dark, -1]]
        assert start[i] == pytest.approx(100 * wrong[0] / sum(map(len, ink)))
        assert best[i] == pytest.approx(100 * min(wrong) / sum(map(len, ink)))
    assert np.all(curves["train_error_pct"][:, -1] < 0.3 * start)
    assert np.all(curves["best_error_pct"] <= curves["train_error_pct"] + 1e-12)
    assert np.all(curves["norm"] <= 0.6 * (1 + 1e-5))
    assert np.any(curves["train_error_pct"][0] != curves["train_error_pct"][1]), "the seed's order"
    pair = load_pair("digits", 0, 1)
    assert pair.x.any(axis=0).all()
    zeros = np.zeros((pair.x.shape[1],) * 2)
    np.testing.assert_allclose(output(pair.x, zeros), pair.x.sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pair": ("0-1", "3-3")}, r"pair of digits must be .* Received: '3-3'\. .* Choices: 0-1"),
        ({"pair": ("9-4",)}, "Received: '9-4'"),
        (
            {"norm": -0.1},
            r"norm must be .* finite numbers >= 0\. Received: \(-0\.1,\)\. Set --norm",
        ),
        ({"rate": float("inf")}, r"rate must be .* finite numbers >= 0\. Received: \(inf,\)"),
        ({"data": "minst"}, r"data set of digits .*Received: 'minst'\. Did you mean mnist"),
        ({"steps": 0}, r"steps must be >= 1\. Received: steps=0\. Set --steps"),
        ({"batch_size": 0}, "batch_size must be >= 1"),
    ],
)
def test_settings_that_cannot_be_are_rejected(wrong, message):
    with pytest.raises(UserError, match=message):
        Setting(**wrong)


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
        ({}, "reproduced"),
        ({"zero_one_at_zero_train_error_pct": 6.19}, "refuted"),
        ({"mean_at_zero_train_error_pct": 43.5}, "refuted"),
        ({"zero_one_near_zero_train_error_pct": 1.4}, "refuted"),
        ({"mean_near_zero_train_error_pct": 16.0}, "refuted"),
    ],
)
def test_each_of_the_four_numbers_can_refute(changed: dict[str, float], verdict: str) -> None:
    measured = {
        "zero_one_at_zero_train_error_pct": 7.15,
        "mean_at_zero_train_error_pct": 33.78,
        "zero_one_near_zero_train_error_pct": 0.7,
        "mean_near_zero_train_error_pct": 8.0,
    }
    values = {key: [value, value] for key, value in (measured | changed).items()}
    assert CLAIM.verdict(values, "paper") == verdict
    assert CLAIM.verdict(values, "cpu") == "smaller scale"


def test_as_printed_a_better_w_than_the_papers_contradicts_nothing() -> None:
    values = {name: [value + 0.4, value + 0.4] for name, value in CLAIM.reported.items()}
    assert CLAIM.judge_printed(values) == "holds"
    assert CLAIM.judge_printed(values | {"mean_near_zero_train_error_pct": [8.0, 8.0]}) == "holds"
    worse = values | {"mean_near_zero_train_error_pct": [16.0, 16.0]}
    assert CLAIM.judge_printed(worse).startswith(
        "fails: at most 14 % (mean_near_zero_train_error_pct 16, not"
    )
    other = values | {"mean_at_zero_train_error_pct": [31.0, 31.0]}  # nothing is trained there
    assert CLAIM.judge_printed(other).startswith(
        "fails: 34 % (mean_at_zero_train_error_pct 31, not"
    )
