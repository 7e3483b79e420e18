"""Inside the unit ball around the identity, every critical point is a global minimum.

Measured: from random starts in the ball of radius tau, two searches. `descent` is gradient descent
with Polyak's step, which avoids saddles; `hunt` solves grad f = 0 by the Levenberg-Marquardt method
with the exact Hessian, which goes to saddles as readily as to minima. Steps are starts; the curves
describe where each search ended: `excess` is f - C_opt over that of the zero map, `gradient_norm`
that of the gradient over 2 |R Sigma|_F, `max_norm` the largest layer norm. An end is `critical` if
gradient_norm is at most 1e-9, and `inside` if max_norm < tau.

A number is never exactly 0, and towards the edge gradients are small without a critical point near:
an end is judged where it is critical, max_norm < 1, and the gradient so small that (2.3) allows an
excess below 1e-9 (`allowed`); `ratio` is the excess over it, so that `ratio` <= 1 is (2.3) at the
ends. `excess` follows from it there and refutes nothing by itself. Critical ends with max_norm < 1
where (2.3) allows more are not judged but counted: `unjudged_inside`, and the largest excess of
one, `unjudged_excess`. They are saddles like A_1 = A_2 = -I on the edge itself, which rounding puts
inside: `nearest_bad` is the least max_norm of all critical ends of an excess above 1e-9. Radii
tau >= 1 are measured and not judged beyond the edge: there are the bad critical points.

Run: python -m pipelines run no-bad-critical-points
     python -m pipelines sweep no-bad-critical-points --grid d=2 --grid l=2:8:2 --grid tau=0.5,1.2
Expect: excess 5e-20, ratio 0.63 +- 0.25 (mean and deviation of 5 seeds) of 419 ends judged,
unjudged_inside 56 +- 11 of excess up to 1, nearest_bad 1 up to rounding (6e-16),
descent_inside_pct 99.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import ASSUMPTION, Array, Cells, Curves, Measured, join, select
from pipelines.measurement.quotation import FAILS, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.factorization import max_norm
from theory.linear_resnet import excess_risk, gradient, gradient_bound, hessian_vector

SEARCHES = ("descent", "hunt")
TOLERANCE = 1e-9  # relative gradient, and relative excess
LONGEST = 0.1  # step of the descent, so that it does not leap out of the ball
TINY = 1e-100  # keeps quotients of exact zeros at 0
LAYERS = (-3, -2, -1)  # axes of a network
FLOOR = 1e-36  # stands for 0 on a logarithmic axis
OUTCOMES = ("minimum inside max |A_i| < 1", "minimum outside", "bad critical point", "none yet")


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks, where the searches start, and how many."""

    search: tuple[str, ...] = SEARCHES
    """Ways to look for critical points: descent, hunt."""
    d: tuple[int, ...] = (1, 2, 3)
    """Matrix dimensions."""
    l: tuple[int, ...] = (2, 3, 4)  # noqa: E741 - the paper's letter
    """Depths."""
    tau: tuple[float, ...] = (0.5, 0.9, 1.5)
    """Radii of the balls in which the searches start."""
    starts: int = 12
    """Searches in each ball."""
    iterations: int = 400
    """Length of a search, at most."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l, starts=(self.starts,), iterations=(self.iterations,))
        check_sizes(0, tau=self.tau)
        if wrong := set(self.search) - set(SEARCHES):
            raise UserError(
                f"search must be among {', '.join(SEARCHES)}. Received: {', '.join(sorted(wrong))}."
                " Set --search."
            )


def random_instance(
    rng: np.random.Generator, d: int, tau: float, depth: int, starts: int
) -> tuple[Array, Array, Array]:
    """Return starts A [starts, l, d, d], R [1, d, d] at distance 0.5 from I, and Sigma [1, d, d].

    Each start is a random mixture of -I and Gaussian layers, of random norm up to tau.
    """
    G = rng.normal(size=(1, d, d))
    R = np.eye(d) + 0.5 * G / np.linalg.norm(G, 2, axis=(-2, -1))
    root = rng.normal(size=(1, d, d)) / np.sqrt(d)
    share, size = rng.uniform(size=(2, starts, 1, 1, 1))
    G = rng.normal(size=(starts, depth, d, d))
    A = (1 - share) * G / max_norm(G)[:, None, None, None] - share * np.eye(d)
    A *= tau * size / max_norm(A)[:, None, None, None]
    return A, R, root @ root.mT + 0.1 * np.eye(d)


def measure(cells: Cells) -> Curves:
    """Return where the search from each start ended; [n, starts]."""
    starts = cells.shared("starts")
    make = partial(random_instance, depth=cells.shared("l"), starts=starts)
    A, R, sigma = cells.draw(make, "d", "tau")  # [n, starts, l, d, d], [n, 1, d, d], [n, 1, d, d]
    search = {"descent": descent, "hunt": hunt}[cells.shared("search")]
    end = search(A, R, sigma, cells.shared("iterations"))
    squared = np.sum(gradient(end, R, sigma) ** 2, axis=LAYERS)
    scale = 2 * np.linalg.norm(R @ sigma, axis=(-2, -1))
    zero_map, risk = np.sum(R * (R @ sigma), axis=(-2, -1)), excess_risk(end, R, sigma)
    norm, bound = max_norm(end), gradient_bound(end, R, sigma)
    # the excess that (2.3) allows at this gradient: bound / risk is 4 l (1-tau)^(2l-2) s_min
    unbounded = np.full(norm.shape, np.inf)
    allowed = np.divide(squared * risk, bound * zero_map, out=unbounded, where=bound > 0)
    curves = {
        "excess": risk / zero_map,
        "gradient_norm": np.sqrt(squared) / scale,
        "max_norm": norm,
        "inside": norm < cells.values("tau")[:, None],
        "allowed": allowed,
        "ratio": risk / zero_map / np.maximum(allowed, TINY),
    }
    curves["critical"] = curves["gradient_norm"] <= TOLERANCE
    curves[ASSUMPTION] = curves["critical"] & (norm < 1) & ((allowed < TOLERANCE) | (risk == 0))
    return range(starts), curves


def descent(A: Array, R: Array, sigma: Array, iterations: int) -> Array:
    """Return the ends of gradient descent with Polyak's step, at most LONGEST; [n, starts, ...].

    C_opt, which that step needs, is known here.
    """
    for _ in range(iterations):
        G = gradient(A, R, sigma)
        squared = np.maximum(np.sum(G**2, axis=LAYERS), TINY)
        rate = np.minimum(excess_risk(A, R, sigma) / squared, LONGEST / np.sqrt(squared))
        A = A - rate[..., None, None, None] * G
    return A


def hunt(A: Array, R: Array, sigma: Array, iterations: int) -> Array:
    """Return where the Levenberg-Marquardt method for grad f = 0 ended; [n, starts, l, d, d]."""
    pairs = zip(A, R[:, 0], sigma[:, 0], strict=True)
    return np.stack([[hunt_one(a, r, s, iterations) for a in starts] for starts, r, s in pairs])


def hunt_one(A: Array, R: Array, sigma: Array, iterations: int) -> Array:
    """Return the same from one start; [l, d, d]."""
    from scipy.optimize import root

    basis = np.eye(A.size).reshape(A.size, *A.shape)

    def slope(x: Array) -> Array:
        return gradient(x.reshape(A.shape), R, sigma).ravel()

    def hessian(x: Array) -> Array:
        return hessian_vector(x.reshape(A.shape), R, sigma, basis).reshape(A.size, A.size)

    exact = {"xtol": 1e-14, "ftol": 1e-14, "maxiter": iterations}
    end = root(slope, A.ravel(), jac=hessian, method="lm", options=exact).x
    return np.asarray(end).reshape(A.shape)


def ends(measured: Sequence[Measured]) -> tuple[Array, ...]:
    """Return the largest layer norm, relative excess risk and `critical` of all ends, in a row."""
    return tuple(join(measured, name) for name in ("max_norm", "excess", "critical"))


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return how many critical points were judged, where bad ones begin, descents that stayed."""
    norm, excess, is_critical = ends(measured)
    judged = np.concatenate([m.holds for m in measured])
    unjudged = (is_critical > 0) & (norm < 1) & ~judged
    bad = (is_critical > 0) & (excess > TOLERANCE)
    down = select(measured, search="descent")
    stayed = [m.curves["inside"].mean() for m in down if m.point["tau"] < 1]
    numbers = {
        "judged": float(judged.sum()),
        "bad": float(bad.sum()),
        "unjudged_inside": float(unjudged.sum()),
        "unjudged_excess": float(excess[unjudged].max(initial=0)),
    }
    if bad.any():
        numbers["nearest_bad"] = float(norm[bad].min())
    if stayed:
        numbers["descent_inside_pct"] = 100 * float(np.mean(stayed))
    return numbers


