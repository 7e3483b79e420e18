"""Population risk of the linear residual network: risk, gradient and the bound (2.3)."""

import numpy as np
import pytest

from theory.factorization import balanced, compose, max_norm
from theory.linear_resnet import (
    descent_path,
    excess_risk,
    gradient,
    gradient_bound,
    hessian_vector,
    instance_bound,
)


def covariance(rng, *shape):
    M = rng.normal(size=shape)
    return M @ M.mT / shape[-1] + 0.05 * np.eye(shape[-1])


def layers(rng, tau, *shape):
    """Gaussian layers [..., l, d, d] whose largest spectral norm is tau."""
    A = rng.normal(size=shape)
    return A * (tau / max_norm(A))[..., None, None, None]


def central_differences(A, R, sigma, h=1e-6):
    step = h * np.eye(A.size).reshape(-1, *A.shape)
    rise = excess_risk(A + step, R, sigma) - excess_risk(A - step, R, sigma)
    return (rise / (2 * h)).reshape(A.shape)


def relative(G, H):
    return np.linalg.norm(G - H) / np.linalg.norm(H)


def squared_norm(G):
    return np.sum(G**2, axis=(-3, -2, -1))


def hessian(A, R, sigma):
    """All second derivatives at one A, a row for each entry of each layer."""
    rows = hessian_vector(A, R, sigma, np.eye(A.size).reshape(-1, *A.shape))
    return rows.reshape(A.size, A.size)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 6])
def test_gradient_agrees_with_central_differences(depth, d):
    rng = np.random.default_rng(10 * depth + d)
    A, R, sigma = layers(rng, 0.6, depth, d, d), rng.normal(size=(d, d)), covariance(rng, d, d)
    assert relative(gradient(A, R, sigma), central_differences(A, R, sigma)) < 1e-7


def test_one_dimension_by_hand():
    # f - C = 3 ((1+a)(1+b) - 2)^2 at a = 1, b = 1/2: E = 1
    A, R, sigma = np.array([[[1.0]], [[0.5]]]), [[2.0]], [[3.0]]
    assert excess_risk(A, R, sigma) == pytest.approx(3.0)
    np.testing.assert_allclose(gradient(A, R, sigma).ravel(), [9.0, 12.0])
    A = -A / 2  # (1/2)(3/4) - 2 = -13/8 and tau = 1/2: 4 * 2 * (1/2)^2 * 3 * 3 (13/8)^2
    assert gradient_bound(A, R, sigma) == pytest.approx(18 * (13 / 8) ** 2)


def test_three_layers_by_hand():
    # (I+A_3)(I+A_2)(I+A_1) = [[1, 1], [1, 2]], so E = [[0, 1], [1, 1]]
    A = np.array([[[0.0, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 0], [1, 0]]])
    right = gradient(A, np.eye(2), np.eye(2))
    np.testing.assert_allclose(right[0], [[2, 4], [4, 6]], atol=1e-14)
    assert relative(right, central_differences(A, np.eye(2), np.eye(2))) < 1e-7


def test_excess_risk_agrees_with_monte_carlo():
    rng, n, d = np.random.default_rng(3), 200_000, 3
    A, R, sigma = layers(rng, 0.5, 4, d, d), rng.normal(size=(d, d)), covariance(rng, d, d)
    x = rng.normal(size=(n, d)) @ np.linalg.cholesky(sigma).T
    residual = x @ (compose(A) - R).T - rng.normal(size=(n, d))
    loss = np.sum(residual**2, axis=1) - d  # C_opt = d
    assert abs(loss.mean() - excess_risk(A, R, sigma)) < 4 * loss.std() / np.sqrt(n)


def test_a_factorization_is_a_global_minimum():
    rng = np.random.default_rng(4)
    R, sigma = np.eye(4) + layers(rng, 0.9, 1, 4, 4)[0], covariance(rng, 4, 4)
    for A in (balanced(R, 6), np.stack([R - np.eye(4), np.zeros((4, 4))])):
        assert excess_risk(A, R, sigma) < 1e-26
        assert np.abs(gradient(A, R, sigma)).max() < 1e-12


def end_of_descent(A, R, sigma):
    *_, end = descent_path(A, R, sigma, 0.01, 2)
    return end


