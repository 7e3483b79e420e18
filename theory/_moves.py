"""Blocks that move points to codes, from points and thresholds; and what rounding does to them.

Private to this package: memorization.py decides which points and thresholds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.memorizer import Layer, Memorizer, Points
from theory.pairs import following_products

Array = NDArray[Any]
ROUNDING = 64  # least margin, in units of the precision


@dataclass(frozen=True)
class Plan:
    """Projected points in the order of the blocks, with the thresholds of their units."""

    A0: Array  # [k, d]
    Z: Array  # [m, k]
    number: NDArray[np.int64]  # of the points in X, [m]
    codes: Layer  # the readout; its U are the codes [r, k]
    t: Array  # [m]
    gap: Array  # |z_i|^2 less the largest product that must not fire, [m]

    @property
    def margin(self) -> float:
        """The least gap, that of the readout included, over the largest |z|^2."""
        readout = 2 * np.min(np.sum(self.codes.U**2, axis=1) - self.codes.t)
        return float(min(self.gap.min(), readout) / np.sum(self.Z**2, axis=1).max())

    @property
    def needed(self) -> float:
        """The margin that rounding could use up."""
        return ROUNDING * float(np.finfo(self.Z.dtype).eps)


def network(points: Points, plan: Plan) -> Memorizer:
    """The network with U = Z, and V = (q - z) M^{-1} in every block; and a bound on its error.

    Bounded is what a block makes of its points. That it makes nothing of others follows from the
    gaps, as long as moved points are nearer to their codes than would make a unit fire, without
    which the error is infinite.
    """
    index = points.index[plan.number]
    k, n = len(plan.A0), len(plan.Z)
    whole = n - n % k
    parts = (plan.Z, plan.t, plan.codes.U[index] - plan.Z)
    stacked = [array[:whole].reshape(-1, k, *array.shape[1:]) for array in parts]
    rest = [array[whole:] for array in parts]
    with np.errstate(all="ignore"):  # an error that is not finite is found below
        V = np.concatenate([solved(*stacked).reshape(whole, k), solved(*rest)])
        units = Layer(plan.Z, plan.t, V)
        blocks = [
            Layer(stacked[0], stacked[1], V[:whole].reshape(-1, k, k)),
            units.part(slice(whole, n)),
        ]
        drift = np.concatenate([_drift(block).ravel() for block in blocks]).max()
    reading = np.abs(plan.codes.V).T @ _lengths(plan.codes.U)  # of a drift of 1, per output
    room = np.min((plan.t - (plan.Z @ plan.codes.U.T).max(axis=1)) / _lengths(plan.Z))
    error = float(drift * reading.max()) if drift < room else np.inf  # also if it is not a number
    return Memorizer(plan.A0, units, plan.codes, points.labels, plan.margin, error)


def solved(U: Array, t: Array, outputs: Array) -> Array:
    """V [..., b, m] with ReLU(U U^T - t)^T V = outputs [..., b, m].

    Unit i knows point i, and fires at no point after it: the matrix is triangular.
    """
    return np.asarray(np.linalg.solve(_activations(U, t).mT, outputs))


def _activations(U: Array, t: Array) -> Array:
    """M of a block, units x points; [..., b, b]."""
    return np.tril(np.maximum(U @ U.mT - t[..., None], 0))


def _drift(block: Layer) -> Array:
    """How far from their codes rounding may leave the points of blocks; [..., b].

    Every activation is wrong by the rounding of a product, which V takes along.
    """
    U, t, V = block
    products = _lengths(U)[..., None, :] * (_activations(U, t) > 0)  # |z_j| where unit i fires
    eps = 2 * np.finfo(U.dtype).eps
    return np.asarray(eps * np.sum(products * (_lengths(U) * _lengths(V))[..., None], axis=-2))


def _lengths(u: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(u**2, axis=-1)))


def readout(q: Array) -> Layer:
    """The layer that maps code s to the s-th unit vector; norms do not increase with s."""
    squares = np.sum(q**2, axis=1)
    t = (squares + np.maximum(following_products(q), 0)) / 2
    return Layer(q, t, solved(q, t, np.eye(len(q), dtype=q.dtype)))


def codes(r: int, k: int) -> Array:
    """r codes in the unit ball of width k, far apart, of norms that do not increase; [r, k]."""
    if k == 1:
        return np.arange(r, 0, -1)[:, None] / r
    if k == 2:
        angles = 2 * np.pi * np.arange(r) / r
        return np.column_stack([np.cos(angles), np.sin(angles)])
    rng = np.random.default_rng([r, k])
    free = rng.standard_normal((max(1024, 8 * r), k))
    free /= np.linalg.norm(free, axis=1, keepdims=True)
    chosen, nearest = [0], free @ free[0]
    while len(chosen) < r:  # greedily the farthest from those chosen
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, free @ free[chosen[-1]])
    return np.asarray(free[chosen])
