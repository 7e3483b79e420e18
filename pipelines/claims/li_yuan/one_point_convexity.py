"""Near zero weights and at a small potential, the negative gradient points to the teacher.

The gradient is of the printed scale, pi times the true one, and g is the potential. Small is read
as |W|, |W*| <= 1/100 at d >= 100, from which LY's distance sqrt(d)/50 between the two follows.
Figure 5 has lower bounds of -1.3 and -0.085 for two parts of this, over |W* - W|_F^2: our reading,
the sums over i != j of the terms in the angles between e_i + w_i and e_j + w_j, and of those along
e_j + w_j.

Measured: `ratio`, the inner product over |W* - W|_F^2, and its parts `angle_share` and
`length_share`, at random points and at adversarial ones: W from Gaussian to skew with row sums 0,
W* random, 0 or opposite to W, and the trace shifted for g = 0.1 or for the potential that is worst,
|W* - W|_F^2 / 4. Near 0 the least ratio at a given g is pi/2 - 1 - g/2 + g^2/|W - W*|_F^2 (ours, to
leading order): 0.52 at g = 0.1. At d = 100, |W - W*|_F <= 0.2 and every ratio is near pi/2 - 1,
whatever g is: nothing can fail there. So `wide_ratio` decides, over the points with |W - W*|_F^2 >=
8.65, where a larger g would take the ratio below 0.03; at g <= 0.1 what is tested there is the
theorem beyond its leading order, 0.501 for 0.52: W and W* circulant of 131,072 columns and more,
W* = 0, opposite to the skew part of W, or skew of its own, and among them the largest of norm 1/100
at g = 0.1. W* = c I needs no points: f is homogeneous in I + W, and the ratio is that of (W - c
I)/(1 + c) and 0, at g/(1 + c). Points outside of the premise are shown and not judged:
`steep_ratio` is the least with small norms and g above 0.1, `loose_ratio` the least with g at most
0.1 and norms from 1/50 to 1/2. Below 0.03 they say that this part of the premise is needed.

Run: python -m pipelines run one-point-convexity
     python -m pipelines sweep one-point-convexity --grid norm=0.001:1:2x --grid d=100
Expect: wide_ratio 0.501 (0.511 at W* = 0), so that 0.03 is far from sharp; steep_ratio -4.1 ± 1.4
and loose_ratio 0.022, so that the premises on g and on norms are needed; angle_share -1.00 and
length_share -0.050.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels, place_legend_below
from pipelines.errors import check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import ASSUMPTION, Array, Cells, Curves, Measured, join, stack_rows
from pipelines.measurement.quotation import FORMULA, NUMBER, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import minutes
from theory.circulant import circulant_matrix, circulant_start, circulant_terms
from theory.relu_population import inner_terms, potential

DENSE = 4096  # widest W that is not circulant
SMALL, WIDE, FLAT = 0.01, 100, 0.1  # the premise: norms at most, width at least, g at most
LEAST = 1e-6  # norm of which ratios are measured
CAN_FAIL = 16 * (np.pi / 2 - 1 - 0.03)  # |W - W*|_F^2 from which some g takes the ratio below 0.03
EDGE = FLAT * (1 - 1e-9)  # where points are put that rounding must not take outside


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks."""

    d: tuple[int, ...] = (100, 131072, 262144)
    """Widths."""
    norm: tuple[float, ...] = (0.01, 0.02, 0.1, 0.5)
    """Largest spectral norms of W and W*; above 1/100 not judged."""
    points: int = 24
    """Pairs W, W* of each width and norm."""

    def __post_init__(self) -> None:
        check_sizes(3, d=self.d)
        check_sizes(LEAST, norm=self.norm)
        check_counts(points=self.points)


def measure(cells: Cells) -> Curves:
    """Return ratios and their parts at every point, and its part in the premise; [n, points]."""
    at = circulant_points if cells.shared("d") > DENSE else dense_points
    rows = [
        at(np.random.default_rng(cell.seed), *(cell.point[key] for key in ("d", "norm", "points")))
        for cell in cells.cells
    ]
    curves = stack_rows(rows)
    for part in ("angle", "length"):
        curves[f"{part}_share"] = curves.pop(f"{part}_terms") / curves["size"]
    small = (curves["largest_norm"] <= SMALL) & (cells.shared("d") >= WIDE)
    curves[ASSUMPTION] = small & (curves["potential"] <= FLAT)
    return range(cells.shared("points")), curves


