"""Gradient descent on deep linear networks: the iterations, power projection, the rejections."""

import re
from itertools import pairwise

import numpy as np
import pytest

from theory import linear_resnet
from theory.descent import (
    descent_path,
    eigenvalue_recursion,
    gradient_descent,
    loss,
    loss_gradient,
    margin,
    power_projection,
    product,
    project_margin,
    projection_path,
    residual,
)
from theory.factorization import balanced
from theory.penalties import to_identity


def symmetric(seed, eigenvalues):
    """Q diag(eigenvalues) Q^T and Q for a random orthogonal Q."""
    d = len(eigenvalues)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    Phi = (Q * eigenvalues) @ Q.T
    return (Phi + Phi.T) / 2, Q


def rotation(degrees):
    t = np.deg2rad(degrees)
    return np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])


def with_margin(seed, low, *shape):
    """Nonsymmetric Phi [..., d, d] whose margin is `low` exactly."""
    M = np.random.default_rng(seed).normal(size=shape)
    return M + (low - margin(M))[..., None, None] * np.eye(shape[-1])


def safe_rate(Phi, depth):
    return 1 / (depth * (1 + np.linalg.norm(Phi, 2, axis=(-2, -1)) ** 2))


def first_below(losses, tolerance):
    """First step with a loss at most the tolerance; [..., steps + 1] -> [...]."""
    assert np.all(losses.min(axis=-1) <= tolerance)
    return (losses <= tolerance).argmax(axis=-1)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_gradient_agrees_with_central_differences_and_with_the_population_risk(depth, d):
    rng, h = np.random.default_rng(10 * depth + d), 1e-6
    Theta, Phi = np.eye(d) + rng.normal(size=(depth, d, d)) / 2, rng.normal(size=(d, d))
    step = h * np.eye(Theta.size).reshape(-1, *Theta.shape)
    differences = (loss(Theta + step, Phi) - loss(Theta - step, Phi)) / (2 * h)
    G = loss_gradient(Theta, Phi)
    assert np.linalg.norm(G.ravel() - differences) < 1e-7 * np.linalg.norm(G)
    risk = linear_resnet.gradient(Theta - np.eye(d), Phi, np.eye(d))
    np.testing.assert_allclose(G, risk / 2, atol=1e-13 * np.abs(G).max())


