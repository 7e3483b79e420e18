"""At even depth, descent from the identity never gets past a negative eigenvalue of its target.

The floor is the sum of phi^2 / 2 over all negative eigenvalues: equal layers give the product
eigenvalues lam^l >= 0. Odd depths from 3 on have the same floor while a step is small, rate (1 +
lambda) <= 1, which keeps lam in [0, 1]. Larger steps can jump it: at l = 3, Phi = -1 and rate 1,
one step gets there. One layer alone is convex. The slide does not say which penalties are meant. It
holds for those of BHL's abstract, "toward the identity in each layer", and for all that are the
same in every layer and for a layer and its transpose (ours): layer l + 1 - i stays the transpose of
layer i, and the product M^T M. It does not for these convex penalties, least at the identity: one
on the first layer alone (`one_layer_floor_ratio`), and one on the entry 1, 2 of every layer
(`asymmetric_floor_ratio`: 2 x 2, eigenvectors turned by 30 degrees). The obstruction also needs the
exact start: from I + delta N(0, 1) the layers drift apart and descent escapes, after a time that
grows like log(1/delta) for l = 2 and like a power for l >= 3. For a lone negative eigenvalue it is
delta^-((l-2)/2), for two about delta^-((l-2)/l); it is log(1/delta) at every depth if a positive
eigenvalue is smaller than lambda (ours, by linearizing).

Measured over spectra with one or two negative eigenvalues, depth, step size and delta:
`floor_ratio`, the least loss over the floor in all `steps`, for diagonal Phi. It holds by
arithmetic: equal diagonal layers give lam^l >= 0. What could fail is `symmetric_floor_ratio`, with
random eigenvectors, in the first 50 steps of matrix arithmetic; rounding, like noise of delta =
1e-16, parts layers in 70 to 1500 steps. `penalty_floor_ratio` is the least at even depths with a
penalty of weight `penalty`, in 300 steps for diagonal Phi and 50 for random eigenvectors: on the
distance to I, on the layers (L2), their spectral norm, their nuclear norm (these two for diagonal
Phi only), and a convex function of random symmetric weights of every entry of Theta_i - I; each
also by itself. `escape` is the first step with less than half the floor, NaN if none. Judged are
exact starts, delta = 0, at even depths and at odd ones with a small step; `big_step_ratio` is the
least floor_ratio of exact starts where the premise fails. `lone_exponent_l4` and the like: the
slope of log escape over -log delta between the two smallest delta that escape, largest lam,
smallest rate.

Run: python -m pipelines run negative-eigenvalue-fails
     python -m pipelines sweep negative-eigenvalue-fails --grid penalty=0.05,5,50 --grid delta=0
Expect: all floor ratios 1 up to rounding, but one_layer_floor_ratio and big_step_ratio 3e-32 and
asymmetric_floor_ratio 0.0034; lone_exponent 0.54, 1.0 and 1.9 at l = 3, 4 and 6 (0.5, 1 and 2 in
the limit), pair_exponent 0.45, 0.55 and 0.67 (0.33, 0.5, 0.67).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

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
from pipelines.measurement.quotation import FAILS, FORMULA, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.descent import descent_path, eigenvalue_recursion, loss
from theory.descent_bounds import negative_floor
from theory.penalties import ALIKE, entrywise, first_layer, one_entry

PENALIZED_STEPS, SYMMETRIC_STEPS = 300, 50  # rounding parts the layers later than that
KEEPING = ("to_identity", "l2", "spectral", "nuclear", "entrywise")  # penalties, the floor
PASSING = ("one_layer", "asymmetric")  # those that let descent pass
JUMPING = ("spectral", "nuclear")  # norms, whose gradients are not continuous
RATIOS = [f"{name}_floor_ratio" for name in (*KEEPING, *PASSING)]
TURN = np.radians(30)  # rotation of the eigenvectors of the 2 x 2 target
EXACT = 1e-12  # allowance for rounding


@dataclass(frozen=True)
class Setting:
    """Spectra, depths, steps and noise in the start."""

    d: tuple[int, ...] = (2, 4)
    """Matrix dimensions."""
    negative: tuple[int, ...] = (1, 2)
    """Numbers of negative eigenvalues: the first -lam, a second between -lam and -lam/2."""
    lam: tuple[float, ...] = (0.5, 1.0)
    """Sizes of the most negative eigenvalue."""
    rate: tuple[float, ...] = (0.1, 0.5, 1.0)
    """Step sizes."""
    delta: tuple[float, ...] = (0.0, 0.003, 0.01, 0.03, 0.1)
    """Standard deviations of the noise in the start; the theorem is about 0."""
    l: tuple[int, ...] = (2, 3, 4, 6)  # noqa: E741 - the paper's letter
    """Depths."""
    positive: float = 1.2
    """Positive eigenvalues lie between this and 1.25 times as much."""
    penalty: float = 0.5
    """Weight of the penalties."""
    steps: int = 5000
    """Iterations of gradient descent."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, negative=self.negative, l=self.l, steps=(self.steps,))
        check_sizes(0, delta=self.delta, penalty=(self.penalty,))
        if not all(0 < value < np.inf for value in (*self.lam, *self.rate, self.positive)):
            raise UserError(
                "lam, rate and positive must be finite and > 0. Received: "
                f"lam={self.lam}, rate={self.rate}, positive={self.positive}. "
                "Give the size of the negative eigenvalue without its sign."
            )
        if max(self.negative) > min(self.d):
            raise UserError(
                "There are no more negative eigenvalues than dimensions. Received: negative up to "
                f"{max(self.negative)}, d from {min(self.d)}. Set --negative or --d."
            )


