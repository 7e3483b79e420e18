"""Products of near-identity layers, (I+A_l)...(I+A_1) = R; HM Theorem 2.1, sharpened.

A factorization is an array [..., l, d, d] with A_1 first. Write R = QP (polar form), theta for the
largest rotation angle of Q and gamma for the larger of |log s_max| and |log s_min|. The balanced
layers I+A_i = Q^{i/l} P^{1/l} Q^{-(i-1)/l} of B's slides telescope to QP and satisfy, as is ours,
    max ||A_i|| <= 2 sin(theta/2l) + e^{gamma/l} - 1,                                          (1)
which stays below the paper's (4 pi + 3 gamma)/l at every integer l >= max(1, 3 gamma).
In the bounds, depth may be an integer array that broadcasts against the leading axes of R.
"""

import operator
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from theory._polar import (
    Array,
    Depth,
    check_depth,
    check_layers,
    check_square,
    positive_svd,
    rotation_angles,
    svd,
    turn_less_one,
)


def balanced(R: ArrayLike, depth: int) -> Array:
    """Return the balanced factorization of R [..., d, d], B's slides; shape [..., l, d, d].

    B: A_i = R^{1/L} P_i, P_i = R^{(i-1)/L} P^{1/L} R^{-(i-1)/L}, R the rotation. Bound (1) is ours.

    All layers have the same norm. ValueError if R is not square, finite and invertible with a
    positive determinant, or if depth is not an integer >= 1.
    """
    depth = operator.index(check_depth(depth))
    U, s, Vt = positive_svd(R)
    Z, t = rotation_angles(U @ Vt)
    W, Z, t = (Vt @ Z)[..., None, :, :], Z[..., None, :, :], t[..., None, :]
    growth = np.expm1(np.log(s) / depth)[..., None, :, None]
    stretch = W.mT @ (growth * W)  # P^{1/l} - I in the basis Z, [..., 1, d, d]
    before = np.arange(depth)[:, None] / depth * t  # angles of Q^{(i-1)/l}, [..., l, d//2]
    right = (stretch + turn_less_one(stretch, before)).mT  # (P^{1/l} - I) Q^{-(i-1)/l}
    A = right + turn_less_one(right, before + t / depth)
    A += turn_less_one(np.eye(s.shape[-1]), t / depth)  # Q^{1/l} - I
    return np.asarray(Z @ A @ Z.mT)  # [..., l, d, d]


def printed(R: ArrayLike, depth: int) -> Array:
    """Return the paper's own split into 4q + p = l layers, proof of HM Theorem 2.1; [..., l, d, d].

    R = U K V^T with rotations U, V: q layers turn the angles below pi and q the pairs of -1, for
    V^T and again for U, with p layers K^{1/p} between them. The integers q, p >= 1 minimize the
    proof's estimate max(2 sin(pi/2q), e^{gamma/p} - 1). ValueError as in `balanced`, or depth < 5.
    """
    return _split(R, depth, groups=2)


def merged_split(R: ArrayLike, depth: int) -> Array:
    """Return the split of `printed` with 2q + p = l layers, nearer to the identity; [..., l, d, d].

    A pair of -1 is a turn by pi, so the q layers that turn the angles below pi can turn the pairs
    of -1 as well (ours). ValueError as in `balanced`, or depth < 3.
    """
    return _split(R, depth, groups=1)


def rotation_layers(Q: ArrayLike, q: int) -> Array:
    """Return W_j - I of a rotation Q = W_2q...W_1, each within pi/q of I; [..., 2q, d, d].

    HM Claim A.1 as their Theorem 2.1 uses it: q equal layers turn the angles below pi, and q turn
    the pairs of -1. ValueError if Q is not orthogonal with det Q = 1, or q not an integer >= 1.
    """
    U, s, Vt = positive_svd(Q)
    if np.max(np.abs(s - 1)) > 1e-9:
        raise ValueError(
            "Q must be a rotation, all singular values 1. Received: some off by "
            f"{np.max(np.abs(s - 1)):.3g}. Pass its polar factor."
        )
    turns = partial(_turns, q=operator.index(check_depth(q)), groups=2)
    return np.asarray(np.vectorize(turns, signature="(d,d)->(l,d,d)")(U @ Vt))