def figure(measured: Sequence[Measured]) -> Any:
    """Draw excess risk against the largest norm of all critical ends; how the searches ended."""
    picture, (left, right) = panels(2)
    for search, mark in zip(SEARCHES, "o+", strict=True):
        if not (chosen := select(measured, search=search)):
            continue
        norm, excess, is_critical = ends(chosen)
        shown = np.maximum(excess, FLOOR)[is_critical > 0]
        left.plot(norm[is_critical > 0], shown, mark, markersize=4, alpha=0.5, label=search)
    left.axvline(1, color="k", linewidth=0.8, label="edge of the unit ball")
    left.set(xscale="log", yscale="log", xlabel="max |A_i|", ylabel="(f - C_opt) / that of 0")
    left.set_title(f"critical points found; excess 0 is drawn at {FLOOR:g}", fontsize=10)
    left.legend(fontsize=8, loc="center right")
    draw_bars(right, measured)
    return picture


def draw_bars(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw shares of the ends of each search from each ball."""
    pairs = sorted({(str(m.point["search"]), m.point["tau"]) for m in measured}, reverse=True)
    shares = np.array([outcomes(select(measured, search=s, tau=tau)) for s, tau in pairs])
    names, before = [f"{search}, τ = {tau:g}" for search, tau in pairs], np.zeros(len(pairs))
    for label, share, colour in zip(OUTCOMES, shares.T, ("C2", "C9", "C3", "0.8"), strict=True):
        axes.barh(names, share, left=before, label=label, color=colour)
        before += share
    axes.set(xlabel="share of the searches, %", xlim=(0, 100))
    axes.set_title("where searches from the ball of radius τ end", fontsize=10)
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=4)


def outcomes(measured: Sequence[Measured]) -> list[float]:
    """Return percentages of the ends, in the order of OUTCOMES."""
    norm, excess, is_critical = ends(measured)
    good, bad = (is_critical > 0) & (excess <= TOLERANCE), (is_critical > 0) & (excess > TOLERANCE)
    kinds = (good & (norm < 1), good & (norm >= 1), bad, is_critical == 0)
    return [100 * float(np.mean(kind)) for kind in kinds]


PRINTED = always("excess", at_most=TOLERANCE)
CLAIM = Theorem(
    source="HM Theorem 2.2",
    says="Where all layers of a linear residual network have norm below 1, every critical point of "
    "the population risk is a global minimum",
    formula=r"\begin{split} \max_i \lVert A_i \rVert < 1,\quad \nabla f(A) = 0 "
    r"&\;\Longrightarrow\; f(A) = C_{\text{opt}} = \min f, \\ "
    r"\max_i \lVert A_i \rVert = \tau < 1,\; \Sigma \succ 0 &\;\Longrightarrow\; f(A) - "
    r"C_{\text{opt}} \le "
    r"\frac{\lVert \nabla f(A) \rVert_F^2}{4 l\, (1 - \tau)^{2l - 2} s_{\min}(\Sigma)} \end{split}",
    family="linear theory",
    scales={"smoke": Setting(SEARCHES, (2,), (2, 3), (0.9, 1.5), 6, 300), "cpu": Setting()},
    decided_by=(PRINTED, always("ratio", at_most=1 + 1e-12)),
    printed=(
        Quotation(
            words="we can show that the gradients of vanish only when f(A) = 0 provided that "
            "max_i |A_i| <= O(1/l). See Theorem 2.2. This result implies that linear residual "
            "networks have no critical points other than the global optimum.",
            place="HM section 1.1",
            bounds=(PRINTED,),
            note="within the norms of its first sentence",
        ),
        Quotation(
            words="For any tau < 1, we have that any critical point A of the objective function "
            "f inside the domain B_tau must also be a global minimum.",
            place="HM Theorem 2.2",
            needs={"the premise": True},
            broken=FAILS,
            bounds=(PRINTED,),
        ),
    ),
    costs={"cpu": seconds(37)},
    measure=measure,
    unstable=dict.fromkeys(
        (ASSUMPTION, "critical", "allowed", "ratio", "excess", "gradient_norm", "max_norm"), np.inf
    ),
    extra_metrics=extra_metrics,
    shown=("unjudged_inside",),
    figure=figure,
    charts=(("excess", "allowed"), ("gradient_norm",)),
    batch_by=("search", "d", "l", "starts", "iterations"),
)
