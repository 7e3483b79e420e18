"""Linear residual networks have no spurious local optima, also where norms are 1 and more.

HM's Theorem 2.2 has a bound on the norms, max |A_i| < 1 (no-bad-critical-points), and A_1 =
A_2 = -I is a critical point of positive risk. The sentence of the abstract has no such bound, and
is measured as it stands: beyond norm 1 there are critical points that are no minimum, and none of
those that are looked at is a local optimum. One would refute it; that there is none at all is a
theorem on linear networks of equal widths (Laurent and von Brecht 2018, which was not at hand), and
no examples show it.

The critical points (ours): let U be the eigenvectors of R Sigma R^T, in random order, with
eigenvalues s_1^2, ..., s_d^2, let Z_0 = R^-1 U, Z_l = U, and Z_1, ..., Z_(l-1) be invertible. The
layers I + A_i = Z_i D_i Z_(i-1)^-1, where D_i = I, but for some `broken` layers, in which D_i keeps
the first p coordinates only, have the product P R, P the projection on the first p columns of U.
From two broken layers on the gradient is 0, and f - C_opt is the sum of s_j^2 over j > p. Every
broken layer has |A_i| >= 1. If all broken layers have t in place of 0 at the coordinate p + 1, the
risk is less by s^2 (2 t^k - t^2k), s = s_(p+1), k the number of broken layers: it falls along a
curve that begins at the critical point, however small t is. So it is no local optimum.

With `frames` identity, p = 0 and the first layer among the broken, these are A_i = -I in broken
layers and A_i = 0 in the others. With frames random the Z_i are, and which layers are broken. The
Hessian shows the saddle where k = 2, or where P drops a larger singular value than it keeps
(`strict`). At all others it is positive semidefinite, 0 if p = 0, and decides nothing: there it is
the curve that does.

Measured, at all k and p (the chart's step counts critical points): `fall`, the least over t of what
the risk falls by along the curve, over s^2 t^k (1 at t = 1, 2 for small t), and `fall_error`, its
largest distance from 2 - t^k. `least_curvature` is the least eigenvalue of the Hessian over 2
s_max(R Sigma): `strict_curvature` is the largest of the strict critical points, `flat_curvature`
the least of the others. `gradient_norm` is over 2 |R Sigma|_F, `excess` is f - C_opt over that of
the zero map, `max_norm` the largest |A_i|. One layer of -I among zeros is no critical point:
`one_layer_gradient`, the least.

Run: python -m pipelines run no-spurious-optima-beyond-norm-one
     python -m pipelines sweep no-spurious-optima-beyond-norm-one --grid d=2:5:1 --grid l=2:6:1
Expect: of 792 critical points 534 ± 13 are strict, strict_curvature -0.012 ± 0.003; the other 258
have flat_curvature -6e-15; fall 1, fall_error 2e-7, gradient_norm 4e-15, one_layer_gradient 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import check_counts, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Cells, Curves, Measured, join, stack_rows
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.factorization import max_norm
from theory.linear_resnet import excess_risk, gradient, hessian_vector

FRAMES = ("identity", "random")
ALONG = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # values of t; for less the fall is lost in rounding


@dataclass(frozen=True)
class Setting:
    """The critical points: some for each number of broken layers and each p."""

    frames: tuple[str, ...] = FRAMES
    """Layers of -I among zeros, and the like of p > 0; or random Z_i."""
    d: tuple[int, ...] = (2, 3, 4)
    """Matrix dimensions."""
    l: tuple[int, ...] = (2, 3, 4, 6)  # noqa: E741 - the paper's letter
    """Depths."""
    instances: int = 4
    """Networks, R and Sigma for each k and p."""

    def __post_init__(self) -> None:
        check_sizes(2, d=self.d, l=self.l)
        check_counts(instances=self.instances)
        check_names("Frames", self.frames, FRAMES)


@dataclass(frozen=True)
class CriticalPoint:
    """A network at a critical point, and the curve along which its risk falls."""

    layers: Array  # A, [l, d, d]
    direction: Array  # what is added to A, times t; [l, d, d]
    R: Array  # [d, d]
    sigma: Array  # [d, d]
    lost: float  # s^2, the risk of the coordinate p + 1
    is_strict: bool  # whether the Hessian has a negative eigenvalue


def random_problem(rng: np.random.Generator, d: int) -> tuple[Array, Array]:
    """Return R [d, d] of positive determinant, singular values from 1/2 to 2, and Sigma [d, d]."""
    U, _, Vt = np.linalg.svd(rng.normal(size=(d, d)))
    U[:, -1] *= np.linalg.slogdet(U @ Vt)[0]
    root = rng.normal(size=(d, d)) / np.sqrt(d)
    return U * 2 ** rng.uniform(-1, 1, size=d) @ Vt, root @ root.T + 0.1 * np.eye(d)


def random_frame(rng: np.random.Generator, d: int) -> Array:
    """Return an invertible matrix of singular values from 1/2 to 2; [d, d]."""
    U, _, Vt = np.linalg.svd(rng.normal(size=(d, d)))
    return np.asarray(U * 2 ** rng.uniform(-1, 1, size=d) @ Vt)


def critical_point(
    rng: np.random.Generator, point: Mapping[str, Any], broken: int, rank: int
) -> CriticalPoint:
    """Return a critical point whose product has that rank, p, with so many broken layers."""
    d, depth = point["d"], point["l"]
    R, sigma = random_problem(rng, d)
    squares, U = np.linalg.eigh(R @ sigma @ R.T)
    order = rng.permutation(d)
    squares, U = squares[order], U[:, order]
    Z = [np.linalg.solve(R, U), *(U for _ in range(depth))]  # Z_0, ..., Z_l
    chosen = np.append(0, 1 + rng.permutation(depth - 1)[: broken - 1])
    if point["frames"] == "random":
        Z[1:-1] = [random_frame(rng, d) for _ in Z[1:-1]]
        chosen = rng.permutation(depth)[:broken]
    is_broken = np.isin(np.arange(depth), chosen)[:, None]
    kept = np.where(is_broken & (np.arange(d) >= rank), 0.0, 1.0)  # [l, d]
    added = np.where(is_broken & (np.arange(d) == rank), 1.0, 0.0)
    above, below = np.stack(Z[1:]), np.linalg.inv(np.stack(Z[:-1]))
    layers = above * kept[:, None] @ below - np.eye(d)
    is_strict = broken == 2 or bool(squares[rank:].max() > squares[:rank].min(initial=np.inf))
    direction, lost = above * added[:, None] @ below, float(squares[rank])
    return CriticalPoint(layers, direction, R, sigma, lost, is_strict)


def measure(cells: Cells) -> Curves:
    """Return what was found at every critical point; [n, points]."""
    d, depth, instances = (cells.shared(name) for name in ("d", "l", "instances"))
    kinds = list(product(range(2, depth + 1), range(d), range(instances)))
    rows = [
        [measure_point(cell, i, *kind[:2]) for i, kind in enumerate(kinds)] for cell in cells.cells
    ]
    return range(len(kinds)), stack_rows([stack_rows(row) for row in rows])


def measure_point(cell: Cell, index: int, broken: int, rank: int) -> dict[str, float]:
    """Return the numbers of the critical point of that index in a cell."""
    rng = np.random.default_rng([cell.seed, index])
    at = critical_point(rng, cell.point, broken, rank)
    A, R, sigma = at.layers, at.R, at.sigma
    risk, zero_map = float(excess_risk(A, R, sigma)), float(np.sum(R * (R @ sigma)))
    risks = {t: float(excess_risk(A + t * at.direction, R, sigma)) for t in ALONG}
    falls = {t: (risk - after) / (at.lost * t**broken) for t, after in risks.items()}
    basis = np.eye(A.size).reshape(A.size, *A.shape)
    hessian = hessian_vector(A, R, sigma, basis).reshape(A.size, A.size)
    eigenvalues = np.linalg.eigvalsh(hessian) / (2 * np.linalg.norm(R @ sigma, 2))
    one = np.zeros_like(A)
    one[0] = -np.eye(len(R))
    size = 2 * np.linalg.norm(R @ sigma)
    return {
        "broken": broken,
        "rank": rank,
        "strict": at.is_strict,
        "gradient_norm": float(np.linalg.norm(gradient(A, R, sigma)) / size),
        "excess": risk / zero_map,
        "max_norm": float(max_norm(A)),
        "least_curvature": float(eigenvalues[0]),
        "fall": min(falls.values()),
        "fall_error": max(abs(fall - 2 + t**broken) for t, fall in falls.items()),
        "one_layer_gradient": float(np.linalg.norm(gradient(one, R, sigma)) / size),
    } | {f"risk_at_{t:g}": after / risk for t, after in risks.items()}


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the curvature of the critical points that the Hessian tells, and of the others."""
    is_strict, least = join(measured, "strict") > 0, join(measured, "least_curvature")
    numbers = {
        "one_layer_gradient": float(join(measured, "one_layer_gradient").min()),
        "strict_curvature": float(least[is_strict].max()),
        "strict_points": float(is_strict.sum()),
    }
    if not is_strict.all():
        numbers |= {"flat_curvature": float(least[~is_strict].min())}
    return numbers | {"flat_points": float((~is_strict).sum())}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw least eigenvalues by the numbers of broken layers and p; risks along the curves."""
    picture, (left, right) = panels(2)
    broken, rank, least = (join(measured, key) for key in ("broken", "rank", "least_curvature"))
    for colour, p in enumerate(np.unique(rank)):
        chosen = rank == p
        shift = 0.12 * (colour - (len(np.unique(rank)) - 1) / 2)
        left.plot(broken[chosen] + shift, least[chosen], f"C{colour}.", label=f"p = {p:g}")
    left.axhline(0, color="k", linewidth=0.8)
    left.set(xlabel="broken layers k", ylabel="least eigenvalue / (2 s_max(R Σ))")
    left.set_xticks(np.unique(broken))
    left.legend(fontsize=8)
    for colour, k in enumerate(np.unique(broken)):
        for t in ALONG:
            risks = join(measured, f"risk_at_{t:g}")[(broken == k) & (rank == 0)]
            shown = np.full(len(risks), t * (1 + 0.03 * colour))
            right.plot(shown, np.maximum(1 - risks, 1e-16), f"C{colour}.", markersize=3)
        right.plot([], [], f"C{colour}.", label=f"k = {k:g}")
    right.set(xscale="log", yscale="log", xlabel="t", ylabel="fall of f - C_opt, as a share of it")
    right.set_title("along the curve from the critical point, p = 0", fontsize=10)
    right.legend(fontsize=8)
    return picture


CLAIM = Theorem(
    source="HM abstract",
    says="Without a bound on the norms linear residual networks have critical points that are no "
    "minima, and none of them is a local optimum: the risk falls along an explicit curve",
    formula=r"\begin{split} &I + A_i = Z_i D_i Z_{i-1}^{-1},\quad Z_l = R Z_0 = U,\quad "
    r"R \Sigma R^\top = U \operatorname{diag}(s_1^2, \dots, s_d^2)\, U^\top, \\ "
    r"&D_i = \operatorname{diag}(I_p, 0) \text{ in } k \ge 2 \text{ layers},\; "
    r"D_i = I \text{ in the others}: \\ "
    r"&\nabla f(A) = 0,\quad f(A) - C_{\text{opt}} = \sum_{j > p} s_j^2 > 0,\quad "
    r"\max_i \lVert A_i \rVert \ge 1, \\ "
    r"&f(A) - f(A + t \Delta) = s_{p+1}^2\, (2 t^k - t^{2k}) > 0 \quad \text{for } 0 < t \le 1 "
    r"\end{split}",
    family="linear theory",
    scales={"smoke": Setting(d=(2,), l=(2, 3), instances=2), "cpu": Setting()},
    decided_by=(
        always("gradient_norm", at_most=1e-12),
        always("excess", at_least=1e-3),
        always("max_norm", at_least=1 - 1e-12),
        always("fall", at_least=1 - 1e-6),
        always("fall_error", at_most=1e-4),
        always("strict_curvature", at_most=-1e-3),
        always("flat_curvature", at_least=-1e-12),
    ),
    printed=(
        Quotation(
            words="We first give a strikingly simple proof that arbitrarily deep linear residual "
            "networks have no spurious local optima.",
            place="HM abstract",
            bounds=(always("fall", at_least=1 - 1e-6),),
            note="at critical points where some |A_i| >= 1, outside of Theorem 2.2: all those that "
            "are looked at have points of less risk beside them, however near",
        ),
    ),
    costs={"cpu": seconds(13)},
    measure=measure,
    extra_metrics=extra_metrics,
    shown=("one_layer_gradient", "strict_points", "flat_points"),
    figure=figure,
    charts=(("least_curvature",), ("fall", "excess")),
    batch_by=("frames", "d", "l", "instances"),
)
