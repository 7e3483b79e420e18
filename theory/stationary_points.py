"""Near-identity networks h = h_m o ... o h_1: no stationary point above the least risk; B.

The risk on a sample of inputs x_k and labels y_k, both [..., n, d], is
    Q(h) = (1/2n) sum_k |h(x_k) - y_k|^2,
least at h*, the mean label of equal inputs. With u_{i-1} for the input of layer i, and J_i for the
Jacobian of h_m o ... o h_{i+1} at u_i, the derivative of Q as layer i moves along Delta is
    D_{h_i}Q(Delta) = (1/n) sum_k <h(x_k) - h*(x_k), J_{i,k} Delta(u_{i-1,k})>,
and ||D_{h_i}Q|| is its largest value under |Delta(u)| <= |u|. If every h_i(0) = 0 and eps < 1 is
the largest Lipschitz seminorm ||h_i - Id||_L, then at every layer
    ||D_{h_i}Q|| >= 2 (1-eps)^{m-1} (Q(h) - Q(h*)) / ||h - h*||,                               (1)
||h - h*|| being the largest |h(x_k) - h*(x_k)| / |x_k|. B's slide has no factor 2.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.near_identity import lengths

Array = NDArray[np.float64]
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0), lambda z: np.asarray(z > 0, dtype=np.float64)),
}
"""sigma and its derivative; that of ReLU is 0 at 0."""


class Layer(NamedTuple):
    """A map h of points u, the rows of [..., n, d], with h(0) = 0 and ||h - Id||_L < 1."""

    function: Callable[[Array], Array]  # u -> h(u)
    pullback: Callable[[Array, Array], Array]  # u, v -> Dh(u)^T v
    distance: ArrayLike  # ||h - Id||_L or a bound on it, [...]


def residual_layers(
    A: ArrayLike, B: ArrayLike, activation: str, shifts: ArrayLike = 0.0
) -> list[Layer]:
    """Return layers h_i(u) = u + A_i sigma(B_i u + s_i), within ||A_i|| ||B_i|| of the identity.

    A is [..., m, d, k], B [..., m, k, d], the shifts s broadcast to [..., m, k]; the bounds need
    A_i sigma(s_i) = 0. sigma is of ACTIVATIONS, sigma(0) = 0, |sigma'| <= 1. ValueError if A and B
    do not agree, for another activation, or on use with points of another width.
    """
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if min(A.ndim, B.ndim) < 3 or A.shape[-3:] != (B.shape[-3], B.shape[-1], B.shape[-2]):
        raise ValueError(
            "A and B must be [..., m, d, k] and [..., m, k, d] with one m, d and k. "
            f"Received: shapes {A.shape} and {B.shape}. Make the last three axes agree."
        )
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation must be of {', '.join(ACTIVATIONS)}. Received: {activation!r}. Choose one."
        )
    s = np.broadcast_to(np.asarray(shifts, dtype=np.float64), B.shape[:-1])[..., None, :]
    return [
        _layer(A[..., i, :, :], B[..., i, :, :], s[..., i, :, :], activation)
        for i in range(A.shape[-3])
    ]


def network(layers: Sequence[Layer], x: ArrayLike) -> Array:
    """Return h(x) = h_m(... h_1(x)) at the rows of x [..., n, d]; shape [..., n, d]."""
    return reduce(lambda u, layer: layer.function(u), layers, np.asarray(x, dtype=np.float64))


def label_means(x: ArrayLike, y: ArrayLike) -> Array:
    """Return h* on the sample: the mean label of equal inputs; x, y and the result are [..., n, d].

    ValueError if x and y are not finite, with equal n and d, or if some x_k = 0.
    """
    return np.asarray(_label_means_one(*_check_sample(x, y)))


def layer_gradient_norms(layers: Sequence[Layer], x: ArrayLike, y: ArrayLike) -> Array:
    """Return ||D_{h_i}Q|| = (1/n) sum_k |u_{i-1,k}| |J_{i,k}^T (h - h*)(x_k)|, exactly; [..., m].

    One pass backward through the layers gives all of them. ValueError as in `stationary_bound`.
    """
    x, y = _check_sample(x, y)
    _check_distance(layers)  # below 1, layers keep points apart, so Delta is free at each of them
    u = [x]
    for layer in layers:
        u.append(layer.function(u[-1]))
    v = u.pop() - label_means(x, y)  # J_i^T (h - h*), from i = m down
    norms = []
    for layer in reversed(layers):
        before = u.pop()
        norms.append(np.mean(lengths(before) * lengths(v), axis=-1))
        v = layer.pullback(before, v)
    return np.stack(norms[::-1], axis=-1)


def stationary_bound(layers: Sequence[Layer], x: ArrayLike, y: ArrayLike) -> Array:
    """Return the right-hand side of (1), attained by h_i(u) = (1-eps) u with labels y = c x; [...].

    ValueError if x and y are not finite, with equal n and d, if some x_k = 0, if there is no
    layer, or if eps, the largest `distance` of a layer, is not in [0, 1).
    """
    return 2 * slide_bound(layers, x, y)


def slide_bound(layers: Sequence[Layer], x: ArrayLike, y: ArrayLike) -> Array:
    """Return (1) without the factor 2, as B's slide has it; [...]. See `stationary_bound`."""
    x, y = _check_sample(x, y)
    near = (1 - _check_distance(layers)) ** (len(layers) - 1)
    error = lengths(network(layers, x) - label_means(x, y))  # [..., n]
    gap = np.mean(error**2, axis=-1) / 2  # Q(h) - Q(h*)
    farthest = np.max(error / lengths(x), axis=-1)  # ||h - h*||
    return np.asarray(near * gap / np.maximum(farthest, np.finfo(np.float64).tiny))[()]


