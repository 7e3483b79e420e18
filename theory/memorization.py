"""Any labels of any distinct points, fitted by explicit weights; HM Theorem 3.2, without its gap.

HM give all units one threshold, which needs points z = A_0 x of nearly equal norm that are far
apart (`printed`). Ours (`memorize`) takes them in the order of decreasing norm, each unit with a
threshold of its own: U_i = z_i, and t_i half way between |z_i|^2 and the largest of <z_i, z_j> over
later points j and <z_i, q> over the codes q of the labels. As |z_j| <= |z_i|,
    |z_i|^2 - <z_i, z_j> >= |z_i - z_j|^2 / 2,                                                 (1)
so no later point makes unit i fire, nor one that was moved to a code. On the points of a block
M = ReLU(U Z^T - t) is triangular with a positive diagonal, so that V = (q - z) M^{-1} moves them.
This needs distinct z and nothing else, at any width k >= 1. That all gaps (1) are larger than what
rounding does to the products certifies the network, at the cost of one Gram matrix.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.memorizer import Layer, Memorizer, Points, checked_points, project
from theory.pairs import following_products, nearest_pair

Array = NDArray[Any]
ENOUGH = {"float32": 1e-4, "float64": 1e-10}  # margin at which no larger width is tried
ROUNDING = 64  # least margin, in units of the precision
WIDEST = 256  # width beyond which none is tried


@dataclass(frozen=True)
class Sorted:
    """Projected points by decreasing norm, with the thresholds of their units."""

    A0: Array  # [k, d]
    Z: Array  # [m, k]
    number: NDArray[np.int64]  # of the points in X, [m]
    codes: Layer  # readout; its U are the codes [r, k]
    t: Array  # [m]
    gap: Array  # |z_i|^2 less the largest product, [m]

    @property
    def margin(self) -> float:
        square = self.Z[0] @ self.Z[0]
        readout = 2 * np.min(np.sum(self.codes.U**2, axis=1) - self.codes.t)
        return float(min(self.gap.min(), readout) / square)


def memorize(
    X: ArrayLike, y: ArrayLike, width: int | None = None, dtype: str = "float64", seed: int = 0
) -> Memorizer:
    """The network that gives the points X [n, d] their labels y [n], whatever these are.

    `width` is k; without one, the first of 4, 8, 16, ... with a margin that is ample in `dtype`.
    The seed draws A_0. Equal points with equal labels count once. ValueError where points are not
    finite, or 0, or two of them equal with different labels, or nearer than `dtype` can tell.
    """
    points = checked_points(X, y, dtype)
    found: list[Sorted] = []
    for A0 in _projections(points.X.shape[1], width, dtype, seed):
        found.append(_sorted(points, A0))
        if found[-1].margin >= ENOUGH[dtype]:
            break
    best = max(found, key=lambda each: each.margin)
    _certify(points, best)
    return _network(points, best)


def printed(
    X: ArrayLike, y: ArrayLike, width: int, dtype: str = "float64", seed: int = 0
) -> Memorizer:
    """HM's own construction, with one threshold 1 - 2 rho' (Lemma B.1) for unit points X [n, d].

    rho' is a sixth of the least squared distance of projected points (the printed third does not
    do). A width of d takes A_0 = I. ValueError as in `memorize`, or where the lemma's premise does
    not hold: squared norms within rho' of 1, and codes q with <q, z> <= 1 - 2 rho'.
    """
    points = checked_points(X, y, dtype)
    d = points.X.shape[1]
    A0 = np.eye(d, dtype=dtype) if width == d else next(_projections(d, width, dtype, seed))
    Z, number = project(points.X, A0)[points.kept], points.kept
    rho = nearest_pair(Z)[2] / 6 if len(Z) > 1 else 1 / 3
    squares = np.sum(Z**2, axis=1)
    worst = int(np.argmax(np.abs(squares - 1)))
    if not abs(squares[worst] - 1) <= rho:
        raise ValueError(
            "HM Lemma B.1 needs squared norms within rho' of 1, a sixth of the least squared "
            f"distance. Received: point {number[worst]} of squared norm {squares[worst]:.3g}, rho' "
            f"= {rho:.2g} at width {width}. Pass unit points and a larger width, or use memorize."
        )
    codes = _codes_apart(Z, 1 - 2 * rho, len(points.labels), seed)
    threshold = np.full(len(Z), 1 - 2 * rho, Z.dtype)
    V = (codes.U[points.index[number]] - Z) / (squares - threshold)[:, None]
    margin = float(np.min(squares - threshold) / squares.max())
    return Memorizer(A0, Layer(Z, threshold, V), codes, points.labels, margin)


def paper_width(n: int, separation: float) -> int:
    """k = 10 ln n / rho^2, HM Theorem 3.2, for n unit points at squared distances >= rho."""
    return math.ceil(10 * math.log(n) / separation**2)


def sufficient_width(n: int, shrink: float = 0.1, failure: float = 0.01) -> int:
    """k at which A_0 brings no pair of n points nearer than `shrink` of its squared distance.

    Except with probability `failure`: (4 ln n - 2 ln(2 failure)) / (shrink - 1 - ln shrink), by the
    lower tail of chi^2 alone and for every pair (ours). The margin is then shrink rho / 2 or more,
    rho being the least squared distance: in contrast to `paper_width`, rho is not in the width.
    """
    tail = shrink - 1 - math.log(shrink)
    return math.ceil((4 * math.log(n) - 2 * math.log(2 * failure)) / tail)


def parameter_count(n: int, d: int, labels: int, width: int) -> int:
    """k d + n (2k + 1) + r (k + 1 + r) parameters for n points, HM Theorem 3.2."""
    return width * d + n * (2 * width + 1) + labels * (width + 1 + labels)


def _projections(d: int, width: int | None, dtype: str, seed: int) -> Iterator[Array]:
    """A_0 [k, d] with entries N(0, 1/k) for the widths that are tried; at last the identity."""
    if width is not None and (not isinstance(width, int | np.integer) or width < 1):
        raise ValueError(f"width must be an integer >= 1. Received: {width=}. Choose k.")
    doubled = [k for k in (4, 8, 16, 32, 64, 128, 256) if k < d]
    for k in doubled if width is None else [width]:
        rng = np.random.default_rng([seed, k])
        yield (rng.standard_normal((k, d)) / math.sqrt(k)).astype(dtype)
    if width is None and d <= WIDEST:
        yield np.eye(d, dtype=dtype)


def _sorted(points: Points, A0: Array) -> Sorted:
    """The points in the order of the construction, with their thresholds and gaps (1)."""
    Z = project(points.X, A0)[points.kept]
    squares = np.sum(Z**2, axis=1)
    if (least := squares.min()) == 0:
        raise ValueError(
            "Points must not be 0, where no code fits beside them. Received: point "
            f"{points.kept[np.argmin(squares)]}, which A_0 maps to 0. Add a constant column."
        )
    order = np.argsort(-squares, kind="stable")
    Z, squares = np.ascontiguousarray(Z[order]), squares[order]
    q = _codes(len(points.labels), len(A0)) * np.sqrt(least) / 2
    codes = _readout(q.astype(Z.dtype))
    lo = np.maximum(following_products(Z), (Z @ codes.U.T).max(axis=1))
    return Sorted(A0, Z, points.kept[order], codes, (squares + lo) / 2, squares - lo)


def _certify(points: Points, found: Sorted) -> None:
    """ValueError, which names the points at fault, unless the margin is more than rounding."""
    needed = ROUNDING * float(np.finfo(found.Z.dtype).eps)
    if found.margin > needed:
        return
    i = int(np.argmin(found.gap))
    pair = [int(found.number[i])]
    largest, square = found.Z[0] @ found.Z[0], found.Z[i] @ found.Z[i]
    if found.gap[i] > needed * largest:
        what = f"{len(points.labels)} labels, whose codes are too near one another"
    elif square <= 2 * needed * largest:
        what = f"point {pair[0]}, whose |z|^2 is {square / largest:.2g} of the largest"
    else:
        pair = sorted([*pair, int(found.number[i + 1 + np.argmax(found.Z[i + 1 :] @ found.Z[i])])])
        apart = points.X[pair[0]].astype(np.float64) - points.X[pair[1]]
        first, second = points.labels[points.index[pair]]
        what = (
            f"points {pair[0]} and {pair[1]}, labels {first} and {second}, at squared distance "
            f"{apart @ apart:.3g}"
        )
    double = "dtype='float64' or " if found.Z.dtype == np.float32 else ""
    raise ValueError(
        f"Gaps must exceed the rounding of {found.Z.dtype}. Received: {what}; margin "
        f"{found.margin:.2g} at width {len(found.A0)}, where more than {needed:.2g} is needed. Use "
        f"{double}a larger width, or drop what is at fault."
    )


def _network(points: Points, found: Sorted) -> Memorizer:
    """The network with U = Z, and V = (q - z) M^{-1} in every block."""
    moves = found.codes.U[points.index[found.number]] - found.Z
    k, n = len(found.A0), len(found.Z)
    whole = n - n % k
    stacked = [
        array[:whole].reshape(-1, k, *array.shape[1:]) for array in (found.Z, found.t, moves)
    ]
    V = np.concatenate(
        [
            _solved(*stacked).reshape(whole, k),
            _solved(found.Z[whole:], found.t[whole:], moves[whole:]),
        ]
    )
    return Memorizer(found.A0, Layer(found.Z, found.t, V), found.codes, points.labels, found.margin)


def _solved(U: Array, t: Array, outputs: Array) -> Array:
    """V [..., b, m] with ReLU(U U^T - t)^T V = outputs [..., b, m]: unit i knows point i."""
    M = np.tril(np.maximum(U @ U.mT - t[..., None], 0))  # units x points, [..., b, b]
    return np.asarray(np.linalg.solve(M.mT, outputs))


def _readout(q: Array) -> Layer:
    """The layer that maps code s to the s-th unit vector; norms do not increase with s."""
    squares = np.sum(q**2, axis=1)
    t = (squares + np.maximum(following_products(q), 0)) / 2
    return Layer(q, t, _solved(q, t, np.eye(len(q), dtype=q.dtype)))


def _codes(r: int, k: int) -> Array:
    """r codes in the unit ball of width k, far apart, of norms that do not increase; [r, k]."""
    if k == 1:
        return np.arange(r, 0, -1)[:, None] / r
    if k == 2:
        angles = 2 * np.pi * np.arange(r) / r
        return np.column_stack([np.cos(angles), np.sin(angles)])
    rng = np.random.default_rng([r, k])
    free = rng.standard_normal((max(1024, 8 * r), k))
    free /= np.linalg.norm(free, axis=1, keepdims=True)
    chosen, nearest = [0], free @ free[0]
    while len(chosen) < r:  # greedily the farthest from those chosen
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, free @ free[chosen[-1]])
    return np.asarray(free[chosen])


def _codes_apart(Z: Array, most: float, r: int, seed: int) -> Layer:
    """Unit codes, drawn until all products with points and with one another are at most `most`."""
    rng = np.random.default_rng([seed, len(Z), r])
    found: list[Array] = []
    for _ in range(100 * r):
        q = rng.standard_normal(Z.shape[1])
        q = (q / np.linalg.norm(q)).astype(Z.dtype)
        if max([(Z @ q).max(), *(q @ other for other in found)]) <= most:
            found.append(q)
        if len(found) == r:
            U = np.stack(found)
            t = np.full(r, most, Z.dtype)
            return Layer(U, t, np.diag(1 / (np.sum(U**2, axis=1) - t)))
    raise ValueError(
        f"HM Lemma B.2 needs {r} unit codes with <q, z> <= {most:.3g} at all points. Received: "
        f"{len(found)} of {100 * r} drawn at width {Z.shape[1]}. Choose a larger width."
    )
