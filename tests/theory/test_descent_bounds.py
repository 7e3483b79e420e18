"""The lemmas of gradient descent on deep linear networks: bounds, exact Hessian, misprints."""

import re
from functools import partial

import numpy as np
import pytest

from theory.descent import descent_path, eigenvalue_recursion, gradient_descent, loss, loss_gradient
from theory.descent_bounds import (
    distance,
    gradient_bound,
    hessian,
    hessian_bound,
    hessian_operator_bound,
    iteration_bound,
    iterations_to,
    negative_floor,
    printed_gradient_bound,
    printed_hessian_bound,
    printed_stay_close_bound,
    stay_close_bound,
)

SLACK = 1 + 1e-12
DEPTHS = np.array([1, 2, 4, 16, 64])


def layers(rng, a, *shape):
    """Theta [..., l, d, d] whose greatest distance from the identity is a [...]."""
    noise = rng.normal(size=shape)
    eye = np.eye(shape[-1])
    return eye + noise * (a / distance(eye + noise))[..., None, None, None]


def squared_norm(G):
    return np.sum(G**2, axis=(-3, -2, -1))


@pytest.mark.parametrize(
    ("phi", "measured", "bound"),
    [
        ([0.5, 1, 1.5], [30, 58, 82, 106, 113], [30, 69, 101, 134, 144]),
        ([0.1, 1, 2], [52, 432, 1295, 2971, 3660], [53, 613, 2017, 4916, 6142]),
    ],
)
def test_measured_iterations_and_their_bound(phi, measured, bound):
    rate = 1 / (DEPTHS * (1 + max(phi) ** 2))
    steps = iterations_to(phi, DEPTHS, rate, 1e-10, 10_000)
    np.testing.assert_allclose(steps, measured, rtol=0, atol=1)
    np.testing.assert_allclose(iteration_bound(phi, DEPTHS, rate, 1e-10), bound, rtol=0, atol=1)
    losses = gradient_descent(np.diag(phi), 4, rate[2], measured[2])
    assert (losses <= 1e-10).argmax() == steps[2]


@pytest.mark.parametrize("d", [1, 2, 6])
def test_iterations_stay_below_the_bound(d):
    rng = np.random.default_rng(d)
    phi = np.exp(rng.uniform(-2, 1, size=(40, 1, d)))
    rate = rng.uniform(0.2, 1, size=(40, 1)) / (DEPTHS * (1 + phi.max(axis=-1) ** 2))
    for tolerance in (1e-2, 1e-8):
        bound = iteration_bound(phi, DEPTHS, rate, tolerance)
        steps = iterations_to(phi, DEPTHS, rate, tolerance, 5000)
        done = steps >= 0
        assert bound.shape == steps.shape == (40, 5)
        assert np.mean(done) > 0.5
        assert np.all(steps[done] <= bound[done])
        assert np.all(bound[~done] > 5000)


def test_eigenvalues_approach_without_overshoot_at_the_rate_of_the_proof():
    phi, depth = np.array([0.05, 0.4, 1.0, 3.0])[:, None], DEPTHS
    rate = 1 / (depth * (1 + 9.0))
    mu = phi ** (1 / depth)
    far = np.sign(mu - 1) * (mu - eigenvalue_recursion(phi, depth, rate, 200))
    assert far.min() > -1e-14
    rho = 1 - rate * depth * np.minimum(1, phi) ** (2 - 2 / depth)
    assert np.all(far[1:] <= rho * far[:-1] + 1e-15)


def test_bound_by_hand():
    # one layer: rho = 1/2 and sqrt(1/(2 * 1/8)) |1/2 - 1| = 1; then 15.9/2^t <= 1 needs t = 4
    assert iteration_bound([0.5], 1, 0.5, 1 / 8) == 0
    assert iteration_bound([0.5], 1, 0.5, 1 / 8 / 15.9**2) == 4
    assert iteration_bound([1.0, 1.0], 7, 0.01, 1e-10) == 0


def test_iterations_do_not_grow_with_the_width():
    steps = [
        iterations_to(np.linspace(0.5, 1.5, d), 8, 1 / (8 * 3.25), 1e-10, 500) for d in (2, 512)
    ]
    assert steps == [97, 108]


def test_iterations_to_against_the_recursion_and_where_it_is_not_reached():
    phi, depth = np.array([[0.3, 1.7], [-0.2, 1.7]]), 4
    lam = eigenvalue_recursion(phi, depth, 0.05, 300)
    losses = np.sum((lam**depth - phi) ** 2, axis=-1) / 2
    steps = iterations_to(phi, depth, 0.05, 1e-6, 300)
    assert list(steps) == [(losses[:, 0] <= 1e-6).argmax(), -1]
    assert iterations_to(phi[0], depth, 0.05, 1e-6, steps[0]) == steps[0]
    assert iterations_to(phi[0], depth, 0.05, 1e-6, steps[0] - 1) == -1
    assert iterations_to([1.0], depth, 0.05, 1e-6, 0) == 0
    assert iterations_to([5.0], depth, 10.0, 1e-6, 50) == -1  # diverges


