"""Gradient descent from the identity converges linearly if its initial loss is small.

The slides were read in a damaged copy, and are shorthand for BHL's lemmas: along the path, with a =
max |Theta_i - I|, the gradient is large, the Hessian small, and the iterates stay close. Their 4 is
twice what is true at Theta_i = I (`printed_gradient_ratio` 0.5), and right for a loss without the
half. Without the premise on Phi the bound on the Hessian is passed at d = 1, l = 2, Theta_i = 1,
Phi = 10 (`printed_far_hessian_ratio` 1.9).

With h = l (1+b)^(2l-2) + (l-1) (1+b)^(l-2) sqrt(2 loss) >= |H|, b the bound on the next a, each
step multiplies the loss by at most 1 - rate l (1-a)^(2l-2) (2 - rate h). Summed up (ours): if
l(I) <= 1/250, then at every depth and width loss_t <= l(I) (1 - rate l q^(2/3))^t and l
a <= -log(q)/3, where q = 1 - 6 sqrt(2 l(I)). No constant above 1/2 will do, since from there on Phi
may be singular.

Measured, at that rate: Phi = I + N, N Gaussian and scaled to l(I) = `start_loss`. Ratios of the two
sides: `gradient_ratio`, `stay_close_ratio`, and from the exact Hessian, at every fourth iteration
kept, `hessian_ratio` and `operator_ratio` (|H| against h at b = a, |E| for sqrt(2 loss));
`loss_over_bound` against the product of the steps' factors; `loss_over_proved` (1 at the start) and
`distance_over_proved` against the last bounds (beyond 1/250: l(I), none). `final_loss` is relative
to the first; `gradient_error` is by differences of the loss along a random direction. Judged until
a >= 1, rate h >= 2 or loss < 1e-12 l(I). All lemmas but |H|_F's are equalities at I or l = 1.

Run: python -m pipelines run gradient-descent-near-identity
     python -m pipelines sweep gradient-descent-near-identity --grid start_loss=0.004,0.4 --seeds 9
Expect: hessian_ratio 0.36, distance_over_proved 0.35, gradient_error 4e-9, the attained bounds 1;
printed_gradient_ratio 0.5, printed_hessian_ratio 0.37 on the paths, printed_stay_close_ratio 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import (
    ASSUMPTION,
    Array,
    Cells,
    Curves,
    Measured,
    select,
    stack,
    stack_rows,
)
from pipelines.measurement.quotation import FORMULA, SLIP, STEP, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory import descent
from theory import descent_bounds as bounds

FLOOR = 1e-12  # relative to the first loss: far below it the loss is rounding
SLACK = 1e-6  # relative, for bounds that are equalities at l = 1: rounding grows
PROVED = 1 / 250  # l(I) up to which the rate is proved in advance
LARGEST = 0.4  # l(I): towards 1/2 Phi may be nearly singular, and convergence takes very long
FAR = 10.0  # a target at d = 1, l = 2 that is far from the identity
HESSIAN = 512  # l d^2: the exact Hessian has that many rows


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and distances of their targets."""

    d: tuple[int, ...] = (1, 2, 5)
    """Matrix dimensions."""
    l: tuple[int, ...] = (1, 2, 4, 16)  # noqa: E741 - the paper's letter
    """Depths."""
    start_loss: tuple[float, ...] = (0.004, 0.05, 0.2)
    """Losses l(I) of the identity, up to 0.4; to 0.004 the rate is proved in advance."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l)
        check_sizes(1e-6, start_loss=self.start_loss)
        if max(self.start_loss) > LARGEST or max(self.l) * max(self.d) ** 2 > HESSIAN:
            raise UserError(f"Keep start_loss <= {LARGEST}, l d^2 <= {HESSIAN}. Received: {self}.")


def random_instance(rng: np.random.Generator, d: int, n: int, loss: float) -> tuple[Array, Array]:
    """Return Phi = I + N [d, d] of that loss |N|^2 / 2 at the identity, a unit V [l, d, d]."""
    N = rng.normal(size=(d, d))
    V = rng.normal(size=(n, d, d))
    return np.eye(d) + N * np.sqrt(2 * loss) / np.linalg.norm(N), V / np.linalg.norm(V)


def recorded_iterations(depth: int, start_loss: float) -> list[int]:
    """Return some 100 iterations, all early ones, up to 1e-10 for the worst Phi of that loss."""
    e = np.sqrt(2 * start_loss)  # the worst has singular values 1 - e and norm 1 + e
    last = np.ceil(np.log(1e10) * (1 + (1 + e) ** 2) / (1 - e) ** (2 - 2 / depth))
    return [int(t) - 1 for t in np.unique(np.geomspace(1, last + 1, 150).round())]


def measure(cells: Cells) -> Curves:
    """Return losses, bounds and ratios along the path; [n, iterations]."""
    depth, start = cells.shared("l"), cells.shared("start_loss")
    Phi, V = cells.draw(random_instance, "d", "l", "start_loss")
    rate = 1 / (depth * (1 + np.linalg.norm(Phi, 2, axis=(-2, -1)) ** 2))
    steps, bound = recorded_iterations(depth, start), np.full(len(cells), start)
    columns: list[dict[str, Any]] = []
    for t, (now, after) in enumerate(
        pairwise(descent.descent_path(Phi, depth, rate, steps[-1] + 1))
    ):
        factor, proof_holds = step_bound(now, Phi, rate)
        if t in steps:
            if len(columns) % 4 == 0:  # between these its ratios are those of the last
                curvature = hessians(now, Phi)
            column = {"bound": bound, ASSUMPTION: proof_holds} | curvature
            columns.append(column | lemmas(now, after, Phi, rate, V))
        bound = bound * factor
    curves = stack_rows(columns, axis=-1)
    factor, reach = proved_bounds(rate, depth, start)
    curves["proved_bound"] = start * factor[:, None] ** np.array(steps)
    curves["distance_over_proved"] = depth * curves["distance"] / reach
    return steps, add_judged_curves(curves)


def step_bound(Theta: Array, Phi: Array, rate: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return the factor of the loss that the three lemmas give a step, and where they do; [n]."""
    n, a, b = Theta.shape[-3], bounds.distance(Theta), bounds.stay_close_bound(Theta, Phi, rate)
    error = np.sqrt(2 * descent.loss(Theta, Phi))
    h = n * (1 + b) ** (2 * n - 2) + (n - 1) * (1 + b) ** (n - 2) * error
    slope = n * np.maximum(1 - a, 0) ** (2 * n - 2)
    return 1 - rate * slope * np.maximum(2 - rate * h, 0), (a < 1) & (rate * h < 2)


