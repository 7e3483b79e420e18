"""Weights of the two-layer ReLU network with a given norm and Frobenius norm, LY section 5.2.

Independent Gaussian entries cannot have both: LY's ||W|| = 0.6 at d = 100 makes ||W||_F about 3,
where they print 5.7. Singular values that rise linearly can.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def singular_values(d: int, norm: float, frobenius: float) -> Array:
    """Return d values in a line from a to `norm`, root sum of squares `frobenius`, LY section 5.2.

    a is >= 0. ValueError unless norm > 0 and frobenius is between that of a = 0 and norm sqrt(d).
    """
    t = np.linspace(0, 1, d) if d > 1 else np.ones(1)
    # sum (a (1 - t) + norm t)^2 = frobenius^2 is a quadratic equation for a.
    both, flat = float(norm * t @ (1 - t)), float((1 - t) @ (1 - t))
    steep = float(norm**2 * t @ t)
    least, most = math.sqrt(steep), norm * math.sqrt(d)
    if not (norm > 0 and least * (1 - 1e-12) <= frobenius <= most * (1 + 1e-12)):
        raise ValueError(
            f"The Frobenius norm of d={d} singular values in a line must be between {least:.4g} "
            f"and {most:.4g}. Received: frobenius={frobenius} with norm={norm}. Change one of them."
        )
    over = float(np.maximum(frobenius**2 - steep, 0))
    a = over / (both + math.sqrt(both**2 + flat * over)) if over and d > 1 else 0.0
    return a * (1 - t) + norm * t


def draw(d: int, norm: float, frobenius: float, rng: np.random.Generator) -> Array:
    """Return W = U diag(singular_values) V^T with independent uniform orthogonal U, V; [d, d].

    ValueError as `singular_values`.
    """
    from scipy.stats import ortho_group

    U, V = ortho_group(d).rvs(size=2, random_state=rng).reshape(2, d, d)
    return np.asarray(U * singular_values(d, norm, frobenius) @ V.T)
