"""Along LY's two phases row sums and potential obey linear recursions; the second phase converges.

The formulas of LY's appendices were not at hand. The recursions here are ours, to leading order in
the weights: of s = (W* - W)u, the row sums, u the vector of ones, and of the potential g = sum_j
|e_j + w*_j| - |e_j + w_j|. With gradients of the printed scale, pi times the true ones, and the
rate eta,

    s <- (1 - pi/2 (d + 1) eta) s - eta (d - 1)/d g u,    g <- (1 - d eta) g.

Row sums fall faster than the potential, and follow it, to -g/(d (pi/2 - 1)) u. In the true scale g
falls by 1 - d eta/pi a step. LY's theorem promises 1 - d eta/2 in the printed scale: half of what
the potential falls by.

Measured, along the descent of two-phases (circulant W, W* = 0, tr W = -3/4 |W|_F^2, so that the
inner product begins below 0; rate 0.1/d), by its step, while g > 0.1: `g_error`, what is left of
the recursion, |g_(t+1) - (1 - d eta) g_t|, over d eta g_t, which LY's promise lets be 1/2;
`s_error`, what is left of that of s over the sizes of its two changes. `wide_g_error` and
`wide_s_error` are the largest at the largest d, `g_exponent` and `s_exponent` the slopes of the
largest over d: the errors vanish as d grows. `sign_change`, the step at which the inner product is
positive, comes before g <= 0.1.

The second phase, at d = 100 in every case, starts at |W| = gamma = 1/100 and g near 0 and takes T =
40,000 steps at the rate log T/(delta T), delta = 0.03, with noise of Frobenius norm 1 in random
directions added to the exact gradient (LY's eps = 1). `second_distance` is |W|_F, at as many steps
as are charted. `second_phase_share` is |W_T|_F^2 over what Theorem 3.1 bounds it by,
`gradient_share` the largest |gradient|_F + eps over G_F = 6 d^(3/2) gamma + eps, a premise. The
bound is above the distance that it starts from, `bound_over_start` times as far as squares go: it
holds, and says nothing. (T below about 27,000 makes rates above 4/(pi (d + 1)), at which s grows in
every step. Whether the theorem is meant for such T could not be read: they are refused.)

Run: python -m pipelines run phase-recursions
     python -m pipelines sweep phase-recursions --grid d=200,1500,10000 --seeds 1
Expect: g_error 0.171 and s_error 0.014 at d = 200, wide_g_error 0.030 and wide_s_error 0.001 at d =
1500, g_exponent -0.87, s_exponent -1.28; sign_change 14; gradient_share 0.028, second_phase_share
4.5e-6, bound_over_start 1.1e5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import (
    ASSUMPTION,
    Array,
    Cell,
    Cells,
    Curves,
    Measured,
    group_by,
    stack_rows,
)
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.circulant import circulant_measures, circulant_path, circulant_start
from theory.two_phases import (
    ONE_POINT,
    SECOND_PHASE,
    descent_rate,
    gradient_sizes,
    second_phase_error,
)

TRACE = -0.75  # tr W over |W|_F^2 at the start of the first phase
STEP = 0.1  # rate times d, in the first phase
GAMMA = 0.01  # |W| at the start of the second phase
SECOND_D = 100  # its width: LY's least
NOISE = 1.0  # Frobenius norm, of the second phase's gradients


@dataclass(frozen=True)
class Setting:
    """The descents."""

    d: tuple[int, ...] = (200, 500, 1500)
    """Widths in the first phase."""
    frobenius: float = 4.2
    """Frobenius norm of W at the start of the first phase."""
    steps: int = 60
    """Steps of the first phase."""
    second_steps: int = 40_000
    """T, the steps of the second phase."""

    def __post_init__(self) -> None:
        check_sizes(8, d=self.d)
        check_counts(steps=self.steps, second_steps=self.second_steps)
        check_sizes(2, second_steps=(self.second_steps,))
        if float(descent_rate(self.second_steps, 0.0, ONE_POINT)) >= 4 / (np.pi * (SECOND_D + 1)):
            raise UserError(
                "second_steps must make a rate, log T/(0.03 T), below that at which row sums grow, "
                f"4/(101 pi). Received: second_steps={self.second_steps:,}. Set --second-steps to "
                "30,000 or more."
            )
        if not 0 < (TRACE * self.frobenius) ** 2 < min(self.d):
            raise UserError(
                f"No W has a trace of {TRACE:g} |W|_F^2 for d={min(self.d)}. Received: "
                f"frobenius={self.frobenius:g}. Set --frobenius nearer to 0."
            )


def measure(cells: Cells) -> Curves:
    """Return both phases, step by step; [n, steps]."""
    steps = cells.shared("steps")
    rows = [first_phase(cell) | second_phase(cell) for cell in cells.cells]
    return range(steps), stack_rows(rows)


def first_phase(cell: Cell) -> dict[str, Array]:
    """Return potential and row sums before every step, and what the recursions leave; [steps]."""
    d, frobenius = cell.point["d"], cell.point["frobenius"]
    rng = np.random.default_rng(cell.seed)
    column = circulant_start(d, frobenius, TRACE * frobenius**2, rng)
    columns = np.stack(list(circulant_path(column, STEP / d, cell.point["steps"], "printed")))
    measures = circulant_measures(columns, "printed")
    s = -columns.sum(axis=-1)  # (W* - W)u = s u
    numbers = recursion_errors(measures["potential"], s, d)
    return numbers | {
        "potential": measures["potential"][:-1],
        "row_sum": s[:-1],
        "inner_product": measures["inner_product"][:-1],
        ASSUMPTION: measures["potential"][:-1] > SECOND_PHASE,
    }


def recursion_errors(g: Array, s: Array, d: int) -> dict[str, Array]:
    """Return what the recursions leave of g and s [steps + 1], relative to their steps; [steps]."""
    eta, before, row = STEP / d, g[:-1], s[:-1]
    falls, pull = np.pi / 2 * (d + 1) * eta * row, eta * (d - 1) / d * before
    return {
        "g_error": np.abs(g[1:] - (1 - d * eta) * before) / np.abs(d * eta * before),
        "s_error": np.abs(s[1:] - (row - falls - pull)) / (np.abs(falls) + np.abs(pull)),
    }


def second_phase(cell: Cell) -> dict[str, Array]:
    """Return the distance along the second phase, and its numbers; [steps]."""
    rng, T = np.random.default_rng([cell.seed, cell.point["d"]]), cell.point["second_steps"]
    column = circulant_start(SECOND_D, 1.0, 0.0, rng)
    column *= GAMMA / np.abs(np.fft.rfft(column)).max()
    start = SECOND_D * np.sum(column**2)
    rate = float(descent_rate(T, 0.0, ONE_POINT))
    squares, largest = [start], 0.0
    for _ in range(T):
        after = list(circulant_path(column, rate, 1, "printed"))[1]
        largest = max(largest, float(np.linalg.norm(after - column)) / rate)
        noise = rng.normal(size=SECOND_D)
        column = after + rate * NOISE * noise / (np.linalg.norm(noise) * np.sqrt(SECOND_D))
        squares.append(SECOND_D * np.sum(column**2))
    count, bound = (cell.point["steps"], float(second_phase_error(SECOND_D, GAMMA, T, 0.0, NOISE)))
    G = float(gradient_sizes(SECOND_D, GAMMA, NOISE)[1])
    numbers = {
        "second_phase_share": squares[-1] / bound,
        "gradient_share": (np.sqrt(SECOND_D) * largest + NOISE) / G,
        "bound_over_start": bound / start,
    }
    charted = np.linspace(0, T, count).astype(int)
    return {"second_distance": np.sqrt(np.array(squares)[charted])} | {
        key: np.full(count, value) for key, value in numbers.items()
    }


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the largest errors at the largest d, how they fall with d, and the sign's change."""
    by_width = group_by(measured, "d")
    numbers = {"bound_over_start": float(measured[0].curves["bound_over_start"][0])}
    for name in ("g", "s"):
        worst = [
            max(float(m.curves[f"{name}_error"][m.holds].max()) for m in c) for _, c in by_width
        ]
        numbers[f"wide_{name}_error"] = worst[-1]
        if len(by_width) > 1:
            slope = np.polyfit(np.log([d for d, _ in by_width]), np.log(worst), 1)[0]
            numbers[f"{name}_exponent"] = float(slope)
    wide = by_width[-1][1][0]
    positive = wide.curves["inner_product"] > 0
    numbers["sign_change"] = float(positive.argmax()) if positive.any() else np.inf
    return numbers


