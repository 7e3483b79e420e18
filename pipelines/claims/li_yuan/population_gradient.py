"""The gradient of a two-layer ReLU network with the identity, for Gaussian input, in closed form.

The copy that was read is damaged. `printed_factor`, the printed right-hand side over minus the
gradient by Monte Carlo, is to be pi; as printed it would be 1.

Measured: the closed form of the gradient against central differences of fourth order of the closed
form of the loss, and both against Monte Carlo: batches of Gaussian inputs through the two networks,
differentiated by hand. `z` is the distance from the Monte Carlo mean in its own standard errors,
entry by entry of W (the chart's step), `loss_z` the same for the loss. Of the 38,910 entries of the
cpu scale the largest |z| is near 4.3 if the formulas are right; it is above 6 once in 13,000 runs.

Run: python -m pipelines run population-gradient
Expect: finite_difference_error about 2e-9, z about 4, loss_z about 2, printed_factor 3.14.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_counts, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import (
    Array,
    Cell,
    Cells,
    Curves,
    Measured,
    group_by,
    join,
    stack_rows,
)
from pipelines.measurement.quotation import FORMULA, SLIP, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.relu_population import gradient, loss

STEP = 1e-3  # step of the differences, whose error is of fourth order
LEAST = 0.05  # norm, beside which that step is small
CHUNK = 20_000  # inputs at once
TEACHERS = ("random", "zero")


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and of the sample."""

    d: tuple[int, ...] = (1, 4, 16, 32)
    """Widths."""
    norm: tuple[float, ...] = (0.1, 0.5, 2.0)
    """Largest spectral norms of W and W*."""
    teacher: tuple[str, ...] = TEACHERS
    """W* random, or 0."""
    samples: int = 200_000
    """Gaussian inputs."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d)
        check_sizes(LEAST, norm=self.norm)
        check_counts(samples=self.samples)
        check_names("A teacher", self.teacher, TEACHERS)
        if self.samples < 1_000:
            raise UserError(
                "Standard errors need at least 1,000 samples. Received: "
                f"samples={self.samples}. Set --samples."
            )


def random_instance(
    rng: np.random.Generator, d: int, norm: float, teacher: str
) -> tuple[Array, Array]:
    """Return W and W* [d, d], of spectral norms between half of `norm` and `norm`; or W* = 0."""
    pair = rng.normal(size=(2, d, d))
    sizes = norm * rng.uniform(0.5, 1, size=(2, 1, 1))
    pair *= sizes / np.linalg.norm(pair, 2, axis=(1, 2), keepdims=True)
    return pair[0], pair[1] * (teacher == "random")


def measure(cells: Cells) -> Curves:
    """Return formula, differences and Monte Carlo at every entry of W, row by row; [n, d^2]."""
    W, W_star = cells.draw(random_instance, "d", "norm", "teacher")
    rows = [measure_cell(*each) for each in zip(cells.cells, W, W_star, strict=True)]
    return range(W[0].size), stack_rows(rows)


def measure_cell(cell: Cell, W: Array, W_star: Array) -> dict[str, Array]:
    """Return the curves of one cell; [d^2]."""
    formula, printed = gradient(W, W_star), gradient(W, W_star, "printed")
    rng = np.random.default_rng([cell.seed, 1])
    samples = cell.point["samples"]
    estimate = monte_carlo(lambda n: rng.normal(size=(n, len(W))), W, W_star, samples)
    difference = np.abs(formula - differences(W, W_star)) / np.abs(formula).max()
    factor = np.vdot(printed, printed) / np.vdot(printed, estimate["gradient"])
    loss_z = (loss(W, W_star) - estimate["loss"]) / estimate["loss_error"]
    return {
        "gradient": formula.ravel(),
        "monte_carlo": estimate["gradient"].ravel(),
        "z": np.abs((formula - estimate["gradient"]) / estimate["gradient_error"]).ravel(),
        "loss_z": np.full(W.size, np.abs(loss_z)),
        "finite_difference_error": difference.ravel(),
        "printed_factor": np.full(W.size, factor),
    }


def differences(W: Array, W_star: Array) -> Array:
    """Return central differences of the loss in every entry; [d, d]."""
    slopes = np.empty_like(W)
    for i in range(len(W)):
        moves = np.zeros((len(W), *W.shape))  # one entry of row i each
        moves[range(len(W)), i, range(len(W))] = STEP
        near, far = (loss(W + k * moves, W_star) - loss(W - k * moves, W_star) for k in (1, 2))
        slopes[i] = (8 * near - far) / (12 * STEP)
    return slopes


def monte_carlo(
    draw: Callable[[int], Array], W: Array, W_star: Array, samples: int
) -> dict[str, Any]:
    """Return means of loss and gradient over inputs that `draw` makes, with standard errors."""
    B, B_star, sums = np.eye(len(W)) + W, np.eye(len(W)) + W_star, [0.0, 0.0]
    first, second = np.zeros_like(W), np.zeros_like(W)
    for start in range(0, samples, CHUNK):
        x = draw(min(CHUNK, samples - start))
        z = x @ B
        error = np.maximum(z, 0).sum(axis=1) - np.maximum(x @ B_star, 0).sum(axis=1)
        slope = 2 * error[:, None] * (z > 0)  # column j at one input: x times slope_j
        first += x.T @ slope
        second += (x**2).T @ slope**2
        sums[0] += np.sum(error**2)
        sums[1] += np.sum(error**4)
    gradient, loss = first / samples, sums[0] / samples
    return {
        "gradient": gradient,
        "gradient_error": np.sqrt((second / samples - gradient**2) / samples),
        "loss": loss,
        "loss_error": np.sqrt((sums[1] / samples - loss**2) / samples),
    }


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the printed right-hand side over the Monte Carlo gradient, mean over settings."""
    return {"printed_factor": float(np.mean([m.curves["printed_factor"][0] for m in measured]))}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw Monte Carlo against formula at every entry; and how its distances are distributed."""
    from scipy.stats import halfnorm

    picture, (left, right) = panels(2)
    for i, (norm, chosen) in enumerate(reversed(group_by(measured, "norm"))):
        x, y = (join(chosen, key) for key in ("gradient", "monte_carlo"))
        left.plot(x, y, ".", color=f"C{i}", markersize=2, label=f"norms up to {norm:g}")
    ends = np.array(left.get_xlim())
    left.plot(ends, ends, "k", linewidth=0.8, label="the true gradient")
    left.plot(ends, ends / np.pi, "k:", linewidth=0.8, label="slope 1/π: Lemma 2.1 as printed")
    left.set(xlabel="entry of the gradient, closed form", ylabel="the same by Monte Carlo")
    left.legend(fontsize=8, markerscale=4)
    z = join(measured, "z")
    grid = np.linspace(0, max(5.0, z.max()), 200)
    right.hist(z, bins=40, density=True, alpha=0.5, label=f"{len(z):,} entries")
    right.plot(grid, halfnorm.pdf(grid), "k", linewidth=1, label="standard normal")
    right.axvline(6, color="C3", linestyle="--", linewidth=1, label="bound")
    right.set(xlabel="|formula - Monte Carlo| / standard error", ylabel="density", yscale="log")
    right.set_ylim(bottom=1e-5)
    right.legend(fontsize=8)
    return picture


CLAIM = Theorem(
    source="LY Lemma 2.1",
    says="The gradient of E (f - f*)^2 for two-layer ReLU networks with the identity and Gaussian "
    "input has a closed form; as printed it is pi times the gradient",
    formula=r"\begin{split} "
    r"L(W) &= \mathbb{E} \Bigl( \sum_j \operatorname{ReLU} \langle b_j, x \rangle "
    r"- \operatorname{ReLU} \langle b_j^\star, x \rangle \Bigr)^2,\quad "
    r"x \sim \mathcal{N}(0, I), \\ "
    r"b_j &= e_j + w_j,\quad b_j^\star = e_j + w_j^\star, \\ "
    r"-\pi \frac{\partial L}{\partial w_j} &= \sum_i (\pi - \theta_{ij}^\star)\, b_i^\star "
    r"- (\pi - \theta_{ij})\, b_i + ( \lVert b_i^\star \rVert \sin\, \theta_{ij}^\star "
    r"- \lVert b_i \rVert \sin\, \theta_{ij} ) \frac{b_j}{\lVert b_j \rVert}, \\ "
    r"\theta_{ij} &= \angle (b_i, b_j),\quad \theta_{ij}^\star = \angle (b_i^\star, b_j) "
    r"\end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting((2, 5), (0.5,), samples=20_000), "cpu": Setting()},
    decided_by=(
        always("finite_difference_error", at_most=1e-6),
        always("z", at_most=6),
        always("loss_z", at_most=6),
        always("printed_factor", at_least=0.95 * np.pi, at_most=1.05 * np.pi),
    ),
    printed=(
        Quotation(
            form=FORMULA,
            words="-grad L(W)_j = sum_i (pi - theta*_ij) b*_i - (pi - theta_ij) b_i + (|b*_i| "
            "sin theta*_ij - |b_i| sin theta_ij) b_j / |b_j|",
            place="LY Lemma 2.1, in our letters",
            bounds=(always("printed_factor", at_least=0.95, at_most=1.05),),
            needs={"the loss": True},
            broken=SLIP,
            note="a scale: the right-hand side is pi times it, and LY's rates and constants are "
            "for that",
        ),
    ),
    costs={"cpu": seconds(80)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    charts=(("gradient", "monte_carlo"), ("z",)),
    batch_by=("d", "samples"),
    batch=2,
)
