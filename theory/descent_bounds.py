"""Proved bounds of gradient descent on deep linear networks, and as on B's slides.

Layers Theta [..., l, d, d], Theta_1 first, target Phi [..., d, d], E = Theta_L...Theta_1 - Phi and
a = max ||Theta_i - I||. The loss is 1/2 ||E||_F^2, as in theory.descent; leading axes broadcast.
"""

from itertools import combinations, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory._polar import Depth, check_layers
from theory.descent import check_network, eigenvalue_path, loss, product, residual
from theory.factorization import max_norm

Array = NDArray[np.float64]


def iteration_bound(
    phi: ArrayLike, depth: ArrayLike, rate: ArrayLike, tolerance: ArrayLike
) -> NDArray[np.int64]:
    """Return the steps from the identity to loss <= tolerance, Phi symmetric > 0 (ours).

    phi [..., d] are the eigenvalues of Phi, mu_j = phi_j^{1/l}. Every lam_j goes from 1 to mu_j
    without overshoot, its distance shrinking by rho = 1 - rate l min(1, min phi)^{2-2/l} or more a
    step, and |lam_j^l - phi_j| <= l max(1, ||Phi||)^{1-1/l} |lam_j - mu_j|. No depth is excluded;
    depth, rate and tolerance broadcast with the leading axes. ValueError if an eigenvalue is not
    > 0, a depth not >= 1, a tolerance not > 0, or a rate not in (0, 1/(l (1 + ||Phi||^2))].
    """
    phi, depth, rate, tolerance = (np.asarray(x, float) for x in (phi, depth, rate, tolerance))
    low, high = phi.min(axis=-1), phi.max(axis=-1)
    if not (np.all(low > 0) and np.all(depth >= 1) and np.all(tolerance > 0)):
        raise ValueError(
            "iteration_bound needs eigenvalues > 0, depth >= 1 and tolerance > 0. Received: "
            f"smallest {low.min():.3g}, {depth.min():.3g} and {tolerance.min():.3g}. "
            "With eigenvalues <= 0 the loss need not vanish: see negative_floor."
        )
    largest = 1 / (depth * (1 + high**2))
    if not np.all((rate > 0) & (rate <= largest * (1 + 1e-12))):
        raise ValueError(
            "iteration_bound needs 0 < rate <= 1/(l (1 + ||Phi||^2)). "
            f"Received: rate={rate}. Take at most {largest.min():.6g}."
        )
    shrink = np.log1p(-rate * depth * np.minimum(1, low) ** (2 - 2 / depth))  # log rho
    far = np.abs(np.expm1(np.log(phi) / depth[..., None])).max(axis=-1)  # max |mu_j - 1|
    lead = np.sqrt(phi.shape[-1] / (2 * tolerance)) * depth * np.maximum(1, high) ** (1 - 1 / depth)
    with np.errstate(divide="ignore"):  # Phi = I: far = 0, no step
        steps = np.ceil(np.log(lead * far) / -shrink)
    return np.asarray(np.maximum(steps, 0)).astype(np.int64)[()]


@np.errstate(over="ignore", invalid="ignore")  # divergence never reaches it
def iterations_to(
    phi: ArrayLike, depth: Depth, rate: ArrayLike, tolerance: ArrayLike, limit: int
) -> NDArray[np.int64]:
    """Return the first step from the identity with loss <= tolerance, -1 if none <= limit; [...].

    phi [..., d] are the eigenvalues of a symmetric Phi; the loss is 1/2 sum_j (lam_j^l - phi_j)^2
    along descent.eigenvalue_recursion. Depth, rate and tolerance broadcast with the leading axes.
    ValueError if limit < 0.
    """
    if limit < 0:
        raise ValueError(f"limit must be >= 0. Received: {limit=}. Count the iterations.")
    depth, rate = np.asarray(depth)[..., None], np.asarray(rate)[..., None]
    first = np.array(-1)
    for t, (_, gap) in enumerate(islice(eigenvalue_path(phi, depth, rate), limit + 1)):
        reached = np.vecdot(gap, gap) / 2 <= tolerance
        first = np.where(reached & (first < 0), t, first)
        if np.all(first >= 0):
            break
    return first[()]


def negative_floor(phi: ArrayLike) -> Array:
    """Return 1/2 sum_j min(phi_j, 0)^2, phi [..., d] the eigenvalues of a symmetric Phi, B.

    The loss of descent from the identity never goes below it: at any rate if the depth is even,
    with a penalty of penalties.ALIKE or without, and at small rates if it is odd and at least 3.
    For l = 3, Phi = -1 and rate 1 it vanishes in one step.
    """
    return np.asarray(np.sum(np.minimum(phi, 0.0) ** 2, axis=-1) / 2)[()]