def test_loss_and_gradient_by_hand():
    Theta = np.array([[[1.0, 1], [0, 1]], [[1, 0], [1, 1]]])  # E = [[0, 1], [1, 1]]
    np.testing.assert_array_equal(product(Theta), [[1, 1], [1, 2]])
    assert loss(Theta, np.eye(2)) == 1.5
    np.testing.assert_array_equal(
        loss_gradient(Theta, np.eye(2)), [[[1, 2], [1, 1]], [[1, 1], [2, 1]]]
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_matrix_iteration_is_the_eigenvalue_recursion(depth):
    phi = np.array([-1.2, -0.3, 0.2, 1.0, 1.9])
    Phi, Q = symmetric(depth, phi)
    rate = safe_rate(Phi, depth)
    lam = eigenvalue_recursion(phi, depth, rate, 150)
    for t, Theta in enumerate(descent_path(Phi, depth, rate, 150)):
        np.testing.assert_allclose(Theta, np.stack([(Q * lam[t]) @ Q.T] * depth), atol=1e-10)
    losses = np.sum((lam**depth - phi) ** 2, axis=-1) / 2
    np.testing.assert_allclose(gradient_descent(Phi, depth, rate, 150), losses, atol=1e-10)


def test_eigenvalue_recursion_by_hand():
    # lam = 1, then 1 + .1 * 1 * (3 - 1) = 1.2, then 1.2 + .1 * 1.2 * (3 - 1.44) = 1.3872
    np.testing.assert_allclose(eigenvalue_recursion(3.0, 2, 0.1, 2), [1, 1.2, 1.3872])
    np.testing.assert_array_equal(eigenvalue_recursion(-1.0, 3, 1.0, 3), [1, -1, -1, -1])


def test_eigenvalue_recursion_broadcasts():
    phi, depth = np.array([-0.7, 0.0, 0.4, 2.0]), np.array([[1], [2], [3], [16]])
    rate = np.array([0.3, 0.7])[:, None, None] / (5 * depth)
    lam = eigenvalue_recursion(phi, depth, rate, 60)
    assert lam.shape == (61, 2, 4, 4)
    expected = 1.0
    for t in range(61):
        assert lam[t, 1, 3, 2] == pytest.approx(expected, rel=1e-14)
        expected += 0.7 / 80 * expected**15 * (0.4 - expected**16)


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_even_depth_cannot_pass_a_negative_eigenvalue_at_any_rate(depth):
    rates = np.geomspace(1e-3, 100, 40)
    with np.errstate(over="ignore"):  # the largest rates diverge
        products = eigenvalue_recursion(-1.0, depth, rates, 300) ** depth
    assert np.nanmin(products) >= 0
    losses = gradient_descent([[-1.0]], depth, rates, 300)
    assert np.nanmin(losses) >= 0.5
    slow = eigenvalue_recursion(-1.0, depth, 0.01, 3000)[-1] ** depth
    assert slow < 0.01  # the floor is reached in the limit


def test_odd_depth_passes_it_with_a_large_step_and_not_with_small_ones():
    assert gradient_descent([[-1.0]], 3, 1.0, 1)[-1] == 0
    lam = eigenvalue_recursion(-1.0, 3, np.array([0.01, 0.1, 0.5]), 2000)  # rate (1 + 1) <= 1
    assert lam.min() >= 0
    assert lam.max() == 1


def test_equal_diagonal_layers_stay_equal_to_the_last_bit():
    losses = gradient_descent(np.diag([-1.0, 0.5]), 2, 0.125, 1500)
    assert losses.min() >= 0.5  # one unit in the last place would double every six steps
    assert losses[-1] == pytest.approx(0.5, abs=1e-12)
    for Theta in descent_path(np.diag([-1.0, 0.7, 1.3]), 2, 0.1, 500):
        np.testing.assert_array_equal(Theta[0], Theta[1])


def test_noise_in_the_start_breaks_the_obstruction():
    rng = np.random.default_rng(0)
    start = np.eye(2) + 0.1 * rng.normal(size=(6, 2, 2, 2))
    steps = first_below(gradient_descent(-np.eye(2), 2, 0.125, 300, start), 1e-8)
    assert np.all((steps > 30) & (steps < 120))
    smaller = np.eye(2) + (start - np.eye(2)) / 100
    later = first_below(gradient_descent(-np.eye(2), 2, 0.125, 300, smaller), 1e-8)
    assert np.all(later > steps)


def test_a_negative_eigenvalue_larger_than_a_positive_one_makes_escape_fast():
    # 4 layers: steps grow with log(1/noise), while -I takes a power of 1/noise
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(4, 2, 2)) * np.array([1e-4, 1e-8, 1e-12])[:, None, None, None]
    losses = gradient_descent(np.diag([-1.0, 0.5]), 4, 1 / 16, 1800, np.eye(2) + noise)
    steps = first_below(losses, 0.49)  # the floor is 1/2
    assert np.all(np.diff(steps) > 100)
    assert steps[2] - steps[1] < 2 * (steps[1] - steps[0])
    assert np.all(losses[:, -1] < 0.2)
    assert gradient_descent(-np.eye(2), 4, 1 / 16, 1800, np.eye(2) + noise[1]).min() > 0.99


def test_rotations_converge_up_to_the_half_turn():
    Phi = np.stack([rotation(a) for a in (60, 120, 170, 179, 180)])
    losses = gradient_descent(Phi, 4, 1 / 8, 400)
    np.testing.assert_array_equal(first_below(losses[:4], 1e-10), [19, 25, 51, 146])
    assert losses[4].min() >= 1
    assert losses[4, -1] == pytest.approx(1, abs=1e-3)


def test_two_negative_eigenvalues_are_passed_off_the_symmetric_matrices():
    Phi = np.array([[-1.0, 4], [0, -2]])
    losses = gradient_descent(Phi, 4, safe_rate(Phi, 4), 900)
    assert first_below(losses, 1e-10) == pytest.approx(770, abs=5)


