"""Near zero weights and at a small potential, the negative gradient points to the teacher.

Source: LY Theorem 3.3, Figure 4. With |W| and |W*| small in the spectral norm and the potential
g = sum_j |e_j + w*_j| - |e_j + w_j| at most 0.1,
    <-grad, W* - W> > 0.03 |W* - W|_F^2
for the gradient of the printed scale, pi times the true one. Small is read as |W|, |W*| <= 1/100 at
d >= 100, from which LY's distance sqrt(d)/50 between the two follows.

Measured: `ratio`, the inner product over |W* - W|_F^2, at random points and at adversarial ones: W
from Gaussian to skew with row sums 0, W* random, 0 or opposite to W, and the trace shifted for
g = 0.1 or for the potential that is worst, |W* - W|_F^2 / 4. Points outside of the premise, by
their norms or by g, are measured and not judged; `steep_ratio` is the least with small norms and g
above 0.1. Beyond 4,096 columns W is circulant and W* = 0: only so wide can a W of norm 1/100 have
the |W|_F^2 > 8 pi - 16 = 9.13 that a negative inner product needs. Near 0 the least possible ratio
is pi/2 - 1 - |W|_F^2/16, and at a given g it is pi/2 - 1 - g/2 + g^2/|W|_F^2 (ours, to leading
order): 0.03 is far from sharp.

The figure that convinces: the ratio by trace and size of W, formula and exact points; all points
with those envelopes; a plane through the teacher where the loss is one-point convex, not convex.

Run: python -m pipelines run one-point-convexity        (60 s of one core)
     python -m pipelines sweep one-point-convexity --grid norm=0.001:1:2x --grid d=100
Expect: ratio 0.51 at its smallest; steep_ratio -0.06, so that the premise on g is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claim import Theorem
from pipelines.errors import check_counts, check_sizes
from pipelines.grid import ASSUMPTION, Cells, Curves, Measured
from pipelines.verdict import Bound

Array = NDArray[np.float64]
DENSE = 4096  # widest W that is not circulant
SMALL, WIDE, FLAT = 0.01, 100, 0.1  # the premise: norms at most, width at least, g at most
LEAST = 1e-6  # norm of which ratios are measured
EDGE = FLAT * (1 - 1e-9)  # where points are put that rounding must not take outside


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks."""

    d: tuple[int, ...] = (100, 300, 131072)
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
    """Ratios at every point, and what the premise asks of it; [n, points]."""
    at = circulant_points if cells.shared("d") > DENSE else dense_points
    rows = [
        at(np.random.default_rng(cell.seed), *(cell.point[key] for key in ("d", "norm", "points")))
        for cell in cells.cells
    ]
    curves = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    small = (curves["largest_norm"] <= SMALL) & (cells.shared("d") >= WIDE)
    curves[ASSUMPTION] = small & (curves["potential"] <= FLAT)
    return range(cells.shared("points")), curves


def circulant_points(
    rng: np.random.Generator, d: int, norm: float, points: int
) -> dict[str, Array]:
    """W* = 0 and W of random size and trace, every other one at g = 0.1; [points]."""
    from theory.circulant import circulant_measures, circulant_start

    size = d * norm**2 * rng.uniform(0, 1, size=points)  # |W|_F^2
    trace = -size * rng.uniform(0.4, 1.1, size=points)
    trace[::2] = -(size + 2 * EDGE - EDGE**2 / d)[::2] / 2
    trace = np.maximum(trace, -0.9 * np.sqrt(size * d))
    columns = np.stack(
        [circulant_start(d, np.sqrt(F2), t, rng) for F2, t in zip(size, trace, strict=True)]
    )
    found = circulant_measures(columns, "printed")
    return {
        "ratio": found["inner_product"] / size,
        "potential": found["potential"],
        "size": size,
        "trace_share": trace / size,
        "largest_norm": np.abs(np.fft.rfft(columns)).max(axis=-1),
    }


def dense_points(rng: np.random.Generator, d: int, norm: float, points: int) -> dict[str, Array]:
    """W and W* of many kinds; [points]."""
    from theory.relu_population import inner_product, potential

    W, W_star = pairs(rng, d, 0.9 * norm, points)
    size = np.sum((W - W_star) ** 2, axis=(1, 2))
    target = np.where(np.arange(points) % 2, size / 4, EDGE)
    room = norm - np.linalg.norm(W, 2, axis=(1, 2))  # to shift the trace without a larger norm
    shift = np.zeros(points)
    for _ in range(4):  # Newton's method: g falls by about 1 where the trace grows by 1
        g = potential(W - shift[:, None, None] * np.eye(d), W_star)
        shift = np.clip(shift + (target - g) / d, -room, room)
    W = W - shift[:, None, None] * np.eye(d)
    size = np.sum((W - W_star) ** 2, axis=(1, 2))
    return {
        "ratio": inner_product(W, W_star, "printed") / size,
        "potential": potential(W, W_star),
        "size": size,
        "trace_share": np.trace(W - W_star, axis1=1, axis2=2) / size,
        "largest_norm": np.linalg.norm(np.stack([W, W_star]), 2, axis=(2, 3)).max(axis=0),
    }


