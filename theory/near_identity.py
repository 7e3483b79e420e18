"""Smooth invertible maps as compositions of near-identity layers; B's slides, sharpened.

A normalized map, g(0) = 0 and Dg(0) = I, has the family g_a(x) = g(ax)/a from g_0 = Id to g_1 = g.
Scales 0 = a_0 < a_1 < ... < a_m = 1 make the m layers
    h_i = g_{a_i} o g_{a_{i-1}}^{-1}, whose composition h_m o ... o h_1 is g.                  (1)
At u = g_{a_{i-1}}(x) the Jacobian of h_i - Id is (Dg(a_i x) - Dg(a_{i-1} x)) Dg(a_{i-1} x)^{-1}.
If on the ball |x| <= R the Jacobian of g is alpha-Lipschitz, and g^{-1} M-Lipschitz on the image,
equal steps a_i = i/m give (ours)
    ||h_i - Id||_L <= alpha M R / m at every layer.                                            (2)
B's O(log m / m) comes of geometric scales. Points are [..., n, d]; leading axes are the map's.
"""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from theory._polar import Array, check_depth
from theory.smooth_maps import Map, SmoothMap, unknown_schedule

FINE = 512  # equal steps that measure what part of the way each scale is


def lipschitz_profile(
    g: Map,
    jacobian: Map,
    radius: float,
    schedule: str = "uniform",
    layers: int = 64,
    *,
    dimension: int = 2,
    samples: int = 500,
    seed: int = 0,
) -> Array:
    """Return ||h_i - Id||_L of the m layers (1) of a normalized g, as measured on a ball; [..., m].

    The largest ||Dh_i - I|| over `ball(dimension, radius, samples, seed)`. The schedule is uniform,
    geometric or equalised, see `scales` and `equalise_scales`. g and jacobian take points [n, d].
    ValueError if g is not normalized, or `jacobian` not its Jacobian or not invertible on the ball.
    """
    x = ball(dimension, radius, samples, seed)
    _check_normalized(g, jacobian, x)
    if schedule == "equalised":
        return distances(jacobian, equalise_scales(distances(jacobian, scales(FINE), x), layers), x)
    return distances(jacobian, scales(layers, schedule), x)


def uniform_bound(g: SmoothMap, radius: float, layers: int) -> Array:
    """Return alpha M R / m, the bound (2) on every layer of a normalized g, equal steps; [...]."""
    alpha, M = g.constants(radius)
    return np.asarray(alpha * M * radius / check_depth(layers))


def scales(layers: int, schedule: str = "uniform") -> Array:
    """Return a_1 < ... < a_m = 1: uniform, i/m, or geometric from a_1 = ln m / m on; shape [m].

    ValueError for another schedule, or if layers is not an integer >= 1.
    """
    m = int(check_depth(layers))
    i = np.arange(1, m + 1)
    if schedule == "uniform":
        return np.asarray(i / m)
    if schedule == "geometric":
        return np.asarray((np.log(m) / m) ** ((m - i) / (m - 1)) if m > 1 else np.ones(1))
    raise unknown_schedule(schedule)


def equalise_scales(fine: ArrayLike, layers: int) -> Array:
    """Return scales of layers equally near the identity, the best for large m (ours); [..., m].

    fine [..., k] holds the distances of k equal steps; every layer gets an equal share of their
    sum. ValueError if layers is not an integer >= 1.
    """
    m = int(check_depth(layers))
    shares = np.arange(1, m + 1) / m
    return np.asarray(_equalise_one(np.asarray(fine, dtype=np.float64), shares))


