"""Near the identity a ReLU network's teacher is the only global minimum; farther away it is not.

LY's abstract has the minimum as unique; the caption of Figure 2 says where: near. Two columns of W*
switched, with I added then, give another function (`column_loss`, the loss over the squared
distance). Read for all W, it would not be unique: the sum of ReLUs f(x, W) = sum_i relu(<e_i + w_i,
x>) does not see the order of its columns, and switching two columns of I + W* gives a W' of the
same f, far from 0.

What holds is ours. Let |W*| < 1 in the spectral norm: the columns b*_i of I + W* are independent. A
loss of 0 means f(., W) = f(., W*), since both are continuous and every ball has inputs. f has its
kinks on the hyperplanes normal to its columns, of size the column's length, and none cancel. Those
of the teacher are d different ones, so I + W, of d columns, has one on each, +b*_i or -b*_i. As
relu(-t) = relu(t) - t, columns S of the other sign change f by sum_S <b*_i, x>, which is 0 only if
S is empty. So I + W is I + W* with its columns in some order P. For P other than the identity |P -
I| >= sqrt(3), reached by three columns in a circle, and |W| >= sqrt(3) - |W*|: a ball of radius
sqrt(3)/2 about 0 holds at most one global minimum.

Measured: the population loss, in closed form. `switched_loss` is the largest loss at teachers with
two columns switched, `switched_distance` how far from W* those of loss 0 are at least, Frobenius (0
if there is none). Descents by the exact gradient, with momentum 0.9, start at random W of spectral
norm up to `norm`, each with a teacher of its own, of norm up to 0.6 or `norm`. `distance_ratio` is
their distance to W* at the end over that at the start: judged up to norm 0.6, which LY's
experiments have, where LY's theorems have about 1/100, and up to d = 100, for the steps that are
needed grow as d. Starts beyond are measured and judged by two rules: an end of loss 0 must be a
permutation of the teacher's columns (`mismatch`, its distance to the nearest), and no other than W*
may be within sqrt(3) - |W*| (`clearance`, the least norm over that).

Shown, of all descents after their 500 steps: `permuted_pct` ended at another order of the columns;
`stalled_pct` at a loss above 1e-4 with a gradient of at most 1e-4 (minima, saddles and plateaus are
not told apart); `unfinished_pct` neither there nor at a loss of 0.

Run: python -m pipelines run teacher-is-unique-near-identity
Expect: switched_loss 6e-16 at switched_distance 1.67 ± 0.10 at least, where uniqueness for all W
asks for 0; column_loss 0.11 ± 0.03; distance_ratio 7e-8, mismatch 4e-7, clearance 1.12 ± 0.07; of
all descents permuted_pct 16 ± 2, all from norms above 0.9, stalled_pct 0.3 ± 0.7, unfinished_pct
2.3 ± 1.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels
from pipelines.errors import check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import ASSUMPTION, Array, Cells, Curves, Measured, join
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import minutes
from theory.relu_population import gradient, loss

BALL = 0.6  # spectral norm of LY's W* and start
RATE, MOMENTUM = 2.0, 0.9  # the rate is this over d
WIDEST = 100  # width up to which 500 steps are enough: those that are needed grow with it
ZERO_LOSS, ZERO = 1e-12, 1e-4  # what counts as 0: of losses, and of distances and gradients
LEAST_PERMUTED = np.sqrt(3)  # |P - I| of a permutation other than the identity


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks, where descents start, and how many."""

    d: tuple[int, ...] = (3, 4, 6, 8, 100)
    """Widths."""
    norm: tuple[float, ...] = (0.01, 0.6, 3.0)
    """Largest spectral norms of W at the start; above 0.6 the way to W* is not judged."""
    starts: int = 4
    """Descents of each width and norm."""
    iterations: int = 500
    """Steps of a descent."""

    def __post_init__(self) -> None:
        check_sizes(2, d=self.d)
        check_sizes(1e-3, norm=self.norm)
        check_counts(starts=self.starts, iterations=self.iterations)