def _layer(A: Array, B: Array, s: Array, activation: str) -> Layer:
    sigma, slope = ACTIVATIONS[activation]

    def function(u: Array) -> Array:
        if u.shape[-1] != A.shape[-2]:
            raise ValueError(
                f"The layers map points of width {A.shape[-2]}. Received: points of shape "
                f"{u.shape}. Pass [..., n, {A.shape[-2]}]."
            )
        return u + sigma(u @ B.mT + s) @ A.mT

    def pullback(u: Array, v: Array) -> Array:
        return v + (slope(u @ B.mT + s) * (v @ A)) @ B

    norms = [np.linalg.norm(X, 2, axis=(-2, -1)) for X in (A, B)]
    return Layer(function, pullback, norms[0] * norms[1])


@partial(np.vectorize, signature="(n,d),(n,d)->(n,d)")
def _label_means_one(x: Array, y: Array) -> Array:
    _, group, counts = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), y.shape[-1]))
    np.add.at(sums, group, y)
    return np.asarray((sums / counts[:, None])[group])


def _check_sample(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if min(x.ndim, y.ndim) < 2 or x.shape[-2:] != y.shape[-2:] or 0 in x.shape[-2:]:
        raise ValueError(
            "x and y must be [..., n, d] with one n >= 1 and one d >= 1. "
            f"Received: shapes {x.shape} and {y.shape}. Pass one label of width d for each input."
        )
    if bad := np.sum(~np.isfinite(x)) + np.sum(~np.isfinite(y)):
        raise ValueError(
            f"x and y must be finite. Received: {bad} nan or infinite entries. Drop those points."
        )
    if len(zero := np.argwhere(lengths(x) == 0)):
        raise ValueError(
            "Inputs must not be 0, where every layer is fixed. "
            f"Received: x = 0 at index {tuple(zero[0].tolist())}. Drop or move such points."
        )
    return x, y


def _check_distance(layers: Sequence[Layer]) -> Array:
    if not layers:
        raise ValueError("A network needs layers. Received: none. Pass m >= 1 of them.")
    eps = reduce(np.maximum, [np.asarray(layer.distance, dtype=np.float64) for layer in layers])
    if not np.all((eps >= 0) & (eps < 1)):
        raise ValueError(
            "Layers must be within eps < 1 of the identity. Received: eps="
            f"{np.max(eps):.3g}. Scale the layers' weights down, or use more layers."
        )
    return eps
