"""Stochastic descent on a loss that is one-point convex comes as near as LY's lemma promises.

LY Lemma 2.5: with E|G_t|^2 <= G^2 and <-grad, W* - W> >= delta |W* - W|^2, T steps at rate (1 +
alpha) log T/(delta T) have E|W_T - W*|^2 <= (1 + alpha) log T G^2/(delta^2 T), if the start is near
enough for T.

In units of G/delta a process is x <- x - r (b(x) + noise), with r = (1 + alpha) log T/T, W* = 0 and
delta = G = 1, so that the bound is r. All begin as far away as the premise allows a point to be:

- `worst`: b = x, noise of norm sqrt(1 - |x|^2) in random directions; equality in both halves of the
  premise. E|x_T|^2 over r is exactly 1/2 + (1/r - 1/2)(1 - 2r)^T: 0.521 at T = 4, 0.500 from 256
  on. It cannot fail, and shows that what is measured is right.
- `wavy`: b along x, of the size s + (1 - s) sin^2(8 pi s), s = |x|: not monotone, the gradient of a
  loss that is far from convex; noise as much as E|G_t|^2 = 1 leaves.
- `steep`: b along x, of the size min(1, 5 s): five times as steep near W* as delta; noise the same.
- `turning`: b = x + Jx with a rotation J by 90 degrees: no gradient of a loss; noise the same.
- `fading`: b = x, noise whose variance vanishes at W* as |x|^2.

The lemma's proof asks for no more than its premise, and says E|x|^2 <- (1 - 2r) E|x|^2 + r^2 at
most: where 2r <= 1 no process is farther than the worst (ours), so that for large T half of the
bound would do. On networks the lemma is not tested: Theorem 3.1's second phase, which is this lemma
with delta = 0.03 and G = 6 d^(3/2) gamma, says nothing before 1.7e7 steps (potential-rates).

Measured, by T (the chart's step), in `runs` descents of T steps, each at the rate of its T:
`squared_distance`, the mean of |x_T|^2, and `descent_share`, the same over the bound; `worst_z`, of
`worst` alone, its distance from the exact value, in standard errors. Where a path leaves the
premise, `largest_gradient` > 1 or `least_convexity` < 1, nothing is judged: `turning` at the
smallest T.

Run: python -m pipelines run stochastic-descent-rate
     python -m pipelines sweep stochastic-descent-rate --grid d=100 --grid alpha=0:2:0.5 --seeds 1
Expect: descent_share 0.537 ± 0.006, that of the worst process with its sampling error, of which
worst_z 2.9 ± 0.3 is the largest of 96; turning_share 0.530 ± 0.002, wavy_share 0.343 ± 0.009,
steep_share 0.347, fading_share 0.170 ± 0.004.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import (
    ASSUMPTION,
    Array,
    Cell,
    Cells,
    Curves,
    Measured,
    select,
    stack_rows,
)
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.two_phases import descent_error, descent_rate, worst_share

PROCESSES = ("fading", "steep", "turning", "wavy", "worst")
POINTS = 24  # values of T
FEWEST = 4  # steps, from which the lemma holds for every alpha
STEEP = 5.0
WAVES = 8 * np.pi
ROUNDING = 1e-9  # allowance in the premise


@dataclass(frozen=True)
class Setting:
    """The descents."""

    process: tuple[str, ...] = PROCESSES
    """Mean gradients and noise."""
    d: tuple[int, ...] = (2, 10)
    """Dimensions, even."""
    alpha: tuple[float, ...] = (0.0, 1.0)
    """The exponent that the lemma leaves open."""
    runs: int = 1000
    """Descents of which the squared distance is the mean."""
    longest: int = 1_000
    """Most steps."""

    def __post_init__(self) -> None:
        check_sizes(0, alpha=self.alpha)
        check_sizes(2, d=self.d)
        check_sizes(FEWEST, longest=(self.longest,))
        check_sizes(2, runs=(self.runs,))
        check_names("A process", self.process, PROCESSES)
        if odd := [d for d in self.d if d % 2]:
            raise UserError(f"d must be even. Received: d={odd[0]}. Set --d.")


def measure(cells: Cells) -> Curves:
    """Return mean squared distances after T steps at the rate of T, and their bound; [n, steps]."""
    T = np.unique(np.geomspace(FEWEST, cells.shared("longest"), POINTS).astype(np.int64))
    rows = [measure_cell(cell, T) for cell in cells.cells]
    return T, stack_rows(rows)


def measure_cell(cell: Cell, T: NDArray[np.int64]) -> dict[str, Array]:
    """Return the curves of one cell; [steps]."""
    rng, alpha = np.random.default_rng(cell.seed), cell.point["alpha"]
    rows = [measure_steps(rng, cell, int(steps)) for steps in T]
    curves = stack_rows(rows)
    bound = descent_error(T, alpha, 1.0, 1.0)
    largest, least = curves["largest_gradient"], curves["least_convexity"]
    in_force = (largest <= 1 + ROUNDING) & (least >= 1 - ROUNDING)
    curves |= {"bound": bound, "descent_share": curves["squared_distance"] / bound}
    error, z = curves.pop("standard_error"), np.zeros(len(T))
    if cell.point["process"] == "worst":
        z = np.abs(curves["squared_distance"] - worst_share(T, alpha) * bound) / error
    return curves | {"worst_z": z, ASSUMPTION: in_force}


def measure_steps(rng: np.random.Generator, cell: Cell, steps: int) -> dict[str, float]:
    """Return the mean of |x|^2 after so many steps, its standard error, and how the premise held.

    `largest_gradient` is the square root of the largest E|G_t|^2 on all paths, `least_convexity`
    the least <b, x>/|x|^2.
    """
    process, d, runs = (cell.point[key] for key in ("process", "d", "runs"))
    x = np.zeros((runs, d))
    x[:, 0] = 1 / np.sqrt(2) if process == "turning" else 1.0  # where |b| = 1
    rate = float(descent_rate(steps, cell.point["alpha"], 1.0))
    largest, convexity = 0.0, np.inf
    for _ in range(steps):
        b = mean_gradient(process, x)
        square, size = np.sum(x**2, axis=1), np.sum(b**2, axis=1)
        left = np.maximum(1 - size, 0)  # the noise's share, so that E|G_t|^2 = 1
        variance = left * square if process == "fading" else left
        moved = square > 0
        along = np.sum(b * x, axis=1)[moved] / square[moved]
        largest = max(largest, float(np.max(size + variance)))
        convexity = min(convexity, float(np.min(along, initial=np.inf)))
        noise = rng.normal(size=x.shape)
        noise *= (np.sqrt(variance) / np.linalg.norm(noise, axis=1))[:, None]
        x = x - rate * (b + noise)
    squares = np.sum(x**2, axis=1)
    return {
        "squared_distance": float(squares.mean()),
        "standard_error": float(squares.std(ddof=1) / np.sqrt(runs)),
        "largest_gradient": float(np.sqrt(largest)),
        "least_convexity": convexity,
    }


def mean_gradient(process: str, x: Array) -> Array:
    """Return b(x) at points x [runs, d]; [runs, d]."""
    if process in ("worst", "fading"):
        return x
    if process == "turning":
        turned = np.empty_like(x)
        turned[:, ::2], turned[:, 1::2] = -x[:, 1::2], x[:, ::2]
        return x + turned
    s = np.linalg.norm(x, axis=1, keepdims=True)
    size = np.minimum(1, STEEP * s) if process == "steep" else s + (1 - s) * np.sin(WAVES * s) ** 2
    return np.asarray(x * np.divide(size, s, out=np.ones_like(s), where=s > 0))


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the largest share of the bound of every process, where the premise is in force."""
    found = {m.point["process"] for m in measured}
    shares = {
        process: [m.curves["descent_share"][m.holds] for m in select(measured, process=process)]
        for process in sorted(found)
    }
    return {f"{process}_share": float(np.concatenate(s).max()) for process, s in shares.items()}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw squared distances beside their bound; the share of it, by process."""
    picture, axes = panels(2, 11, 4.2)
    for part, alpha in zip(axes, sorted({m.point["alpha"] for m in measured})[:2], strict=False):
        for colour, process in enumerate(PROCESSES):
            for m in select(measured, alpha=alpha, process=process):
                share = np.where(m.holds, m.curves["descent_share"], np.nan)
                part.plot(m.steps, share, f"C{colour}.", markersize=4)
            part.plot([], [], f"C{colour}.", label=process)
        T = measured[0].steps
        part.plot(T, worst_share(T, alpha), "k:", label="worst, exactly")
        part.axhline(1, color="C3", label="Lemma 2.5")
        part.set(xscale="log", xlabel="steps T", ylabel="E|W_T - W*|² over its bound")
        part.set(ylim=(0, 1.1), title=f"α = {alpha:g}")
        part.legend(fontsize=8, ncols=2, loc="center right")
    return picture


CLAIM = Theorem(
    source="LY Lemma 2.5",
    says="Stochastic descent at rate (1 + alpha) log T/(delta T) ends as near to the minimum as "
    "the lemma promises: on processes that are not convex, turn, or have noise that depends on the "
    "state, and on the worst that the premise allows",
    formula=r"\begin{split} &\mathbb{E} \lVert G_t \rVert_F^2 \le G^2,\quad "
    r"\langle -\mathbb{E}\, G_t,\, W^\star - W_t \rangle \ge "
    r"\delta \lVert W^\star - W_t \rVert_F^2, \\ "
    r"&\eta = \frac{(1 + \alpha) \log\, T}{\delta T},\quad "
    r"T^\alpha \log\, T \ge \frac{D^2 \delta^2}{(1 + \alpha) G^2},\; "
    r"D = \lVert W_0 - W^\star \rVert_F \\ "
    r"&\;\Longrightarrow\; \mathbb{E} \lVert W_T - W^\star \rVert_F^2 \le "
    r"\frac{(1 + \alpha) \log\, T\; G^2}{\delta^2 T}; \\ "
    r"&\text{the worst process has } \tfrac12 + \bigl( \tfrac1r - \tfrac12 \bigr) (1 - 2r)^T "
    r"\text{ of the bound, } r = \delta \eta \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting(d=(2,), alpha=(0.0,), runs=100, longest=300), "cpu": Setting()},
    decided_by=(always("descent_share", at_most=1), always("worst_z", at_most=5)),
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    shown=("wavy_share", "steep_share", "turning_share", "fading_share"),
    seeds=3,
    costs={"cpu": seconds(66)},
    charts=(("squared_distance", "bound"), ("descent_share",)),
    batch_by=("process", "d", "runs", "longest"),
)