def instance(
    rng: np.random.Generator, d: int, negative: int, lam: float, positive: float, *, depth: int
) -> tuple[Array, Array, Array, Array]:
    """Return eigenvalues [d], eigenvectors [d, d], noise of a start [l, d, d], weights [d, d]."""
    shares = np.where(np.arange(d) > 0, rng.uniform(0.5, 1, size=d), 1)
    above = positive * rng.uniform(1, 1.25, size=d)
    phi = np.where(np.arange(d) < negative, -lam * shares, above)
    V = np.linalg.qr(rng.normal(size=(d, d)))[0]
    noise, weights = rng.normal(size=(depth, d, d)), np.abs(rng.normal(size=(d, d)))
    return phi, V, noise, (weights + weights.T) / 2


def measure(cells: Cells) -> Curves:
    """Return least losses over the floor, and the time of escape, at every depth; [n, depths]."""
    l = np.asarray(cells.shared("l"))  # noqa: E741
    columns = [measure_depth(cells, depth) for depth in cells.shared("l")]
    curves = stack_rows(columns, axis=-1)
    rate, lam = (cells.values(name)[:, None] for name in ("rate", "lam"))
    small = (rate * (1 + lam) <= 1) & (l > 1)
    curves[ASSUMPTION] = ((l % 2 == 0) | small) & (cells.values("delta")[:, None] == 0)
    return cells.shared("l"), curves


def measure_depth(cells: Cells, depth: int) -> dict[str, Array]:
    """Return what is measured at one depth; [n] each."""
    make = partial(instance, depth=depth)
    phi, V, noise, weights = cells.draw(make, "d", "negative", "lam", "positive")
    d = phi.shape[-1]
    start = np.eye(d) + cells.values("delta")[:, None, None, None] * noise
    diagonal, rotated = phi[:, None] * np.eye(d), V * phi[:, None] @ V.mT
    symmetric = (rotated + rotated.mT) / 2
    run = partial(lowest_ratio, start=start, rate=cells.values("rate"), floor=negative_floor(phi))
    low, escape = run(diagonal, cells.shared("steps"))
    if cells.shared("delta") > 0:  # penalties are tried from the exact start
        ratios = dict.fromkeys(RATIOS, np.full(len(phi), np.nan))
    else:
        ratios = descend_with_penalties(
            partial(run, diagonal), partial(run, symmetric), cells, weights
        )
        ratios["asymmetric_floor_ratio"] = descend_asymmetrically(cells, depth)
    return ratios | {
        "floor_ratio": low,
        "escape": escape,
        "symmetric_floor_ratio": run(symmetric, SYMMETRIC_STEPS)[0],
    }


