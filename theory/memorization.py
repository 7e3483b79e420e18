"""Any labels of distinct points, fitted by explicit weights; HM Theorem 3.2 without separation.

HM give all units one threshold, which needs points z = A_0 x of nearly equal norm that are far
apart (`printed`). Ours (`memorize`) takes them in the order of decreasing norm, each unit with a
threshold of its own: U_i = z_i, and t_i half way between |z_i|^2 and the largest of <z_i, z_j> over
later points j and <z_i, q> over the codes q of the labels. As |z_j| <= |z_i|,
    |z_i|^2 - <z_i, z_j> >= |z_i - z_j|^2 / 2,                                                 (1)
so no later point makes unit i fire, nor one that was moved to a code. On the points of a block
M = ReLU(U Z^T - t) is triangular with a positive diagonal, so that V = (q - z) M^{-1} moves them.
This needs distinct z, none of them 0, at any width k >= 1. The network is checked without being
run, by one Gram matrix: gaps (1) above the rounding of the products, its `margin`, certify that no
unit fires where it should not; the size of V gives an estimate of how far rounding leaves points
from their codes.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory._moves import Plan, codes, network, readout, rounding_margin, unchecked_network
from theory.memorizer import Layer, Memorizer, Points, check_points, project
from theory.pairs import following_products, nearest_pair

Array = NDArray[Any]
AMPLE = {"float32": 1e-4, "float64": 1e-10}  # margin at which no larger width is tried ...
EXACT = 0.1  # ... if the error is no more than this
WRONG = 0.4  # error of an output that is refused: from 0.5 on labels could be wrong
WIDEST = 256  # width beyond which none is tried


def memorize(
    X: ArrayLike, y: ArrayLike, width: int | None = None, dtype: str = "float64", seed: int = 0
) -> Memorizer:
    """Return the network that gives the points X [n, d] their labels y [n], whatever these are.

    `width` is k; without one, the first of 4, 8, 16, ... with ample margin and small error in
    `dtype`. The seed draws A_0. Equal points with equal labels count once. ValueError where points
    are not finite, or 0, or two of them equal with different labels, or nearer than `dtype` can
    tell.
    """
    points = check_points(X, y, dtype)
    candidates: list[Memorizer] = []
    narrow: list[Plan] = []
    for A0 in _projections(points.X.shape[1], width, dtype, seed):
        plan = _sort_points(points, A0)
        if plan.margin <= rounding_margin(plan.Z):
            narrow.append(plan)
            continue
        candidates.append(network(points, plan))
        if candidates[-1].margin >= AMPLE[dtype] and candidates[-1].error <= EXACT:
            return candidates[-1]
    if not candidates:
        raise _narrow_margin_error(points, max(narrow, key=lambda plan: plan.margin))
    return _require_exact(min(candidates, key=lambda each: each.error))


def printed(
    X: ArrayLike,
    y: ArrayLike,
    width: int,
    dtype: str = "float64",
    seed: int = 0,
    *,
    share: float = 1 / 6,
    check: bool = True,
) -> Memorizer:
    """Return HM's own construction for unit points X [n, d]: one threshold 1 - 2 rho', Lemma B.1.

    rho' is that share of the least squared distance of projected points: a sixth makes the lemma
    true, a third is printed. A width of d takes A_0 = I. ValueError as in `memorize`, or where the
    lemma's premise does not hold: squared norms within rho' of 1, and codes q with <q, z> <= 1 -
    2 rho'. With `check=False` only codes are required: every unit moves its own point as if no
    other unit fired there, as is printed, and the error is infinite, for nothing is estimated.
    """
    points = check_points(X, y, dtype)
    d = points.X.shape[1]
    A0 = np.eye(d, dtype=dtype) if width == d else next(_projections(d, width, dtype, seed))
    Z, number = project(points.X, A0)[points.kept], points.kept
    i, j, least = nearest_pair(Z) if len(Z) > 1 else (0, 0, 1 / (2 * share))
    rho, squares = share * least, np.sum(Z**2, axis=1)
    if check:
        _check_premise(Z, number, (i, j, least), rho)
    q = _draw_codes(Z, 1 - 2 * rho, len(points.labels), seed)
    threshold = np.full(len(Z), 1 - 2 * rho, Z.dtype)
    plan = Plan(A0, Z, number, q, threshold, squares - threshold)
    return _require_exact(network(points, plan)) if check else unchecked_network(points, plan)


def _check_premise(
    Z: Array, number: NDArray[np.int64], nearest: tuple[int, int, float], rho: float
) -> None:
    """Raise ValueError unless HM Lemma B.1 applies to points Z of these numbers, with that rho'."""
    i, j, least = nearest
    if rho <= rounding_margin(Z):
        raise ValueError(
            f"rho' must exceed the rounding of {Z.dtype}. Received: points {number[i]} and "
            f"{number[j]}, {least:.2g} apart, squared, at width {Z.shape[1]}. Use a larger width, "
            "or memorize."
        )
    squares = np.sum(Z**2, axis=1)
    worst = int(np.argmax(np.abs(squares - 1)))
    if not abs(squares[worst] - 1) <= rho:
        raise ValueError(
            "HM Lemma B.1 needs squared norms within rho' of 1, a sixth of the least squared "
            f"distance. Received: point {number[worst]} of squared norm {squares[worst]:.3g}, rho' "
            f"= {rho:.2g} at width {Z.shape[1]}. Pass unit points and a larger width, or use "
            "memorize."
        )


