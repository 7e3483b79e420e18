"""Checked inputs and the polar form R = QP by one SVD and one Schur decomposition.

Private to this package: the shapes, the errors and the rotation angles that public functions share.
"""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Depth = int | NDArray[np.int64]


def check_depth(depth: Depth) -> NDArray[np.int64]:
    n = np.asarray(depth)
    if n.dtype.kind not in "iu" or np.any(n < 1):
        raise ValueError(f"depth must be an integer >= 1. Received: {depth=}. Count the layers.")
    return n


def check_layers(A: ArrayLike, name: str = "A") -> Array:
    """Return layers [..., l, d, d], l >= 0, as float64. ValueError, with their name, for others."""
    A = np.asarray(A, dtype=np.float64)
    if A.ndim < 3 or A.shape[-1] != A.shape[-2] or A.shape[-1] == 0:
        raise ValueError(
            f"{name} must be layers [..., l, d, d]. Received: shape {A.shape}. "
            "Stack the layers, all d x d, along an axis of their own."
        )
    return A


def check_square(R: ArrayLike, name: str = "R") -> Array:
    R = np.asarray(R, dtype=np.float64)
    if R.ndim < 2 or R.shape[-1] != R.shape[-2] or R.shape[-1] == 0:
        raise ValueError(f"{name} must be square. Received: shape {R.shape}. Pass [..., d, d].")
    if bad := np.sum(~np.isfinite(R)):
        raise ValueError(
            f"{name} must be finite. Received: {bad} nan or infinite entries. Drop them."
        )
    return R


def svd(R: ArrayLike) -> tuple[Array, Array, Array, Array]:  # U, s, V^T and the sign of det R
    U, s, Vt = np.linalg.svd(check_square(R))
    low, high = s[..., -1], s[..., 0]
    if len(bad := np.argwhere(low <= s.shape[-1] * np.finfo(np.float64).eps * high)):
        i = tuple(bad[0])
        raise ValueError(
            f"R must be invertible, s_min > d eps s_max. Received: s_min={low[i]:.3g}, "
            f"s_max={high[i]:.3g}. Raise the small singular values first."
        )
    return U, s, Vt, np.linalg.slogdet(U)[0] * np.linalg.slogdet(Vt)[0]


def positive_svd(R: ArrayLike) -> tuple[Array, Array, Array]:
    U, s, Vt, sign = svd(R)
    if np.any(sign < 0):
        raise ValueError(
            "R must have det R > 0: every product of I+A_i with ||A_i|| < 1 has det > 0. "
            f"Received: det R < 0, d={s.shape[-1]}. Factor augment(R) = diag(R, -1) instead, "
            "or -R when d is odd."
        )
    return U, s, Vt


@partial(np.vectorize, signature="(d,d)->(d,d),(h)")
def rotation_angles(Q: Array) -> tuple[Array, Array]:
    """Return Z [..., d, d], in which Q turns axes (0, 1), (2, 3), ... by angles [..., d//2]."""
    from scipy.linalg import schur  # takes a third of a second to import

    T, Z = schur(Q, output="real")
    i = np.flatnonzero(np.diag(T, -1))  # first rows of the 2 x 2 blocks
    single = np.setdiff1d(np.arange(len(T)), np.concatenate([i, i + 1]))
    minus, plus = single[T[single, single] < 0], single[T[single, single] >= 0]
    t = np.zeros(len(T) // 2)
    t[: len(i)] = np.arctan2(T[i + 1, i] - T[i, i + 1], T[i, i] + T[i + 1, i + 1])
    t[len(i) : len(i) + len(minus) // 2] = np.pi  # det Q = 1: the -1's come in pairs
    return Z[:, np.concatenate([np.stack([i, i + 1], axis=1).ravel(), minus, plus])], t


def turn_less_one(X: Array, t: Array) -> Array:
    """Return (T - I) X, T turning row pairs of X [..., d, n] by t [..., d//2]; nothing cancels."""
    c, s = -2 * np.sin(t / 2)[..., None] ** 2, np.sin(t)[..., None]
    n = 2 * t.shape[-1]
    x, y = X[..., 0:n:2, :], X[..., 1:n:2, :]
    out = np.zeros((*np.broadcast_shapes(X.shape[:-2], t.shape[:-1]), *X.shape[-2:]))
    out[..., 0:n:2, :], out[..., 1:n:2, :] = c * x - s * y, s * x + c * y
    return out
