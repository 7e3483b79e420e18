"""Stationary points of near-identity networks: exact gradient norms, the bound, its equality."""

import numpy as np
import pytest

from theory.stationary_points import (
    Layer,
    label_means,
    layer_gradient_norms,
    network,
    residual_layers,
    slide_bound,
    stationary_bound,
)


def lengths(u):
    return np.linalg.norm(u, axis=-1)


def tanh_layers(A, B):
    return residual_layers(A, B, "tanh")


def weights(rng, eps, *shape):
    """A, B [..., m, d, d] with ||A_i|| ||B_i|| = eps at every layer."""
    A, B = rng.normal(size=(2, *shape))
    norms = np.linalg.norm(A, 2, axis=(-2, -1)) * np.linalg.norm(B, 2, axis=(-2, -1))
    return A * (eps / norms)[..., None, None], B


def sample(rng, *shape):
    """Inputs, of which the first two are equal, and labels; [..., n, d]."""
    x, y = rng.normal(size=(2, *shape))
    x[..., 1, :] = x[..., 0, :]
    return x, y


def scaling(factor):
    """The layer u -> factor u."""
    return Layer(lambda u: factor * u, lambda u, v: factor * v, abs(factor - 1))


def risk(layers, x, y):
    return np.mean(np.sum((network(layers, x) - y) ** 2, axis=-1), axis=-1) / 2


def derivative(layers, i, Delta, x, y):
    """Central difference of the risk as layer i moves along Delta, given at the sample [n, d]."""

    def moved(t):
        shifted = layers[i]._replace(function=lambda u: layers[i].function(u) + t * Delta)
        return risk([*layers[:i], shifted, *layers[i + 1 :]], x, y)

    return (moved(1e-5) - moved(-1e-5)) / 2e-5


def jacobian(layers, u):
    """Jacobians [n, d, d] of a network at u [n, d], by pulling back the unit vectors."""
    rows = []
    for unit in np.eye(u.shape[-1]):
        points, v = [u], np.broadcast_to(unit, u.shape)
        for layer in layers:
            points.append(layer.function(points[-1]))
        for layer, point in zip(layers[::-1], points[-2::-1], strict=True):
            v = layer.pullback(point, v)
        rows.append(v)
    return np.stack(rows, axis=-2)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_pullback_agrees_with_central_differences(d):
    rng = np.random.default_rng(d)
    (layer,) = tanh_layers(*weights(rng, 0.8, 1, d, d))
    u, v, w = rng.normal(size=(3, 20, d))
    forward = (layer.function(u + 1e-6 * w) - layer.function(u - 1e-6 * w)) / 2e-6
    pulled = np.sum(layer.pullback(u, v) * w, axis=-1)
    np.testing.assert_allclose(pulled, np.sum(v * forward, axis=-1), atol=1e-8)


@pytest.mark.parametrize("m", [1, 2, 5])
def test_norm_is_attained_by_one_direction_and_exceeded_by_none(m):
    rng = np.random.default_rng(10 + m)
    layers = tanh_layers(*weights(rng, 0.6, m, 3, 3))
    x, y = sample(rng, 12, 3)
    norms, r = layer_gradient_norms(layers, x, y), network(layers, x) - label_means(x, y)
    for i in range(m):
        before, after = network(layers[:i], x), network(layers[: i + 1], x)
        pulled = np.einsum("nij,ni->nj", jacobian(layers[i + 1 :], after), r)
        best = pulled * (lengths(before) / lengths(pulled))[:, None]  # |Delta(u)| = |u|
        assert derivative(layers, i, best, x, y) == pytest.approx(norms[i], rel=1e-7)
        for _ in range(20):
            Delta = best + 0.3 * rng.normal(size=best.shape)
            Delta[1] = Delta[0]  # one function value at equal inputs
            Delta *= (lengths(before) / lengths(Delta))[:, None]
            assert derivative(layers, i, Delta, x, y) < norms[i]


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.9])
def test_descent_direction_is_admissible_and_steep_enough(eps):
    rng = np.random.default_rng(int(10 * eps))
    layers = tanh_layers(*weights(rng, eps, 4, 3, 3))
    x, y = sample(rng, 12, 3)
    r = network(layers, x) - label_means(x, y)
    c = (1 - eps) ** 3 / np.max(lengths(r) / lengths(x))
    gap = np.mean(lengths(r) ** 2) / 2
    for i in range(4):
        before, after = network(layers[:i], x), network(layers[: i + 1], x)
        Delta = c * np.linalg.solve(jacobian(layers[i + 1 :], after), r[..., None])[..., 0]
        assert np.all(lengths(Delta) <= lengths(before) * (1 + 1e-12))
        assert derivative(layers, i, Delta, x, y) == pytest.approx(2 * c * gap, rel=1e-6)
        assert stationary_bound(layers, x, y) == pytest.approx(2 * c * gap, rel=1e-12)