def test_the_penalty_pulls_to_the_identity_and_keeps_the_floor():
    phi = np.array([-1.0, -0.2, 0.8])
    Phi = np.diag(phi)
    pulls = [lambda Theta, c=c: c * to_identity(Theta) for c in (0.0, 0.1, 10.0)]
    paths = [list(descent_path(Phi, 4, 0.05, 1500, penalty=pull)) for pull in pulls]
    end = [path[-1] for path in paths]
    far = [np.linalg.norm(Theta - np.eye(3)) for Theta in end]
    assert far[0] > far[1] > far[2]
    assert loss(np.stack(paths), Phi).min() >= (1 + 0.2**2) / 2
    stationary = loss_gradient(end[1], Phi) + 0.1 * (end[1] - np.eye(3))
    assert np.abs(stationary).max() < 1e-5
    start, pull = [[[2.0]], [[2.0]]], lambda Theta: 3 * to_identity(Theta)
    _, last = descent_path([[1.0]], 2, 0.1, 1, start, penalty=pull)
    np.testing.assert_allclose(last, 1.1)  # by hand: 2 - .1 (2 * 2 (4 - 1) / 2 + 3 (2 - 1))


def test_divergence_is_silent():
    losses = gradient_descent([[5.0]], 4, 10.0, 30)
    assert np.isfinite(losses[0])
    assert not np.isfinite(losses[-1])
    assert not np.isfinite(eigenvalue_recursion(5.0, 4, 10.0, 30)[-1])
    assert not np.isfinite(list(descent_path([[5.0]], 4, 10.0, 30))[-1]).any()


def test_one_call_equals_its_settings_one_by_one():
    rng = np.random.default_rng(2)
    Phi = np.eye(3) + 0.4 * rng.normal(size=(4, 1, 3, 3))
    rate, start = np.array([0.01, 0.03]), np.eye(3) + 0.1 * rng.normal(size=(4, 1, 5, 3, 3))
    losses = gradient_descent(Phi, 5, rate, 20, start)
    assert losses.shape == (4, 2, 21)
    single = gradient_descent(Phi[3, 0], 5, rate[1], 20, start[3, 0])
    np.testing.assert_allclose(losses[3, 1], single, rtol=1e-12)
    low = np.array([0.1, 0.3])
    Phi = with_margin(3, 0.3, 4, 1, 3, 3)
    losses = power_projection(Phi, 5, 0.01, 6, low)
    assert losses.shape == (4, 2, 7)
    single = power_projection(Phi[3, 0], 5, 0.01, 6, low[1])
    np.testing.assert_allclose(losses[3, 1], single, rtol=1e-12)


def test_every_state_of_a_path_is_its_own_array():
    path = list(descent_path(np.diag([2.0, 0.5]), 3, 0.05, 4))
    assert len(path) == 5
    np.testing.assert_array_equal(path[0], np.stack([np.eye(2)] * 3))
    assert all(not np.array_equal(a, b) for a, b in pairwise(path))
    start = np.stack([np.eye(2)] * 3)
    next(descent_path(np.eye(2), 3, 0.05, 4, start))[:] = 7
    np.testing.assert_array_equal(start, path[0])


def test_project_margin_by_hand():
    # symmetric part diag(-1, 2), skew part [[0, 3], [-3, 0]]
    M = np.array([[-1.0, 3], [-3, 2]])
    np.testing.assert_allclose(project_margin(M, 0.5), [[0.5, 3], [-3, 2]])
    assert margin(M) == -1
    np.testing.assert_array_equal(project_margin(M, -1.5), M)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_project_margin_gives_the_nearest_matrix(d):
    rng = np.random.default_rng(d)
    M, low = rng.normal(size=(20, d, d)), rng.uniform(-0.5, 1, size=20)
    P = project_margin(M, low)
    assert np.all(margin(P) >= low - 1e-13)
    np.testing.assert_allclose(project_margin(P, low), P, atol=1e-13)
    # nearest in a convex set: <M - P, F - P> <= 0 for every feasible F
    F = rng.normal(size=(500, 20, d, d))
    lift = np.maximum(low - margin(F), 0) + rng.exponential(size=(500, 20))
    F += lift[..., None, None] * np.eye(d)
    assert np.sum((M - P) * (F - P), axis=(-2, -1)).max() <= 1e-12


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_power_projection_converges_in_balanced_layers_and_keeps_the_margin(depth):
    Phi = with_margin(depth, 0.4, 5, 3, 3)
    rate = safe_rate(Phi, depth)
    losses = power_projection(Phi, depth, rate, 600, 0.4)
    assert np.all(losses[:, -1] < 1e-8)
    for Theta in projection_path(Phi, depth, rate, 20, 0.4):
        M = product(Theta)
        assert np.all(margin(M) >= 0.4 - 1e-12)
        s = np.linalg.svd(M, compute_uv=False) ** (1 / depth)
        layers = np.linalg.svd(Theta, compute_uv=False)
        np.testing.assert_allclose(layers, np.stack([s] * depth, axis=1), atol=1e-12)