def compose(A: ArrayLike) -> Array:
    """Return the product (I+A_l)...(I+A_1) of layers A [..., l, d, d], A_1 first; [..., d, d].

    ValueError for another shape.
    """
    A = check_layers(A)
    M = np.broadcast_to(np.eye(A.shape[-1]), A.shape[:-3] + A.shape[-2:])
    for i in range(A.shape[-3]):
        M = M + A[..., i, :, :] @ M
    return M


def max_norm(A: ArrayLike) -> Array:
    """Return the largest spectral norm among the layers A [..., l, d, d], HM's norm of A; [...].

    0 if there is no layer. ValueError for another shape.
    """
    norms = np.linalg.norm(check_layers(A), 2, axis=(-2, -1))
    return np.asarray(norms.max(axis=-1, initial=0.0))[()]


def conditioning(R: ArrayLike) -> Array:
    """Return gamma = max(|log s_max|, |log s_min|) of HM Theorem 2.1; R [..., d, d] -> [...].

    ValueError if R is not square, finite and invertible; the determinant may have either sign.
    """
    s = svd(R)[1]
    return np.maximum(np.abs(np.log(s[..., 0])), np.abs(np.log(s[..., -1])))


def polar_angle(R: ArrayLike) -> Array:
    """Return theta, the polar factor's largest angle; [...]. ValueError as in `balanced`."""
    U, _, Vt = positive_svd(R)
    return np.asarray(np.abs(rotation_angles(U @ Vt)[1]).max(axis=-1, initial=0.0))[()]


def paper_bound(R: ArrayLike, depth: Depth) -> Array:
    """Return (4 pi + 3 gamma)/l, HM Theorem 2.1; [...]. ValueError as in `balanced`."""
    positive_svd(R)
    return (4 * np.pi + 3 * conditioning(R)) / check_depth(depth)


