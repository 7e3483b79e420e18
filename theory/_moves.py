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
    number: NDArray[np.int64]  # the points' places in X, [m]
    codes: Layer  # the readout; its U are the codes [r, k]
    t: Array  # [m]
    gap: Array  # |z_i|^2 less the largest product that must not fire, [m]

    @property
    def margin(self) -> float:
        """Return the least gap, that of the readout included, over the largest |z|^2."""
        readout = 2 * np.min(np.sum(self.codes.U**2, axis=1) - self.codes.t)
        return float(min(self.gap.min(), readout) / np.sum(self.Z**2, axis=1).max())


def rounding_margin(Z: Array) -> float:
    """Return the margin that the rounding of products of Z could use up."""
    return ROUNDING * float(np.finfo(Z.dtype).eps)


def network(points: Points, plan: Plan) -> Memorizer:
    """Return the network with U = Z, V = (q - z) M^{-1} in every block; and a bound on its error.

    Bounded is what a block makes of its points. That it makes nothing of others follows from the
    gaps, as long as moved points are nearer to their codes than would make a unit fire, without
    which the error is infinite.
    """
    k = len(plan.A0)
    whole = len(plan.Z) - len(plan.Z) % k
    parts = (plan.Z, plan.t, plan.codes.U[points.index[plan.number]] - plan.Z)
    stacked = [array[:whole].reshape(-1, k, *array.shape[1:]) for array in parts]
    with np.errstate(all="ignore"):  # an error that is not finite is found below
        blocks = [_block(*stacked), _block(*(array[whole:] for array in parts))]
    V, drifts = (np.concatenate(each) for each in zip(*blocks, strict=True))
    reading = np.abs(plan.codes.V).T @ _lengths(plan.codes.U)  # per output, for a drift of 1
    room = np.min((plan.t - (plan.Z @ plan.codes.U.T).max(axis=1)) / _lengths(plan.Z))
    drift = drifts.max()
    error = float(drift * reading.max()) if drift < room else np.inf  # also if it is not a number
    units = Layer(plan.Z, plan.t, V)
    return Memorizer(plan.A0, units, plan.codes, points.labels, plan.margin, error)


def unchecked_network(points: Points, plan: Plan) -> Memorizer:
    """Return the network with V_i = (q - z_i) / (|z_i|^2 - t_i): each unit fires at its own alone.

    What else fires is not looked at: the error is infinite.
    """
    moves = plan.codes.U[points.index[plan.number]] - plan.Z
    V = moves / (np.sum(plan.Z**2, axis=1) - plan.t)[:, None]
    units = Layer(plan.Z, plan.t, V)
    return Memorizer(plan.A0, units, plan.codes, points.labels, plan.margin, np.inf)


def _block(U: Array, t: Array, moves: Array) -> tuple[Array, Array]:
    """Return V [m, k] of blocks [..., b, k] with these moves, and points' drift by rounding [m].

    Every activation is wrong by the rounding of a product, which V takes along.
    """
    M = _activations(U, t)
    V = np.linalg.solve(M.mT, moves)
    products = _lengths(U)[..., None, :] * (M > 0)  # |z_j| where unit i fires
    drift = np.sum(products * (_lengths(U) * _lengths(V))[..., None], axis=-2)
    return V.reshape(-1, U.shape[-1]), 2 * np.finfo(U.dtype).eps * drift.ravel()


def _activations(U: Array, t: Array) -> Array:
    """Return M = ReLU(U U^T - t) of a block, units x points; [..., b, b].

    Unit i knows point i, and fires at no point after it: the matrix is triangular.
    """
    return np.tril(np.maximum(U @ U.mT - t[..., None], 0))


def _lengths(u: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(u**2, axis=-1)))


def readout(q: Array) -> Layer:
    """Return the layer that maps code s to the s-th unit vector; norms do not increase with s."""
    squares = np.sum(q**2, axis=1)
    t = (squares + np.maximum(following_products(q), 0)) / 2
    return Layer(q, t, np.linalg.inv(_activations(q, t)).mT)


def codes(r: int, k: int) -> Array:
    """Return codes in the unit ball, far apart, of norms that do not increase; [r, k]."""
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
