"""Near-orthogonality of random unit vectors; the remark of HM section 3 (ours).

For u, v uniform on the unit sphere of R^k, <u, v>^2 has the beta distribution of 1/2, (k-1)/2, so
that P(<u, v> >= t) = I_{1-t^2}((k-1)/2, 1/2)/2 for t >= 0, I the regularized incomplete beta
function. Any two pairs among q_1, ..., q_r are independent, also if they share a vector: given the
shared one, the other two are independent, and by symmetry the given one does not matter. So the
number of pairs that reach t has mean N p and variance N p (1 - p), with N = r(r-1)/2 pairs.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
WIDEST = 2**40  # dimensions, that `needed_dimension` looks at


def reaching_probability(k: ArrayLike, level: ArrayLike = 0.5) -> Array:
    """Return P(<u, v> >= level) of two random unit vectors in R^k; [...].

    ValueError if k < 2 or if the level is not in [0, 1).
    """
    from scipy.special import betainc

    k, level = np.asarray(k, dtype=np.float64), np.asarray(level, dtype=np.float64)
    if not (np.all(k >= 2) and np.all((level >= 0) & (level < 1))):
        raise ValueError(
            "Unit vectors need k >= 2 and a level in [0, 1). Received: least k "
            f"{k.min():g}, levels from {level.min():g} to {level.max():g}. Fix them."
        )
    return np.asarray(betainc((k - 1) / 2, 0.5, 1 - level**2) / 2)[()]


def expected_pairs(r: ArrayLike, k: ArrayLike, level: ArrayLike = 0.5) -> Array:
    """Return the expected number of pairs among r random unit vectors in R^k that reach the level.

    Shape [...]. It bounds the probability that any pair does. Errors: `reaching_probability`.
    """
    r = np.asarray(r, dtype=np.float64)
    return np.asarray(r * (r - 1) / 2 * reaching_probability(k, level))[()]


def needed_dimension(r: float, failure: float = 0.01, level: float = 0.5) -> int:
    """Return the least k with `expected_pairs` <= failure: no pair reaches the level, but for that.

    ValueError if r < 2, failure is not > 0, or k would be above 2^40.
    """
    if not (r >= 2 and failure > 0):
        raise ValueError(
            f"r must be >= 2 and failure > 0. Received: {r=}, {failure=}. Count the vectors."
        )
    low, high = 1, 2  # expected pairs are too many at low, and fall as k grows
    while expected_pairs(r, high, level) > failure:
        low, high = high, 2 * high
        if high > WIDEST:
            raise ValueError(
                f"The level must be reachable within {WIDEST} dimensions. Received: {level=}, "
                f"{r=}, {failure=}. Choose a larger level."
            )
    while high - low > 1:
        middle = (low + high) // 2
        if expected_pairs(r, middle, level) > failure:
            low = middle
        else:
            high = middle
    return high


def logarithm_factor(level: ArrayLike = 0.5) -> Array:
    """Return c with `needed_dimension` ~ c log r for large r, 4/log(1/(1 - level^2)); [...].

    p falls as (1 - level^2)^{k/2}, times a power of k, and r^2/2 pairs wait: 13.9 at level 1/2.
    """
    return np.asarray(-4 / np.log1p(-np.square(np.asarray(level, dtype=np.float64))))[()]


def normalize_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of X [n, d], brought to norm 1."""
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def random_unit_vectors(rng: np.random.Generator, r: int, k: int) -> Array:
    """Return r independent vectors, uniform on the unit sphere of R^k, as rows; [r, k]."""
    return normalize_rows(rng.normal(size=(r, k)))


def count_pairs(q: ArrayLike, level: float = 0.5) -> int:
    """Return how many pairs of the rows of q [r, k] have an inner product of at least the level."""
    q = np.asarray(q, dtype=np.float64)
    reached = np.count_nonzero(q @ q.T >= level)
    own = np.count_nonzero(np.einsum("ij,ij->i", q, q) >= level)
    return int(reached - own) // 2