def rounding_factor(gamma: ArrayLike, depth: Depth) -> Array:
    """Return the largest norm that layers of `printed` can have, over the paper's bound; [...].

    max(2 sin(pi/2q), e^{gamma/p} - 1) l / (4 pi + 3 gamma), least over integers 4q + p = l. HM's
    footnote 6 says that rounding q and p changes the bound by a small constant factor. `gamma`
    and `depth` broadcast. ValueError for a depth under 5.
    """
    gamma, n = np.broadcast_arrays(np.asarray(gamma, dtype=np.float64), check_depth(depth))
    if np.any(n < 5):
        raise ValueError(f"The split needs 4q + p layers, q, p >= 1. Received: {depth=}. Take 5.")
    q = np.arange(1, n.max() // 4 + 1)
    p = n[..., None] - 4 * q
    growth = np.expm1(gamma[..., None] / np.maximum(p, 1))
    estimate = np.maximum(2 * np.sin(np.pi / (2 * q)), growth)
    least = np.min(np.where(p >= 1, estimate, np.inf), axis=-1)
    return np.asarray(least * n / (4 * np.pi + 3 * gamma))


def balanced_bound(R: ArrayLike, depth: Depth) -> Array:
    """Return (1), 2 sin(theta/2l) + e^{gamma/l} - 1; [...]. ValueError as in `balanced`."""
    n = check_depth(depth)
    return 2 * np.sin(polar_angle(R) / (2 * n)) + np.expm1(conditioning(R) / n)


def lower_bound(R: ArrayLike, depth: Depth) -> Array:
    """Return the least possible max ||A_i|| of l layers with product R, from below (ours); [...].

    The larger of s_max^{1/l} - 1 and 1 - exp(-D/l), D being `displacement`. The second includes
    1 - s_min^{1/l}, because D >= gamma. ValueError as in `balanced`.
    """
    n = check_depth(depth)
    stretch = np.log(positive_svd(R)[1][..., 0])
    return np.maximum(np.expm1(stretch / n), -np.expm1(-displacement(R) / n))


def displacement(R: ArrayLike) -> Array:
    """Return the largest move of (log |x|, x/|x|) found under x -> Rx or x -> R^T x (ours); [...].

    One layer moves such a point by at most -log(1 - ||A_i||). A missed maximum makes the bound
    weaker, never wrong: pattern search from singular vectors, invariant planes of R and of its
    polar factor, and 64 directions in the plane of the extreme singular vectors. R and R^T seem to
    share their maximum; searching both misses it less often. ValueError as in `balanced`.
    """
    U, _, Vt = positive_svd(R)
    R = check_square(R)
    W = np.linalg.eig(R)[1]  # real + imaginary part spans the plane of each complex pair
    t = (np.arange(64) + 0.5) * np.pi / 64
    plane = Vt.mT[..., :1] * np.cos(t) + Vt.mT[..., -1:] * np.sin(t)  # every direction if d = 2
    x = np.concatenate([U, Vt.mT, rotation_angles(U @ Vt)[0], W.real + W.imag, plane], axis=-1)
    x = dirs = np.stack([x, x]) / np.linalg.norm(x, axis=-2, keepdims=True)  # [2, ..., d, K]
    for step in 0.7 * 0.5 ** (np.arange(60) // 3):
        y = np.stack([R, R.mT]) @ x
        size = np.linalg.norm(y, axis=-2)  # [2, ..., K]
        u = y / size[..., None, :]
        angle = 2 * np.arctan2(np.linalg.norm(u - x, axis=-2), np.linalg.norm(u + x, axis=-2))
        move = np.hypot(np.log(size), angle)
        top = np.take_along_axis(x, move.argmax(axis=-1)[..., None, None], axis=-1)
        x = np.concatenate([top, top + step * dirs, top - step * dirs], axis=-1)
        x = x / np.linalg.norm(x, axis=-2, keepdims=True)
    return np.asarray(move.max(axis=(0, -1)))[()]


def augment(R: ArrayLike) -> Array:
    """Return diag(R, -1), (x, b) -> (Rx, -b), for det R < 0, with the same gamma; [..., d+1, d+1].

    ValueError as in `conditioning`, or if some det R > 0.
    """
    R = check_square(R)
    if np.any(svd(R)[3] > 0):
        raise ValueError("augment needs det R < 0. Received: det R > 0. Factor R itself instead.")
    out = np.pad(R, [(0, 0)] * (R.ndim - 2) + [(0, 1), (0, 1)])
    out[..., -1, -1] = -1.0
    return out


def _split(R: ArrayLike, depth: int, groups: int) -> Array:
    if operator.index(check_depth(depth)) <= 2 * groups:
        raise ValueError(
            f"This split needs a depth {2 * groups}q + p >= {2 * groups + 1} (q, p >= 1). "
            f"Received: {depth=}. Use a greater depth, or balanced(R, depth)."
        )
    return np.asarray(_split_one(check_square(R), depth, groups))


@partial(np.vectorize, signature="(d,d),(),()->(l,d,d)")
def _split_one(R: Array, depth: int, groups: int) -> Array:
    U, s, Vt = positive_svd(R)
    flip = np.linalg.slogdet(U)[0]  # -1 if U and V are reflections
    U[:, -1], Vt[-1] = flip * U[:, -1], flip * Vt[-1]
    q = np.arange(1, (depth - 1) // (2 * groups) + 1)
    growth = np.expm1(conditioning(R) / (depth - 2 * groups * q))
    q = q[np.argmin(np.maximum(2 * np.sin(np.pi / (2 * q)), growth))]
    p = depth - 2 * groups * q
    stretch = np.repeat(np.diag(np.expm1(np.log(s) / p))[None], p, axis=0)
    return np.concatenate([_turns(Vt, q, groups), stretch, _turns(U, q, groups)])


def _turns(Q: Array, q: int, groups: int) -> Array:
    """Return layers [groups q, d, d] of Q; a second group turns the pairs of -1."""
    Z, t = rotation_angles(Q)
    below = np.where(np.abs(t) < np.pi, t, 0.0)
    angles = np.stack([below, t - below] if groups == 2 else [t])
    return np.repeat(Z @ turn_less_one(np.eye(len(Z)), angles / q) @ Z.T, q, axis=0)