def test_leading_axes_broadcast():
    rng = np.random.default_rng(5)
    A, R, sigma = layers(rng, 0.5, 3, 1, 4, 2, 2), rng.normal(size=(5, 2, 2)), covariance(rng, 2, 2)
    for function in (gradient, end_of_descent):
        G = function(A, R, sigma)
        assert G.shape == (3, 5, 4, 2, 2)
        np.testing.assert_allclose(G[2, 3], function(A[2, 0], R[3], sigma), rtol=1e-13)
    for function in (excess_risk, gradient_bound, instance_bound):
        assert isinstance(single := function(A[2, 0], R[3], sigma), float)
        assert function(A, R, sigma).shape == (3, 5)
        assert function(A, R, sigma)[2, 3] == pytest.approx(single, rel=1e-13)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_gradient_is_at_least_the_bound(d, tau):
    rng = np.random.default_rng(int(100 * tau) + d)
    for depth in (1, 2, 7):
        A, R = layers(rng, tau, 50, depth, d, d), rng.normal(size=(50, d, d))
        sigma = covariance(rng, 50, d, d)
        squared, sharp = squared_norm(gradient(A, R, sigma)), instance_bound(A, R, sigma)
        assert np.all(squared >= sharp * (1 - 1e-12))
        assert np.all(sharp >= gradient_bound(A, R, sigma) * (1 - 1e-12))


def test_bound_is_attained_in_one_dimension():
    for depth, tau in ((1, 0.3), (4, 0.2), (9, 0.7)):
        A, R, sigma = np.full((depth, 1, 1), -tau), [[1.7]], [[0.4]]
        squared = np.sum(gradient(A, R, sigma) ** 2)
        assert squared == pytest.approx(gradient_bound(A, R, sigma), rel=1e-12)


def test_instance_bound_is_attained_at_every_point_of_one_dimension():
    A = np.random.default_rng(8).normal(scale=2, size=(100, 5, 1, 1))
    A[50:60, 1] = A[55:60, 3] = -1  # one layer with s_min(I+A) = 0, and two of them
    squared = squared_norm(gradient(A, [[1.7]], [[0.4]]))
    np.testing.assert_allclose(instance_bound(A, [[1.7]], [[0.4]]), squared, rtol=1e-12)


def test_instance_bound_holds_and_says_something_beyond_norm_one():
    rng = np.random.default_rng(9)
    A, R, sigma = layers(rng, 3.0, 50, 4, 3, 3), rng.normal(size=(3, 3)), covariance(rng, 3, 3)
    A[:10, 1] = -np.eye(3)
    bound = instance_bound(A, R, sigma)
    assert np.all(gradient_bound(A, R, sigma) == 0)
    assert np.all(bound > 0)
    assert np.all(squared_norm(gradient(A, R, sigma)) >= bound * (1 - 1e-12))


def test_the_bound_is_nothing_at_the_critical_point_of_norm_one():
    rng = np.random.default_rng(6)
    R, sigma = rng.normal(size=(3, 3)), covariance(rng, 3, 3)
    A = np.zeros((4, 3, 3))
    A[:2] = -np.eye(3)
    assert np.all(gradient(A, R, sigma) == 0)
    assert excess_risk(A, R, sigma) == pytest.approx(np.trace(R @ sigma @ R.T))
    assert gradient_bound(A, R, sigma) == gradient_bound(2 * A, R, sigma) == 0
    assert instance_bound(A, R, sigma) == 0


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_hessian_agrees_with_central_differences_of_the_gradient(depth, d):
    rng, h = np.random.default_rng(10 * depth + d), 1e-5
    A, R, sigma = layers(rng, 0.6, depth, d, d), rng.normal(size=(d, d)), covariance(rng, d, d)
    V = rng.normal(size=A.shape)
    rise = gradient(A + h * V, R, sigma) - gradient(A - h * V, R, sigma)
    assert relative(hessian_vector(A, R, sigma, V), rise / (2 * h)) < 1e-7
    H = hessian(A, R, sigma)
    np.testing.assert_allclose(H, H.T, atol=1e-12 * np.abs(H).max())
    np.testing.assert_allclose(
        H @ V.ravel(), hessian_vector(A, R, sigma, V).ravel(), atol=1e-12 * np.abs(H).max()
    )


