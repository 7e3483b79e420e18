"""Population gradient descent of the two-layer ReLU network at circulant weights; LY Theorem 3.2.

A circulant W is its first column c: W_ij = c_{i-j mod d}. The gradient of relu_population's loss at
a circulant W with teacher W* = 0 is circulant again, so descent is a recursion in d numbers, and by
FFT one of O(d log d) a step. Write b = e_0 + c and n = |b|, x_k for the cosine between the columns
0 and k of I + W, y_k for that between column 0 and e_k, t for the angle between b and e_0. With
sums over k != 0 and v(x) = 1 - sqrt(1 - x^2), the negative gradient's first column, times pi, is
    - pi/2 (c + sum(c) 1) - t e_0 + arcsin(y) - arcsin(x) * b + a b/n,    * the circular convolution
    a = sin t + (d-1)(1-n) - sum v(y) + n sum v(x),
without a difference of nearly equal numbers, so that it stays exact as W tends to 0.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
SCALES = {"true": 1 / np.pi, "printed": 1.0}  # factors of pi times the gradient


def circulant_start(
    d: int, frobenius: float, trace: float, rng: np.random.Generator | None = None
) -> Array:
    """Return the first column [d] of W = S + (tr W/d) I; S skew, flat spectrum, Su = 0 (ours).

    With tr W near -3/4 ||W||_F^2 and ||W||_F above 3, -grad points away from W* = 0 there, and
    ||W|| is nearly the least for that ||W||_F. S is a multiple of the discrete Hilbert transform;
    with `rng` the signs of its eigenvalues +-is are random. ValueError if d < 3 or if ||W||_F and
    tr W are not finite, with (tr W)^2 < d ||W||_F^2.
    """
    skew = frobenius**2 - trace**2 / max(d, 1)  # ||S||_F^2
    if d < 3 or not (0 < skew < np.inf and frobenius > 0):
        raise ValueError(
            "A circulant start needs d >= 3 and (tr W)^2 < d ||W||_F^2. Received: "
            f"{d=}, {frobenius=}, {trace=}. Choose a smaller trace or a larger norm."
        )
    pairs = (d - 1) // 2  # frequencies k, d - k; no other eigenvalue of a skew S with Su = 0
    signs = -np.ones(pairs) if rng is None else rng.choice([-1.0, 1.0], size=pairs)
    spectrum = np.full(d // 2 + 1, trace / d, dtype=np.complex128)
    spectrum[1 : pairs + 1] += 1j * signs * np.sqrt(skew / (2 * pairs))
    return np.asarray(np.fft.irfft(spectrum, d))


def circulant_matrix(column: ArrayLike) -> Array:
    """Return W_ij = c_{i-j mod d} from its first column c [..., d]; shape [..., d, d]."""
    c = _check_column(column)
    i = np.arange(c.shape[-1])
    return np.asarray(c[..., (i[:, None] - i) % len(i)])


def circulant_path(
    column: ArrayLike, rate: ArrayLike, steps: int, scale: str = "true"
) -> Iterator[Array]:
    """Yield the first columns [..., d] at the steps 0, 1, ..., `steps` of `circulant_descent`."""
    c, rates = _begin(column, rate, steps, scale)
    for step in range(steps):
        yield c
        c = c + rates[..., step, None] * _forces(c)[0]
    yield c


def circulant_descent(
    column: ArrayLike, rate: ArrayLike, steps: int, scale: str = "true"
) -> dict[str, Array]:
    """Return curves [..., steps + 1] of gradient descent from columns [..., d], teacher W* = 0.

    `rate` is a number, or one for each step, [..., steps]; with scale "printed" the step is that of
    LY Lemma 2.1, pi times the gradient. Curves: those of `circulant_measures`. ValueError for steps
    < 0, a rate that is not > 0, an unknown scale, or as in `circulant_measures`.
    """
    c, rates = _begin(column, rate, steps, scale)
    rows = []
    for step in range(steps + 1):
        force, measures = _forces(c)
        rows.append(_scale_measures(measures, scale))
        if step < steps:
            c = c + rates[..., step, None] * force
    return {key: np.stack([row[key] for row in rows], axis=-1) for key in rows[0]}


def circulant_measures(column: ArrayLike, scale: str = "true") -> dict[str, Array]:
    """Return the numbers [...] of LY Figure 8 at the first column c [..., d] of W, W* = 0.

    inner_product <-grad, -W> at that scale, potential g, loss, distance ||W||_F; and trace, with
    the angle_terms and length_terms of pi <-grad, -W> (relu_population.InnerTerms).
    ValueError for an unknown scale, or if c is not finite, d < 3 or column 0 of I + W is 0.
    """
    scale_factor(scale)
    return _scale_measures(_forces(_check_column(column))[1], scale)


def circulant_terms(column: ArrayLike, teacher: ArrayLike, scale: str = "true") -> dict[str, Array]:
    """Return `circulant_measures` for the circulant W* of first column `teacher`; [...] each.

    Without loss and trace; distance is ||W - W*||_F, the inner product <-grad, W* - W>. Errors as
    there, also for the teacher.
    """
    c, c_star = np.broadcast_arrays(_check_column(column), _check_column(teacher))
    d, gap, first = c.shape[-1], c_star - c, np.arange(c.shape[-1]) == 0
    b, b_star = first + c, first + c_star
    n, m = np.linalg.norm(b, axis=-1), np.linalg.norm(b_star, axis=-1)
    growth = _dot(gap, b_star + b) / (n + m)  # m - n
    F, F_star = np.fft.rfft(b), np.fft.rfft(b_star)
    x = _cosines(F.conj() * F, n * n, d)
    y = _cosines(F_star.conj() * F, m * n, d)  # cosines of b*_k and b_0
    arcs = np.fft.rfft(np.arcsin(y)) * F_star - np.fft.rfft(np.arcsin(x)) * F
    a = (d - 1) * growth + n * versine(x).sum(axis=-1) - m * versine(y).sum(axis=-1)
    unit, unit_star = b / n[..., None], b_star / m[..., None]
    far, near = np.linalg.norm(unit - unit_star, axis=-1), np.linalg.norm(unit + unit_star, axis=-1)
    t, along = 2 * np.arctan2(far, near), _dot(unit, gap)
    angles, lengths = d * _dot(np.fft.irfft(arcs, d), gap), d * a * along
    even = np.pi / 2 * d * (_dot(gap, gap) + gap.sum(axis=-1) ** 2)
    paired = d * (m * np.sin(t) * along - t * _dot(b_star, gap))
    measures = {
        "inner_product": even + angles + lengths + paired,
        "angle_terms": angles,
        "length_terms": lengths,
        "potential": d * growth,
        "distance": np.sqrt(d * _dot(gap, gap)),
    }
    return _scale_measures(measures, scale)


def scale_factor(scale: str) -> float:
    """Return what the gradient at that scale is of pi times the true one; ValueError if unknown."""
    if scale not in SCALES:
        raise ValueError(
            f"scale must be 'true' or 'printed'. Received: {scale=}. "
            "'printed' is the right-hand side of LY Lemma 2.1, pi times the gradient."
        )
    return SCALES[scale]


def versine(x: Array) -> Array:
    """Return 1 - sqrt(1 - x^2) at cosines x, without cancellation."""
    square = x * x
    root = np.sqrt(1 - square)
    root += 1
    square /= root
    return np.asarray(square)


def _dot(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("...k,...k->...", a, b))


def _cosines(spectrum: NDArray[np.complex128], lengths: Array, d: int) -> Array:
    """Return the correlations over lengths, 0 for the paired columns; [..., d]."""
    x = np.fft.irfft(spectrum, d) / lengths[..., None]
    x[..., 0] = 0
    return np.clip(x, -1, 1)


def _forces(c: Array) -> tuple[Array, dict[str, Array]]:
    """Return pi times the first column [..., d] of -grad, and the measures [...] of c."""
    d, total = c.shape[-1], c.sum(axis=-1)
    rest = np.einsum("...k,...k->...", c[..., 1:], c[..., 1:])  # sums without an array for squares
    b, square = c.copy(), c[..., 0] ** 2 + rest
    b[..., 0] += 1
    growth = (2 * c[..., 0] + square) / (1 + np.sqrt(1 + 2 * c[..., 0] + square))  # n - 1
    n, t = 1 + growth, np.arctan2(np.sqrt(rest), b[..., 0])
    sine, F = np.sqrt(rest) / n, np.fft.rfft(b)
    x, y = np.fft.irfft(F.real**2 + F.imag**2, d), b / n[..., None]
    x /= (n * n)[..., None]
    x[..., 0] = y[..., 0] = 0  # the sums are over k != 0
    np.clip(x, -1, 1, out=x)
    arc_x, arc_y, v_x, v_y = np.arcsin(x), np.arcsin(y), versine(x), versine(y)
    sum_x, sum_y = v_x.sum(axis=-1), v_y.sum(axis=-1)
    a = n * sum_x - sum_y - (d - 1) * growth
    force = arc_y - np.fft.irfft(np.fft.rfft(arc_x) * F, d)
    angles = -d * np.einsum("...k,...k->...", force, c)
    force[..., 0] -= t
    force += ((a + sine) / n)[..., None] * b - np.pi / 2 * (c + total[..., None])
    h_x = np.einsum("...k,...k->...", x, arc_x) - sum_x
    h_y = np.einsum("...k,...k->...", y, arc_y) - sum_y
    twice = np.pi / 2 * (total**2 + square) + (d - 1) * growth**2 + n * n * h_x - 2 * n * h_y
    return force, {
        "inner_product": -d * np.einsum("...k,...k->...", force, c),
        "angle_terms": angles,
        "length_terms": -d * a / n * np.einsum("...k,...k->...", b, c),
        "potential": -d * growth,
        "loss": d / (2 * np.pi) * (twice - 2 * (n * sine - t * b[..., 0])),
        "distance": np.sqrt(d * square),
        "trace": d * c[..., 0],
    }


def _scale_measures(measures: dict[str, Array], scale: str) -> dict[str, Array]:
    return measures | {"inner_product": scale_factor(scale) * measures["inner_product"]}


def _begin(column: ArrayLike, rate: ArrayLike, steps: int, scale: str) -> tuple[Array, Array]:
    """Return the columns at step 0, and the factor of `_forces` at every step, [..., steps]."""
    c, rate = _check_column(column), np.asarray(rate, dtype=np.float64)
    if steps < 0 or not np.all((rate > 0) & (rate < np.inf)):
        raise ValueError(
            "steps must be >= 0 and rates finite and > 0. Received: "
            f"{steps=}, least rate {rate.min(initial=np.inf):g}. Count the iterations."
        )
    if rate.ndim and rate.shape[-1] not in (1, steps):
        raise ValueError(
            f"rate must be a number or [..., steps]. Received: shape {rate.shape}, {steps=}. "
            "Give one rate for each step."
        )
    rate = np.broadcast_to(rate, (*np.shape(rate)[:-1], steps))
    c = np.broadcast_to(c, (*np.broadcast_shapes(c.shape[:-1], rate.shape[:-1]), c.shape[-1]))
    return c, scale_factor(scale) * rate


def _check_column(column: ArrayLike) -> Array:
    c = np.asarray(column, dtype=np.float64)
    if c.ndim == 0 or c.shape[-1] < 3 or not np.all(np.isfinite(c)):
        raise ValueError(
            "column must be finite, [..., d] with d >= 3. "
            f"Received: shape {c.shape}. Pass the first column of W."
        )
    if np.any((c[..., 0] == -1) & ~c[..., 1:].any(axis=-1)):
        raise ValueError(
            "Columns of I + W must not be 0, where the gradient is not defined. "
            "Received: a first column of W that is -e_0. Move it."
        )
    return c
