"""Without the identity, zero layers are a bad critical point; descent from near them stalls.

After Kawaguchi 2016, whom HM cite: at A = 0 two layers have a strict saddle, of Hessian
eigenvalues +-2 s_i(R Sigma), d times each, and three or more a flat one, of Hessian 0.

Measured: at A = 0, the norm of the gradient (`gradient_at_zero`), f - C_opt (`excess_at_zero`) and
the largest error of the Hessian's eigenvalues over 2 s_max(R Sigma) (`hessian_error`). Then both
parameterizations are descended from the same small random layers of size delta with the same rate
1 / (2 l |Sigma| (1 + |R|^2)): `standard` and `residual` are f - C_opt over its initial value,
`standard_iterations` and `residual_iterations` the first iteration where it is at most 1e-3, or one
more than all iterations if none is. `speedup` is their quotient; where the standard
parameterization has not arrived (`standard_arrived_pct`), it is a lower bound. The smaller delta
and the deeper the network, the longer the plateau, about delta^-(l-2) from three layers on.

That descent is faster with the identity is ours, an observation that is shown (`median_speedup` of
all settings) and not judged: it is not so for every R with det R > 0. Where R has negative
eigenvalues, descent from near the identity is held back (see negative-eigenvalue-fails). On 60
seeds that this claim does not use, in five settings, the residual one was the slower in 6 of 88
cases with negative eigenvalues and in 0 of 219 without (least 1.03); `least_speedup` and
`slower_pct` show such cases here.

Run: python -m pipelines run standard-parameterization-saddle
     python -m pipelines sweep standard-parameterization-saddle --grid delta=0.01:0.32:2x --grid l=3
Expect: gradient_at_zero 0 exactly, hessian_error 1e-15, median_speedup 15 +- 8 (limited by
`iterations`), least_speedup 3.2 on average and 0.82 for seed 2, excess_at_zero 1.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cells, Curves, Measured, select, stack
from pipelines.measurement.quotation import FAILS, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.linear_resnet import descent_path, excess_risk, gradient, hessian_vector

SOLVED = 1e-3  # relative to the initial excess risk
POINTS = 100  # at most, on a curve
LAYERS = (-3, -2, -1)  # axes of a network
PARAMETERIZATIONS = ("standard", "residual")


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks, and where descent starts."""

    d: tuple[int, ...] = (2, 4)
    """Matrix dimensions."""
    l: tuple[int, ...] = (2, 3, 4, 6)  # noqa: E741 - the paper's letter
    """Depths, at least 2: a single layer has no saddle."""
    delta: tuple[float, ...] = (0.1, 0.03, 0.01)
    """Sizes of the random layers at the start."""
    iterations: int = 3000
    """Steps of gradient descent."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, iterations=(self.iterations,))
        check_sizes(2, l=self.l)
        check_sizes(0, delta=self.delta)
        if min(self.delta) == 0:
            raise UserError(
                "delta must be > 0, for at 0 itself nothing moves in the standard parameterization."
                " Received: delta=0. Set --delta above 0."
            )


def random_instance(
    rng: np.random.Generator, d: int, delta: float, depth: int
) -> tuple[Array, Array, Array]:
    """Return a start [l, d, d] of Gaussian layers, R [d, d] with det > 0 and Sigma [d, d].

    R is a random rotation times a positive definite matrix of singular values in [1/e, e].
    """
    U, s, Vt = np.linalg.svd(rng.normal(size=(d, d)))
    U[:, -1] *= np.linalg.slogdet(U @ Vt)[0]
    R = U * np.exp(np.log(s) / np.abs(np.log(s)).max()) @ Vt
    root = rng.normal(size=(d, d)) / np.sqrt(d)
    start = delta * rng.normal(size=(depth, d, d)) / np.sqrt(d)
    return start, R, root @ root.T + 0.1 * np.eye(d)


def measure(cells: Cells) -> Curves:
    """Return both descents, thinned, with the numbers that belong to a cell; [n, steps]."""
    iterations = cells.shared("iterations")
    make = partial(random_instance, depth=cells.shared("l"))
    start, R, sigma = cells.draw(make, "d", "delta")  # [n, l, d, d], [n, d, d], [n, d, d]
    risks = descend_both(start, R, sigma, iterations)  # [2, n, iterations + 1]
    steps = np.unique(np.geomspace(1, iterations + 1, POINTS).astype(int)) - 1
    curves = dict(zip(PARAMETERIZATIONS, risks[..., steps], strict=True))
    numbers = measure_at_zero(start.shape[1], R, sigma)
    solved = risks <= SOLVED
    first = np.where(solved.any(axis=-1), solved.argmax(axis=-1), iterations + 1)
    for name, count in zip(PARAMETERIZATIONS, first, strict=True):
        numbers[f"{name}_iterations"] = count
    numbers["speedup"] = first[0] / first[1]
    shape = (len(cells), len(steps))
    constant = {name: np.broadcast_to(v[:, None], shape) for name, v in numbers.items()}
    return steps.tolist(), curves | constant


def descend_both(start: Array, R: Array, sigma: Array, iterations: int) -> Array:
    """Return f - C_opt over its initial value along both descents; [2, n, iterations + 1]."""
    norm = partial(np.linalg.norm, ord=2, axis=(-2, -1))
    rate = 1 / (2 * start.shape[1] * norm(sigma) * (1 + norm(R) ** 2))
    both = np.stack([start - np.eye(start.shape[-1]), start])  # the standard one is at A - I
    path = descent_path(both, R, sigma, rate, iterations)
    risks = np.stack([excess_risk(A, R, sigma) for A in path], axis=-1)
    return risks / risks[..., :1]


def measure_at_zero(depth: int, R: Array, sigma: Array) -> dict[str, Array]:
    """Return gradient, risk and Hessian of the standard parameterization at A = 0; [n]."""
    n, d = len(R), R.shape[-1]
    size = depth * d * d
    zero = np.broadcast_to(-np.eye(d), (depth, d, d))
    basis = np.eye(size).reshape(size, 1, depth, d, d)
    rows = np.moveaxis(hessian_vector(zero, R, sigma, basis), 0, 1)  # [n, size, l, d, d]
    s = 2 * np.linalg.svd(R @ sigma, compute_uv=False)
    expected = np.zeros((n, size))
    if depth == 2:
        expected = np.sort(np.repeat(np.concatenate([-s, s], axis=-1), d, axis=-1))
    error = np.abs(np.linalg.eigvalsh(rows.reshape(n, size, size)) - expected)
    return {
        "gradient_at_zero": np.sqrt(np.sum(gradient(zero, R, sigma) ** 2, axis=LAYERS)),
        "excess_at_zero": np.asarray(excess_risk(zero, R, sigma)),
        "hessian_error": error.max(axis=-1) / s[:, 0],
    }


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return speedups over every R, and the share of the descents that arrived, in percent."""
    speedup = np.array([m.curves["speedup"][0] for m in measured])
    numbers = {
        "median_speedup": float(np.median(speedup)),
        "least_speedup": float(speedup.min()),
        "slower_pct": 100 * float(np.mean(speedup < 1)),
    }
    for name in PARAMETERIZATIONS:
        arrived = [m.curves[f"{name}_iterations"][0] <= m.point["iterations"] for m in measured]
        numbers[f"{name}_arrived_pct"] = 100 * float(np.mean(arrived))
    return numbers


