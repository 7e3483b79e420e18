"""Gradients of penalties on the layers of a deep linear network, for gradient descent; B.

Each takes Theta [..., l, d, d] and is the gradient, or a subgradient, of a convex penalty. Those in
ALIKE are the same in every layer and for a layer and its transpose. With any such penalty descent
from the identity to a symmetric Phi keeps Theta_{l+1-i} = Theta_i^T, for the loss is unchanged by
(Theta_1, ..., Theta_l) -> (Theta_l^T, ..., Theta_1^T). At even depth the product is then M^T M with
no negative eigenvalue, so that the loss is never below descent_bounds.negative_floor (ours).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Penalty = Callable[[Array], Array]
EQUAL = 1e-9  # relative, of singular values that count as one


def to_identity(Theta: Array) -> Array:
    """Return the gradient of 1/2 sum_i ||Theta_i - I||_F^2."""
    return Theta - np.eye(Theta.shape[-1])


def l2(Theta: Array) -> Array:
    """Return the gradient of 1/2 sum_i ||Theta_i||_F^2, weight decay."""
    return Theta


def spectral(Theta: Array) -> Array:
    """Return the gradient of sum_i ||Theta_i||: the mean of u v^T over its largest pairs.

    u and v are singular vectors of the largest singular value.
    """
    U, s, Vt = _svd(Theta)
    top = s >= s[..., :1] * (1 - EQUAL)
    return np.asarray((U * (top / top.sum(axis=-1, keepdims=True))[..., None, :]) @ Vt)


def nuclear(Theta: Array) -> Array:
    """Return the gradient of the sum of all singular values: U V^T without those of value 0."""
    U, s, Vt = _svd(Theta)
    return np.asarray((U * (s > EQUAL * s[..., :1])[..., None, :]) @ Vt)


def _svd(Theta: Array) -> tuple[Array, Array, Array]:
    """Decompose layers that may have diverged: what is not finite counts as 0."""
    U, s, Vt = np.linalg.svd(np.where(np.isfinite(Theta), Theta, 0))
    return U, s, Vt


def entrywise(weights: Array) -> Penalty:
    """Return the gradient of sum_i sum_ab w_ab (x^2/2 + x^4/4), x the entry ab of Theta_i - I.

    The `weights` w [..., d, d] are >= 0. The penalty is convex, and for a symmetric w one of those
    alike; no rotation leaves it unchanged.
    """

    def gradient(Theta: Array) -> Array:
        x = to_identity(Theta)
        return np.asarray(weights[..., None, :, :] * (x + x**3))

    return gradient


def first_layer(Theta: Array) -> Array:
    """Return the gradient of 1/2 ||Theta_1 - I||_F^2: not alike, it tells the first layer apart."""
    pull = to_identity(Theta)
    pull[..., 1:, :, :] = 0
    return pull


def one_entry(Theta: Array) -> Array:
    """Return the gradient of 1/2 sum_i ((Theta_i - I)_12)^2: not the same for a transpose."""
    pull = np.zeros_like(Theta)
    pull[..., :1, 1:2] = Theta[..., :1, 1:2]
    return pull


ALIKE: dict[str, Penalty] = {
    "to_identity": to_identity,
    "l2": l2,
    "spectral": spectral,
    "nuclear": nuclear,
}
