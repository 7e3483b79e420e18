"""Near-identity factorizations: the product, the bounds from both sides, the rejections."""

import re

import numpy as np
import pytest

from theory.factorization import (
    augment,
    balanced,
    balanced_bound,
    compose,
    conditioning,
    displacement,
    lower_bound,
    max_norm,
    merged_split,
    paper_bound,
    polar_angle,
    printed,
    rounding_factor,
)

SLACK = 1 + 1e-12


def positive(seed, *shape):
    """Gaussian matrices [..., d, d] with a row negated where the determinant is negative."""
    R = np.random.default_rng(seed).normal(size=shape) / np.sqrt(shape[-1])
    R[..., 0, :] *= np.sign(np.linalg.det(R))[..., None]
    return R


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def spd(seed, *shape):
    M = np.random.default_rng(seed).normal(size=shape)
    return M @ M.mT + 0.1 * np.eye(shape[-1])


def error(A, R):
    return (np.linalg.norm(compose(A) - R, axis=(-2, -1)) / np.linalg.norm(R, axis=(-2, -1))).max()


def half_turns():  # angles pi, pi and 0 in a generic basis
    Z, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(7, 7)))
    return Z @ np.diag([-1.0, -1, -1, -1, 1, 1, 1]) @ Z.T @ spd(6, 7, 7)


SPECIAL = {
    "one dimension": np.array([[0.03]]),
    "identity": np.eye(5),
    "minus identity": -np.eye(4),
    "one pair of -1": np.diag([-2.0, 1.0, -0.5]),
    "half turns in a generic basis": half_turns(),
    "almost a half turn": rotation(np.pi - 1e-9),
    "almost the identity": rotation(1e-9),
    "positive definite": spd(1, 6, 6),
    "stack": positive(50, 2, 3, 4, 4),
    "permutation": np.roll(np.eye(5), 1, axis=0),
}


@pytest.mark.parametrize("depth", [1, 2, 7, 100])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 32])
def test_balanced_layers_multiply_to_the_target_over_leading_axes(d, depth):
    R = positive(d, 3, 2, d, d)
    A = balanced(R, depth)
    assert A.shape == (3, 2, depth, d, d)
    assert error(A, R) < 1e-12
    np.testing.assert_allclose(A[2, 1], balanced(R[2, 1], depth), rtol=0, atol=1e-13)
    norms = np.linalg.norm(A, 2, axis=(-2, -1))  # all layers have the same
    assert np.all(np.ptp(norms, axis=-1) < 1e-13 * (1 + norms[..., 0]))


@pytest.mark.parametrize("depth", [1, 2, 9, 1000])
@pytest.mark.parametrize("name", SPECIAL)
def test_balanced_special_targets(name, depth):
    A = balanced(R := SPECIAL[name], depth)
    assert error(A, R) < 1e-12
    assert np.all(max_norm(A) <= balanced_bound(R, depth) * SLACK + 1e-15)


def test_nothing_cancels_at_great_depth():
    log, depth = np.log(4.0), 10**5  # l (4^{1/l} - 1) = log + log^2/2l + log^3/6l^2 + ...
    grow = balanced(np.diag([4.0, 0.25]), depth)[0]
    assert depth * grow[0, 0] == pytest.approx(log + log**2 / (2 * depth), rel=1e-10)
    turn = balanced(rotation(1.0), depth)[0]
    np.testing.assert_allclose(turn[:, 0] * [depth**2, depth], [-0.5, 1.0], rtol=1e-9)


def test_two_layers_by_hand():
    h = np.sqrt(0.5)
    eighth = [[h - 1, -h], [h, h - 1]]
    np.testing.assert_allclose(balanced([[0, -1], [1, 0]], 2), [eighth, eighth], atol=1e-15)
    np.testing.assert_allclose(balanced([[4, 0], [0, 0.25]], 2), [np.diag([1, -0.5])] * 2)
    # R = T(90) diag(4, 1/4): T(45) diag(2, 1/2), then T(90) diag(2, 1/2) T(-45)
    first = [[2 * h - 1, -h / 2], [2 * h, h / 2 - 1]]
    second = [[h / 2 - 1, -h / 2], [2 * h, 2 * h - 1]]
    np.testing.assert_allclose(balanced([[0, -0.25], [4, 0]], 2), [first, second], atol=1e-14)