def test_negative_floor_by_hand():
    np.testing.assert_allclose(negative_floor([[-3.0, 1, -1], [0, 2, 5]]), [5, 0])
    assert isinstance(negative_floor([-1.0]), float)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_hessian_agrees_with_differences_of_the_gradient(depth, d):
    rng, h = np.random.default_rng(10 * depth + d), 1e-6
    Theta = layers(rng, np.full(3, 0.7), 3, depth, d, d)
    Phi = rng.normal(size=(3, d, d))
    H = hessian(Theta, Phi)
    size = depth * d * d
    assert H.shape == (3, size, size)
    np.testing.assert_allclose(H, H.mT, rtol=0, atol=1e-13)
    step = h * np.eye(size).reshape(size, 1, depth, d, d)
    rise = (loss_gradient(Theta + step, Phi) - loss_gradient(Theta - step, Phi)) / (2 * h)
    columns = np.moveaxis(rise.reshape(size, 3, size), 0, -1)
    np.testing.assert_allclose(H, columns, atol=1e-7 * np.abs(H).max())
    np.testing.assert_allclose(hessian(Theta[1], Phi[1]), H[1], atol=1e-14)
    assert hessian(Theta[:, None], Phi).shape == (3, 3, size, size)


def test_hessian_by_hand():
    # l = (ab - c)^2 / 2: [[b^2, 2ab - c], [2ab - c, a^2]]
    np.testing.assert_allclose(hessian([[[2.0]], [[3.0]]], [[5.0]]), [[9, 7], [7, 4]])


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_hessian_stays_below_its_bounds(depth, d):
    rng = np.random.default_rng(20 * depth + d)
    Theta = layers(rng, rng.uniform(0, 1.5, size=100), 100, depth, d, d)
    Phi = rng.normal(size=(100, d, d)) * np.exp(rng.uniform(-3, 5, size=(100, 1, 1)))
    Phi[:10] = -10 * np.eye(d)
    H = hessian(Theta, Phi)
    assert np.all(np.linalg.norm(H, axis=(-2, -1)) <= hessian_bound(Theta, Phi) * SLACK)
    operator = np.linalg.norm(H, 2, axis=(-2, -1))
    assert np.all(operator <= hessian_operator_bound(Theta, Phi) * SLACK)


def test_hessian_operator_bound_is_attained():
    # at the identity with Phi = -c I: l + (l-1) (1+c), for the layers all equal to tI
    Theta, Phi = np.stack([np.eye(3)] * 4), -5 * np.eye(3)
    assert hessian_operator_bound(Theta, Phi) == 4 + 3 * 6
    assert np.linalg.norm(hessian(Theta, Phi), 2) == pytest.approx(22, rel=1e-13)


def test_printed_hessian_bound_shown_false_by_explicit_counterexample():
    # d = 1, two layers 1 and Phi = -100: [[1, 102], [102, 1]], where the slide has 3 * 2 * 1 * 1
    Theta, Phi = np.ones((2, 1, 1)), [[-100.0]]
    size = np.linalg.norm(hessian(Theta, Phi))
    assert size == pytest.approx(np.sqrt(2 + 2 * 102**2))
    assert printed_hessian_bound(Theta) == 6 < size
    assert hessian_bound(Theta, Phi) == pytest.approx(600)  # (1+z)^2 = 100


def test_printed_hessian_bound_is_loose_where_its_premise_holds():
    rng = np.random.default_rng(3)
    Theta = layers(rng, np.full(20, 0.2), 20, 3, 3, 3)
    Phi = rng.normal(size=(20, 3, 3))
    Phi /= np.linalg.norm(Phi, 2, axis=(-2, -1), keepdims=True)
    ours, printed = hessian_bound(Theta, Phi), printed_hessian_bound(Theta)
    np.testing.assert_allclose(printed / ours, 3**4 * 1.2**2)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("depth", [1, 2, 6])
def test_gradient_is_at_least_the_bound(depth, d):
    rng = np.random.default_rng(30 * depth + d)
    Theta = layers(rng, rng.uniform(0, 1.5, size=200), 200, depth, d, d)
    Phi = rng.normal(size=(200, d, d))
    assert np.all(squared_norm(loss_gradient(Theta, Phi)) >= gradient_bound(Theta, Phi) / SLACK)


def test_printed_gradient_bound_shown_false_at_the_identity():
    Phi = np.random.default_rng(4).normal(size=(5, 3, 3))
    for depth in (1, 4):
        Theta = np.stack([np.eye(3)] * depth)
        squared = squared_norm(loss_gradient(Theta, Phi))
        np.testing.assert_allclose(squared, 2 * depth * loss(Theta, Phi), rtol=1e-13)
        np.testing.assert_allclose(gradient_bound(Theta, Phi), squared, rtol=1e-13)
        np.testing.assert_allclose(printed_gradient_bound(Theta, Phi), 2 * squared, rtol=1e-13)