def figure(measured: Sequence[Measured]) -> Any:
    """Draw g and s with the recursions, at the largest d; their errors; the second phase."""
    picture, (left, middle, right) = panels(3, 14)
    d, chosen = group_by(measured, "d")[-1]
    first, g, s = chosen[0], [chosen[0].curves["potential"][0]], [chosen[0].curves["row_sum"][0]]
    for _ in first.steps[1:]:
        s.append(s[-1] * (1 - np.pi / 2 * (d + 1) / d * STEP) - STEP / d * (d - 1) / d * g[-1])
        g.append((1 - STEP) * g[-1])
    left.plot(first.steps, first.curves["potential"], "C0.", label="g")
    left.plot(first.steps, d * first.curves["row_sum"], "C1.", label="<u, s> = -sum of W")
    left.plot(first.steps, g, "k-", lw=0.8, label="by the recursions")
    left.plot(first.steps, d * np.array(s), "k-", lw=0.8)
    left.axhline(0, color="k", linewidth=0.5)
    left.set(xlabel="step", title=f"d = {d}", yscale="symlog")
    left.legend(fontsize=8)
    for colour, (width, cells) in enumerate(group_by(measured, "d")):
        for name, style in (("g", "-"), ("s", "--")):
            for m in cells:
                error = np.where(m.holds, m.curves[f"{name}_error"], np.nan)
                middle.plot(m.steps, error, f"C{colour}{style}", lw=1)
            middle.plot([], [], f"C{colour}{style}", label=f"{name}, d = {width}")
    middle.axhline(0.5, color="C3", linestyle=":", label="what LY's promise lets be, of g")
    middle.set(xlabel="step", yscale="log", ylabel="error of a step, while g > 0.1")
    middle.legend(fontsize=7)
    T = first.point["second_steps"]
    for m in measured:
        charted = np.linspace(0, T, len(m.steps))
        right.plot(charted / 1000, m.curves["second_distance"], "C0", lw=0.7)
    bound = float(np.sqrt(second_phase_error(SECOND_D, GAMMA, T, 0.0, NOISE)))
    right.set(xlabel="step of the second phase / 1000", ylabel="|W - W*|_F", ylim=(0, None))
    right.set_title(f"d = {SECOND_D}; the bound is {bound:.0f}", fontsize=10)
    return picture