def distance(Theta: ArrayLike) -> Array:
    """Return a = max ||Theta_i - I||, the spectral distance from the identity start; [...]."""
    Theta = check_layers(Theta, "Theta")
    return max_norm(Theta - np.eye(Theta.shape[-1]))


def stay_close_bound(Theta: ArrayLike, Phi: ArrayLike, rate: ArrayLike) -> Array:
    """Return a + rate (1+a)^{l-1} sqrt(2 loss), at least a after one gradient step; [...]."""
    a, depth = distance(Theta), np.shape(Theta)[-3]
    return np.asarray(a + rate * (1 + a) ** (depth - 1) * np.sqrt(2 * loss(Theta, Phi)))[()]


def printed_stay_close_bound(Theta: ArrayLike, Phi: ArrayLike, rate: ArrayLike) -> Array:
    """Return a + rate (1+a)^l sqrt(2 loss), as the slide prints it; shape [...]."""
    a, depth = distance(Theta), np.shape(Theta)[-3]
    return np.asarray(a + rate * (1 + a) ** depth * np.sqrt(2 * loss(Theta, Phi)))[()]


def gradient_bound(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return 2 l (1-a)^{2l-2} loss <= ||grad loss||_F^2, 1 - a counting as 0 beyond a = 1; [...].

    It is HM (2.3) at Sigma = I, the risk being twice the loss; an equality at Theta_i = I.
    """
    near, depth = np.maximum(1 - distance(Theta), 0), np.shape(Theta)[-3]
    return np.asarray(2 * depth * near ** (2 * depth - 2) * loss(Theta, Phi))[()]


def printed_gradient_bound(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return 4 l (1-a)^{2l} loss as the slide prints it, twice too much at Theta_i = I; [...]."""
    near, depth = np.maximum(1 - distance(Theta), 0), np.shape(Theta)[-3]
    return np.asarray(4 * depth * near ** (2 * depth) * loss(Theta, Phi))[()]


def hessian(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return the Hessian of the loss; [..., l d^2, l d^2], entries of Theta in row-major order.

    J^T J + S + S^T: J is the Jacobian of the product, S its second derivatives in two layers i < j
    against E, from B = (Theta_{i-1}...Theta_1) E^T (Theta_L...Theta_{j+1}) and what stands between,
    M = Theta_{j-1}...Theta_{i+1}. It has l^2 d^4 entries: for small networks.
    """
    Theta, E = np.asarray(Theta, dtype=np.float64), residual(Theta, Phi)
    depth, d = Theta.shape[-3], Theta.shape[-1]
    size = depth * d * d
    below = [product(Theta[..., :i, :, :]) for i in range(depth)]
    above = [product(Theta[..., i + 1 :, :, :]) for i in range(depth)]
    parts = [np.einsum("...ab,...ce->...aebc", A, B) for A, B in zip(above, below, strict=True)]
    J = np.stack(parts, axis=-3).reshape(*Theta.shape[:-3], d * d, size)
    S = np.zeros((*E.shape[:-2], *Theta.shape[-3:], *Theta.shape[-3:]))
    for i, j in combinations(range(depth), 2):
        B, M = below[i] @ E.mT @ above[j], product(Theta[..., i + 1 : j, :, :])
        S[..., i, :, :, j, :, :] = np.einsum("...pq,...rs->...spqr", B, M)
    S = S.reshape(*E.shape[:-2], size, size)
    return np.asarray(J.mT @ J + S + S.mT)


def hessian_bound(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return 3 l d (1+z)^{2l-2} >= ||Hessian||_F, at the least z the lemma allows; shape [...].

    The lemma needs ||Theta_i - I|| <= z and ||Phi|| <= (1+z)^l: 1 + z = max(1 + a, ||Phi||^{1/l}).
    """
    Theta, Phi = check_network(Theta, Phi)
    depth, d = Theta.shape[-3:-1]
    reach = np.linalg.norm(Phi, 2, axis=(-2, -1)) ** (1 / depth)
    return np.asarray(3 * depth * d * np.maximum(1 + distance(Theta), reach) ** (2 * depth - 2))[()]


def printed_hessian_bound(Theta: ArrayLike) -> Array:
    """Return 3 l d^5 (1+a)^{2l} as the slide prints it, without a premise on Phi; shape [...]."""
    far = 1 + distance(Theta)
    depth, d = np.shape(Theta)[-3:-1]
    return np.asarray(3 * depth * d**5 * far ** (2 * depth))[()]


def hessian_operator_bound(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return l (1+a)^{2l-2} + (l-1) (1+a)^{l-2} ||E|| >= ||Hessian||, for all d (ours); [...]."""
    far, n = 1 + distance(Theta), np.shape(Theta)[-3]
    size = np.linalg.norm(residual(Theta, Phi), 2, axis=(-2, -1))
    return np.asarray(n * far ** (2 * n - 2) + (n - 1) * far ** (n - 2) * size)[()]
