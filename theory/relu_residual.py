"""Residual networks of blocks h <- h + V ReLU(U h + s), their risk on a sample and its gradient.

HM prove expressivity for these blocks (section 3) and conjecture of them that critical points near
the identity are global minima (section 5). The risk is Q = (1/2n) sum_k |h(x_k) - y_k|^2 of inputs
x and labels y, the rows of [..., n, d]. At U = V = s = 0 every block is the identity and a product
of two small weights, so that Q is differentiable there with gradient 0 at any risk, whatever the
derivative of ReLU at 0 is taken to be. Where no unit fires Q is constant nearby.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from theory.stationary_points import Layer, residual_layers

Array = NDArray[np.float64]


class Blocks(NamedTuple):
    """Weights of m blocks of k units; also what is made of them one by one, as gradients are."""

    U: Array  # [..., m, k, d]
    V: Array  # [..., m, d, k]
    s: Array  # [..., m, k]


def move(blocks: Blocks, step: float, direction: Blocks) -> Blocks:
    """Return blocks + step * direction."""
    return Blocks(*(w + step * v for w, v in zip(blocks, direction, strict=True)))


def outputs(blocks: Blocks, x: Array) -> Array:
    """Return h(x) at the rows of x [..., n, d]; [..., n, d]."""
    return _states(blocks, x)[0][-1]


def risk(blocks: Blocks, x: Array, y: Array) -> Array:
    """Return Q of the network on a sample; [...]."""
    return np.asarray(np.mean(np.sum((outputs(blocks, x) - y) ** 2, axis=-1), axis=-1) / 2)


def gradient(blocks: Blocks, x: Array, y: Array) -> Blocks:
    """Return the gradient of Q by one pass backward, the derivative of ReLU at 0 taken as 0."""
    h, before = _states(blocks, x)
    G = (h[-1] - y) / x.shape[-2]  # dQ by the state after block i, from i = m down
    rows: list[tuple[Array, Array, Array]] = []
    for i in reversed(range(blocks.U.shape[-3])):
        U, V = blocks.U[..., i, :, :], blocks.V[..., i, :, :]
        z = before[i]
        back = (G @ V) * (z > 0)
        rows.append((back.mT @ h[i], G.mT @ np.maximum(z, 0), back.sum(axis=-2)))
        G = G + back @ U
    weights = zip(*reversed(rows), strict=True)
    return Blocks(*(np.stack(w, axis=k) for w, k in zip(weights, (-3, -3, -2), strict=True)))


def as_layers(blocks: Blocks) -> list[Layer]:
    """Return the blocks as functions, within |V_i| |U_i| of the identity, for stationary_points.

    Its bounds need blocks with h_i(0) = V_i ReLU(s_i) = 0.
    """
    return residual_layers(blocks.V, blocks.U, "relu", blocks.s)


def _states(blocks: Blocks, x: Array) -> tuple[list[Array], list[Array]]:
    """Return the states h_0 = x, ..., h_m and the units' inputs U h + s of every block."""
    h, before = [x], []
    for i in range(blocks.U.shape[-3]):
        before.append(h[-1] @ blocks.U[..., i, :, :].mT + blocks.s[..., i, None, :])
        h.append(h[-1] + np.maximum(before[-1], 0) @ blocks.V[..., i, :, :].mT)
    return h, before