CLAIM = Theorem(
    source="LY C.3, C.4, Theorem 3.1",
    says="In the first phase row sums and potential follow two linear recursions, with errors that "
    "vanish as the network is wider; in the second, noisy descent stays within what Theorem 3.1 "
    "promises, which is more than the distance that it starts from",
    formula=r"\begin{split} "
    r"&W_{t+1} = W_t - \eta\, \pi \nabla L(W_t),\quad s_t = (W^\star - W_t)\, u,\quad "
    r"g_t = \sum_j \lVert e_j + w^\star_j \rVert - \lVert e_j + w_{j} \rVert: \\ "
    r"&s_{t+1} \approx \bigl( 1 - \tfrac{\pi}{2} (d + 1)\, \eta \bigr)\, s_t "
    r"- \eta\, \tfrac{d - 1}{d}\, g_t\, u,\quad g_{t+1} \approx (1 - d\, \eta)\, g_t, \\ "
    r"&\lvert g_{t+1} - (1 - d\, \eta)\, g_t \rvert \le \tfrac12 d\, \eta\, g_t "
    r"\text{ while } g_t > 0.1; \\ "
    r"&\text{second phase: } \lVert W_T - W^\star \rVert_F^2 \le "
    r"\frac{\log\, T\; G_F^2}{0.03^2\, T},\quad G_F = 6 d^{3/2} \gamma + \varepsilon \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((200, 400), second_steps=30_000, steps=40), "cpu": Setting()},
    decided_by=(
        always("g_error", at_most=0.5),
        always("s_error", at_most=0.05),
        always("g_exponent", at_most=-0.5),
        always("s_exponent", at_most=-0.5),
        always("second_phase_share", at_most=1),
        always("gradient_share", at_most=1),
    ),
    measure=measure,
    extra_metrics=extra_metrics,
    shown=("wide_g_error", "wide_s_error", "bound_over_start", "sign_change"),
    figure=figure,
    seeds=3,
    costs={"cpu": seconds(60)},
    charts=(
        ("potential", "row_sum", "inner_product"),
        ("g_error", "s_error"),
        ("second_distance",),
    ),
    batch_by=("d", "steps", "second_steps"),
    batch=1,
)