def test_hessian_of_one_dimension_by_hand():
    # f - C = 3 ((1+a)(1+b) - 2)^2 at a = 1, b = 1/2: f_aa = 6 (1+b)^2, f_bb = 6 (1+a)^2 and
    # f_ab = 6 ((1+a)(1+b) + E) with E = 1
    A = np.array([[[1.0]], [[0.5]]])
    np.testing.assert_allclose(hessian(A, [[2.0]], [[3.0]]), [[13.5, 24.0], [24.0, 24.0]])


def test_standard_parameterization_is_critical_at_zero_and_the_residual_one_is_not():
    rng, d = np.random.default_rng(11), 3
    R, sigma = rng.normal(size=(d, d)), covariance(rng, d, d)
    for depth in (2, 3, 6):
        zero = np.zeros((depth, d, d))
        standard = zero - np.eye(d)  # A_l...A_1 at 0
        assert np.all(gradient(standard, R, sigma) == 0)
        assert excess_risk(standard, R, sigma) == pytest.approx(np.trace(R @ sigma @ R.T))
        expected = np.broadcast_to(2 * (np.eye(d) - R) @ sigma, zero.shape)
        np.testing.assert_allclose(gradient(zero, R, sigma), expected, rtol=1e-12)


def test_standard_parameterization_has_a_strict_saddle_at_zero_only_for_two_layers():
    rng, d = np.random.default_rng(12), 3
    R, sigma = rng.normal(size=(d, d)), covariance(rng, d, d)
    s = np.repeat(2 * np.linalg.svd(R @ sigma, compute_uv=False), d)
    eigenvalues = np.linalg.eigvalsh(hessian(np.tile(-np.eye(d), (2, 1, 1)), R, sigma))
    np.testing.assert_allclose(eigenvalues, np.sort([*s, *-s]), rtol=1e-12)
    assert np.all(hessian(np.tile(-np.eye(d), (3, 1, 1)), R, sigma) == 0)


def test_descent_path_by_hand():
    # f - C = 3 (a - 1)^2 for one layer: a <- a - 6 rate (a - 1), with a step for each rate
    path = np.stack(list(descent_path([[[0.0]]], [[2.0]], [[3.0]], [1 / 6, 1 / 12], 2)))
    assert path.shape == (3, 2, 1, 1, 1)
    np.testing.assert_allclose(path[..., 0, 0, 0], [[0, 0], [1, 0.5], [1, 0.75]], atol=1e-15)


def test_descent_finds_the_minimum_that_the_standard_parameterization_misses():
    rng = np.random.default_rng(13)
    R, sigma = np.eye(3) + layers(rng, 0.5, 1, 3, 3)[0], np.eye(3)
    *_, residual = descent_path(np.zeros((4, 3, 3)), R, sigma, 0.03, 300)
    *_, standard = descent_path(np.tile(-np.eye(3), (4, 1, 1)), R, sigma, 0.03, 300)
    assert excess_risk(residual, R, sigma) < 1e-12
    assert excess_risk(standard, R, sigma) == pytest.approx(np.sum(R**2))


def test_descent_path_leaves_its_start_alone_and_rejects_negative_steps():
    A = np.zeros((2, 1, 1))
    (start,) = descent_path(A, [[2.0]], [[1.0]], 0.1, 0)
    start += 1
    assert np.all(A == 0)
    with pytest.raises(ValueError, match=r"steps must be >= 0. Received: steps=-1. Count"):
        next(descent_path(A, [[2.0]], [[1.0]], 0.1, -1))


def test_a_direction_for_each_layer_is_asked_for():
    with pytest.raises(ValueError, match=r"Received: shapes \(1, 2, 2\) and \(3, 2, 2\). Make"):
        hessian_vector(np.zeros((3, 2, 2)), np.eye(2), np.eye(2), np.zeros((1, 2, 2)))


FUNCTIONS = [excess_risk, gradient, gradient_bound, instance_bound]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_shapes_that_disagree_are_rejected(function):
    with pytest.raises(ValueError, match=r"Received: shapes \(2, 2\), \(2, 2\) and \(2, 2\)"):
        function(np.eye(2), np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match=r"\(4, 2, 2\), \(2, 2\) and \(3, 3\). Make the last axes"):
        function(np.zeros((4, 2, 2)), np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match=r"l >= 1. Received: shapes \(0, 2, 2\)"):
        function(np.zeros((0, 2, 2)), np.eye(2), np.eye(2))
