"""LY's first phase: how fast the potential falls to 197 gamma^2, and how large it can be.

In the first phase, at rate gamma^2/G_2^2, the potential falls by 1 - 0.5 rate d a step, to 197
gamma^2 in 1/(16 rate) steps; gradients of the printed scale, pi times the true ones, are at most
G_2 = 6 d gamma in the spectral and G_F = 6 d^{3/2} gamma in the Frobenius norm. "There exist
constants", says the theorem, so one is enough; we read gamma as 1/100: LY's second phase starts at
distance sqrt(d)/50 = 2 gamma sqrt(d). LY's gradients are stochastic, with an error eps in G_2; ours
are exact, eps = 0, and where they change little several steps are taken as one.

Measured, at T = 4 to 1/(16 rate) (the chart's step): `potential`, the largest g of descents from
W = -gamma I and from mixtures of it with skew W, each to W* = 0 and to W* = gamma I. No g is larger
than that of -gamma I and gamma I, about 2 gamma d. f is homogeneous in I + W: descent from W to
gamma I is that from (W - gamma I)/(1 + gamma) to 0 at the same rate, with 1 + gamma times its g
(ours; at -gamma I from -2 gamma/(1 + gamma) I). `potential_speed` is the least log(g_0/g) over that
of (1 - 0.5 rate d)^-T while g > 197 gamma^2; `gradient_share` the largest norm over G_2 or G_F at
random W, W* and at W = -W* = -gamma I; `first_phase_share` the last g over 197 gamma^2, at gamma =
1/100 and above. Shown, and refuting nothing: `small_gamma_share`, the same below 1/100: g begins at
2 gamma d and falls by about exp(-d/16), so that a gamma of less than d exp(-d/16)/100, 0.002 at d =
100, is none of the constants there; nor is a d below 100 in the theorem. `potential_exponent` is
the slope of log g over log d for the largest g at those norms: sqrt(d) asks for 1/2,
`gaussian_exponent` is that of the root mean square of g at Gaussian W and W*.

Not tested: the theorem's second phase. Its bound is below the distance sqrt(d)/50 at its start only
after `useful_steps`, 1.7e7 at the least d and gamma. Lemma 2.5, of which it is made, is
stochastic-descent-rate.

Run: python -m pipelines run potential-rates
     python -m pipelines sweep potential-rates --grid d=16,32,64  # below LY's d
Expect: first_phase_share 0.208, potential_speed 1.98 (g falls by about 1 - rate d), gradient_share
0.86, potential_exponent 1, gaussian_exponent near 0: g is large at chosen W, not at random ones;
small_gamma_share 2.08; useful_steps 1.7e7, and 2.2e9 at gamma = 1/100. In the sweep
first_phase_share is above 1, outside of the theorem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels, place_legend_below
from pipelines.claims.li_yuan.one_point_convexity import pairs
from pipelines.errors import check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Cells, Curves, Measured, select, stack_rows
from pipelines.measurement.quotation import NUMBER, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.circulant import circulant_descent, circulant_start
from theory.relu_population import gradient, potential
from theory.two_phases import first_phase, gradient_sizes, second_phase_error

CONSTANT = 0.01  # gamma, of which LY's distance sqrt(d)/50 is made
CURVED = 0.05  # longest step of the first phase times the curvature d
POINTS = 24  # values of T


@dataclass(frozen=True)
class Setting:
    """The networks, and how many."""

    d: tuple[int, ...] = (100, 200, 400)
    """Widths."""
    gamma: tuple[float, ...] = (0.001, 0.01)
    """Bounds of the spectral norms of W and W*."""
    starts: int = 6
    """Starts of the first phase, and pairs W, W* whose gradients are measured."""

    def __post_init__(self) -> None:
        check_sizes(8, d=self.d)
        check_sizes(1e-6, gamma=self.gamma)
        check_counts(starts=self.starts)


def measure(cells: Cells) -> Curves:
    """Return all shares at the iterations T; [n, iterations]."""
    phase = first_phase(cells.shared("d"), cells.shared("gamma"))
    T = np.unique(np.geomspace(4, float(phase.steps), POINTS).astype(np.int64))
    rows = [
        measure_cell(cell, T, float(phase.rate), float(phase.potential)) for cell in cells.cells
    ]
    return T, stack_rows(rows)


def measure_cell(cell: Cell, T: NDArray[np.int64], rate: float, ceiling: float) -> dict[str, Array]:
    """Return the curves of one cell; [iterations]."""
    rng, (d, gamma) = np.random.default_rng(cell.seed), (cell.point["d"], cell.point["gamma"])
    columns = starts(rng, d, gamma, cell.point["starts"])
    g = np.concatenate(
        [potential_along_descent(columns, rate, T, teacher) for teacher in (0.0, gamma)]
    )
    sizes = gradients(rng, d, gamma, cell.point["starts"])
    return {
        "potential": g[:, 1:].max(axis=0),
        "ceiling": np.full(len(T), ceiling),
        "potential_speed": least_speed(g, -T * np.log1p(-0.5 * rate * d), ceiling),
    } | {key: np.full(len(T), value) for key, value in sizes.items()}


def least_speed(g: Array, promised: Array, ceiling: float) -> Array:
    """Return the least log(g_0/g) over the promise, to the first g under the ceiling; [iterations].

    From there on the value is kept.
    """
    under = g[:, 1:] <= ceiling
    first = np.where(under.any(axis=1), under.argmax(axis=1), len(promised) - 1)
    last = np.minimum(np.arange(len(promised)), first[:, None])
    fallen = np.log(g[:, :1] / np.take_along_axis(g[:, 1:], last, axis=1))
    return np.asarray(np.min(fallen / promised[last], axis=0))


def starts(rng: np.random.Generator, d: int, gamma: float, count: int) -> Array:
    """Return first columns of circulant W with eigenvalues of size gamma, -gamma I the first."""
    skew = np.stack([circulant_start(d, 1.0, 0.0, rng) for _ in range(count)])
    skew /= np.abs(np.fft.rfft(skew)).max(axis=1, keepdims=True)
    part = np.append(0, rng.uniform(0, 0.9, size=count - 1))[:, None]
    return np.asarray(gamma * (part * skew - np.sqrt(1 - part**2) * (np.arange(d) == 0)))


def potential_along_descent(
    columns: Array, rate: float, T: NDArray[np.int64], teacher: float = 0.0
) -> Array:
    """Return potentials at the start and at the iterations T for W* = teacher I; [..., 1 + T].

    Several steps are taken as one, of the length that does as much along the curvature d.
    """
    d, lengths = columns.shape[-1], np.diff(T, prepend=0)
    leaps = np.minimum(lengths, np.ceil(lengths * rate * d / CURVED).astype(np.int64))
    rates = -np.expm1(np.log1p(-rate * d) * np.repeat(lengths / leaps, leaps)) / d
    scaled = (columns - teacher * (np.arange(d) == 0)) / (1 + teacher)
    g = (1 + teacher) * circulant_descent(scaled, rates, len(rates), "printed")["potential"]
    return np.asarray(g[..., np.append(0, np.cumsum(leaps))])


def gradients(rng: np.random.Generator, d: int, gamma: float, count: int) -> dict[str, float]:
    """Return the largest gradient / bound, the largest potential and that of Gaussian weights."""
    W, W_star = pairs(rng, d, gamma, count)
    W[0], W_star[0] = -gamma * np.eye(d), gamma * np.eye(d)
    G = gradient(W, W_star, "printed")
    sizes = np.linalg.norm(G, 2, axis=(1, 2)), np.linalg.norm(G, axis=(1, 2))
    bounds = gradient_sizes(d, gamma)
    shares = [size.max() / bound for size, bound in zip(sizes, bounds, strict=True)]
    normal = gamma / (2 * np.sqrt(d)) * rng.normal(size=(2, 8 * count, d, d))  # of norm near gamma
    return {
        "gradient_share": max(shares),
        "largest_potential": float(potential(W[0], W_star[0])),
        "gaussian_potential": float(np.sqrt(np.mean(potential(*normal) ** 2))),
    }


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the potential at the end, how potentials grow with d, when the second bound is of use.

    Shares of no cell are left out.
    """
    numbers: dict[str, float] = {}
    for m in measured:
        name = "first_phase_share" if m.point["gamma"] >= CONSTANT else "small_gamma_share"
        share = float(m.curves["potential"][-1] / m.curves["ceiling"][-1])
        numbers[name] = max(numbers.get(name, 0.0), share)
    d, gamma = (min(m.point[key] for m in measured) for key in ("d", "gamma"))
    numbers["useful_steps"] = useful_steps(d, gamma)
    return numbers | exponent(measured, "largest") | exponent(measured, "gaussian")


