"""Stochastic descent on a loss that is one-point convex comes as near as LY's lemma promises.

Source: LY Lemma 2.5. Let stochastic gradients G_t have E|G_t|^2 <= G^2, and let their mean point to
the minimum, <-grad, W* - W> >= delta |W* - W|^2. Then T steps at rate (1 + alpha) log T/(delta T)
have E|W_T - W*|^2 <= (1 + alpha) log T G^2/(delta^2 T), as soon as T^alpha log T is at least
D^2 delta^2/((1 + alpha) G^2), D the distance at the start.

Measured: the worst scalar process that the premise allows, with equality in both of its halves,
E G_t^2 = G^2 and -grad (w* - w) = delta (w* - w)^2, from the largest distance, G/delta. In units of
G/delta it is x <- x - rate (x + sqrt(1 - x^2) s), s = -1 or 1 at random, from x = 1. G and delta
cancel, and with them all that is special to a network. `descent_share` is the mean square of 1,000
such descents of T steps (the chart's step), each at the rate of its T, over the bound.

Theorem 3.1's second phase is this lemma with delta = 0.03 and G = 6 d^{3/2} gamma. There its bound
says nothing before 1.7e7 steps: on networks it is not tested (potential-rates).

The figure that convinces: squared distances beside their bound; the share of it.

Run: python -m pipelines run stochastic-descent-rate
Expect: descent_share 0.54.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels
from pipelines.errors import check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.cost import seconds
from pipelines.measurement.grid import Array, Cell, Cells, Curves, Measured, group_by
from pipelines.measurement.verdict import always
from theory.two_phases import descent_error, descent_rate

POINTS = 24  # values of T
FEWEST = 4  # steps, from which the lemma holds for every alpha


@dataclass(frozen=True)
class Setting:
    """The descents."""

    alpha: tuple[float, ...] = (0.0, 1.0)
    """The exponent that the lemma leaves open."""
    runs: int = 1000
    """Descents of which the squared distance is the mean."""
    longest: int = 10_000
    """Most steps."""

    def __post_init__(self) -> None:
        check_sizes(0, alpha=self.alpha)
        check_sizes(FEWEST, longest=(self.longest,))
        check_counts(runs=self.runs)


def measure(cells: Cells) -> Curves:
    """Return mean squared distances after T steps at the rate of T, and their bound; [n, steps]."""
    T = np.unique(np.geomspace(FEWEST, cells.shared("longest"), POINTS).astype(np.int64))
    rows = [measure_cell(cell, T) for cell in cells.cells]
    return T, {key: np.stack([r[key] for r in rows]) for key in rows[0]}


def measure_cell(cell: Cell, T: NDArray[np.int64]) -> dict[str, Array]:
    """Return the curves of one cell; [steps]."""
    rng, alpha, runs = np.random.default_rng(cell.seed), cell.point["alpha"], cell.point["runs"]
    squares = np.array([np.mean(descend(rng, int(steps), alpha, runs) ** 2) for steps in T])
    bound = descent_error(T, alpha, 1.0, 1.0)
    return {"squared_distance": squares, "bound": bound, "descent_share": squares / bound}


def descend(rng: np.random.Generator, steps: int, alpha: float, runs: int) -> Array:
    """Return where descents from 1 to 0 end, of gradients x + sqrt(1 - x^2) s; [runs]."""
    x, rate = np.ones(runs), float(descent_rate(steps, alpha, 1.0))
    for _ in range(steps):
        sign = 2.0 * rng.integers(2, size=runs) - 1
        x = x - rate * (x + np.sqrt(np.maximum(1 - x**2, 0)) * sign)
    return x


def figure(measured: Sequence[Measured]) -> Any:
    """Draw squared distances beside their bound; the share of it."""
    picture, (left, right) = panels(2, height=4.2)
    for i, (alpha, chosen) in enumerate(group_by(measured, "alpha")):
        first = chosen[0]
        left.plot(first.steps, first.curves["bound"], f"C{i}", label=f"bound, α = {alpha:g}")
        for m in chosen:
            left.plot(m.steps, m.curves["squared_distance"], f"C{i}.")
            right.plot(m.steps, m.curves["descent_share"], f"C{i}.")
        right.plot([], [], f"C{i}.", label=f"α = {alpha:g}")
    left.set(xscale="log", yscale="log", xlabel="steps T", ylabel="E|W_T - W*|² δ²/G²")
    right.axhline(1, color="C3", label="Lemma 2.5")
    right.set(xscale="log", xlabel="steps T", ylabel="E|W_T - W*|² over its bound", ylim=(0, 1.1))
    for axes in (left, right):
        axes.legend(fontsize=8, loc="lower left")
    return picture


BOUNDS = (always("descent_share", at_most=1),)
CLAIM = Theorem(
    source="LY Lemma 2.5",
    says="Stochastic descent at rate (1 + alpha) log T/(delta T) ends as near to the minimum as "
    "the lemma promises, on the worst scalar process that its premise allows",
    formula=r"\begin{split} "
    r"&\mathbb{E} \lVert G_t \rVert_F^2 \le G^2,\quad "
    r"\langle -\mathbb{E}\, G_t,\, W^\star - W_t \rangle \ge "
    r"\delta \lVert W^\star - W_t \rVert_F^2, \\ "
    r"&\eta = \frac{(1 + \alpha) \log\, T}{\delta T},\quad "
    r"T^\alpha \log\, T \ge \frac{D^2 \delta^2}{(1 + \alpha) G^2},\; "
    r"D = \lVert W_0 - W^\star \rVert_F \\ "
    r"&\;\Longrightarrow\; \mathbb{E} \lVert W_T - W^\star \rVert_F^2 \le "
    r"\frac{(1 + \alpha) \log\, T\; G^2}{\delta^2 T}, \\ "
    r"&\text{tested where it is hardest: } x \leftarrow x - \eta\, (x \pm \sqrt{1 - x^2}) "
    r"\text{ from } x = 1,\; \delta = G = 1 "
    r"\end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((0.0,), runs=100, longest=500), "cpu": Setting()},
    decided_by=BOUNDS,
    measure=measure,
    figure=figure,
    seeds=3,
    costs={"cpu": seconds(34)},
    charts=(("squared_distance", "bound"), ("descent_share",)),
    apart=("runs", "longest"),
)