def test_the_lemmas_hold_along_descent():
    rng = np.random.default_rng(5)
    Phi = np.eye(3) + 0.4 * rng.normal(size=(6, 3, 3))
    for depth in (2, 5):
        rate, bound = 0.2 / depth, None
        for Theta in descent_path(Phi, depth, rate, 60):
            assert bound is None or np.all(distance(Theta) <= bound * SLACK)
            bound = stay_close_bound(Theta, Phi, rate)
            squared = squared_norm(loss_gradient(Theta, Phi))
            assert np.all(squared >= gradient_bound(Theta, Phi) / SLACK - 1e-25)
        size = np.linalg.norm(hessian(Theta, Phi), axis=(-2, -1))
        assert np.all(size <= hessian_bound(Theta, Phi))


def test_stay_close_bound_by_hand():
    # a = 1, loss = (4 - 1)^2 / 2: 1 + .1 * 2 * 3; the step goes to 2 - .1 * 2 * 3 = 1.4
    Theta = np.full((2, 1, 1), 2.0)
    assert stay_close_bound(Theta, [[1.0]], 0.1) == pytest.approx(1.6)
    assert printed_stay_close_bound(Theta, [[1.0]], 0.1) == pytest.approx(2.2)
    # from the identity the bound is attained: 1 + .1 * 1 * 2 = 1.2
    first, second = descent_path([[3.0]], 2, 0.1, 1)
    assert distance(second) == pytest.approx(stay_close_bound(first, [[3.0]], 0.1))


def test_bounds_broadcast_over_leading_axes():
    rng = np.random.default_rng(6)
    Theta, Phi = layers(rng, np.full((4, 1), 0.5), 4, 1, 3, 2, 2), rng.normal(size=(5, 2, 2))
    for bound in (gradient_bound, printed_gradient_bound, hessian_bound, hessian_operator_bound):
        values = bound(Theta, Phi)
        assert values.shape == (4, 5)
        assert values[2, 3] == pytest.approx(bound(Theta[2, 0], Phi[3]), rel=1e-13)
    values = stay_close_bound(Theta, Phi, np.linspace(0.1, 0.5, 5))
    single = stay_close_bound(Theta[2, 0], Phi[3], 0.4)
    assert values[2, 3] == pytest.approx(single, rel=1e-13)


@pytest.mark.parametrize(
    ("phi", "depth", "rate", "tolerance", "message"),
    [
        ([1.0, 0.0], 4, 0.1, 1e-6, r"eigenvalues > 0.*Received: smallest 0, 4 and 1e-06. .*floor"),
        ([1.0, 2.0], 0, 0.1, 1e-6, r"depth >= 1.*Received: smallest 1, 0 and 1e-06"),
        ([1.0, 2.0], 4, 0.1, 0.0, r"tolerance > 0.*Received: smallest 1, 4 and 0"),
        ([1.0, 2.0], 4, 0.06, 1e-6, r"<= 1/\(l \(1 .*Received: rate=0.06. Take at most 0.05"),
        ([1.0, 2.0], 4, 0.0, 1e-6, r"0 < rate .*Received: rate=0.0."),
    ],
)
def test_rejections_of_the_iteration_bound(phi, depth, rate, tolerance, message):
    with pytest.raises(ValueError, match=message):
        iteration_bound(phi, depth, rate, tolerance)


def test_rejections_of_single_functions():
    with pytest.raises(ValueError, match=r"limit must be >= 0. Received: limit=-1. Count the"):
        iterations_to([1.0], 4, 0.1, 1e-6, -1)
    with pytest.raises(ValueError, match=r"integer >= 1. Received: depth="):
        iterations_to([1.0], 0, 0.1, 1e-6, 5)


TAKE_BOTH = [
    gradient_bound,
    printed_gradient_bound,
    hessian,
    hessian_bound,
    hessian_operator_bound,
    partial(stay_close_bound, rate=0.1),
]
TAKE_LAYERS = [distance, printed_hessian_bound]


@pytest.mark.parametrize("function", TAKE_BOTH)
def test_layers_and_targets_that_disagree_are_rejected(function):
    for depth, width, seen in ((4, 3, r"\(4, 2, 2\) and \(3, 3\)"), (0, 2, r"\(0, 2, 2\) and ")):
        with pytest.raises(ValueError, match=rf"l >= 1. Received: shapes {seen}.*Make the last"):
            function(np.ones((depth, 2, 2)), np.eye(width))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (4, 2, 3)])
@pytest.mark.parametrize("function", [*TAKE_BOTH, *TAKE_LAYERS])
def test_what_is_no_stack_of_layers_is_rejected(function, shape):
    message = (
        rf"^Theta must be layers \[..., l, d, d\]. Received: shape {re.escape(str(shape))}. St"
    )
    arguments = (np.zeros(shape),) if function in TAKE_LAYERS else (np.zeros(shape), np.eye(2))
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_no_layers_are_at_no_distance():
    np.testing.assert_array_equal(distance(np.zeros((5, 0, 2, 2))), np.zeros(5))