def exponent(measured: Sequence[Measured], name: str) -> dict[str, float]:
    """Return the slope of a potential's logarithm over log d; nothing where d is the same."""
    d = np.array([m.point["d"] for m in measured])
    g = np.array([m.curves[f"{name}_potential"][0] / m.point["gamma"] for m in measured])
    if len(set(d)) < 2:
        return {}
    slope = float(np.polyfit(np.log(d), np.log(g), 1)[0])
    return {"potential_exponent" if name == "largest" else "gaussian_exponent": slope}


def useful_steps(d: int, gamma: float) -> float:
    """Return the steps after which Theorem 3.1's bound is below its start's, alpha = 0."""
    T = np.geomspace(1e2, 1e15, 10_000)
    return float(T[second_phase_error(d, gamma, T, 0.0) < d / 50**2][0])


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the potential against both promises; potentials against d."""
    picture, (left, right) = panels(2, height=4.2)
    d, gamma = min(m.point["d"] for m in measured), max(m.point["gamma"] for m in measured)
    draw_fall(left, select(measured, d=d, gamma=gamma)[0], d, gamma)
    draw_growth(right, measured)
    return picture


def draw_fall(axes: Any, m: Measured, d: int, gamma: float) -> None:
    """Draw the potential at one setting, what it is promised to be, and where the phase ends."""
    rate = float(first_phase(d, gamma).rate)
    axes.plot(m.steps, m.curves["potential"], "C0o-", markersize=3, label="largest potential g")
    promised = m.curves["potential"][0] * (1 - 0.5 * rate * d) ** (m.steps - m.steps[0])
    axes.plot(m.steps, promised, "k:", label="factor 1 - 0.5 rate d a step")
    axes.axhline(m.curves["ceiling"][0], color="C3", label="197 γ², promised at the end")
    axes.set(xscale="log", yscale="log", xlabel="steps T", title=f"d = {d}, γ = {gamma:g}")
    axes.legend(fontsize=8, loc="lower left")


def draw_growth(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw potentials over gamma against d, beside sqrt(d)."""
    d = np.array([m.point["d"] for m in measured])
    names = {"largest": "largest g", "gaussian": "Gaussian W, W*: root mean square of g"}
    for name, label in names.items():
        g = [m.curves[f"{name}_potential"][0] / m.point["gamma"] for m in measured]
        axes.plot(d, g, "o", markersize=4, label=label)
    widths = np.unique(d)
    axes.plot(widths, np.sqrt(widths), "k:", label="√d")
    axes.set(xscale="log", yscale="log", xlabel="d", ylabel="potential g / γ")
    axes.set_xticks(widths, [f"{width}" for width in widths])
    axes.minorticks_off()
    place_legend_below(axes, 1)


