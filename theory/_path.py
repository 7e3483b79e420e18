"""Shorter steps along a path of matrices from I to R, by numerical optimization.

Private to this package. A path is [l+1, d, d]: the partial products M_0 = I, M_1, ..., M_l = R of
layers I+A_i = M_i M_{i-1}^{-1}. With fixed ends, every path is a factorization of R.
"""

from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@partial(np.vectorize, signature="(l,d,d),(d,d)->(l,d,d)")
def shorten(A: Array, R: Array) -> Array:
    """Layers [..., l, d, d] of product R [..., d, d] whose largest norm tends to be below A's.

    L-BFGS lessens the Schatten p-norm of all layers together, p = 4, 8, ..., 64, over the interior
    points. Its variables are the path's sine waves, in units in which all are about equally steep.
    """
    from scipy.fft import dst
    from scipy.optimize import minimize

    if len(A) == 1 or not A.any():  # no interior point, or R = I
        return A
    M = np.stack([*accumulate(A, lambda M, A: M + A @ M, initial=np.eye(len(R)))])
    M[-1] = R
    waves = partial(dst, type=1, axis=0, norm="ortho")  # its own inverse and transpose
    unit = 1 / np.sin(np.arange(1, len(A)) * np.pi / (2 * len(A)))[:, None, None]

    def path(w: Array) -> Array:
        return np.concatenate([M[:1], M[1:-1] + waves(unit * w.reshape(M[1:-1].shape)), M[-1:]])

    def cost(w: Array, p: int) -> tuple[float, Array]:
        value, slope = log_schatten(path(w), p)
        return value, (unit * waves(slope)).ravel()

    w, options = np.zeros(M[1:-1].size), {"maxiter": 100, "maxcor": 20}
    for p in (4, 8, 16, 32, 64):
        w = minimize(cost, w, args=(p,), jac=True, method="L-BFGS-B", options=options).x
    B, start = [], np.eye(len(R))
    for end in path(w)[1:]:  # from where the last layer arrived, so that errors do not add up
        B.append(np.linalg.solve(start.T, (end - start).T).T)
        start = start + B[-1] @ start
    return np.stack(B)


def log_schatten(M: Array, p: int) -> tuple[float, Array]:
    """log (sum_i ||A_i||_p^p)^{1/p} of a path M [l+1, d, d], and its gradient [l-1, d, d]."""
    inverse = np.linalg.inv(M[:-1])
    U, s, Vt = np.linalg.svd((M[1:] - M[:-1]) @ inverse)
    weights = (s / s.max()) ** (p - 1)
    total = np.sum(weights * s)
    G = (U * (weights / total)[:, None, :]) @ Vt @ inverse.mT
    value = np.log(s.max()) + np.log(total / s.max()) / p
    return float(value), G[:-1] - ((M[1:] @ inverse).mT @ G)[1:]