def descend_with_penalties(
    diagonal: Callable[..., Any], symmetric: Callable[..., Any], cells: Cells, weights: Array
) -> dict[str, Array]:
    """Return the least loss over the floor with each penalty, for both forms of the target; [n].

    Where a gradient jumps, rounding decides on its side: with random eigenvectors it parts layers.
    """
    ratios, size = {}, cells.shared("penalty")
    for name, penalty in {**ALIKE, "entrywise": entrywise(weights)}.items():
        pull = partial(penalty_gradient, penalty, size)
        low = diagonal(PENALIZED_STEPS, penalty=pull)[0]
        if name not in JUMPING:
            low = np.fmin(low, symmetric(SYMMETRIC_STEPS, penalty=pull)[0])
        ratios[f"{name}_floor_ratio"] = low
    alone = partial(penalty_gradient, first_layer, size)
    return ratios | {"one_layer_floor_ratio": diagonal(PENALIZED_STEPS, penalty=alone)[0]}


def descend_asymmetrically(cells: Cells, depth: int) -> Array:
    """Return the least loss / floor at the turned 2 x 2 target, one entry penalized; [n]."""
    low, high = -cells.values("lam"), np.full(len(cells), cells.shared("positive"))
    pull = partial(penalty_gradient, one_entry, cells.shared("penalty"))
    start = np.broadcast_to(np.eye(2), (len(cells), depth, 2, 2))
    rate, target = cells.values("rate"), rotated_target(low, high)
    steps = PENALIZED_STEPS
    return lowest_ratio(target, steps, start=start, rate=rate, floor=low**2 / 2, penalty=pull)[0]


def rotated_target(first: Array, second: Array) -> Array:
    """Return symmetric matrices of these eigenvalues, eigenvectors turned by TURN; [n, 2, 2]."""
    c, s = np.cos(TURN), np.sin(TURN)
    V = np.array([[c, -s], [s, c]])
    return np.asarray(V * np.stack([first, second], axis=-1)[:, None] @ V.T)


def penalty_gradient(penalty: Callable[[Array], Array], size: float, Theta: Array) -> Array:
    """Return the gradient of a penalty of that weight."""
    return size * penalty(Theta)