BOUNDS = (
    always("first_phase_share", at_most=1),
    always("potential_speed", at_least=1),
    always("gradient_share", at_most=1),
    always("potential_exponent", at_least=0.5),
)
CLAIM = Theorem(
    source="LY Theorem 3.1, first phase",
    says="In the first phase, with exact gradients, d >= 100 and norms of at most gamma = 1/100, "
    "the potential falls by a factor of 1 - 0.5 rate d a step, to 197 gamma^2 in 1/(16 rate) "
    "steps; gradients are at most 6 d gamma; g can be as large as sqrt(d)",
    formula=r"\begin{split} "
    r"&\lVert W_0 \rVert, \lVert W^\star \rVert \le \gamma = \tfrac{1}{100},\; d \ge 100,\; "
    r"W_{t+1} = W_t - \eta\, \pi \nabla L(W_t),\; \eta = \frac{\gamma^2}{G_2^2}: \\ "
    r"&\lVert \pi \nabla L \rVert \le G_2 = 6 d \gamma,\quad "
    r"\lVert \pi \nabla L \rVert_F \le G_F = 6 d^{3/2} \gamma, \\ "
    r"&g_t \le (1 - \tfrac12 \eta d)^t\, g_0 \text{ while } g > 197 \gamma^2,\quad "
    r"g_t \le 197 \gamma^2 \text{ at } t = \frac{1}{16 \eta}, \\ "
    r"&\max_{\lVert W \rVert, \lVert W^\star \rVert \le \gamma} g = \Omega(\sqrt{d}) \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((100, 128), (0.01,), starts=2), "cpu": Setting()},
    decided_by=BOUNDS,
    printed=(
        Quotation(
            words="there exist constants",
            place="LY Theorem 3.1, d >= 100, first phase: g <= 197 gamma^2 within 1/(16 eta) steps",
            bounds=BOUNDS[:3],
            note="at gamma = 1/100 and d = 100, 200 and 400 exact gradients contradict nothing",
        ),
        Quotation(
            words="Omega(sqrt(d))",
            form=NUMBER,
            place="LY section 6, the size of g",
            bounds=BOUNDS[3:],
        ),
    ),
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    shown=("small_gamma_share", "gaussian_exponent", "useful_steps"),
    seeds=3,
    costs={"cpu": seconds(48)},
    charts=(("potential", "ceiling"), ("potential_speed", "gradient_share")),
    batch_by=("d", "gamma"),
    batch=2,
)