def instance(
    rng: np.random.Generator, d: int, norm: float, starts: int
) -> tuple[Array, Array, Array, Array]:
    """Return starts, teachers of random size, these with columns of I + W and of W switched.

    Each [starts, d, d].
    """
    G = rng.normal(size=(2, starts, d, d))
    G *= rng.uniform(0, 1, size=(2, starts, 1, 1)) / np.linalg.norm(G, 2, (2, 3), keepdims=True)
    W_star = min(norm, BALL) * G[1]
    columns = np.arange(d) + np.zeros((starts, 1), int)
    for order in columns:
        i, j = rng.choice(d, 2, replace=False)
        order[[i, j]] = order[[j, i]]
    switched = np.take_along_axis(np.eye(d) + W_star, columns[:, None, :], axis=2) - np.eye(d)
    of_W = np.take_along_axis(W_star, columns[:, None, :], axis=2)
    return norm * G[0], W_star, switched, of_W


def measure(cells: Cells) -> Curves:
    """Return where each descent ended, and the teacher with two columns switched; [n, starts]."""
    starts = cells.shared("starts")
    W, W_star, switched, of_W = cells.draw(partial(instance, starts=starts), "d", "norm")
    end = descent(W, W_star, cells.shared("iterations"))
    curves: dict[str, NDArray[Any]] = {
        "loss": loss(end, W_star),
        "gradient_norm": frobenius_norms(gradient(end, W_star)),
        "distance": frobenius_norms(end - W_star),
        "distance_ratio": frobenius_norms(end - W_star) / frobenius_norms(W - W_star),
        "mismatch": mismatch(end, W_star),
        "start_norm": spectral_norms(W),
        "end_norm": spectral_norms(end),
        "teacher_norm": spectral_norms(W_star),
        "switched_loss": loss(switched, W_star),
        "switched_distance": frobenius_norms(switched - W_star),
        "switched_norm": spectral_norms(switched),
        "column_loss": loss(of_W, W_star) / frobenius_norms(of_W - W_star) ** 2,
    }
    curves[ASSUMPTION] = (curves["start_norm"] <= BALL) & (cells.values("d")[:, None] <= WIDEST)
    return range(starts), curves


def descent(W: Array, W_star: Array, iterations: int) -> Array:
    """Return the ends of gradient descent with momentum on the population loss; [..., d, d]."""
    velocity = np.zeros_like(W)
    for _ in range(iterations):
        velocity = MOMENTUM * velocity - RATE / W.shape[-1] * gradient(W, W_star)
        W = W + velocity
    return W


def mismatch(W: Array, W_star: Array) -> Array:
    """Return the Frobenius distance of I + W to I + W*, its columns in the nearest order; [...]."""
    from scipy.optimize import linear_sum_assignment

    def nearest(B: Array, B_star: Array) -> float:
        squares = np.sum((B[:, :, None] - B_star[:, None, :]) ** 2, axis=0)
        return float(np.sqrt(squares[linear_sum_assignment(squares)].sum()))

    d = W.shape[-1]
    pairs = zip(*(np.reshape(np.eye(d) + each, (-1, d, d)) for each in (W, W_star)), strict=True)
    return np.reshape([nearest(*pair) for pair in pairs], W.shape[:-2])


def frobenius_norms(W: Array) -> Array:
    """Return Frobenius norms of W [..., d, d]; [...]."""
    return np.asarray(np.linalg.norm(W, axis=(-2, -1)))


