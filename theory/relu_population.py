"""Two-layer ReLU networks f(x) = sum_j relu(<e_j + w_j, x>), Gaussian x, in closed form; LY.

b_j = e_j + w_j are the columns of B = I + W, b*_j those of the teacher's B* = I + W*. The loss is
L(W) = E (f(x) - f*(x))^2. Write n_j = |b_j|, x_ij for the cosine between b_i and b_j, y_ij between
b*_i and b_j, z_ij between b*_i and b*_j, t_j for the angle between b_j and b*_j, and
v(x) = 1 - sqrt(1 - x^2), h(x) = x arcsin x - v(x). With sums over i != j, u the vector of ones and
the potential g = sum_j |b*_j| - |b_j|, and g_j without index j, the closed forms are
    2 pi L = pi/2 (|(W - W*)u|^2 + ||W - W*||_F^2) + g^2 - sum_j (n_j - n*_j)^2
             - 2 sum_j n_j n*_j (sin t_j - t_j cos t_j)
             + sum_{i != j} n_i n_j h(x_ij) - 2 n*_i n_j h(y_ij) + n*_i n*_j h(z_ij),           (1)
    -pi grad_j = pi/2 ((W* - W)u + w*_j - w_j) - t_j b*_j + sum_i arcsin(y_ij) b*_i
             - arcsin(x_ij) b_i + (g_j + n*_j sin t_j - n*_i v(y_ij) + n_i v(x_ij)) b_j/n_j,    (2)
g_j standing outside of the sum. They are LY's, ordered so that large terms do not cancel. Leading
axes of W and W_star [..., d, d] broadcast. ValueError unless both are square, finite and of one d,
and if a column of I + W or I + W* is 0 or longer than 1e100. `circulant` has the dynamics of
circulant weights.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory._polar import Array, check_square
from theory.circulant import scale_factor, versine

LONGEST = 1e100  # columns, whose lengths are squared and summed
CENTRAL = 1e-6  # step of the central differences, in the Frobenius norm
Real = TypeVar("Real", np.float32, np.float64)


class InnerTerms(NamedTuple):
    """Summands of pi <-grad, W* - W>, each [...]."""

    even: Array  # pi/2 (|(W* - W)u|^2 + ||W* - W||_F^2)
    angles: Array  # along b*_i and b_i, i != j, by their angles with b_j less right ones
    lengths: Array  # along b_j: of |b*_i| sin - |b_i| sin, i != j
    paired: Array  # both for i = j


def loss(W: ArrayLike, W_star: ArrayLike) -> Array:
    """Return L = E (f - f*)^2, (1); shape [...]. Its absolute error is about 1e-15 d."""
    p = _pair(W, W_star)
    t = _paired_angles(p)
    pairs = p.n * p.m * (np.sin(t) - t * np.cos(t)) + _growth(p) ** 2 / 2
    cross = _weighted_sum(p.n, _cosines(p.B, p.n), p.n) - 2 * _weighted_sum(
        p.m, _cross_cosines(p), p.n
    )
    if not p.at_zero:
        cross = cross + _weighted_sum(p.m, _cosines(p.B_star, p.m), p.m)
    even = np.sum(p.gap.sum(axis=-1) ** 2, axis=-1) + np.sum(p.gap**2, axis=(-2, -1))
    g = np.sum(_growth(p), axis=-1)
    twice = np.pi / 2 * even + g**2 - 2 * np.sum(pairs, axis=-1) + cross
    return np.asarray(twice / (2 * np.pi))[()]


def gradient(W: ArrayLike, W_star: ArrayLike, scale: str = "true") -> Array:
    """Return the gradient of L, (2); [..., d, d]. With scale "printed" pi times it, LY Lemma 2.1.

    Four matrix products, two where W* = 0. ValueError for another scale.
    """
    factor, p = scale_factor(scale), _pair(W, W_star)
    t, (force, a) = _paired_angles(p), _forces(p)
    force = force + np.pi / 2 * (p.gap + p.gap.sum(axis=-1, keepdims=True))
    force += ((a + p.m * np.sin(t)) / p.n)[..., None, :] * p.B - t[..., None, :] * p.B_star
    force *= -factor
    return np.asarray(force)


def correlated_gradient(
    W: ArrayLike, W_star: ArrayLike, root: ArrayLike, scale: str = "true"
) -> Array:
    """Return the gradient of L for inputs root y, y Gaussian; covariance root root^T; [..., d, d].

    <b, root y> = <root^T b, y>: the columns of I + W are turned and stretched. f is homogeneous of
    degree 1, so y may have any rotation-invariant distribution with E|y|^2 = d.
    """
    root = check_square(root, "root")
    one = np.eye(root.shape[-1])
    stretched = root.mT @ (one + check_square(W, "W")) - one
    G = gradient(stretched, root.mT @ (one + check_square(W_star, "W_star")) - one, scale)
    return np.asarray(np.matmul(root, G))


def inner_product(W: ArrayLike, W_star: ArrayLike, scale: str = "true") -> Array:
    """Return <-grad, W* - W>, positive where a small step leads nearer to W*; shape [...]."""
    G, gap = gradient(W, W_star, scale), np.subtract(W, W_star, dtype=np.float64)
    return np.asarray(np.einsum("...ij,...ij->...", G, gap))[()]


def inner_terms(W: ArrayLike, W_star: ArrayLike) -> InnerTerms:
    """Return the parts of pi <-grad, W* - W> that LY bound one by one, Figure 5; [...] each."""
    p = _pair(W, W_star)
    t, (force, a) = _paired_angles(p), _forces(p)
    along, rows = (
        np.einsum("...ij,...ij->...j", p.B, p.gap) / p.n,
        np.sum(p.gap.sum(axis=-1) ** 2, axis=-1),
    )
    along_star = np.einsum("...ij,...ij->...j", p.B_star, p.gap)
    return InnerTerms(
        even=np.asarray(np.pi / 2 * (np.sum(p.gap**2, axis=(-2, -1)) + rows)),
        angles=np.asarray(np.sum(force * p.gap, axis=(-2, -1))),
        lengths=np.asarray(np.sum(a * along, axis=-1)),
        paired=np.asarray(np.sum(p.m * np.sin(t) * along - t * along_star, axis=-1)),
    )


def potential(W: ArrayLike, W_star: ArrayLike) -> Array:
    """Return g = sum_j |b*_j| - |b_j|, LY section 3; shape [...]."""
    return np.asarray(_growth(_pair(W, W_star)).sum(axis=-1))[()]


def hessian_vector(W: ArrayLike, W_star: ArrayLike, V: ArrayLike) -> Array:
    """Return the Hessian of L at W times V [..., d, d], by central differences; [..., d, d].

    Its relative error is about 1e-8, and 1e-6 at W = W*, where the Hessian has a kink.
    """
    W, V = check_square(W, "W"), check_square(V, "V")
    size = np.linalg.norm(V, axis=(-2, -1), keepdims=True)
    step = CENTRAL * np.divide(V, size, out=np.zeros_like(V), where=size > 0)
    return np.asarray(
        size * (gradient(W + step, W_star) - gradient(W - step, W_star)) / (2 * CENTRAL)
    )


def least_curvature(W: ArrayLike, W_star: ArrayLike) -> float:
    """Return the least eigenvalue of the Hessian of L at one W [d, d], by Lanczos' method.

    ValueError for leading axes. RuntimeError (ARPACK's) if it does not converge.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    W = check_square(W, "W")
    if W.ndim != 2 or len(W) < 2:
        raise ValueError(f"W must be [d, d] with d >= 2. Received: shape {W.shape}. Pass one W.")
    size = W.size

    def apply(v: Array) -> Array:
        return hessian_vector(W, W_star, v.reshape(W.shape)).ravel()

    start = np.random.default_rng(0).normal(size=size)  # the same result in every run
    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    eigenvalues = eigsh(operator, k=1, which="SA", v0=start, ncv=min(size, 60), tol=1e-7)[0]
    return float(eigenvalues[0])


def sample_gradient(W: ArrayLike, W_star: ArrayLike, x: NDArray[Real]) -> NDArray[Real]:
    """Return the mean gradient of (f - f*)^2 over x [..., n, d], in x's precision; [..., d, d].

    With independent Gaussian inputs, what stochastic gradient descent steps along.
    """
    W, W_star = np.asarray(W, dtype=x.dtype), np.asarray(W_star, dtype=x.dtype)
    z, z_star = x + x @ W, x + x @ W_star if np.any(W_star) else x
    error = np.maximum(z, 0).sum(axis=-1) - np.maximum(z_star, 0).sum(axis=-1)  # [..., n]
    error *= 2 / x.shape[-2]
    return np.asarray(x.mT @ (error[..., None] * (z > 0)))


class _Pair(NamedTuple):
    gap: Array  # W* - W
    B: Array  # I + W
    B_star: Array
    n: Array  # lengths of the columns of B, [..., d]
    m: Array  # lengths of the columns of B_star, [..., d]
    at_zero: bool  # W* = 0, and no axes more than W: two matrix products need not be done


def _pair(W: ArrayLike, W_star: ArrayLike) -> _Pair:
    W, W_star = check_square(W, "W"), check_square(W_star, "W_star")
    if W.shape[-1] != W_star.shape[-1]:
        raise ValueError(
            "W and W_star must have one d. "
            f"Received: shapes {W.shape} and {W_star.shape}. Pass [..., d, d] twice."
        )
    B, B_star = np.eye(W.shape[-1]) + W, np.eye(W.shape[-1]) + W_star
    n, m = _lengths(B, "W"), _lengths(B_star, "W_star")
    at_zero = not np.any(W_star) and np.broadcast_shapes(W.shape, W_star.shape) == W.shape
    return _Pair(W_star - W, B, B_star, n, m, at_zero)


def _forces(p: _Pair) -> tuple[Array, Array]:
    """Return -pi grad's sums over i != j: in angles [..., d, d], the factor of b_j/n_j [..., d]."""
    x, y, g = _cosines(p.B, p.n), _cross_cosines(p), _growth(p)
    a = g.sum(axis=-1, keepdims=True) - g
    a = a + (p.n[..., None, :] @ versine(x) - p.m[..., None, :] @ versine(y))[..., 0, :]
    np.arcsin(x, out=x)
    np.arcsin(y, out=y)
    return np.asarray((y if p.at_zero else p.B_star @ y) - p.B @ x), np.asarray(a)


def _lengths(B: Array, name: str) -> Array:
    n = np.sqrt(np.einsum("...ij,...ij->...j", B, B))
    if len(zero := np.argwhere(n == 0)):
        raise ValueError(
            f"Columns of I + {name} must not be 0, where the gradient is not defined. Received: a "
            f"column of 0 at index {tuple(zero[0].tolist())}. Move it."
        )
    if not np.all(n <= LONGEST):
        raise ValueError(
            f"Columns of I + {name} must be at most {LONGEST:g} long, or their squares overflow. "
            f"Received: a length of {np.max(n):.3g}. Scale {name} down."
        )
    return np.asarray(n)


def _growth(p: _Pair) -> Array:
    """Return |b*_j| - |b_j|, without cancellation; [..., d]."""
    gaps = np.einsum("...ij,...ij->...j", p.gap, p.B_star + p.B)
    return np.asarray(gaps / (p.n + p.m))


def _paired_angles(p: _Pair) -> Array:
    """Return t_j, which arccos would give to half the digits only near W = W*; [..., d]."""
    a, b = p.B / p.n[..., None, :], p.B_star / p.m[..., None, :]
    far, near = np.linalg.norm(a - b, axis=-2), np.linalg.norm(a + b, axis=-2)
    return np.asarray(2 * np.arctan2(far, near))


def _cosines(B: Array, n: Array) -> Array:
    """Return x_ij or z_ij, and 0 for i = j; [..., d, d]."""
    return _scaled_cosines(B.mT @ B, n, n)


def _cross_cosines(p: _Pair) -> Array:
    """Return y_ij, and 0 for i = j; [..., d, d]."""
    return _scaled_cosines(p.B.copy() if p.at_zero else p.B_star.mT @ p.B, p.m, p.n)


def _scaled_cosines(products: Array, m: Array, n: Array) -> Array:
    products /= m[..., None]
    products /= n[..., None, :]
    np.clip(products, -1, 1, out=products)
    i = np.arange(products.shape[-1])
    products[..., i, i] = 0  # so that arcsin, v and h are 0: what is left are the sums over i != j
    return products


def _weighted_sum(m: Array, x: Array, n: Array) -> Array:
    """Return sum_ij m_i n_j h(x_ij); [...]."""
    h = x * np.arcsin(x) - versine(x)
    return np.asarray(np.einsum("...i,...ij,...j->...", m, h, n, optimize=True))