def test_theta_and_gamma_by_hand():
    R = rotation(-2.0) @ np.diag([4.0, 0.125])
    assert polar_angle(R) == pytest.approx(2.0)
    assert conditioning(R) == pytest.approx(np.log(8))
    assert paper_bound(R, 10) == pytest.approx((4 * np.pi + 3 * np.log(8)) / 10)
    assert balanced_bound(R, 10) == pytest.approx(2 * np.sin(0.1) + 8**0.1 - 1)
    assert isinstance(lower_bound(R, 10), float)


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_measured_norm_below_our_bound_below_the_papers_at_every_depth(d):
    for R in positive(10 + d, 8, d, d) * np.geomspace(0.3, 3, 8)[:, None, None]:
        start = max(1, int(np.ceil(3 * conditioning(R))))
        depths = np.arange(start, start + 2000)
        ours, paper = balanced_bound(R, depths), paper_bound(R, depths)
        assert np.all(ours <= paper)
        assert np.all(ours <= (np.pi + 1.188 * conditioning(R)) / depths)
        for i in (*range(60), 150):
            assert max_norm(balanced(R, depths[i])) <= ours[i] * SLACK


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_measured_norm_keeps_the_papers_bound_at_every_integer_depth(d):
    for R in positive(70 + d, 3, d, d):
        for depth in range(max(1, int(np.ceil(3 * conditioning(R)))), 130):
            assert max_norm(balanced(R, depth)) <= paper_bound(R, depth)


def test_gaussian_targets_are_factored_within_15_percent_of_the_optimum():
    R = positive(80, 20, 8, 8)
    assert np.mean(max_norm(balanced(R, 128)) / lower_bound(R, 128)) <= 1.15


def test_minus_identity_attains_our_bound():
    for depth in (1, 2, 5, 40):
        expected = 2 * np.sin(np.pi / (2 * depth))
        assert max_norm(balanced(-np.eye(4), depth)) == pytest.approx(expected, rel=1e-13)
        assert balanced_bound(-np.eye(4), depth) == pytest.approx(expected, rel=1e-13)


def test_positive_definite_targets_are_factored_optimally():
    R = spd(3, 10, 4, 4)
    for depth in (1, 3, 10, 77):
        norm = max_norm(balanced(R, depth))
        np.testing.assert_allclose(norm, lower_bound(R, depth), rtol=1e-11)
        s = np.linalg.eigvalsh(R)
        optimum = np.maximum(s[:, -1] ** (1 / depth) - 1, 1 - s[:, 0] ** (1 / depth))
        np.testing.assert_allclose(norm, optimum, rtol=1e-11)
        assert np.all(norm <= np.expm1(conditioning(R) / depth) * SLACK)  # bound (1) at theta = 0