def circulant_points(
    rng: np.random.Generator, d: int, norm: float, points: int
) -> dict[str, Array]:
    """Return W of random size and trace, every other one at g = 0.1, W* as in `teachers`; [points].

    The first, and the first with a W* opposite to it, are the largest of that norm, where the
    premise on g allows the least ratio.
    """
    share, first = rng.uniform(0, 1, size=points), np.arange(d) == 0
    share[:3:2] = 0.999
    skew = np.stack([circulant_start(d, 1.0, 0.0, rng) for _ in range(points)])
    F2 = d * norm**2 * share  # |W|_F^2
    W_star = teachers(rng, np.sqrt(F2)[:, None] * skew, norm)
    star = d * np.sum(W_star**2, axis=-1)  # |W*|_F^2
    gap = np.sqrt(F2)[:, None] * skew - W_star
    g = d * np.sum(gap**2, axis=-1) * rng.uniform(-0.1, 0.6, size=points)
    g[::2] = EDGE
    trace = (star - F2 - 2 * g * np.sqrt(1 + star / d) + g**2 / d) / 2
    room = 0.9 * np.sqrt(F2 * d)
    trace = np.clip(trace, -room, room)
    W = np.sqrt(F2 - trace**2 / d)[:, None] * skew + (trace / d)[:, None] * first
    rows = [circulant_terms(*pair, "printed") for pair in zip(W, W_star, strict=True)]
    terms = stack_rows(rows)
    norms, size = np.abs(np.fft.rfft([W, W_star])), terms["distance"] ** 2
    return {
        "ratio": terms["inner_product"] / size,
        "potential": terms["potential"],
        "size": size,
        "trace_share": trace / size,
        "largest_norm": norms.max(axis=(0, 2)),
        "teacher_norm": norms[1].max(axis=1),
        "angle_terms": terms["angle_terms"],
        "length_terms": terms["length_terms"],
    }