def proved_bounds(rate: Array, depth: int, start_loss: float) -> tuple[Array, float]:
    """Return bounds on a step's factor [n] and on l a, proved in advance; 1, inf beyond 1/250."""
    if start_loss > PROVED:
        return np.ones_like(rate), np.inf
    q = 1 - 6 * np.sqrt(2 * start_loss)
    return 1 - rate * depth * q ** (2 / 3), -np.log(q) / 3


def lemmas(now: Array, after: Array, Phi: Array, rate: Array, V: Array) -> dict[str, Array]:
    """Return loss, distance, the lemmas' ratios without a Hessian, gradient error along V; [n]."""
    G = descent.loss_gradient(now, Phi)
    squared, along = (np.sum(G * X, axis=(-3, -2, -1)) for X in (G, V))
    step = 1e-4 * np.maximum(descent.loss(now, Phi), 1e-30) ** 0.25  # equally good at all losses
    up, down = (descent.loss(now + s[:, None, None, None] * V, Phi) for s in (step, -step))
    return {
        "loss": descent.loss(now, Phi),
        "distance": bounds.distance(now),
        "gradient_ratio": divide(squared, bounds.gradient_bound(now, Phi)),
        "printed_gradient_ratio": divide(squared, bounds.printed_gradient_bound(now, Phi)),
        "stay_close_ratio": bounds.distance(after) / bounds.stay_close_bound(now, Phi, rate),
        "printed_stay_close_ratio": bounds.distance(after)
        / bounds.printed_stay_close_bound(now, Phi, rate),
        "gradient_error": divide(np.abs((up - down) / (2 * step) - along), np.sqrt(squared)),
    }