def test_bounds_broadcast_depth_against_leading_axes():
    R, depths = positive(4, 3, 1, 4, 4), np.array([5, 20, 60])
    for bound in (paper_bound, balanced_bound, lower_bound):
        curves = bound(R, depths)
        assert curves.shape == (3, 3)
        assert curves[1, 2] == pytest.approx(float(bound(R[1, 0], 60)), rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_no_construction_beats_the_lower_bound(d):
    R = positive(20 + d, 12, d, d)
    for depth in (5, 17, 64):
        low = lower_bound(R, depth)
        assert np.all(low <= max_norm(balanced(R, depth)) * SLACK)
        assert np.all(low <= max_norm(printed(R, depth)) * SLACK)
        assert np.all(low <= max_norm(merged_split(R, depth)) * SLACK)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_lower_bound_of_random_near_identity_products(d):
    rng = np.random.default_rng(30 + d)
    for depth in (1, 2, 6, 20):
        A = rng.normal(size=(40, depth, d, d))
        A *= rng.uniform(0.01, 0.95, size=(40, 1, 1, 1)) / max_norm(A)[:, None, None, None]
        A[20:] = A[20:, :1]  # the same layer again and again goes farthest
        assert np.all(lower_bound(compose(A), depth) <= max_norm(A) * SLACK)


def test_displacement_of_a_turned_stretch_in_the_plane():
    # sup over x of the move of T(theta) diag(e^g, e^-g) is theta + arctan(sinh g), below pi
    for theta, g in ((1.5, 1.0), (0.3, 0.2), (2.0, 0.5)):
        R = rotation(theta) @ np.diag(np.exp([g, -g]))
        assert displacement(R) == pytest.approx(theta + np.arctan(np.sinh(g)), rel=1e-9)


def test_displacement_bounds_every_single_vector():
    R, x = positive(40, 4, 4), np.random.default_rng(41).normal(size=(4, 5000))
    for M in (R, R.T):
        y = M @ x
        size = np.linalg.norm(y, axis=0) / np.linalg.norm(x, axis=0)
        cosine = np.sum(x * y, axis=0) / np.linalg.norm(x, axis=0) / np.linalg.norm(y, axis=0)
        assert np.hypot(np.log(size), np.arccos(cosine)).max() <= displacement(R) * SLACK


@pytest.mark.parametrize("depth", [5, 6, 20, 101])
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("split", [printed, merged_split])
def test_split_layers_multiply_to_the_target(split, name, depth):
    A = split(R := SPECIAL[name], depth)
    assert A.shape == (*R.shape[:-2], depth, *R.shape[-2:])
    assert error(A, R) < 1e-12


def test_splits_attain_the_estimate_at_the_best_integers():
    # one of U and V is -I: q layers turn it, in a group of its own or with the angles below pi
    R = -np.diag(np.exp([0.5, -0.5]))
    for split, share in ((printed, 4), (merged_split, 2)):
        for depth in (5, 6, 11, 40):
            q = np.arange(1, (depth - 1) // share + 1)
            norms = np.maximum(2 * np.sin(np.pi / (2 * q)), np.exp(0.5 / (depth - share * q)) - 1)
            assert max_norm(split(R, depth)) == pytest.approx(norms.min(), rel=1e-12)
    assert error(merged_split(R, 3), R) < 1e-15  # its least depth


def test_merged_is_nearer_to_the_identity_than_printed():
    R = positive(90, 20, 8, 8)
    for depth in (5, 12, 128):
        ours, paper = max_norm(merged_split(R, depth)), max_norm(printed(R, depth))
        assert np.all(ours <= paper * SLACK)
    assert np.mean(ours / paper) < 0.7


def test_printed_statement_shown_false_by_explicit_counterexample():
    # The proof of HM Theorem 2.1 rounds q and p in 4q + p = l. For R = -diag(e^.5, e^-.5) one of
    # U and V is -I, and at these depths no integers q and p keep the bound, although l >= 3 gamma.
    R, failing = -np.diag(np.exp([0.5, -0.5])), [8, 10, 11, 12, 15, 16, 19, 20, 23, 24, 25]
    failing += [28, 29, 32, 33, 37, 41, 45, 50, 54]
    for depth in range(5, 150):
        paper = (4 * np.pi + 1.5) / depth
        assert (max_norm(printed(R, depth)) > paper) == (depth in failing)
        assert max_norm(balanced(R, depth)) < paper  # the theorem itself holds
    for depth in failing:
        q = np.arange(1, (depth - 1) // 4 + 1)
        norms = np.maximum(2 * np.sin(np.pi / (2 * q)), np.exp(0.5 / (depth - 4 * q)) - 1)
        assert np.all(norms > (4 * np.pi + 1.5) / depth)


def test_augment_factors_a_reflected_target():
    R = positive(60, 4, 3, 3)
    R[:, 0] *= -1
    wide = augment(R)
    np.testing.assert_allclose(conditioning(wide), conditioning(R), rtol=1e-12)
    y = compose(balanced(wide, 12)) @ [1.0, -2, 3, 0.7]
    np.testing.assert_allclose(y[:, :3], R @ [1.0, -2, 3], atol=1e-12)
    np.testing.assert_allclose(y[:, 3], -0.7, atol=1e-12)
    assert error(balanced(-R, 12), -R) < 1e-12  # the other remedy, d = 3 is odd


def test_sign_of_a_determinant_that_underflows():
    R = 1e-10 * np.eye(33)
    assert error(balanced(R, 60), R) < 1e-12
    with pytest.raises(ValueError, match="det R < 0, d=33"):
        balanced(-R, 3)


@pytest.mark.parametrize(
    "function", [balanced, printed, merged_split, paper_bound, balanced_bound, lower_bound]
)
@pytest.mark.parametrize(
    ("R", "depth", "message"),
    [
        (np.ones((2, 3)), 9, r"must be square\. Received: shape \(2, 3\)\. Pass"),
        (np.diag([1.0, np.nan, np.inf]), 9, "must be finite. Received: 2 nan or infinite entries"),
        (np.eye(2), 0, "integer >= 1. Received: depth=0. Count the layers"),
        (np.eye(2), 6.5, "Received: depth=6.5"),
        (np.diag([3.0, 0.0]), 9, "must be invertible.*s_min=0, s_max=3. Raise the small"),
        (np.diag([1e20, 1.0]), 9, r"s_min=1, s_max=1e\+20"),
        (np.stack([np.eye(2), np.ones((2, 2))]), 9, "must be invertible"),
        (np.diag([1.0, -2, 3]), 9, r"det R > 0.*d=3. Factor augment\(R\).* or -R when d is odd"),
    ],
)
def test_rejections_say_rule_received_and_remedy(function, R, depth, message):
    with pytest.raises(ValueError, match=message):
        function(R, depth)


def test_rejections_of_single_functions():
    with pytest.raises(ValueError, match=r"4q \+ p >= 5.*Received: depth=4.*balanced\(R, depth\)"):
        printed(np.eye(2), 4)
    with pytest.raises(ValueError, match=r"2q \+ p >= 3.*Received: depth=2.*balanced\(R, depth\)"):
        merged_split(np.eye(2), 2)
    with pytest.raises(ValueError, match=r"augment needs det R < 0. Received: det R > 0"):
        augment(np.eye(3))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (4, 2, 3), (4, 0, 0)])
@pytest.mark.parametrize("function", [compose, max_norm])
def test_what_is_no_stack_of_layers_is_rejected(function, shape):
    message = rf"^A must be layers \[..., l, d, d\]. Received: shape {re.escape(str(shape))}. Stack"
    with pytest.raises(ValueError, match=message):
        function(np.zeros(shape))


def test_no_layers_compose_to_the_identity():
    np.testing.assert_array_equal(compose(np.zeros((5, 0, 2, 2))), np.stack([np.eye(2)] * 5))
    np.testing.assert_array_equal(max_norm(np.zeros((5, 0, 2, 2))), np.zeros(5))


def test_rounding_the_split_costs_a_small_constant_factor():
    # gamma = 1/2, l = 12: q = 2, p = 4 is the best, 2 sin(pi/4) over (4 pi + 3/2)/12
    factor = rounding_factor(0.5, 12)
    assert factor == pytest.approx(np.sqrt(2) * 12 / (4 * np.pi + 1.5))
    gamma, l = np.geomspace(1e-3, 5, 60)[:, None], np.arange(5, 301)  # noqa: E741
    factors = rounding_factor(gamma, l)[l >= 3 * gamma]
    assert 1.3 < factors.max() < 1.36
    assert np.all(rounding_factor(gamma, 5000) < 1.001)  # deep: nearly the real split
    with pytest.raises(ValueError, match=r"4q \+ p layers"):
        rounding_factor(0.5, 4)


def test_the_estimate_of_the_split_bounds_its_layers():
    rng = np.random.default_rng(0)
    for depth in (5, 8, 12, 23):
        R = rng.normal(size=(4, 4))
        R[0] *= np.linalg.slogdet(R)[0]
        estimate = rounding_factor(conditioning(R), depth) * paper_bound(R, depth)
        assert max_norm(printed(R, depth)) <= estimate * (1 + 1e-12)