def teachers(rng: np.random.Generator, W: Array, norm: float) -> Array:
    """Return columns of W*, in turn 0, opposite to a skew W, skew of random size; [points, d]."""
    points, d = W.shape
    sizes = np.sqrt(d * norm**2 * rng.uniform(0, 0.999, size=points))
    others = np.stack([circulant_start(d, size, 0.0, rng) for size in sizes])
    kind = (np.arange(points) // 2 % 3)[:, None]
    return np.select([kind == 0, kind == 1], [np.zeros_like(W), -W], others)


def dense_points(rng: np.random.Generator, d: int, norm: float, points: int) -> dict[str, Array]:
    """Return W and W* of many kinds; [points]."""
    W, W_star = pairs(rng, d, 0.9 * norm, points)
    size = np.sum((W - W_star) ** 2, axis=(1, 2))
    target = np.where(np.arange(points) % 2, size / 4, EDGE)
    room = norm - np.linalg.norm(W, 2, axis=(1, 2))  # to shift the trace without a larger norm
    shift = np.zeros(points)
    for _ in range(4):  # Newton's method: g falls by about 1 where the trace grows by 1
        g = potential(W - shift[:, None, None] * np.eye(d), W_star)
        shift = np.clip(shift + (target - g) / d, -room, room)
    W = W - shift[:, None, None] * np.eye(d)
    size, terms = np.sum((W - W_star) ** 2, axis=(1, 2)), inner_terms(W, W_star)
    return {
        "ratio": sum(terms) / size,
        "potential": potential(W, W_star),
        "size": size,
        "trace_share": np.trace(W - W_star, axis1=1, axis2=2) / size,
        "largest_norm": np.linalg.norm(np.stack([W, W_star]), 2, axis=(2, 3)).max(axis=0),
        "teacher_norm": np.linalg.norm(W_star, 2, axis=(1, 2)),
        "angle_terms": terms.angles,
        "length_terms": terms.lengths,
    }


def pairs(rng: np.random.Generator, d: int, norm: float, points: int) -> tuple[Array, Array]:
    """Return W from Gaussian to skew, W* in turn Gaussian, 0, opposite to W; [points, d, d]."""
    G = rng.normal(size=(2, points, d, d))
    G /= np.linalg.norm(G, 2, axis=(2, 3), keepdims=True)
    S = circulant_matrix(np.stack([circulant_start(d, 1.0, 0.0, rng) for _ in range(points)]))
    S /= np.linalg.norm(S, 2, axis=(1, 2), keepdims=True)
    mix = rng.uniform(size=(points, 1, 1)) ** 0.25
    sizes = rng.uniform(0.3, 1, size=(2, points, 1, 1))
    V = (1 - mix) * G[0] + mix * S
    V /= np.linalg.norm(V, 2, axis=(1, 2), keepdims=True)
    kind = (np.arange(points) // 2 % 3)[:, None, None]
    teacher = np.select([kind == 0, kind == 1], [np.zeros_like(V), -V], G[1])
    return norm * sizes[0] * V, norm * sizes[1] * teacher


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the least ratios: where it can fail, and where either half of the premise is broken.

    What was measured nowhere is left out, so that points which cannot fail decide nothing.
    """
    names = ("ratio", "size", "potential", "largest_norm")
    ratio, size, g, norm = (join(measured, name) for name in names)
    holds = np.concatenate([m.holds for m in measured])
    points = {
        "wide_ratio": holds & (size >= CAN_FAIL),
        "steep_ratio": (norm <= SMALL) & (g > FLAT),
        "loose_ratio": (norm > SMALL) & (g <= FLAT),
    }
    return {key: float(ratio[chosen].min()) for key, chosen in points.items() if chosen.any()}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the ratio by trace and size; against size, with envelopes; a plane at the teacher."""
    from pipelines.claims.li_yuan._figures import WIDEST, draw_landscape

    picture, (left, middle, right) = panels(3, 16, 5.4)
    draw_map(picture, left, [m for m in measured if m.point["d"] > DENSE])
    draw_all(middle, measured)
    draw_landscape(right, WIDEST, 4.0, -10.0, chords=True)
    place_legend_below(right)
    return picture


def draw_map(picture: Any, axes: Any, circulant: Sequence[Measured]) -> None:
    """Draw the leading order at W* = 0 over trace and size; exact points in the same colours."""
    share, size = np.meshgrid(np.linspace(-1.1, -0.4, 141), np.linspace(0.05, 30, 120))
    formula = np.pi / 2 - 1 + size * (share + 0.5) * (share + 1)
    colours = {"cmap": "RdBu", "vmin": -1.2, "vmax": 1.2}
    picture.colorbar(axes.pcolormesh(share, size, formula, **colours, shading="gouraud"), ax=axes)
    axes.contour(share, size, formula, [0.03], colors="k")
    axes.plot(-0.5 - FLAT / size[:, 0], size[:, 0], "k--", linewidth=1)
    for m in circulant:
        at_zero = m.curves["teacher_norm"] == 0
        x, y, ratio = (m.curves[key][at_zero] for key in ("trace_share", "size", "ratio"))
        axes.scatter(x, y, c=ratio, s=24, lw=0.5, edgecolors="k", **colours)
    axes.set(xlabel="tr W / |W|_F²", ylabel="|W|_F²", xlim=(-1.1, -0.4), ylim=(0, 30))
    axes.set_title("<-grad, -W> / |W|_F²: leading order, exact points;\nsolid 0.03, dashed g = 0.1")


def draw_all(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw all ratios against |W - W*|_F^2, the judged ones told apart, with the least possible."""
    size, ratio, g = (join(measured, name) for name in ("size", "ratio", "potential"))
    holds = np.concatenate([m.holds for m in measured])
    grid = np.geomspace(size.min(), max(size.max(), 1), 200)
    flat = ~holds & (g <= FLAT)
    for chosen, style, label in (
        (~holds & ~flat, "C3.", "g above 0.1"),
        (flat, "C1.", "g at most 0.1, norms above 1/100"),
        (holds, "C0.", "the premise holds"),
    ):
        axes.plot(size[chosen], ratio[chosen], style, markersize=4, label=label)
    worst = np.where(grid < 4 * FLAT, -grid / 16, -FLAT / 2 + FLAT**2 / grid)
    top = np.pi / 2 - 1
    axes.plot(grid, top + worst, "k--", linewidth=1, label="least at g ≤ 0.1, leading order")
    axes.plot(grid, top - grid / 16, "k:", label="least at any g, leading order")
    axes.axhline(0.03, color="C2", label="bound 0.03")
    axes.set(xscale="log", xlabel="|W - W*|_F²", ylim=(-3, 4), title="all points")
    place_legend_below(axes)


BOUNDS = (
    always("wide_ratio", at_least=0.03),
    always("ratio", at_least=0.03),
    always("angle_share", at_least=-1.3),
    always("length_share", at_least=-0.085),
)
CLAIM = Theorem(
    source="LY Theorem 3.3, Figure 5",
    says="Where norms are small and the potential g is at most 0.1, the negative gradient points "
    "to the teacher: <-grad, W* - W> > 0.03 |W* - W|_F^2",
    formula=r"\begin{split} "
    r"&d \ge 100,\; \lVert W \rVert, \lVert W^\star \rVert \le \tfrac{1}{100},\; "
    r"g = \sum_j \lVert e_j + w_j^\star \rVert - \lVert e_j + w_j \rVert \le 0.1 \\ "
    r"&\;\Longrightarrow\; \pi\, \langle -\nabla L(W),\, W^\star - W \rangle "
    r"> 0.03\, \lVert W^\star - W \rVert_F^2, \\ "
    r"&\text{of which the terms in angles are} \ge -1.3\, \lVert W^\star - W \rVert_F^2 \\ "
    r"&\text{and those in lengths} \ge -0.085\, \lVert W^\star - W \rVert_F^2 \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((100, 131072), (0.01,), 4), "cpu": Setting()},
    decided_by=BOUNDS,
    printed=(
        Quotation(
            form=FORMULA,
            words="<-grad L(W), W* - W> > 0.03 |W* - W|_F^2",
            place="LY Theorem 3.3",
            bounds=BOUNDS[:2],
            note="for norms up to 1/100, our reading of small; on the scale of Lemma 2.1, pi "
            "times the gradient",
        ),
        Quotation(words="-1.3; -0.085", form=NUMBER, place="LY Figure 5", bounds=BOUNDS[2:]),
    ),
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    shown=("steep_ratio", "loose_ratio"),
    costs={"cpu": minutes(2)},
    charts=(("ratio", "potential"), ("angle_share", "length_share")),
    batch_by=("d", "points"),
    batch=2,
)
