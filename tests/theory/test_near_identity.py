"""Smooth maps as compositions of near-identity layers: measured distances, bounds, exact cases."""

import numpy as np
import pytest

from theory.composition import compose, inverse, near_layers, whole_layers, whole_profile
from theory.near_identity import (
    ball,
    distances,
    equalise_scales,
    lipschitz_profile,
    quotients,
    scales,
    uniform_bound,
)
from theory.smooth_maps import (
    HENON,
    A,
    SmoothMap,
    henon_largest,
    henon_map,
    normalize,
    pendulum,
    tanh_map,
)


def lengths(u):
    return np.linalg.norm(u, axis=-1)


def weights(*shape, seed=0):
    """W [..., d, d] of norm 1."""
    W = np.random.default_rng(seed).normal(size=shape)
    return W / np.linalg.norm(W, 2, axis=(-2, -1))[..., None, None]


TANH = normalize(tanh_map(weights(3, 3), 0.6), [0.3, -0.2, 0.5])
SWING = normalize(pendulum(), [0.0, 0.0])
NORMAL = {"henon": (HENON, 1.0), "tanh": (TANH, 2.0), "pendulum": (SWING, 2.0)}
MAPS = {
    "henon-map": (henon_map(), 1.0),
    "henon-map-turned": (henon_map(-1.4), 1.0),
    "tanh-map": (tanh_map(weights(4, 4), -0.5), 3.0),
    "flow": (pendulum(0.5, 1.0, 12), 2.0),
    **NORMAL,
}


def differences(f, x):
    """Jacobians of f at x [n, d] by central differences; [n, d, d]."""
    e = 1e-5 * np.eye(x.shape[-1])[:, None]
    return np.moveaxis((f(x + e) - f(x - e)) / 2e-5, 0, -1)


@pytest.mark.parametrize("name", MAPS)
def test_jacobians_agree_with_central_differences(name):
    g, radius = MAPS[name]
    x = ball(g.dimension, radius, 30)
    np.testing.assert_allclose(g.jacobian(x), differences(g, x), atol=1e-8)


@pytest.mark.parametrize("name", MAPS)
def test_constants_are_never_too_small(name):
    g, radius = MAPS[name]
    alpha, M = g.constants(radius)
    x = ball(g.dimension, radius, 300)
    for y in (x[::-1], np.roll(x, 7, axis=0), 0.999 * x, x * [1, *[-1] * (g.dimension - 1)]):
        x_, y_ = x[lengths(x - y) > 0], y[lengths(x - y) > 0]
        apart = lengths(x_ - y_)
        bend = np.linalg.norm(g.jacobian(x_) - g.jacobian(y_), 2, axis=(-2, -1))
        assert np.all(bend <= alpha * apart * (1 + 1e-9))
        assert np.all(apart <= M * lengths(g(x_) - g(y_)) * (1 + 1e-9))


def test_constants_of_henon_are_sharp():
    alpha, M = HENON.constants(0.7)
    x, y = np.array([[0.7, 0.0]]), np.array([[-0.7, 0.0]])
    assert np.linalg.norm(HENON.jacobian(x) - HENON.jacobian(y)) == pytest.approx(alpha * 1.4)
    assert np.linalg.norm(np.linalg.inv(HENON.jacobian(x)[0]), 2) == pytest.approx(M)


@pytest.mark.parametrize("x0", [(0.0, 0.0), (0.4, -1.0)])
def test_henon_normalized_is_the_same_everywhere_and_for_every_negative_b(x0):
    x = ball(2, 1.5, 20)
    for b in (-0.3, -2.0):
        g = normalize(henon_map(A, b), x0)
        np.testing.assert_allclose(g(x), HENON(x), atol=1e-13)
        np.testing.assert_allclose(g.jacobian(x), HENON.jacobian(x), atol=1e-13)


@pytest.mark.parametrize("name", NORMAL)
def test_normalized_maps_keep_0_and_are_the_identity_there(name):
    g, _ = NORMAL[name]
    zero = np.zeros((1, g.dimension))
    np.testing.assert_allclose(g(zero), 0, atol=1e-15)
    np.testing.assert_allclose(g.jacobian(zero)[0], np.eye(g.dimension), atol=1e-14)