def hessians(Theta: Array, Phi: Array) -> dict[str, Array]:
    """Return norms of the exact Hessian over their bounds; [n]."""
    H = bounds.hessian(Theta, Phi)
    size, largest = np.linalg.norm(H, axis=(-2, -1)), np.abs(np.linalg.eigvalsh(H)).max(axis=-1)
    return {
        "hessian_ratio": size / bounds.hessian_bound(Theta, Phi),
        "printed_hessian_ratio": size / bounds.printed_hessian_bound(Theta),
        "operator_ratio": largest / bounds.hessian_operator_bound(Theta, Phi),
    }


def divide(values: Array, bound: Array) -> Array:
    """Return their ratio; 1 where rounding has left a loss, and so a bound, of 0."""
    return np.divide(values, bound, out=np.ones_like(values), where=bound > 0)


def add_judged_curves(curves: dict[str, Any]) -> dict[str, Any]:
    """Return the curves with those that are made of others; [n, iterations]."""
    low = FLOOR * curves["loss"][:, :1]  # judged above it only
    curves["loss_over_bound"] = curves["loss"] / np.maximum(curves["bound"], low)
    curves["loss_over_proved"] = curves["loss"] / np.maximum(curves["proved_bound"], low)
    curves["final_loss"] = curves["loss"][:, -1:] / curves["loss"][:, :1] + 0 * curves["loss"]
    curves[ASSUMPTION] = np.logical_and.accumulate(curves[ASSUMPTION], 1) & (curves["loss"] > low)
    return curves


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the printed lemmas at their worst; the first is printed as at least 1."""
    worst = {
        "printed_gradient_ratio": min,
        "printed_hessian_ratio": max,
        "printed_stay_close_ratio": max,
    }
    numbers = {key: of(float(of(m.curves[key])) for m in measured) for key, of in worst.items()}
    far = hessians(np.ones((2, 1, 1)), np.array([[FAR]]))
    return numbers | {"printed_far_hessian_ratio": float(far["printed_hessian_ratio"])}


RATIOS = {
    "gradient_ratio": "|∇|² over its bound: at least 1",
    "printed_gradient_ratio": "|∇|² over its printed bound",
    "stay_close_ratio": "distance over its bound: at most 1",
    "operator_ratio": "|H| over its bound: at most 1",
    "hessian_ratio": "|H|_F over its bound: at most 1",
}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw losses under their bounds in the largest networks, and the ratios of the lemmas."""
    picture, (left, right) = panels(2)
    d, depth = (max(m.point[name] for m in measured) for name in ("d", "l"))
    starts = sorted({m.point["start_loss"] for m in measured})
    for colour, start in enumerate(starts):
        draw_losses(left, select(measured, d=d, l=depth, start_loss=start), f"C{colour}")
    for style, label in {"k--": "bound by the lemmas", "k:": "bound proved in advance"}.items():
        left.plot([], [], style, label=label)
    left.set(yscale="log", xlabel="iteration", ylabel="loss", ylim=(1e-15, 1e5), xlim=(0, 80))
    left.legend(fontsize=7, ncols=2, loc="upper right")
    chosen = select(measured, d=d, l=depth, start_loss=starts[-1])
    live = np.all([m.holds for m in chosen], axis=0)  # until the first seed's end
    steps = chosen[0].steps[live]
    for colour, (name, label) in enumerate(RATIOS.items()):
        shown = stack(chosen, name)[:, live]
        right.plot(steps, shown.mean(axis=0), f"C{colour}", label=label)
        right.fill_between(steps, shown.min(0), shown.max(0), color=f"C{colour}", alpha=0.2)
    right.axhline(1, color="k", lw=0.8)
    right.set(yscale="log", ylim=(0.01, None), xlabel="iteration", ylabel="value / its bound")
    right.set_title(f"d = {d}, l = {depth}; here l(I) = {starts[-1]:g}", fontsize=10)
    right.legend(fontsize=7, loc="lower right")
    return picture


def draw_losses(axes: Any, chosen: Sequence[Measured], colour: str) -> None:
    """Draw losses of networks that differ in the seed, their bounds, those proved in advance."""
    axes.plot([], [], colour, label=f"l(I) = {chosen[0].point['start_loss']:g}")
    for m in chosen:
        axes.plot(m.steps[m.holds], m.curves["loss"][m.holds], colour, lw=1)
        axes.plot(m.steps[m.holds], m.curves["bound"][m.holds], f"{colour}--", lw=1)
        if m.point["start_loss"] <= PROVED:
            axes.plot(m.steps, m.curves["proved_bound"], f"{colour}:")