def pairs(rng: np.random.Generator, d: int, norm: float, points: int) -> tuple[Array, Array]:
    """W from Gaussian to skew, W* in turn Gaussian, 0 and opposite to W; [points, d, d] each."""
    from theory.circulant import circulant_matrix, circulant_start

    G = rng.normal(size=(2, points, d, d))
    G /= np.linalg.norm(G, 2, axis=(2, 3), keepdims=True)
    S = circulant_matrix(np.stack([circulant_start(d, 1.0, 0.0, rng) for _ in range(points)]))
    S /= np.linalg.norm(S, 2, axis=(1, 2), keepdims=True)
    mix, sizes = (
        rng.uniform(size=(points, 1, 1)) ** 0.25,
        rng.uniform(0.3, 1, size=(2, points, 1, 1)),
    )
    V = (1 - mix) * G[0] + mix * S
    V /= np.linalg.norm(V, 2, axis=(1, 2), keepdims=True)
    kind = (np.arange(points) // 2 % 3)[:, None, None]
    teacher = np.select([kind == 0, kind == 1], [np.zeros_like(V), -V], G[1])
    return norm * sizes[0] * V, norm * sizes[1] * teacher


def also(measured: Sequence[Measured]) -> dict[str, float]:
    """The least ratio where norms are small and only g is above 0.1."""
    steep = [
        m.curves["ratio"][(m.curves["largest_norm"] <= SMALL) & (m.curves["potential"] > FLAT)]
        for m in measured
    ]
    return {"steep_ratio": float(np.min(np.concatenate(steep), initial=np.inf))}


def figure(measured: Sequence[Measured]) -> Any:
    """Ratio by trace and size; against size with its envelopes; a plane through the teacher."""
    from matplotlib.figure import Figure

    from pipelines.relu_figures import WIDEST, landscape

    picture = Figure(figsize=(16, 5.4), layout="constrained")
    left, middle, right = picture.subplots(1, 3)
    draw_map(picture, left, [m for m in measured if m.point["d"] > DENSE])
    draw_all(middle, measured)
    landscape(right, WIDEST, 4.0, -10.0, chords=True)
    right.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return picture


def draw_map(picture: Any, axes: Any, circulant: Sequence[Measured]) -> None:
    """The leading order of the ratio over trace and size, and exact points in the same colours."""
    share, size = np.meshgrid(np.linspace(-1.1, -0.4, 141), np.linspace(0.05, 30, 120))
    formula = np.pi / 2 - 1 + size * (share + 0.5) * (share + 1)
    colours = {"cmap": "RdBu", "vmin": -1.2, "vmax": 1.2}
    picture.colorbar(axes.pcolormesh(share, size, formula, **colours, shading="gouraud"), ax=axes)
    axes.contour(share, size, formula, [0.03], colors="k")
    axes.plot(-0.5 - FLAT / size[:, 0], size[:, 0], "k--", linewidth=1)
    for m in circulant:
        axes.scatter(
            m.curves["trace_share"], m.curves["size"], c=m.curves["ratio"], s=24, lw=0.5,
            edgecolors="k", **colours,
        )  # fmt: skip
    axes.set(xlabel="tr W / |W|_F²", ylabel="|W|_F²", xlim=(-1.1, -0.4), ylim=(0, 30))
    axes.set_title("<-grad, -W> / |W|_F²: leading order, exact points;\nsolid 0.03, dashed g = 0.1")


def draw_all(axes: Any, measured: Sequence[Measured]) -> None:
    """All ratios against |W - W*|_F^2, the judged ones told apart, with the least possible."""
    size, ratio, g = (
        np.concatenate([m.curves[key] for m in measured]) for key in ("size", "ratio", "potential")
    )
    holds = np.concatenate([m.holds for m in measured])
    grid = np.geomspace(size.min(), max(size.max(), 1), 200)
    flat = ~holds & (g <= FLAT)
    for some, style, label in (
        (~holds & ~flat, "C3.", "g above 0.1"),
        (flat, "C1.", "g at most 0.1, norms above 1/100"),
        (holds, "C0.", "the premise holds"),
    ):
        axes.plot(size[some], ratio[some], style, markersize=4, label=label)
    worst = np.where(grid < 4 * FLAT, -grid / 16, -FLAT / 2 + FLAT**2 / grid)
    axes.plot(
        grid, np.pi / 2 - 1 + worst, "k--", linewidth=1, label="least at g ≤ 0.1, leading order"
    )
    axes.plot(grid, np.pi / 2 - 1 - grid / 16, "k:", label="least at any g, leading order")
    axes.axhline(0.03, color="C2", label="bound 0.03")
    axes.set(xscale="log", xlabel="|W - W*|_F²", ylim=(-3, 4), title="all points")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)


CLAIM = Theorem(
    source="LY Theorem 3.3",
    says="Where norms are small and the potential g is at most 0.1, the negative gradient points "
    "to the teacher: <-grad, W* - W> > 0.03 |W* - W|_F^2",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((100, 8192), (0.01, 0.05), 6), "cpu": Setting()},
    decided_by=(Bound("ratio", at_least=0.03, every=True),),
    measure=measure,
    also=also,
    figure=figure,
    charts=(("ratio", "potential"),),
    apart=("d", "points"),
    batch=2,
)