def test_a_step_of_power_projection_is_descent_projection_balancing():
    Phi, low = np.array([[0.3, 2.0], [-2, 0.3]]), 0.3
    first, second = projection_path(Phi, 4, 0.1, 1, low)
    np.testing.assert_allclose(first, np.stack([0.3**0.25 * np.eye(2)] * 4))
    M = product(first - 0.1 * loss_gradient(first, Phi))
    np.testing.assert_allclose(second, np.eye(2) + balanced(project_margin(M, low), 4), atol=1e-14)


def test_power_projection_from_the_identity_takes_as_long_as_plain_descent():
    Phi = np.eye(2) + with_margin(7, -0.4, 6, 2, 2) / 2
    rate, eye = safe_rate(Phi, 4), np.stack([np.eye(2)] * 4)
    plain = first_below(gradient_descent(Phi, 4, rate, 300), 1e-10)
    projected = first_below(power_projection(Phi, 4, rate, 300, 0.8, start=eye), 1e-10)
    assert np.all(np.abs(plain - projected) <= 3)


@pytest.mark.parametrize(
    ("Phi", "depth", "steps", "start", "message"),
    [
        (np.ones((2, 3)), 4, 5, None, r"Phi must be square. Received: shape \(2, 3\). Pass"),
        (np.diag([1, np.nan]), 4, 5, None, "Phi must be finite. Received: 1 nan or infinite entri"),
        (np.eye(2), 0, 5, None, "integer >= 1. Received: depth=0. Count the layers"),
        (np.eye(2), 2.5, 5, None, "integer >= 1. Received: depth=2.5"),
        (np.eye(2), 4, -1, None, "steps must be >= 0. Received: steps=-1. Count the iterations"),
        (np.eye(2), 4, 5, np.ones((3, 2, 2)), r"depth=4 .* Phi, 2. Received: shape \(3, 2, 2\)"),
    ],
)
def test_rejections_say_rule_received_and_remedy(Phi, depth, steps, start, message):
    with pytest.raises(ValueError, match=message):
        gradient_descent(Phi, depth, 0.1, steps, start)
    with pytest.raises(ValueError, match=message):
        power_projection(Phi, depth, 0.1, steps, 0.5, start=start)


def test_rejections_of_single_functions():
    with pytest.raises(ValueError, match=r"margin must be > 0. Received: margin=0. Take one"):
        power_projection(np.eye(2), 4, 0.1, 5, 0)
    with pytest.raises(ValueError, match=r"finite and well conditioned. Received: .*Lower the r"):
        power_projection([[5.0, 9], [-9, 1]], 4, 10.0, 30, 0.5)
    with pytest.raises(ValueError, match=r"M must be square. Received: shape \(3,\). Pass"):
        margin(np.ones(3))
    with pytest.raises(ValueError, match=r"steps must be >= 0. Received: steps=-1"):
        eigenvalue_recursion(1.0, 2, 0.1, -1)
    with pytest.raises(ValueError, match=r"integer >= 1. Received: depth="):
        eigenvalue_recursion(1.0, np.array([2, 0]), 0.1, 5)
    with pytest.raises(ValueError, match=r"Received: shapes \(4, 2, 2\) and \(3, 3\). Make the"):
        loss(np.ones((4, 2, 2)), np.eye(3))
    with pytest.raises(ValueError, match=r"l >= 1. Received: shapes \(0, 2, 2\) and \(2, 2\)"):
        loss_gradient(np.ones((0, 2, 2)), np.eye(2))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (4, 2, 3), (4, 0, 0)])
@pytest.mark.parametrize(
    "function", [residual, loss, loss_gradient, lambda Theta, _: product(Theta)]
)
def test_what_is_no_stack_of_layers_is_rejected(function, shape):
    message = (
        rf"^Theta must be layers \[..., l, d, d\]. Received: shape {re.escape(str(shape))}. St"
    )
    with pytest.raises(ValueError, match=message):
        function(np.zeros(shape), np.eye(2))


def test_the_product_of_no_layers_is_the_identity():
    np.testing.assert_array_equal(product(np.zeros((5, 0, 2, 2))), np.stack([np.eye(2)] * 5))