def neighbour_move(ratio: float) -> float:
    """Return how far a block moves a point that HM Lemma B.1 says it leaves alone.

    Of two points at squared distance `ratio` rho', both of squared norm 1 + rho', the block knows
    the first; rho' = 0.1. Over the first one's own move it is 1 - ratio/6, and 0 from 6 on; 3 is
    printed.
    """
    rho = 0.1
    square = 1 + rho
    cosine = 1 - ratio * rho / (2 * square)
    directions = np.array([[1.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]])
    first, second = math.sqrt(square) * directions
    code, t = -directions[0], np.array([1 - 2 * rho])
    block = Layer(first[None], t, (code - first)[None] / (square - t))
    return float(np.linalg.norm(block(second)) / np.linalg.norm(code - first))


def paper_width(n: int, separation: float) -> int:
    """Return k = 10 ln n / rho^2, HM Theorem 3.2, for n unit points at squared distances >= rho."""
    return math.ceil(10 * math.log(n) / separation**2)


def parameter_count(n: int, d: int, labels: int, width: int) -> int:
    """Return k d + n (2k + 1) + r (k + 1 + r) parameters for n points, HM Theorem 3.2."""
    return width * d + n * (2 * width + 1) + labels * (width + 1 + labels)


def _projections(d: int, width: int | None, dtype: str, seed: int) -> Iterator[Array]:
    """Yield A_0 [k, d] with entries N(0, 1/k) for the widths to try; at last the identity."""
    if width is not None and (
        type(width) is bool or not isinstance(width, int | np.integer) or width < 1
    ):
        raise ValueError(f"width must be an integer >= 1. Received: {width=}. Choose k.")
    doubled = [k for k in (4, 8, 16, 32, 64, 128, 256) if k < d]
    for k in doubled if width is None else [width]:
        rng = np.random.default_rng([seed, k])
        yield (rng.standard_normal((k, d)) / math.sqrt(k)).astype(dtype)
    if width is None and d <= WIDEST:
        yield np.eye(d, dtype=dtype)


def _sort_points(points: Points, A0: Array) -> Plan:
    """Return the points by decreasing norm, with their thresholds and gaps (1)."""
    Z = project(points.X, A0)[points.kept]
    squares = np.sum(Z**2, axis=1)
    if (least := squares.min()) == 0:
        raise ValueError(
            "Points must not be 0, where no code fits beside them. Received: point "
            f"{points.kept[np.argmin(squares)]}, which A_0 maps to 0. Add a constant column."
        )
    order = np.argsort(-squares, kind="stable")
    Z, squares = np.ascontiguousarray(Z[order]), squares[order]
    q = codes(len(points.labels), len(A0)) * np.sqrt(least) / 2
    reading = readout(q.astype(Z.dtype))
    lo = np.maximum(following_products(Z), (Z @ reading.U.T).max(axis=1))
    return Plan(A0, Z, points.kept[order], reading, (squares + lo) / 2, squares - lo)


def _require_exact(memorizer: Memorizer) -> Memorizer:
    """Return the network, if it is exact enough to tell the labels; else ValueError."""
    if memorizer.error <= WRONG:
        return memorizer
    dtype = memorizer.projection.dtype
    raise ValueError(
        f"Outputs must be exact to {WRONG:g}. Received: errors of up to {memorizer.error:.2g} in "
        f"{dtype} at width {memorizer.width}, for points of one block are too near one another. "
        f"Use {_advise_double(memorizer.projection)}another width, or drop near points."
    )


def _advise_double(like: Array) -> str:
    return "dtype='float64' or " if like.dtype == np.float32 else ""


def _narrow_margin_error(points: Points, plan: Plan) -> ValueError:
    """Return what is at fault where the margin is no more than rounding."""
    i = int(np.argmin(plan.gap))
    pair = [int(plan.number[i])]
    largest, square = plan.Z[0] @ plan.Z[0], plan.Z[i] @ plan.Z[i]
    least = rounding_margin(plan.Z)
    if plan.gap[i] > least * largest:
        what = f"{len(points.labels)} labels, whose codes are too near one another"
    elif square <= 2 * least * largest:
        what = f"point {pair[0]}, whose |z|^2 is {square / largest:.2g} of the largest"
    else:
        pair = sorted([*pair, int(plan.number[i + 1 + np.argmax(plan.Z[i + 1 :] @ plan.Z[i])])])
        apart = points.X[pair[0]].astype(np.float64) - points.X[pair[1]]
        first, second = points.labels[points.index[pair]]
        what = (
            f"points {pair[0]} and {pair[1]}, labels {first} and {second}, at squared distance "
            f"{apart @ apart:.3g}"
        )
    return ValueError(
        f"Gaps must exceed the rounding of {plan.Z.dtype}. Received: {what}; margin "
        f"{plan.margin:.2g} at width {len(plan.A0)}, where more than {least:.2g} is "
        f"needed. Use {_advise_double(plan.Z)}a larger width, or drop what is at fault."
    )


def _draw_codes(Z: Array, most: float, r: int, seed: int) -> Layer:
    """Draw unit codes until all products with points and with one another are at most `most`."""
    rng = np.random.default_rng([seed, len(Z), r])
    accepted: list[Array] = []
    for _ in range(100 * r):
        q = rng.standard_normal(Z.shape[1])
        q = (q / np.linalg.norm(q)).astype(Z.dtype)
        if max([(Z @ q).max(), *(q @ other for other in accepted)]) <= most:
            accepted.append(q)
        if len(accepted) == r:
            U = np.stack(accepted)
            t = np.full(r, most, Z.dtype)
            return Layer(U, t, np.diag(1 / (np.sum(U**2, axis=1) - t)))
    raise ValueError(
        f"HM Lemma B.2 needs {r} unit codes with <q, z> <= {most:.3g} at all points. Received: "
        f"{len(accepted)} of {100 * r} drawn at width {Z.shape[1]}. Choose a larger width."
    )