def ball(dimension: int, radius: float, samples: int = 500, seed: int = 0) -> Array:
    """Return points [n, d] of the ball |x| <= radius: centre, ends of the axes, then random ones.

    Half of the random ones are uniform on the sphere, half in the ball; n = 1 + 2d + samples.
    ValueError unless dimension >= 1 and the radius is finite and > 0.
    """
    if not (dimension >= 1 and 0 < radius < np.inf):
        raise ValueError(
            "A ball needs a dimension >= 1; its radius must be finite and > 0. "
            f"Received: {dimension=}, {radius=}. Set both so."
        )
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, dimension))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    x[samples // 2 :] *= rng.uniform(size=(samples - samples // 2, 1)) ** (1 / dimension)
    axes = np.eye(dimension)
    return np.concatenate([np.zeros((1, dimension)), axes, -axes, x]) * radius


def distances(jacobian: Map, a: Array, x: Array) -> Array:
    """Return each layer's largest ||Dh_i - I|| over x [..., n, d] at scales a [..., m]; [..., m].

    ValueError if the Jacobian is not invertible at one of the points a_i x.
    """
    before, distances = np.eye(x.shape[-1]), []
    for scale in np.moveaxis(a, -1, 0):
        after = jacobian(scale[..., None, None] * x)
        if not np.all((det := np.linalg.det(after)) > 0):
            raise ValueError(
                "The Jacobian must be invertible on the ball. Received: det Dg from 1 at the "
                f"centre to {np.min(det):.3g}. Choose a smaller radius."
            )
        D = np.linalg.solve(before.mT, (after - before).mT)  # (Dh_i - I)^T, [..., n, d, d]
        distances.append(np.sqrt(np.linalg.eigvalsh(D.mT @ D)[..., -1].clip(0).max(axis=-1)))
        before = after
    return np.stack(distances, axis=-1)


def quotients(g: Map, a: Array, x: Array) -> Array:
    """Return each layer's largest |(h_i - Id)(u) - (h_i - Id)(v)| / |u - v| over pairs; [..., m].

    The pairs are images of points x [..., n, d] that follow each other, and of near ones. Below
    ||h_i - Id||_L, without Jacobians and whether or not the image is convex.
    """
    y = np.roll(x, 1, axis=-2)
    x, y = np.concatenate([x, x], axis=-2), np.concatenate([y, x + 1e-3 * (y - x)], axis=-2)
    before, distances = x - y, []
    for scale in np.moveaxis(a, -1, 0)[..., None, None]:
        after = (g(scale * x) - g(scale * y)) / scale
        apart = np.linalg.norm(before, axis=-1)
        moved = np.linalg.norm(after - before, axis=-1)
        distances.append(np.max(moved / np.where(apart > 0, apart, np.inf), axis=-1))
        before = after
    return np.stack(distances, axis=-1)


@partial(np.vectorize, signature="(k),(m)->(m)")
def _equalise_one(fine: Array, shares: Array) -> Array:
    way = np.concatenate([[0.0], np.cumsum(fine)])
    a = np.interp(shares * way[-1], way, np.linspace(0, 1, len(way)))
    return np.concatenate([a[:-1], [1.0]])


def lengths(u: Array) -> Array:
    """Return |u| of points u [..., n, d]; [..., n]."""
    return np.asarray(np.linalg.norm(u, axis=-1))


def _check_normalized(g: Map, jacobian: Map, x: Array) -> None:
    """Reject what is no normalized map with its Jacobian, by what it does at points x [n, d]."""
    d, J = x.shape[-1], jacobian(x)
    if g(x).shape[-2:] != x.shape or J.shape[-3:] != (*x.shape, d):
        raise ValueError(
            f"g and jacobian must map points [n, {d}] to [n, {d}] and [n, {d}, {d}]. Received: "
            f"shapes {g(x).shape} and {J.shape} of {x.shape}. Vectorize them, or set dimension."
        )
    off = max(np.max(np.abs(g(x)[..., 0, :])), np.max(np.abs(J[..., 0, :, :] - np.eye(d))))
    if not off <= 1e-9:
        raise ValueError(
            "g must be normalized, g(0) = 0 and Dg(0) = I. Received: a map that is off by "
            f"{off:.3g}. Pass normalize(h, x0) of theory.smooth_maps."
        )
    v = 1e-5 * np.roll(x, 1, axis=-2)
    error = g(x + v) - g(x - v) - 2 * (J @ v[..., None])[..., 0]
    if not (worst := np.max(lengths(error)) / np.max(lengths(2 * v))) <= 1e-5 * np.max(np.abs(J)):
        raise ValueError(
            "jacobian must be the derivative of g. Received: one that is off by "
            f"{worst:.3g} from central differences. Correct it."
        )