def test_the_pendulum_swings_by_its_equation():
    from scipy.integrate import solve_ivp

    def rate(t, u):
        return [u[1], -np.sin(u[0]) - 0.2 * u[1]]

    end = solve_ivp(rate, (0, 1.5), [1.2, -0.7], rtol=1e-10, atol=1e-12).y[:, -1]
    x = np.array([[1.2, -0.7]])
    np.testing.assert_allclose(pendulum()(x)[0], end, atol=1e-6)
    area = np.linalg.det(pendulum().jacobian(ball(2, 2.0, 20)))  # Liouville
    np.testing.assert_allclose(area, np.exp(-0.2 * 1.5), rtol=1e-6)


@pytest.mark.parametrize("name", MAPS)
def test_newton_finds_the_inverse(name):
    g, radius = MAPS[name]
    x = ball(g.dimension, radius, 50)
    np.testing.assert_allclose(inverse(g, g.jacobian, g(x)), x, atol=1e-12)


def test_scales_by_hand():
    np.testing.assert_array_equal(scales(4), [0.25, 0.5, 0.75, 1])
    first = np.log(3) / 3
    np.testing.assert_allclose(scales(3, "geometric"), [first, first**0.5, 1], rtol=1e-15)
    np.testing.assert_array_equal(scales(1, "geometric"), [1])
    # half of the way is done at scale 1/4, where the steps are three times as long
    np.testing.assert_allclose(equalise_scales([3.0, 1, 1, 1], 2), [0.25, 1])


def test_two_layers_of_henon_by_hand():
    # a = 1/2, 1: both layers are (x1, x2 - 0.7 x1^2), at distance 2 * 0.7 * 1
    np.testing.assert_allclose(lipschitz_profile(HENON, HENON.jacobian, 1.0, layers=2), [1.4, 1.4])
    u = np.array([[0.5, 2.0], [-1.0, 0.0]])
    for layer in near_layers(HENON, HENON.jacobian, scales(2)):
        np.testing.assert_allclose(layer(u), [[0.5, 1.825], [-1.0, -0.7]], rtol=1e-14)


@pytest.mark.parametrize("schedule", ["uniform", "geometric"])
@pytest.mark.parametrize("m", [1, 2, 5, 64, 256])
def test_distances_of_henon_are_the_exact_ones(m, schedule):
    profile = lipschitz_profile(HENON.function, HENON.jacobian, 0.8, schedule, m, samples=20)
    exact = 2 * A * 0.8 * np.diff(scales(m, schedule), prepend=0)
    np.testing.assert_allclose(profile, exact, rtol=1e-11)
    assert profile.max() == pytest.approx(henon_largest(m, schedule, 0.8), rel=1e-11)


@pytest.mark.parametrize("name", NORMAL)
@pytest.mark.parametrize("schedule", ["uniform", "geometric"])
def test_distances_are_those_of_the_layers_as_they_run(name, schedule):
    g, radius = NORMAL[name]
    x, a = ball(g.dimension, radius, 20), scales(3, schedule)
    found = distances(g.jacobian, a, x)
    for i, layer in enumerate(near_layers(g, g.jacobian, a)):
        u = x if i == 0 else g(a[i - 1] * x) / a[i - 1]
        off = differences(layer, u) - np.eye(g.dimension)
        assert np.linalg.norm(off, 2, axis=(-2, -1)).max() == pytest.approx(found[i], abs=1e-7)


@pytest.mark.parametrize("name", NORMAL)
def test_equal_steps_are_within_the_bound(name):
    g, radius = NORMAL[name]
    x = ball(g.dimension, radius, 100)
    for m in (1, 3, 16):
        bound = uniform_bound(g, radius, m) * (1 + 1e-12)
        assert np.all(distances(g.jacobian, scales(m), x) <= bound)
        assert np.all(quotients(g, scales(m), x) <= bound)


