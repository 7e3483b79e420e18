"""Population risk of the linear residual network (I+A_l)...(I+A_1), HM section 2.

The data are y = Rx + xi with E xx^T = Sigma and independent standard normal xi; f(A) is the
expected squared error. With E = (I+A_l)...(I+A_1) - R it is f(A) = ||E Sigma^{1/2}||_F^2 + C_opt,
and C_opt = E|xi|^2 is its least value at every depth, since A_1 = R - I alone gives E = 0.
In every function A is [..., l, d, d] with A_1 first, R is [..., d, d], sigma is [d, d] or
[..., d, d], leading axes broadcast, and shapes of unequal width d raise a ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.factorization import compose, max_norm

Array = NDArray[np.float64]


def excess_risk(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """f(A) - C_opt = ||E Sigma^{1/2}||_F^2, HM section 2; shape [...]."""
    A, R, sigma = _arrays(A, R, sigma)
    E = compose(A) - R
    return np.asarray(np.sum(E * (E @ sigma), axis=(-2, -1)))[()]


def gradient(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """Gradient of the population risk, HM Lemma 2.4; shape [..., l, d, d].

    df/dA_i = 2 (I+A_{i+1})^T...(I+A_l)^T E Sigma (I+A_1)^T...(I+A_{i-1})^T, in 3 l matrix products.
    """
    A, R, sigma = _arrays(A, R, sigma)
    P = [np.eye(A.shape[-1])]  # P[i] = (I+A_i)...(I+A_1)
    for i in range(A.shape[-3]):
        P.append(P[i] + A[..., i, :, :] @ P[i])
    B = 2 * (P[-1] - R) @ sigma  # 2 (I+A_{i+1})^T...(I+A_l)^T E Sigma, from i = l down
    G = []
    for i in reversed(range(A.shape[-3])):
        G.append(B @ P[i].mT)
        B = B + A[..., i, :, :].mT @ B
    return np.stack(G[::-1], axis=-3)


def gradient_appendix(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """The gradient as HM Appendix A.2 prints it, wrong for l >= 3; shape [..., l, d, d].

    2 (I+A_l)^T...(I+A_{i+1})^T E Sigma (I+A_{i-1})^T...(I+A_1)^T: both groups of factors are in
    the opposite order to `gradient`. Kept so that the difference can be measured.
    """
    A, R, sigma = _arrays(A, R, sigma)
    T = np.moveaxis(np.eye(A.shape[-1]) + A.mT, -3, 0)  # (I+A_i)^T, [l, ..., d, d]
    left, right = [np.eye(A.shape[-1])], [np.eye(A.shape[-1])]
    for i in range(1, len(T)):
        left.append(left[-1] @ T[-i])
        right.append(T[i - 1] @ right[-1])
    B = 2 * (compose(A) - R) @ sigma
    return np.stack([L @ B @ M for L, M in zip(left[::-1], right, strict=True)], axis=-3)


def gradient_bound(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """4 l (1-tau)^{2l-2} s_min(Sigma) (f - C_opt) <= ||grad f||_F^2, HM (2.3); shape [...].

    tau = max ||A_i||. The paper claims it for tau < 1; beyond that 1 - tau counts as 0 here, which
    keeps it true: A_1 = A_2 = -I with every other layer 0 is a critical point of positive risk.
    """
    A, R, sigma = _arrays(A, R, sigma)
    depth, near = A.shape[-3], np.maximum(1 - max_norm(A), 0.0)
    s_min = np.linalg.norm(sigma, -2, axis=(-2, -1))
    bound = 4 * depth * near ** (2 * depth - 2) * s_min * excess_risk(A, R, sigma)
    return np.asarray(bound)[()]


def _arrays(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> tuple[Array, Array, Array]:
    A, R, sigma = (np.asarray(X, dtype=np.float64) for X in (A, R, sigma))
    square = A.shape[-1:] * 2
    if A.ndim < 3 or not A.shape[-2:] == R.shape[-2:] == sigma.shape[-2:] == square:
        raise ValueError(
            "A, R and sigma must be [..., l, d, d], [..., d, d] and [d, d] with one d. "
            f"Received: shapes {A.shape}, {R.shape} and {sigma.shape}. Make the last axes agree."
        )
    return A, R, sigma