def spectral_norms(W: Array) -> Array:
    """Return spectral norms of W [..., d, d]; [...]."""
    return np.asarray(np.linalg.norm(W, 2, axis=(-2, -1)))


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return switched teachers, the distance of other minima, how many descents ended where."""
    ends = concatenate_curves(measured)
    least = LEAST_PERMUTED - ends["teacher_norm"]
    at_zero, elsewhere = ends["loss"] <= ZERO_LOSS, ends["distance"] > ZERO
    others = [ends["switched_norm"] / least, (ends["end_norm"] / least)[at_zero & elsewhere]]
    stalled = (ends["loss"] > ZERO) & (ends["gradient_norm"] <= ZERO)
    switched = ends["switched_distance"][ends["switched_loss"] <= ZERO_LOSS]
    return {
        "switched_loss": float(ends["switched_loss"].max()),
        "switched_distance": float(switched.min()) if len(switched) else 0.0,
        "clearance": float(np.concatenate(others).min()),
        "mismatch": float(ends["mismatch"][at_zero].max(initial=0)),
        "column_loss": float(ends["column_loss"].min()),
        "permuted_pct": 100 * float(np.mean(at_zero & elsewhere)),
        "stalled_pct": 100 * float(np.mean(stalled)),
        "unfinished_pct": 100 * float(np.mean(~at_zero & ~stalled)),
    }


def concatenate_curves(measured: Sequence[Measured]) -> dict[str, Array]:
    """Return every curve of all cells, one after another."""
    return {key: join(measured, key) for key in measured[0].curves}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw distances of the ends to the teacher by norms of the starts; norms of other minima."""
    picture, (left, right) = panels(2, 11, 4.5)
    ends = concatenate_curves(measured)
    at_zero, elsewhere = ends["loss"] <= ZERO_LOSS, ends["distance"] > ZERO
    permuted = at_zero & elsewhere
    for chosen, style, label in (
        (~elsewhere, "C0o", "at the teacher"),
        (permuted, "C1s", "at its columns in another order"),
        (~at_zero & elsewhere, "C3^", "at a positive loss"),
    ):
        distance = np.maximum(ends["distance"][chosen], 1e-16)
        left.plot(ends["start_norm"][chosen], distance, style, ms=4, alpha=0.6, label=label)
    left.axvline(BALL, color="k", lw=0.8, ls="--", label=f"judged up to {BALL:g}")
    left.set(xscale="log", yscale="log", xlabel="|W| at the start", ylabel="|W - W*|_F at the end")
    teacher = ends["teacher_norm"]
    right.plot(teacher, ends["switched_norm"], "C2x", ms=4, label="two columns switched")
    right.plot(teacher[permuted], ends["end_norm"][permuted], "C1s", ms=4, label="found by descent")
    line = np.array([0, BALL])
    right.plot(line, LEAST_PERMUTED - line, "k--", lw=1, label="√3 - |W*|")
    right.set(xlabel="|W*|", ylabel="|W|", ylim=(0, None))
    for axes, title in ((left, "where descents end"), (right, "global minima other than W*")):
        axes.set_title(title, fontsize=10)
        axes.legend(fontsize=8, loc="upper left" if axes is left else "lower left")
    return picture


CLAIM = Theorem(
    source="LY abstract and section 1",
    says="Near the identity the teacher is the only global minimum; switching two columns of "
    "I + W* gives another, farther away",
    formula=r"\begin{split} "
    r"&\lVert W^\star \rVert < 1,\; L(W) = 0 \;\Longrightarrow\; I + W = (I + W^\star) P "
    r"\text{ for a permutation } P, \\ "
    r"&P \ne I \;\Longrightarrow\; \lVert W \rVert \ge \sqrt{3} - \lVert W^\star \rVert, \\ "
    r"&\lVert W_0 \rVert, \lVert W^\star \rVert \le 0.6 \;\Longrightarrow\; "
    r"\lVert W_{500} - W^\star \rVert_F \le 10^{-4} \lVert W_0 - W^\star \rVert_F \\ "
    r"&\text{by descent with momentum } 0.9 \text{ and a rate of } 2/d,\; d \le 100 \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((4,), (0.6, 3.0), 4, 400), "cpu": Setting()},
    decided_by=(
        always("distance_ratio", at_most=ZERO),
        always("switched_loss", at_most=ZERO_LOSS),
        always("clearance", at_least=1 - 1e-12),
        always("mismatch", at_most=ZERO),
    ),
    printed=(
        Quotation(
            words="by switching any two columns in W, we get different functions",
            place="LY section 1",
            bounds=(always("column_loss", at_least=ZERO),),
        ),
        Quotation(
            words='Unlike normal vanilla networks, the "identity mapping" makes our network '
            "asymmetric and thus the global minimum is unique.",
            place="LY abstract",
            bounds=(always("clearance", at_least=1 - 1e-12), always("mismatch", at_most=ZERO)),
            note="read near the identity, as the caption of Figure 2 has it; for all W it is not "
            "so: two columns of I + W* switched give the same function",
        ),
    ),
    shown=("switched_distance", "column_loss", "permuted_pct", "stalled_pct", "unfinished_pct"),
    costs={"cpu": minutes(2)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    charts=(("distance_ratio",), ("end_norm", "switched_norm", "teacher_norm")),
    batch_by=("d", "starts", "iterations"),
)
