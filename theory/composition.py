"""Maps composed of the near-identity layers of near_identity.py, run forward; B.

A normalized g is the composition of its layers h_i = g_{a_i} o g_{a_{i-1}}^{-1}, of which the
inverse is Newton's method. A map h that is not normalized is h(x) = h(x0) + Dh(x0) g(x - x0): the
layers of g, then linear ones near the identity. Points are [..., n, d]; leading axes are the map's.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import ArrayLike

from theory._polar import Array, check_depth
from theory.factorization import balanced, max_norm
from theory.near_identity import distances, lengths, scales
from theory.smooth_maps import Map, SmoothMap, derivative, normalize

NEWTON_STEPS, HALVINGS = 60, 30
ENOUGH = 32  # layers that show how far g is from the identity


def near_layers(g: Map, jacobian: Map, a: Array) -> list[Map]:
    """Return the layers (1) of a normalized g at scales a [..., m] as functions, h_1 first.

    On use, ValueError as in `inverse` for points that are no image of the layers before.
    """

    def layer(before: Array | None, after: Array, u: Array) -> Array:
        x = u if before is None else inverse(g, jacobian, before * u) / before
        return g(after * x) / after

    steps = list(np.moveaxis(a, -1, 0)[..., None, None])
    return [partial(layer, *pair) for pair in zip([None, *steps[:-1]], steps, strict=True)]


def compose(layers: Sequence[Map], x: Array) -> Array:
    """Return h_m(... h_1(x)) at points x [..., n, d]; shape [..., n, d]."""
    return reduce(lambda u, layer: layer(u), layers, x)


def inverse(g: Map, jacobian: Map, u: Array) -> Array:
    """Return g^{-1}(u) by Newton's method from u on, with steps halved where needed; [..., n, d].

    ValueError where no point is found that g maps to u.
    """
    x, left = np.asarray(u, dtype=np.float64), g(u) - u
    for _ in range(NEWTON_STEPS):
        step = np.asarray(np.linalg.solve(jacobian(x), left[..., None])[..., 0], dtype=np.float64)
        small = lengths(step) <= 1e-9 * np.max(np.abs(u), initial=1e-300)
        t = np.ones((*small.shape, 1))
        for _ in range(HALVINGS):
            new = g(x - t * step) - u
            descends = lengths(new) <= (1 - t[..., 0] / 4) * lengths(left)
            if np.all(small | descends):
                break
            t = np.where((small | descends)[..., None], t, t / 2)
        x, left = x - t * step, new
        if np.all(small):  # the error that is left is of the order of its square
            return np.asarray(x)
    raise ValueError(
        "Points must be images of g. Received: some for which Newton's method finds none. "
        "Choose points nearer to 0."
    )


def whole_layers(h: SmoothMap, x0: ArrayLike, a: Array, depth: int) -> list[Map]:
    """Return h itself, not normalized, as m + depth near-identity layers of points x, h_1 first.

    h(x) = h(x0) + Dh(x0) g(x - x0): the m layers of g at scales a [m], then the depth layers of
    `factorization.balanced` for Dh(x0). The shifts, by x0 [..., d], change no seminorm and belong
    to the first and the last layer. ValueError as in `normalize`.
    """
    x0 = np.asarray(x0, dtype=np.float64)
    g, A = normalize(h, x0), balanced(derivative(h, x0), depth)
    near = near_layers(g.function, g.jacobian, a)
    linear: list[Map] = [partial(_apply_layer, A_i) for A_i in np.moveaxis(A, -3, 0)]
    first, last, shift = near[0], linear[-1], x0[..., None, :]
    near[0] = lambda x: first(x - shift)
    linear[-1] = lambda u: last(u) + h.function(shift)
    return near + linear


def whole_profile(h: SmoothMap, x0: ArrayLike, x: Array, layers: int) -> Array:
    """Return ||h_i - Id||_L of m layers of h itself, equal steps and then linear ones; [..., m].

    Measured at points x [..., n, d] of a ball about x0, and split so that the largest is small.
    ValueError as in `normalize`, or if layers < 2.
    """
    if check_depth(layers) < 2:
        raise ValueError(f"h needs two layers, one of them linear. Received: {layers=}. Use more.")
    J, jacobian = derivative(h, x0), normalize(h, x0).jacobian
    few = min(layers, ENOUGH)
    way = few * np.max(distances(jacobian, scales(few), x))  # nearly the same for every m

    def linear(depth: int) -> float:  # decreases with depth, while the rest's increases
        return float(np.max(max_norm(balanced(J, depth))))

    enough = bisect_left(
        range(layers - 1), True, lo=1, key=lambda n: bool(linear(n) * (layers - n) <= way)
    )
    near = range(max(1, enough - 1), enough + 1)
    depth = min(near, key=lambda n: max(linear(n), way / (layers - n)))
    curved = distances(jacobian, scales(layers - depth), x)
    linear_distance = max_norm(balanced(J, depth))[..., None]
    return np.concatenate(
        [curved, np.broadcast_to(linear_distance, (*curved.shape[:-1], depth))], axis=-1
    )


def _apply_layer(A: Array, u: Array) -> Array:
    return u + u @ A.mT