CLAIM = Theorem(
    source="B, after BHL",
    says="Gradient descent from the identity converges linearly if its initial loss is small",
    formula=r"\begin{split} \ell &= \tfrac12 \lVert E \rVert_F^2,\; "
    r"E = \Theta_l \cdots \Theta_1 - \Phi,\; "
    r"a = \max_i \lVert \Theta_i - I \rVert,\; \eta = \frac{1}{l\, (1 + \lVert \Phi \rVert^2)}: \\ "
    r"\lVert \nabla \ell \rVert^2 &\ge 2 l\, (1 - a)^{2l - 2}\, \ell, \\ "
    r"\lVert \nabla^2 \ell \rVert_F &\le 3 l d\, (1 + z)^{2l - 2} "
    r"\text{ where } \lVert \Theta_i \rVert \le 1 + z,\; \lVert \Phi \rVert \le (1 + z)^l, \\ "
    r"\lVert \nabla^2 \ell \rVert &\le l\, (1 + a)^{2l - 2} "
    r"+ (l - 1)\, (1 + a)^{l - 2}\, \lVert E \rVert, \\ "
    r"a_{t+1} &\le a_t + \eta\, (1 + a_t)^{l - 1} \sqrt{2 \ell_t}, \\ "
    r"\ell(I) \le \frac{1}{250} &\;\Longrightarrow\; \ell_t \le \ell(I)\, (1 - \eta l "
    r"q^{2/3})^t,\; l a_t \le -\tfrac13 \log\, q,\quad q = 1 - 6 \sqrt{2 \ell(I)} \end{split}",
    family="linear theory",
    scales={"smoke": Setting((1, 3), (1, 4), (0.004, 0.02)), "cpu": Setting()},
    decided_by=(
        always("gradient_ratio", at_least=1 - SLACK),
        always("hessian_ratio", at_most=1),
        always("operator_ratio", at_most=1 + 1e-12),
        always("stay_close_ratio", at_most=1 + 1e-12),
        always("loss_over_bound", at_most=1 + SLACK),
        always("loss_over_proved", at_most=1 + SLACK),
        always("distance_over_proved", at_most=1),
        always("gradient_error", at_most=1e-6),
        always("final_loss", at_most=1e-10),
    ),
    printed=(
        Quotation(
            form=FORMULA,
            words="|grad l(Theta)|^2 >= 4 l(Theta) L (1 - a)^(2L), sigma_min(Theta_i) >= 1 - a",
            place="B's slides, the gradient is large",
            bounds=(always("printed_gradient_ratio", at_least=1 - SLACK),),
            needs={"l": True},
            broken=STEP,
            note="with l = |E|_F^2 / 2 the factor is 2, attained at Theta_i = I; 4 is right "
            "without the half",
        ),
        Quotation(
            form=FORMULA,
            words="|H|_F <= 3 L d^5 (1 + z)^(2L), |Theta_i| <= 1 + z",
            place="B's slides, the Hessian is small",
            bounds=(
                always("printed_hessian_ratio", at_most=1),
                always("printed_far_hessian_ratio", at_most=1),
            ),
            broken=SLIP,
            note="the slide omits a premise on Phi; it holds where |Phi| <= (1 + z)^L",
        ),
        Quotation(
            form=FORMULA,
            words="R(t + 1) <= R(t) + eta (1 + R(t))^L sqrt(2 l(t))",
            place="B's slides, the iterates stay close, in our letters",
            bounds=(always("printed_stay_close_ratio", at_most=1 + 1e-12),),
        ),
    ),
    costs={"cpu": seconds(26)},
    measure=measure,
    unstable=dict.fromkeys(("gradient_error", "gradient_ratio", "printed_gradient_ratio"), np.inf),
    extra_metrics=extra_metrics,
    figure=figure,
    batch_by=("d", "l", "start_loss"),
    charts=(("loss", "bound", "proved_bound"), ("distance",)),
)