@np.errstate(over="ignore", invalid="ignore")  # descent that diverges stays above the floor
def lowest_ratio(
    Phi: Array,
    steps: int,
    *,
    start: Array,
    rate: Array,
    floor: Array,
    penalty: Callable[[Array], Array] | None = None,
) -> tuple[Array, Array]:
    """Return the least loss / floor, and the first step below half of it, NaN if none; [n]."""
    low, escape = np.full(len(Phi), np.inf), np.full(len(Phi), np.nan)
    path = descent_path(Phi, start.shape[1], rate, steps, start, penalty=penalty)
    for step, Theta in enumerate(path):
        ratio = loss(Theta, Phi) / floor
        low = np.fmin(low, ratio)
        escape = np.where(np.isnan(escape) & (ratio < 0.5), step, escape)
        if np.all(~np.isnan(escape) | ~np.isfinite(ratio)):
            break
    return low, escape


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return how deep exact starts get where the premise fails; exponents of the escape times."""
    exact = [m for m in measured if m.point["delta"] == 0]
    broken = [float(v) for m in exact for v in m.curves["floor_ratio"][~m.holds]]
    metrics = {"big_step_ratio": min(broken)} if broken else {}
    metrics |= least_ratios(exact)
    for negative, word in ((1, "lone"), (2, "pair")):
        deltas, times = escape_times(measured, negative)
        for depth, time in zip(measured[0].steps, times.T, strict=True):
            smallest = np.flatnonzero(np.isfinite(time) & (time > 0))[:2]
            if depth > 2 and len(smallest) == 2:
                slope = np.diff(np.log(time[smallest])) / np.diff(np.log(deltas[smallest]))
                metrics[f"{word}_exponent_l{depth}"] = -float(slope[0])
    return metrics


def least_ratios(exact: Sequence[Measured]) -> dict[str, float]:
    """Return the least loss / floor at even depths, of each penalty and of those that keep it."""
    chosen = [m for m in exact if np.any(m.steps % 2 == 0)]
    if not chosen:
        return {}
    least = {
        name: min(float(np.min(m.curves[name][m.steps % 2 == 0])) for m in chosen)
        for name in RATIOS
    }
    keeping = [least[f"{name}_floor_ratio"] for name in KEEPING]
    return least | {"penalty_floor_ratio": min(keeping)}


def escape_times(measured: Sequence[Measured], negative: int) -> tuple[Array, Array]:
    """Return the delta > 0 [m] and the median times of escape [m, depths], NaN where most stay.

    At the smallest dimension and step and the largest lam of those measured.
    """
    point = {key: min(m.point[key] for m in measured) for key in ("d", "rate")}
    point["lam"] = max(m.point["lam"] for m in measured)
    chosen = [m for m in select(measured, negative=negative, **point) if m.point["delta"] > 0]
    deltas = sorted({m.point["delta"] for m in chosen})
    times = [
        np.median(np.nan_to_num(stack(select(chosen, delta=delta), "escape"), nan=np.inf), axis=0)
        for delta in deltas
    ]
    return np.array(deltas), np.array(times).reshape(len(deltas), len(measured[0].steps))


def figure(measured: Sequence[Measured]) -> Any:
    """Draw losses for Phi = -1 at even and odd depths; escape times against delta."""
    picture, (left, right) = panels(2)
    draw_losses(left)
    draw_escapes(right, measured)
    return picture


def draw_losses(axes: Any) -> None:
    """Draw losses for Phi = -1, from the recursion of the layers' common eigenvalue."""
    cases = [(2, 0.1, "-"), (2, 0.4, "--"), (4, 0.1, "-"), (4, 0.4, "--"), (4, 1.0, ":")]
    for depth, rate, style in [*cases, (3, 0.1, "-"), (3, 1.0, "o-")]:
        loss = (eigenvalue_recursion(-1.0, depth, rate, 40) ** depth + 1) ** 2 / 2
        axes.plot(loss, f"C{depth - 2}{style}", markersize=3, label=f"l = {depth}, rate {rate:g}")
    axes.axhspan(0, 0.5, color="grey", alpha=0.2, linewidth=0)
    axes.text(39, 0.25, "below the floor 1/2", ha="right", va="center", fontsize=9)
    axes.set(xlabel="iteration", ylabel="loss", ylim=(-0.05, 2.4))
    axes.set_title("Φ = -1 from the identity: only l = 3 in big steps gets there", fontsize=10)
    axes.legend(fontsize=7, ncols=2, loc="upper right", bbox_to_anchor=(1, 0.82))


