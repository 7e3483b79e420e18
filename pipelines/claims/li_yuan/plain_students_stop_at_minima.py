"""Without the identity, students of two-layer ReLU networks stop at minima that are not global.

In LY section 5.2 d = 100, |W*|_F = 5.7, |W|_F = 5.0 at the start, both of norm about 0.6, and
students have the structure of their teachers: "plain" is f(x) = sum_i relu(<w_i, x>) for teacher
and student, "identity" is sum_i relu(<e_i + w_i, x>) with the same W* and the same start.

That a loss has stopped falling does not show a minimum. Here both students descend on the
population loss, in closed form (theory.relu_population), with momentum, until the gradient is 0 but
for rounding; then the least eigenvalue of the Hessian is computed. At a gradient of 0 and a least
eigenvalue above 0 the end is a strict local minimum, and at a positive loss not a global one, which
the teacher has.

LY do not say how W and W* are drawn: Gaussian entries cannot have both norms. Ours have random
rotations about singular values in a line, as in teacher-student. `norm` is the spectral norm of
both: 0.6, and 0.57, the least that |W*|_F = 5.7 allows.

Measured, by iteration (the chart's step): `loss`, `gradient_norm` and `distance`, |W - W*|_F. At
the end of plain students: `plain_loss`, the least over norms, `plain_gradient_norm`, the largest,
`plain_least_curvature`, the least. The same of students with the identity, `identity_loss` the
largest. Of the seed 0 at norm 0.6 all 10,000 eigenvalues were computed once as well, by a dense
method: the least is 0.087734, as Lanczos' method has it.

Run: python -m pipelines run plain-students-stop-at-minima
     python -m pipelines sweep plain-students-stop-at-minima --grid d=10,30 --grid norm=0.6
Expect: plain students end at a loss of 0.056 ± 0.018, with a gradient of 6e-15 and a least
eigenvalue of 0.081 ± 0.017, 8.0 from W*; those with the identity at W*, with a loss of 2e-16. Of
the six plain ends the losses are 0.043 to 0.077.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_models import draw_relu_weights, singular_values
from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Cells, Curves, Measured, select, stack_rows
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.relu_population import gradient, least_curvature, loss

STUDENTS = ("identity", "plain")
FROBENIUS = (0.57, 0.5)  # over sqrt(d), of W* and of W at the start: LY's 5.7 and 5.0 at d = 100
MOMENTUM = 0.95
STEP = 1.0  # rate times d
POINTS = 120  # iterations that are recorded


@dataclass(frozen=True)
class Setting:
    """The students and their descent."""

    student: tuple[str, ...] = STUDENTS
    """The student's network: with the identity link, or plain."""
    norm: tuple[float, ...] = (0.57, 0.6)
    """Spectral norms of W* and of W at the start."""
    d: int = 100
    """Dimension of the inputs, and columns of W."""
    iterations: int = 8_000
    """Iterations of the descent."""

    def __post_init__(self) -> None:
        check_sizes(0, norm=self.norm)
        check_sizes(2, d=(self.d,), iterations=(self.iterations,))
        check_names("A student", self.student, STUDENTS)
        for norm in self.norm:
            for frobenius in FROBENIUS:
                try:
                    singular_values(self.d, norm, frobenius * np.sqrt(self.d))
                except ValueError as error:
                    raise UserError(f"{error} Set --norm or --d.") from error


def measure(cells: Cells) -> Curves:
    """Return loss, gradient and distance by iteration, and the curvature of the end; [n, k]."""
    steps = np.unique(np.geomspace(1, cells.shared("iterations") + 1, POINTS).astype(np.int64)) - 1
    rows = [measure_cell(cell, steps.tolist()) for cell in cells.cells]
    return steps, stack_rows(rows)


def measure_cell(cell: Cell, steps: Sequence[int]) -> dict[str, Array]:
    """Return the curves of one student; [k]."""
    rng, d = np.random.default_rng(cell.seed), cell.point["d"]
    target, W = (
        draw_relu_weights(d, cell.point["norm"], share * np.sqrt(d), rng) for share in FROBENIUS
    )
    if cell.point["student"] == "plain":  # relu_population adds the identity
        target, W = target - np.eye(d), W - np.eye(d)
    W, rows = descend(W, target, steps)
    curves = dict(zip(("loss", "gradient_norm", "distance"), np.array(rows).T, strict=True))
    return curves | {"least_curvature": np.full(len(steps), least_curvature(W, target))}


