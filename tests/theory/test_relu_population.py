"""The two-layer ReLU network's closed forms against quadrature, Monte Carlo and differences."""

import numpy as np
import pytest

from theory.circulant import circulant_matrix, circulant_start
from theory.relu_population import (
    correlated_gradient,
    gradient,
    hessian_vector,
    inner_product,
    inner_terms,
    least_curvature,
    loss,
    potential,
    sample_gradient,
)


def pair(rng, d, size=0.7):
    return size / np.sqrt(d) * rng.normal(size=(2, d, d))


def differences(W, W_star):
    """Central differences of fourth order of the loss in every entry."""
    h = 1e-3
    moves = h * np.eye(W.size).reshape(W.size, *W.shape)
    near, far = (loss(W + k * moves, W_star) - loss(W - k * moves, W_star) for k in (1, 2))
    return ((8 * near - far) / (12 * h)).reshape(W.shape)


@pytest.mark.parametrize("d", [1, 2, 5, 12])
@pytest.mark.parametrize("teacher", [0, 1])
def test_gradient_agrees_with_differences_of_the_loss(d, teacher):
    W, W_star = pair(np.random.default_rng(d), d, 0.4)
    G = gradient(W, teacher * W_star)
    np.testing.assert_allclose(G, differences(W, teacher * W_star), atol=2e-10)
    np.testing.assert_allclose(gradient(W, teacher * W_star, "printed"), np.pi * G, rtol=1e-15)


def test_loss_and_gradient_agree_with_monte_carlo():
    rng = np.random.default_rng(1)
    W, W_star = pair(rng, 3)
    x = rng.normal(size=(200, 2_000, 3))  # 200 batches give the standard errors
    f, f_star = (np.maximum(x @ (np.eye(3) + M), 0).sum(axis=-1) for M in (W, W_star))
    for batches, formula in (
        (np.mean((f - f_star) ** 2, axis=-1), loss(W, W_star)),
        (sample_gradient(W, W_star, x), gradient(W, W_star)),
    ):
        error = batches.std(axis=0, ddof=1) / np.sqrt(len(x))
        assert np.all(np.abs(batches.mean(axis=0) - formula) < 4 * error)


def test_correlated_inputs_agree_with_monte_carlo_whatever_their_radius():
    rng = np.random.default_rng(10)
    W, W_star = pair(rng, 3)
    root = np.eye(3) + rng.normal(size=(3, 3)) / 2
    y = rng.normal(size=(200, 2_000, 3))
    sphere = np.sqrt(3) * y / np.linalg.norm(y, axis=-1, keepdims=True)
    exact = correlated_gradient(W, W_star, root)
    for inputs in (y, sphere):
        batches = sample_gradient(W, W_star, inputs @ root.T)
        error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
        assert np.all(np.abs(batches.mean(axis=0) - exact) < 4 * error)
        assert np.any(np.abs(batches.mean(axis=0) - gradient(W, W_star)) > 10 * error)


def test_two_dimensions_by_hand():
    # b_1 = (1, 0), b_2 = (0, 2) and W* = 0, so
    # f - f* = relu(x_2) and L = 1/2; the columns are 2 E relu(x_2) 1[x_1 > 0] x, and 1[x_2 > 0] x
    W = [[0.0, 0.0], [0.0, 1.0]]
    assert loss(W, np.zeros((2, 2))) == pytest.approx(0.5, rel=1e-15)
    expected = [[1 / np.pi, 0], [0.5, 1]]
    np.testing.assert_allclose(gradient(W, np.zeros((2, 2))), expected, atol=1e-15)
    assert inner_product(W, np.zeros((2, 2))) == pytest.approx(1)
    assert inner_product(W, np.zeros((2, 2)), "printed") == pytest.approx(np.pi)
    assert potential(W, np.zeros((2, 2))) == -1


def test_equal_weights_are_exactly_the_minimum():
    W = pair(np.random.default_rng(2), 6)[0]
    W[:, 0] = W[:, 1] + np.eye(6)[1] - np.eye(6)[0]  # two equal columns of I + W
    assert abs(loss(W, W)) < 1e-14
    assert np.abs(gradient(W, W)).max() < 1e-14
    assert potential(W, W) == 0