def draw_escapes(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw median steps to half the floor, a colour a depth, and the powers of delta expected."""
    for negative, style, word in ((1, "o-", "one"), (2, "s--", "two")):
        deltas, times = escape_times(measured, negative)
        for k, (depth, time) in enumerate(zip(measured[0].steps, times.T, strict=True)):
            escaped = np.isfinite(time) & (time > 0)
            if not escaped.any():
                continue
            delta, t = deltas[escaped], time[escaped]
            axes.plot(delta, t, f"C{k}{style}", markersize=4, label=f"l = {depth}, {word} negative")
            if depth > 2:
                power = (depth - 2) / (2 if negative == 1 else depth)
                axes.plot(delta, t[0] * (delta / delta[0]) ** -power, f"C{k}:", linewidth=1.5)
    axes.set(xlabel="noise δ in the start", ylabel="steps until half the floor, median")
    axes.set_title("dotted: δ^-((l-2)/2) for one, δ^-((l-2)/l) for two", fontsize=10)
    if axes.lines:  # none where nothing escapes
        axes.set(xscale="log", yscale="log")
        axes.set_ylim(top=5 * axes.get_ylim()[1])  # room for the legend
        axes.legend(fontsize=7, ncols=2, loc="upper right")


CLAIM = Theorem(
    source="B, after BHL",
    says="For symmetric Phi with an eigenvalue -lambda and even depth, gradient descent from the "
    "identity keeps a loss >= lambda^2 / 2 at any step size, also with any penalty that is the "
    "same in every layer and for a layer and its transpose",
    formula=r"\begin{split} &\Phi = \Phi^\top \text{ of eigenvalues } \varphi_j,\; "
    r"-\lambda = \min_j \varphi_j < 0,\; l \text{ even},\; \Theta_i(0) = I \\ "
    r"&\;\Longrightarrow\; \tfrac12 \lVert \Theta_l \cdots \Theta_1 - \Phi \rVert_F^2 \ge "
    r"\tfrac12 \sum_{\varphi_j < 0} \varphi_j^2 \ge \tfrac12 \lambda^2 "
    r"\text{ at every step of descent, of any size,} \\ "
    r"&\text{also with a penalty } \sum_i p(\Theta_i),\; p(\Theta) = p(\Theta^\top); \\ "
    r"&\text{for } l \ge 3 \text{ odd the same without penalty if } \eta\, (1 + \lambda) \le 1; \\ "
    r"&\text{not with the penalties } \lVert \Theta_1 - I \rVert_F^2 "
    r"\text{ and } \sum_i (\Theta_i - I)_{12}^2 \end{split}",
    family="linear theory",
    scales={
        "smoke": Setting((2,), (1, 2), (1.0,), (0.1, 1.0), (0.0, 0.1), (2, 3, 4), steps=300),
        "cpu": Setting(),
    },
    decided_by=(
        always("floor_ratio", at_least=1 - EXACT),
        always("penalty_floor_ratio", at_least=1 - EXACT),
        always("symmetric_floor_ratio", at_least=1 - EXACT),
        always("one_layer_floor_ratio", at_most=0.9),
        always("asymmetric_floor_ratio", at_most=0.9),
    ),
    printed=(
        Quotation(
            form=FORMULA,
            words="l(Theta) >= lambda^2 / 2",
            place="B's slides, symmetric Phi with an eigenvalue -lambda, L even",
            needs={"the premise": True},
            broken=FAILS,
            bounds=tuple(
                always(f"{name}floor_ratio", at_least=1 - EXACT) for name in ("", "symmetric_")
            ),
        ),
        Quotation(
            words="any penalty-regularized version of gradient descent",
            place="B's slides, the same slide, of penalties",
            needs={"which penalties": False},
            bounds=tuple(
                always(f"{name}_floor_ratio", at_least=1 - EXACT)
                for name in ("to_identity", "one_layer", "asymmetric")
            ),
            note="the slide does not say which penalties; the floor holds for those that are alike "
            "in all layers and for a layer and its transpose, as toward the identity in each layer",
        ),
    ),
    costs={"cpu": seconds(32)},
    measure=measure,
    unstable=dict.fromkeys(
        ("floor_ratio", "symmetric_floor_ratio", "one_layer_floor_ratio", *RATIOS, "escape"), np.inf
    ),
    extra_metrics=extra_metrics,
    figure=figure,
    inner="l",
    charts=(("floor_ratio", "symmetric_floor_ratio"),),
    batch_by=("d", "delta", "penalty", "steps"),
    batch=120,
)