@pytest.mark.parametrize("name", NORMAL)
def test_quotients_of_pairs_come_near_the_largest_jacobian(name):
    g, radius = NORMAL[name]
    x, a = ball(g.dimension, radius, 400), scales(4)
    ratio = quotients(g, a, x) / distances(g.jacobian, a, x)
    assert np.all((ratio > 0.7) & (ratio < 1.05))


@pytest.mark.parametrize("name", ["henon", "tanh"])
def test_slope_is_minus_one_at_equal_steps_and_has_a_logarithm_at_geometric_ones(name):
    g, radius = NORMAL[name]
    x, m = ball(g.dimension, radius, 40), np.array([16, 64, 256])
    largest = {
        schedule: [distances(g.jacobian, scales(n, schedule), x).max() for n in m]
        for schedule in ("uniform", "geometric")
    }
    slope = {key: np.polyfit(np.log(m), np.log(values), 1)[0] for key, values in largest.items()}
    assert slope["uniform"] == pytest.approx(-1, abs=0.02)
    if name == "henon":
        np.testing.assert_allclose(largest["geometric"], 2 * A * np.log(m) / m)
        assert slope["geometric"] > -0.8


@pytest.mark.parametrize("name", ["henon", "tanh"])
def test_equalised_scales_are_equally_far_and_the_best(name):
    g, radius = NORMAL[name]
    profiles = [
        lipschitz_profile(g, g.jacobian, radius, schedule, 20, dimension=g.dimension, samples=100)
        for schedule in ("equalised", "uniform", "geometric")
    ]
    assert np.ptp(profiles[0]) < 0.02 * profiles[0].max()
    assert profiles[0].max() < min(profiles[1].max(), profiles[2].max()) * (1 + 1e-9)


@pytest.mark.parametrize("name", NORMAL)
@pytest.mark.parametrize("schedule", ["uniform", "geometric"])
def test_layers_compose_to_the_map(name, schedule):
    g, radius = NORMAL[name]
    x = ball(g.dimension, radius, 20)
    m = 8 if name == "pendulum" else 64
    layers = near_layers(g, g.jacobian, scales(m, schedule))
    assert len(layers) == m
    np.testing.assert_allclose(compose(layers, x), g(x), atol=1e-12)


def test_layers_of_a_whole_map_compose_to_it_as_near_to_the_identity_as_they_say():
    h, x0 = henon_map(), np.array([0.3, -0.1])
    x = x0 + ball(2, 1.0, 40)
    layers = whole_layers(h, [0.3, -0.1], scales(5), depth=6)
    np.testing.assert_allclose(compose(layers, x), h(x), atol=1e-13)
    found = []
    for layer in layers:
        off = differences(layer, x) - np.eye(2)
        found.append(np.linalg.norm(off, 2, axis=(-2, -1)).max())
        x = layer(x)
    np.testing.assert_allclose(found, whole_profile(h, x0, ball(2, 1.0, 40), 11), atol=1e-7)


@pytest.mark.parametrize("m", [8, 32, 256])
def test_whole_henon_is_within_a_constant_over_m(m):
    profile = whole_profile(henon_map(), np.zeros(2), ball(2, 1.0, 20), m)
    assert profile.shape == (m,)
    assert 4.9 < m * profile.max() < 5.7


def test_leading_axes_are_those_of_the_map():
    W, x, x0 = weights(2, 3, 3), ball(3, 1.0, 30), np.full((2, 3), 0.2)
    h, alone = tanh_map(W, 0.5), tanh_map(W[1], 0.5)
    g, one = normalize(h, x0), normalize(alone, x0[1])
    both = lipschitz_profile(g, g.jacobian, 1.0, layers=3, dimension=3)
    assert both.shape == (2, 3)
    np.testing.assert_allclose(
        both[1], lipschitz_profile(one, one.jacobian, 1.0, layers=3, dimension=3), rtol=1e-12
    )
    np.testing.assert_allclose(equalise_scales(both, 5)[1], equalise_scales(both[1], 5), rtol=1e-14)
    np.testing.assert_allclose(quotients(g, scales(3), x)[1], quotients(one, scales(3), x))
    np.testing.assert_allclose(compose(whole_layers(h, x0, scales(2), 2), x), h(x), atol=1e-13)
    assert whole_profile(h, x0, x, 5).shape == (2, 5)
    assert uniform_bound(g, 1.0, 3).shape == (2,)
    assert uniform_bound(g, 1.0, 3)[1] <= uniform_bound(one, 1.0, 3) * (1 + 1e-12)