def descend(W: Array, target: Array, steps: Sequence[int]) -> tuple[Array, list[list[float]]]:
    """Return W [d, d] after the last of the ascending steps, and loss, gradient, distance at all.

    Gradient descent with momentum on the population loss.
    """
    velocity = np.zeros_like(W)
    rows: list[list[float]] = []
    for step in range(steps[-1] + 1):
        G = gradient(W, target)
        if step == steps[len(rows)]:
            norms = (np.linalg.norm(G), np.linalg.norm(W - target))
            rows.append([float(each) for each in (loss(W, target), *norms)])
        if step < steps[-1]:
            velocity = MOMENTUM * velocity - STEP / len(W) * G
            W = W + velocity
    return W, rows


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the numbers of the ends that are nearest to breaking the claim, by student."""
    numbers: dict[str, float] = {}
    for student in STUDENTS:
        if not (chosen := select(measured, student=student)):
            continue
        ends = {key: [m.curves[key][-1] for m in chosen] for key in chosen[0].curves}
        worst = min if student == "plain" else max
        numbers |= {
            f"{student}_loss": float(worst(ends["loss"])),
            f"{student}_gradient_norm": float(max(ends["gradient_norm"])),
            f"{student}_distance": float(worst(ends["distance"])),
            f"{student}_least_curvature": float(min(ends["least_curvature"])),
        }
    return numbers


def figure(measured: Sequence[Measured]) -> Any:
    """Draw losses by iteration, a line a seed and norm; curvature against loss at the ends."""
    picture, (left, right) = panels(2)
    for colour, student in enumerate(STUDENTS):
        for m in select(measured, student=student):
            losses = np.maximum(m.curves["loss"], 1e-16)
            left.plot(m.steps + 1, losses, f"C{colour}", linewidth=1)
            end, curvature = losses[-1], m.curves["least_curvature"][-1]
            right.plot(end, curvature, f"C{colour}{'o' if m.point['norm'] < 0.6 else 's'}")
        left.plot([], [], f"C{colour}", label=student)
    left.set(xscale="log", yscale="log", xlabel="iteration + 1", ylabel="population loss")
    left.legend(fontsize=8, loc="lower left")
    right.axhline(0, color="k", linewidth=0.8)
    right.set(xscale="log", xlabel="loss at the end, 1e-16 for 0")
    right.set_ylabel("least eigenvalue of the Hessian")
    right.set_title("ends; circles: norm 0.57, squares: 0.6", fontsize=10)
    return picture


PLAIN = (
    always("plain_gradient_norm", at_most=1e-8),
    always("plain_least_curvature", at_least=1e-3),
    always("plain_loss", at_least=1e-2),
)
CLAIM = Theorem(
    source="LY section 5.2",
    says="Without the identity a student of a two-layer ReLU network stops at a strict local "
    "minimum of the population loss that is not global; with it the loss reaches 0",
    formula=r"\begin{split} "
    r"&L(B) = \mathbb{E} \Bigl( \sum_j \operatorname{relu} \langle b_j, x \rangle "
    r"- \sum_j \operatorname{relu} \langle b^\star_j, x \rangle \Bigr)^2,\quad "
    r"x \sim N(0, I_{100}): \\ "
    r"&B = W,\; B^\star = W^\star: \quad \lVert \nabla L \rVert_F \le 10^{-8},\; "
    r"\lambda_{\min}(\nabla^2 L) \ge 10^{-3},\; L \ge 10^{-2} \text{ at the end}, \\ "
    r"&B = I + W,\; B^\star = I + W^\star: \quad L \le 10^{-10} \text{ at the end} \end{split}",
    family="two-layer ReLU networks",
    scales={"smoke": Setting(norm=(0.6,), d=30, iterations=3_000), "cpu": Setting()},
    decided_by=(*PLAIN, always("identity_loss", at_most=1e-10)),
    printed=(
        Quotation(
            words="stuck at local minimum",
            place="LY section 5.2",
            needs={"how W and W* are drawn": False},
            bounds=PLAIN,
            note="of descent on the population loss, with a teacher of the student's structure",
        ),
    ),
    measure=measure,
    extra_metrics=extra_metrics,
    shown=("plain_distance", "identity_distance"),
    figure=figure,
    seeds=3,
    costs={"cpu": seconds(60)},
    charts=(("loss", "gradient_norm"), ("distance",)),
    batch_by=("student", "d", "iterations"),
    batch=1,
)