def test_nothing_cancels_near_the_minimum():
    rng = np.random.default_rng(3)
    V = rng.normal(size=(8, 8)) / 8
    ratio = [inner_product(s * V, np.zeros((8, 8))) / s**2 for s in (1e-3, 1e-6)]
    assert ratio[1] == pytest.approx(ratio[0], rel=2e-3)
    assert 2 * loss(1e-6 * V, np.zeros((8, 8))) / 1e-12 == pytest.approx(ratio[1], rel=1e-2)


def test_gradient_depends_on_the_columns_as_it_must():
    rng = np.random.default_rng(4)
    W, W_star = pair(rng, 5)
    one = np.eye(5)
    B, B_star = one + W, one + W_star
    Q, P = np.linalg.qr(rng.normal(size=(5, 5)))[0], one[:, rng.permutation(5)]
    turned = (Q @ B @ P - one, Q @ B_star - one)  # turned inputs, and columns in another order
    assert loss(*turned) == pytest.approx(loss(W, W_star), rel=1e-13)
    np.testing.assert_allclose(gradient(*turned), Q @ gradient(W, W_star) @ P, atol=1e-14)
    scaled = (3 * B - one, 3 * B_star - one)
    assert loss(*scaled) == pytest.approx(9 * loss(W, W_star), rel=1e-12)
    np.testing.assert_allclose(gradient(*scaled), 3 * gradient(W, W_star), rtol=1e-11)
    # homogeneous of degree 1, f is <grad f, B>: <grad L, B> = 2 E (f - f*) f
    slope = (loss(1.001 * B - one, W_star) - loss(0.999 * B - one, W_star)) / 0.002
    assert np.vdot(gradient(W, W_star), B) == pytest.approx(slope, rel=1e-6)


def test_the_potential_is_the_sum_over_lengths_of_columns():
    W, W_star = pair(np.random.default_rng(5), 7)
    lengths = np.linalg.norm(np.eye(7) + W_star, axis=0) - np.linalg.norm(np.eye(7) + W, axis=0)
    assert potential(W, W_star) == pytest.approx(lengths.sum(), rel=1e-13)


@pytest.mark.parametrize("teacher", [0, 1])
def test_the_terms_of_the_inner_product_are_those_of_ly(teacher):
    W, W_star = pair(np.random.default_rng(9), 5)
    W_star = teacher * W_star
    B, B_star, gap = np.eye(5) + W, np.eye(5) + W_star, W_star - W
    off, paired = np.zeros(2), 0.0
    for j in range(5):
        unit = B[:, j] / np.linalg.norm(B[:, j])
        for i in range(5):
            n, m = np.linalg.norm(B[:, i]), np.linalg.norm(B_star[:, i])
            x = np.arccos(np.clip(B[:, i] @ unit / n, -1, 1))
            y = np.arccos(np.clip(B_star[:, i] @ unit / m, -1, 1))
            away = (np.pi / 2 - y) * B_star[:, i] - (np.pi / 2 - x) * B[:, i]
            angle = (away - (i == j) * np.pi / 2 * gap[:, i]) @ gap[:, j]
            length = (m * np.sin(y) - n * np.sin(x)) * unit @ gap[:, j]
            off += [(i != j) * angle, (i != j) * length]
            paired += (i == j) * (angle + length)
    terms = inner_terms(W, W_star)
    np.testing.assert_allclose((terms.angles, terms.lengths, terms.paired), (*off, paired), 1e-6)
    assert sum(terms) == pytest.approx(inner_product(W, W_star, "printed"), rel=1e-12)


def test_a_random_start_points_to_the_teacher_and_the_explicit_one_does_not():
    G = 5 / 100 * np.random.default_rng(7).normal(size=(100, 100))  # ||W||_F = 5
    assert inner_product(G, np.zeros_like(G)) > 0
    for frobenius, negative in ((2.5, False), (3.5, True)):  # 8 pi - 16 = 3.02^2
        W = circulant_matrix(circulant_start(600, frobenius, -0.75 * frobenius**2))
        assert (inner_product(W, np.zeros_like(W)) < 0) == negative


