"""All pairs of many points, in blocks of their Gram matrix: no n x n array is ever in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

ROWS, COLUMNS = 512, 2048  # a block of the Gram matrix: a few MiB, which stay in the cache
LARGEST = 1e12  # entry
DIRECTIONS = 32  # the dimension in which far pairs are told apart


def following_products(Z: Array) -> Array:
    """Return max <z_i, z_j> over j > i, for the rows of Z [n, k] in its own precision; [n].

    -inf for the last, which nothing follows.
    """
    largest = np.full(len(Z), -np.inf, Z.dtype)
    for rows, _, G in _upper_triangle(Z, Z):
        np.maximum(largest[rows], G.max(axis=1), out=largest[rows])
    return largest


def nearest_pair(X: ArrayLike) -> tuple[int, int, float]:
    """Return i < j of the two nearest rows of X [n, d], and their squared distance, exactly.

    An orthogonal projection brings no pair apart, so that only pairs which are near in a few
    directions, chosen to keep much of X, are compared in all d (ours). ValueError for fewer rows
    than two, another shape, or entries that `check_finite` refuses.
    """
    X = np.asarray(X)
    if X.ndim != 2 or len(X) < 2 or 0 in X.shape:
        raise ValueError(
            f"Points must be two or more rows of [n, d]. Received: shape {X.shape}. Pass those."
        )
    check_finite(X)
    Z = _project(X)
    half = np.sum(Z**2, axis=1, keepdims=True) / 2
    slack = 64 * np.finfo(np.float32).eps * half.max()  # products are in single precision
    one = np.ones_like(half)
    left = np.hstack([Z, slack - half, one]).astype(np.float32)
    right = np.hstack([Z, one, -half]).astype(np.float32)  # <left_i, right_j> = -|z_i - z_j|^2 / 2
    best = (0, 1, float(_squared_distances(X, np.array([[0, 1]]))[0]))
    for rows, columns, H in _upper_triangle(left, right):
        best = _update_nearest(X, best, np.array([rows.start, columns.start]), H)
    return best


def check_finite(X: Array) -> None:
    """Raise ValueError unless X [n, d] is finite, its largest entry neither 0 nor too large."""
    if X.dtype.kind == "f" and len(bad := np.flatnonzero(~np.isfinite(X).all(axis=1))):
        raise ValueError(f"Points must be finite. Received: point {bad[0]} is not. Drop it.")
    if not 1 / LARGEST <= (largest := max(float(X.max()), -float(X.min()))) <= LARGEST:
        raise ValueError(
            f"Points must have a largest entry between {1 / LARGEST:g} and {LARGEST:g}, of which "
            f"squares can be taken. Received: {largest:.3g}. Divide X by a number of that size."
        )


def _upper_triangle(left: Array, right: Array) -> Iterator[tuple[slice, slice, Array]]:
    """Yield blocks <left_i, right_j>, -inf where j <= i; rows, columns and [rows, columns]."""
    n = len(left)
    for first in range(0, n, ROWS):
        rows = slice(first, min(first + ROWS, n))
        for start in range(first, n, COLUMNS):
            columns = slice(start, min(start + COLUMNS, n))
            G = left[rows] @ right[columns].T
            if start == first:
                G[np.tri(*G.shape, dtype=np.bool_)] = -np.inf
            yield rows, columns, G


def _project(X: Array) -> NDArray[np.float64]:
    """Return X [n, d] in orthonormal directions that keep much of it; [n, DIRECTIONS or d]."""
    n, d = X.shape
    if d <= DIRECTIONS:
        return X.astype(np.float64)
    sample = X[:: -(-n // 2048)].astype(np.float64)
    centre = sample.mean(axis=0)
    start = np.random.default_rng(0).standard_normal((d, DIRECTIONS))
    basis = np.linalg.qr((sample - centre).T @ ((sample - centre) @ start))[0]
    return np.concatenate([(X[i : i + ROWS] - centre) @ basis for i in range(0, n, ROWS)])


def _update_nearest(
    X: Array, best: tuple[int, int, float], corner: NDArray[np.int64], H: Array
) -> tuple[int, int, float]:
    """Return the nearest pair so far or of a block, whose squared distances are at least -2 H."""
    nearest = H.max(axis=1)
    for row in np.argsort(-nearest):
        if nearest[row] <= -best[2] / 2:
            break
        near = np.flatnonzero(H[row] > -best[2] / 2)
        pairs = corner + np.column_stack([np.full(len(near), row), near])
        distances = _squared_distances(X, pairs)
        i = np.argmin(distances)
        if distances[i] < best[2]:
            best = (int(pairs[i, 0]), int(pairs[i, 1]), float(distances[i]))
    return best


def _squared_distances(X: Array, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    differences = X[pairs[:, 0]].astype(np.float64) - X[pairs[:, 1]]
    return np.asarray(np.sum(differences**2, axis=1))