def test_points_are_in_the_ball_and_half_on_its_sphere_and_the_same_for_one_seed():
    x = ball(3, 2.0, 100, seed=5)
    np.testing.assert_array_equal(x[0], 0)
    np.testing.assert_array_equal(sorted(map(tuple, np.abs(x[1:7])))[0], (0, 0, 2))
    assert np.sum(np.isclose(lengths(x), 2)) == 56
    assert np.all(lengths(x) < 2 * (1 + 1e-12))
    np.testing.assert_array_equal(x, ball(3, 2.0, 100, seed=5))
    assert np.any(x != ball(3, 2.0, 100, seed=6))


@pytest.mark.parametrize("b", [0.3, 0.0])
def test_maps_that_reverse_the_orientation_are_rejected(b):
    for function in (normalize, lambda h, x0: whole_layers(h, x0, scales(2), 2)):
        with pytest.raises(ValueError, match=r"keep the orientation.*Received: det.*b < 0"):
            function(henon_map(b=b), np.zeros(2))


IDENTITY = SmoothMap(
    lambda x: x, lambda x: np.broadcast_to(np.eye(2), (*x.shape, 2)), NotImplemented
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((henon_map(), henon_map().jacobian, 1.0), r"must be normalized.*off by 1\. Pass"),
        ((HENON, IDENTITY.jacobian, 1.0), "must be the derivative of g. Received"),
        ((HENON, HENON.jacobian, 0.0), r"finite and > 0\. Received: dimension=2, radius=0\.0"),
        ((HENON, HENON.jacobian, 1.0, "log"), "uniform, geometric or equalised. Received: 'log'"),
        ((HENON, HENON.jacobian, 1.0, "uniform", 0), "an integer >= 1. Received: depth=0"),
        ((HENON, HENON.jacobian, 1.0, "equalised", 1.5), "an integer >= 1. Received: depth=1.5"),
    ],
)
def test_rejections_say_rule_received_and_remedy(arguments, message):
    with pytest.raises(ValueError, match=message):
        lipschitz_profile(*arguments)


def test_a_map_that_folds_is_rejected():
    def fold(x):
        return x - x**2

    def slope(x):
        return (1 - 2 * x)[..., None]

    with pytest.raises(
        ValueError, match=r"invertible on the ball\. Received: det .* smaller radius"
    ):
        lipschitz_profile(fold, slope, 1.0, dimension=1)
    with pytest.raises(ValueError, match=r"must be images of g.*Choose points nearer to 0"):
        inverse(fold, slope, np.array([[0.1], [2.0]]))


def test_shapes_and_sizes_are_checked():
    with pytest.raises(ValueError, match=r"points \[n, 2\].*Received: shapes .* set dimension"):
        lipschitz_profile(HENON, lambda x: np.eye(2), 1.0)
    with pytest.raises(ValueError, match=r"\|c\| \|\|W\|\| < 1\. Received: .*=1\.2\. Scale"):
        tanh_map(weights(2, 2), 1.2)
    with pytest.raises(ValueError, match=r"two layers, one of them linear\. Received: layers=1"):
        whole_profile(henon_map(), np.zeros(2), ball(2, 1.0, 5), 1)
    with pytest.raises(ValueError, match=r"dimension >= 1; .*Received: dimension=0, radius=1\.0"):
        ball(0, 1.0)
    with pytest.raises(ValueError, match=r"in steps >= 1\. Received: time=1\.5, steps=0\. Set"):
        pendulum(steps=0)
    with pytest.raises(ValueError, match=r"geometric or equalised\. Received: 'foo'"):
        henon_largest(4, "foo")
    with pytest.raises(ValueError, match=r"an integer >= 1\. Received: depth=0"):
        henon_largest(0, "geometric")