def test_the_hessian_at_the_teacher_by_hand():
    """2 E (sum_j 1[x_j > 0] <x, V_j>)^2: half the identity for i = j, else a quarter and 1/2 pi."""
    d, zero = 4, np.zeros((4, 4))
    V, e = np.random.default_rng(0).normal(size=(d, d)), np.eye(d)
    expected = np.zeros((d, d))
    for j in range(d):
        for i in range(d):
            mixed = np.outer(e[i], e[j]) + np.outer(e[j], e[i])
            form = e / 2 if i == j else e / 4 + mixed / (2 * np.pi)
            expected[:, j] += 2 * form @ V[:, i]
    np.testing.assert_allclose(hessian_vector(zero, zero, V), expected, rtol=1e-5, atol=1e-6)


def test_the_hessian_is_symmetric_and_gives_second_differences_of_the_loss():
    rng = np.random.default_rng(1)
    W, W_star = pair(rng, 4)
    full = hessian_vector(W, W_star, np.eye(16).reshape(16, 4, 4)).reshape(16, 16)
    np.testing.assert_allclose(full, full.T, atol=1e-8)
    V, h = rng.normal(size=(4, 4)), 1e-3
    second = (loss(W + h * V, W_star) - 2 * loss(W, W_star) + loss(W - h * V, W_star)) / h**2
    assert np.sum(V * hessian_vector(W, W_star, V)) == pytest.approx(second, rel=1e-5)
    np.testing.assert_array_equal(hessian_vector(W, W_star, 0 * V), 0 * V)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_curvature_is_the_least_eigenvalue(seed):
    W, W_star = pair(np.random.default_rng(seed), 6, 1.5)
    full = hessian_vector(W, W_star, np.eye(36).reshape(36, 6, 6)).reshape(36, 36)
    least = np.linalg.eigvalsh((full + full.T) / 2)[0]
    assert least_curvature(W, W_star) == pytest.approx(least, abs=1e-6)
    with pytest.raises(ValueError, match=r"W must be \[d, d\] .* Pass one W"):
        least_curvature(np.stack([W, W]), W_star)


def test_leading_axes_broadcast():
    rng = np.random.default_rng(8)
    W, W_star = rng.normal(size=(3, 1, 4, 4)) / 4, rng.normal(size=(2, 4, 4)) / 4
    W_star[0] = 0
    for function, shape in ((loss, ()), (potential, ()), (gradient, (4, 4)), (inner_product, ())):
        assert function(W, W_star).shape == (3, 2, *shape)
        one = function(W[2, 0], W_star[0])
        np.testing.assert_allclose(function(W, W_star)[2, 0], one, atol=1e-14)
        assert function(W[0, 0], np.zeros((2, 4, 4))).shape == (2, *shape)
    assert isinstance(loss(W[0, 0], W_star[1]), float)


@pytest.mark.parametrize("function", [loss, gradient, potential, inner_product])
@pytest.mark.parametrize(
    ("W", "W_star", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 2)), r"W must be square. Received: shape \(2, 3\)"),
        (np.zeros((2, 2)), np.full((2, 2), np.nan), "W_star must be finite. Received: 4 nan"),
        (np.zeros((2, 2)), np.zeros((3, 3)), r"one d. Received: shapes \(2, 2\) and \(3, 3\)"),
        (-np.eye(2), np.zeros((2, 2)), r"I \+ W must not be 0.*column of 0 at index \(0,\)\. Move"),
        (
            np.full((2, 2), 1e160),
            np.zeros((2, 2)),
            r"I \+ W must be at most 1e\+100 .* Scale W down",
        ),
        (np.zeros((2, 2)), np.diag([0, -1.0]), r"I \+ W_star must .* at index \(1,\)\. Move"),
    ],
)
def test_rejections_say_rule_received_and_remedy(function, W, W_star, message):
    with pytest.raises(ValueError, match=message):
        function(W, W_star)


def test_an_unknown_scale_is_rejected():
    for function in (gradient, inner_product):
        with pytest.raises(ValueError, match=r"'true' or 'printed'\. Received: scale='pi'"):
            function(np.zeros((2, 2)), np.zeros((2, 2)), "pi")