@pytest.mark.parametrize("eps", [0.01, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("m", [1, 2, 6])
def test_norm_is_at_least_the_bound(m, eps):
    rng = np.random.default_rng(int(1000 * eps) + m)
    for d, n in ((1, 3), (2, 2), (4, 30)):
        layers = tanh_layers(*weights(rng, eps, 40, m, d, d))
        x, y = sample(rng, 40, n, d)
        y *= np.geomspace(1e-3, 1e3, 40)[:, None, None]
        bound = stationary_bound(layers, x, y)
        assert np.all(bound > 0)
        assert np.all(layer_gradient_norms(layers, x, y) >= bound[:, None] * (1 - 1e-12))


@pytest.mark.parametrize("eps", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_bound_is_attained_by_shrinking_layers_and_proportional_labels(m, eps):
    x = np.random.default_rng(20).normal(size=(9, 4))
    layers, y = [scaling(1 - eps)] * m, -2.5 * x
    norms, bound = layer_gradient_norms(layers, x, y), stationary_bound(layers, x, y)
    np.testing.assert_allclose(norms, bound, rtol=1e-13)
    np.testing.assert_allclose(norms, 2 * slide_bound(layers, x, y), rtol=1e-13)
    # ||D|| = (1-eps)^{m-1} ((1-eps)^m + 2.5) mean |x|^2
    expected = (1 - eps) ** (m - 1) * ((1 - eps) ** m + 2.5) * np.mean(lengths(x) ** 2)
    np.testing.assert_allclose(norms, expected, rtol=1e-13)


def test_bound_is_approached_by_tanh_layers_at_small_inputs():
    x = 1e-4 * np.random.default_rng(21).normal(size=(9, 4))
    A, B = np.broadcast_to(-0.4 * np.eye(4), (5, 4, 4)), np.broadcast_to(np.eye(4), (5, 4, 4))
    layers = tanh_layers(A, B)
    ratio = layer_gradient_norms(layers, x, 2 * x) / stationary_bound(layers, x, 2 * x)
    assert np.all(ratio > 1)
    np.testing.assert_allclose(ratio, 1, atol=1e-6)


def test_how_far_random_instances_are_above_the_bound():
    rng = np.random.default_rng(22)
    layers = tanh_layers(*weights(rng, 0.2, 200, 4, 4, 4))
    x, y = rng.normal(size=(2, 200, 100, 4))
    ratio = layer_gradient_norms(layers, x, y) / stationary_bound(layers, x, y)[:, None]
    low, high = np.quantile(ratio, [0.05, 0.95])
    assert 4 < low < high < 27


def test_layers_must_keep_zero_where_it_is_shown_by_explicit_counterexample():
    # u -> u - 1 is at distance 0 in the seminorm, but it moves x = 1 to 0, where Delta = 0
    layers = [Layer(lambda u: u - 1, lambda u, v: v, 0.0), scaling(1.0)]
    np.testing.assert_allclose(layer_gradient_norms(layers, [[1.0]], [[1.0]]), [1, 0])
    assert stationary_bound(layers, [[1.0]], [[1.0]]) == 1


def test_one_dimension_by_hand():
    # h(x) = x/4 by two layers; inputs 2, 2 and -4, labels 0, 1 and 1: h* = 1/2, 1/2, 1
    layers, x, y = [scaling(0.5)] * 2, [[2.0], [2.0], [-4.0]], [[0.0], [1.0], [1.0]]
    np.testing.assert_allclose(label_means(x, y), [[0.5], [0.5], [1.0]])
    np.testing.assert_allclose(network(layers, x), [[0.5], [0.5], [-1.0]])
    # h - h* = 0, 0, -2: both norms are 4 (1/2) 2 / 3, ||h - h*|| = 2/4, Q(h) - Q(h*) = 4/6
    np.testing.assert_allclose(layer_gradient_norms(layers, x, y), [4 / 3, 4 / 3])
    assert slide_bound(layers, x, y) == pytest.approx(2 / 3)
    assert stationary_bound(layers, x, y) == pytest.approx(4 / 3)


def test_the_least_risk_is_stationary():
    rng = np.random.default_rng(23)
    layers = tanh_layers(*weights(rng, 0.5, 3, 2, 2))
    x, _ = sample(rng, 8, 2)
    noise = np.zeros((8, 2))
    noise[:2] = [[3, -1], [-3, 1]]  # on the two equal inputs: risk, but none that h could lessen
    y = network(layers, x) + noise
    assert risk(layers, x, y) == pytest.approx(10 / 8)
    np.testing.assert_allclose(layer_gradient_norms(layers, x, y), 0, atol=1e-14)
    assert stationary_bound(layers, x, network(layers, x)) == 0


def test_leading_axes_broadcast():
    rng = np.random.default_rng(24)
    A, B = weights(rng, 0.5, 3, 1, 4, 2, 2)
    (x, _), y = sample(rng, 6, 2), rng.normal(size=(5, 6, 2))
    layers, one = tanh_layers(A, B), tanh_layers(A[2, 0], B[2, 0])
    norms = layer_gradient_norms(layers, x, y)
    assert norms.shape == (3, 5, 4)
    assert network(layers, x).shape == (3, 1, 6, 2)
    assert stationary_bound(layers, x, y).shape == slide_bound(layers, x, y).shape == (3, 5)
    np.testing.assert_allclose(norms[2, 3], layer_gradient_norms(one, x, y[3]), rtol=1e-13)
    assert isinstance(stationary_bound(one, x, y[3]), float)


@pytest.mark.parametrize("function", [layer_gradient_norms, stationary_bound, slide_bound])
@pytest.mark.parametrize(
    ("layers", "x", "y", "message"),
    [
        ([scaling(2.0)], [[1.0]], [[1.0]], r"within eps < 1 of.*Received: eps=1\. Scale"),
        ([scaling(0.5), scaling(np.nan)], [[1.0]], [[1.0]], "Received: eps=nan"),
        ([], [[1.0]], [[1.0]], "needs layers. Received: none"),
        ([scaling(1.0)], [[1.0], [0.0]], [[1.0], [1.0]], r"not be 0.*x = 0 at index \(1,\)\. Drop"),
        ([scaling(1.0)], [[1.0]], [[np.inf]], "must be finite. Received: 1 nan or infinite"),
        ([scaling(1.0)], [1.0], [1.0], r"Received: shapes \(1,\) and \(1,\)\. Pass one label"),
        ([scaling(1.0)], np.ones((3, 2)), np.ones((3, 1)), r"shapes \(3, 2\) and \(3, 1\)"),
        ([scaling(1.0)], np.ones((0, 2)), np.ones((0, 2)), r"n >= 1.*shapes \(0, 2\)"),
    ],
)
def test_rejections_say_rule_received_and_remedy(function, layers, x, y, message):
    with pytest.raises(ValueError, match=message):
        function(layers, x, y)


def test_points_of_another_width_are_rejected():
    layers = tanh_layers(*weights(np.random.default_rng(25), 0.5, 3, 2, 2))
    for function in (layer_gradient_norms, stationary_bound):
        with pytest.raises(ValueError, match=r"of width 2\. Received: points of shape \(4, 1\)"):
            function(layers, np.ones((4, 1)), np.ones((4, 1)))