def figure(measured: Sequence[Measured]) -> Any:
    """Draw risk against iterations of both forms, widest layers; iterations to SOLVED."""
    d, deltas = max(m.point["d"] for m in measured), sorted({m.point["delta"] for m in measured})
    delta = deltas[len(deltas) // 2]
    picture, (*pair, last) = panels(3, 13)
    depths = sorted({m.point["l"] for m in measured})
    for axes, name in zip(pair, PARAMETERIZATIONS, strict=True):
        for colour, depth in enumerate(depths):
            chosen = select(measured, d=d, l=depth, delta=delta)
            curves = np.maximum(stack(chosen, name)[:, 1:], 1e-12).T
            lines = axes.plot(chosen[0].steps[1:], curves, f"C{colour}", linewidth=1)
            lines[0].set_label(f"l = {depth}")
        axes.axhline(SOLVED, color="k", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", yscale="log", ylim=(1e-6, 3), xlabel="iteration")
        axes.set_title(f"{name}, d = {d}, δ = {delta:g}", fontsize=10)
        axes.legend(fontsize=8, loc="lower left")
    pair[0].set_ylabel("(f - C_opt) / initial")
    draw_iterations(last, select(measured, d=d), depths, deltas)
    return picture


def draw_iterations(
    axes: Any, measured: Sequence[Measured], depths: Sequence[int], deltas: Sequence[float]
) -> None:
    """Draw median iterations to SOLVED against depth, a line for each delta and form."""
    for name, style in zip(PARAMETERIZATIONS, ("o--", "s-"), strict=True):
        for colour, delta in enumerate(deltas):
            cells = [select(measured, l=depth, delta=delta) for depth in depths]
            counts = [np.median(stack(c, f"{name}_iterations")[:, 0]) for c in cells]
            axes.plot(depths, counts, f"C{colour}{style}", label=f"{name}, δ = {delta:g}")
    limit = measured[0].point["iterations"]
    axes.axhline(limit, color="k", linewidth=0.8)
    axes.set(yscale="log", xlabel="depth l", ylabel=f"iterations to {SOLVED:g}, median")
    axes.set_title(f"on the line: not within {limit} iterations", fontsize=10)
    axes.legend(fontsize=7)


CLAIM = Theorem(
    source="HM section 1.1",
    says="Without the identity, zero layers are a critical point of positive excess risk: of two "
    "layers a strict saddle, of three or more a flat one (the kind is Kawaguchi's)",
    formula=r"\begin{split} "
    r"&g(A) = \mathbb{E}\, \lVert A_l \cdots A_1 x - R x - \xi \rVert^2,\; l \ge 2: \\ "
    r"&\nabla g(0) = 0,\quad g(0) - C_{\text{opt}} = \lVert R \Sigma^{1/2} \rVert_F^2 > 0, \\ "
    r"&\operatorname{spec} \nabla^2 g(0) = \{ \pm 2 s_i(R \Sigma),\; d \text{ times each} \} "
    r"\text{ if } l = 2,\quad \nabla^2 g(0) = 0 \text{ if } l \ge 3 \end{split}",
    family="linear theory",
    scales={"smoke": Setting((2,), (2, 3), (0.1,), 500), "cpu": Setting()},
    decided_by=(
        always("gradient_at_zero", at_most=0),
        always("excess_at_zero", at_least=1e-3),
        always("hessian_error", at_most=1e-12),
    ),
    printed=(
        Quotation(
            words="In fact, setting A_i = 0 will always lead to a bad critical point in the "
            "standard parameterization.",
            place="HM section 1.1",
            needs={"the premise": True},
            broken=FAILS,
            bounds=(
                always("gradient_at_zero", at_most=0),
                always("excess_at_zero", at_least=1e-12),
            ),
        ),
    ),
    costs={"cpu": seconds(10)},
    measure=measure,
    extra_metrics=extra_metrics,
    shown=("median_speedup",),
    figure=figure,
    batch_by=("d", "l", "iterations"),
    charts=(("residual", "standard"),),
    batch=64,
)
