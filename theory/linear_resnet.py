"""Population risk of the linear residual network (I+A_l)...(I+A_1), HM section 2.

The data are y = Rx + xi with E xx^T = Sigma and independent standard normal xi; f(A) is the
expected squared error. With E = (I+A_l)...(I+A_1) - R it is f(A) = ||E Sigma^{1/2}||_F^2 + C_opt,
and C_opt = E|xi|^2 is its least value at every depth, since A_1 = R - I alone gives E = 0.
The standard parameterization A_l...A_1 of HM section 1.1 is this one at A - I: its risk, gradient
and Hessian at the layers A are those of the functions below at A - I.
In every function A is [..., l, d, d] with A_1 first, R is [..., d, d], sigma is [d, d] or
[..., d, d], leading axes broadcast, and shapes of unequal width d raise a ValueError.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.factorization import compose, max_norm

Array = NDArray[np.float64]


def excess_risk(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """Return f(A) - C_opt = ||E Sigma^{1/2}||_F^2, HM section 2; shape [...]."""
    A, R, sigma = _check_arrays(A, R, sigma)
    E = compose(A) - R
    return np.asarray(np.sum(E * (E @ sigma), axis=(-2, -1)))[()]


def gradient(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """Return the gradient of the population risk, HM Lemma 2.4; shape [..., l, d, d].

    df/dA_i = 2 (I+A_{i+1})^T...(I+A_l)^T E Sigma (I+A_1)^T...(I+A_{i-1})^T, in 3 l matrix products.
    """
    A, R, sigma = _check_arrays(A, R, sigma)
    lead = np.broadcast_shapes(A.shape[:-3], R.shape[:-2], sigma.shape[:-2])
    gradients = np.empty((*lead, *A.shape[-3:]))
    A, G = np.moveaxis(A, -3, 0), np.moveaxis(gradients, -3, 0)
    P = np.eye(A.shape[-1]) + A[0]
    for i in range(1, len(A)):
        G[i] = P  # (I+A_i)...(I+A_1) waits where its gradient will be
        P = P + A[i] @ P
    C = 2 * sigma @ (P - R).mT  # 2 Sigma E^T (I+A_l)...(I+A_{i+1}), from i = l down
    for i in reversed(range(1, len(A))):
        G[i] = C.mT @ G[i].mT  # two transposed factors are as fast as none, a single one is not
        C = C + C @ A[i]
    G[0] = C.mT
    return gradients


def hessian_vector(A: ArrayLike, R: ArrayLike, sigma: ArrayLike, V: ArrayLike) -> Array:
    """Return the Hessian of f at A times V [..., l, d, d], exactly; shape [..., l, d, d].

    It is the derivative of `gradient` along V, each factor of HM Lemma 2.4 in turn. Leading axes
    of V broadcast with the others: with n = l d^2, V = np.eye(n).reshape(n, l, d, d) gives, at one
    A, all the rows of the Hessian. ValueError also if A and V differ in l or d.
    """
    A, R, sigma = _check_arrays(A, R, sigma)
    V = np.asarray(V, dtype=np.float64)
    if V.shape[-3] != A.shape[-3]:
        raise ValueError(
            "V must have a direction for each layer of A. "
            f"Received: shapes {V.shape} and {A.shape}. Make the last three axes agree."
        )
    A, V = np.moveaxis(A, -3, 0), np.moveaxis(V, -3, 0)
    P, dP = [np.eye(A.shape[-1])], [np.zeros(A.shape[-2:])]  # dX = derivative of X along V
    for a, v in zip(A, V, strict=True):
        dP.append(dP[-1] + a @ dP[-1] + v @ P[-1])
        P.append(P[-1] + a @ P[-1])
    C, dC = 2 * sigma @ (P[-1] - R).mT, 2 * sigma @ dP[-1].mT
    H = []
    for i in reversed(range(len(A))):
        H.append((dP[i] @ C + P[i] @ dC).mT)
        dC = dC + dC @ A[i] + C @ V[i]
        C = C + C @ A[i]
    return np.stack(H[::-1], axis=-3)


def descent_path(
    A: ArrayLike, R: ArrayLike, sigma: ArrayLike, rate: ArrayLike, steps: int
) -> Iterator[Array]:
    """Yield layers [..., l, d, d] at the steps 0, 1, ..., `steps` of gradient descent on f from A.

    A <- A - rate grad f(A); the rate [...] broadcasts with the leading axes. ValueError, at the
    first iterate, also if steps < 0.
    """
    A, R, sigma = _check_arrays(A, R, sigma)
    rate = np.asarray(rate, dtype=np.float64)[..., None, None, None]
    if steps < 0:
        raise ValueError(f"steps must be >= 0. Received: {steps=}. Count the iterations.")
    lead = np.broadcast_shapes(A.shape[:-3], R.shape[:-2], sigma.shape[:-2], rate.shape[:-3])
    A = np.array(np.broadcast_to(A, (*lead, *A.shape[-3:])))
    for _ in range(steps):
        yield A
        A = A - rate * gradient(A, R, sigma)
    yield A


def gradient_bound(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """Return 4 l (1-tau)^{2l-2} s_min(Sigma) (f - C_opt) <= ||grad f||_F^2, HM (2.3); shape [...].

    tau = max ||A_i||. The paper claims it for tau < 1; beyond that 1 - tau counts as 0 here, which
    keeps it true: A_1 = A_2 = -I with every other layer 0 is a critical point of positive risk.
    """
    A, R, sigma = _check_arrays(A, R, sigma)
    depth, near = A.shape[-3], np.maximum(1 - max_norm(A), 0.0)
    s_min = np.linalg.norm(sigma, -2, axis=(-2, -1))
    bound = 4 * depth * near ** (2 * depth - 2) * s_min * excess_risk(A, R, sigma)
    return np.asarray(bound)[()]


def instance_bound(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> Array:
    """Return 4 s_min(Sigma) (f - C_opt) sum_i prod_{j != i} s_min(I+A_j)^2, at most ||grad f||_F^2.

    The proof of HM (2.3) without its last step, s_min(I+A_j) >= 1 - tau: never below
    `gradient_bound`, and of use for every A, inside tau < 1 or not.
    """
    A, R, sigma = _check_arrays(A, R, sigma)
    squares = np.linalg.norm(np.eye(A.shape[-1]) + A, -2, axis=(-2, -1)) ** 2  # [..., l]
    total, product = np.zeros(squares.shape[:-1]), np.ones(squares.shape[:-1])
    for s in np.moveaxis(squares, -1, 0):  # the product rule: no division by an s = 0
        total, product = total * s + product, product * s
    s_min = np.linalg.norm(sigma, -2, axis=(-2, -1))
    return np.asarray(4 * s_min * excess_risk(A, R, sigma) * total)[()]


def _check_arrays(A: ArrayLike, R: ArrayLike, sigma: ArrayLike) -> tuple[Array, Array, Array]:
    A, R, sigma = (np.asarray(X, dtype=np.float64) for X in (A, R, sigma))
    agree = A.shape[-2:] == R.shape[-2:] == sigma.shape[-2:] == A.shape[-1:] * 2
    if not agree or A.ndim < 3 or A.shape[-3] == 0:
        raise ValueError(
            "A, R and sigma must be [..., l, d, d], [..., d, d] and [d, d] with one d, l >= 1. "
            f"Received: shapes {A.shape}, {R.shape} and {sigma.shape}. Make the last axes agree."
        )
    return A, R, sigma
