"""The gradient of the population risk of a linear residual network has a closed form.

With E the product (I + A_l) ... (I + A_1) minus R, df/dA_i is 2 (I + A_{i+1})^T ... (I + A_l)^T E
Sigma (I + A_1)^T ... (I + A_{i-1})^T.

Measured: the formula against central finite differences of the risk, and against automatic
differentiation by TensorFlow in double precision, at random points. The copy that was read has lost
the transposes, so that nothing is said of the order of its factors; the conference version prints
the two groups in reverse order, a slip that changes no norm.

Run: python -m pipelines run gradient-formula
Expect: finite_difference_error 7e-10, autodiff_error 6e-16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Measured, group_by, measure_at, stack
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from pipelines.runtime import backend
from theory.linear_resnet import excess_risk, gradient

STEP = 1e-6  # step of the central differences


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks."""

    d: tuple[int, ...] = (1, 2, 4, 8)
    """Matrix dimensions."""
    l: tuple[int, ...] = (1, 2, 4, 8, 16)  # noqa: E741 - the paper's letter
    """Depths."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l)


def random_instance(rng: np.random.Generator, d: int, depth: int) -> tuple[Array, Array, Array]:
    """Return A [l, d, d] of norms near 0.3, target R [d, d], covariance Sigma [d, d]."""
    A = 0.3 * rng.normal(size=(depth, d, d)) / np.sqrt(d)
    R = np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d)
    root = rng.normal(size=(d, d)) / np.sqrt(d)
    return A, R, root @ root.T + 0.1 * np.eye(d)


def measure_depth(cell: Cell, depth: int) -> dict[str, float]:
    """Return relative Frobenius distances of the formula to both gradients, at a random network.

    In one process, one after the other: most of the time is TensorFlow's start.
    """
    A, R, sigma = random_instance(np.random.default_rng(cell.seed), cell.point["d"], depth)
    formula = gradient(A, R, sigma)
    moves = STEP * np.eye(A.size).reshape(A.size, *A.shape)  # one entry at a time
    slopes = (excess_risk(A + moves, R, sigma) - excess_risk(A - moves, R, sigma)) / (2 * STEP)

    def distance(other: Array) -> float:
        return float(np.linalg.norm(formula - other) / np.linalg.norm(formula))

    return {
        "finite_difference_error": distance(np.reshape(slopes, A.shape)),
        "autodiff_error": distance(automatic_gradient(A, R, sigma)),
    }


def automatic_gradient(A: Array, R: Array, sigma: Array) -> Array:
    """Return TensorFlow's gradient of trace(E Sigma E^T), independent of theory/; [l, d, d]."""
    tf = backend.tensorflow()
    layers = tf.constant(A)
    with tf.GradientTape() as tape:
        tape.watch(layers)
        product = tf.eye(len(R), dtype=tf.float64)
        for layer in tf.unstack(layers):
            product += layer @ product
        residual = product - R
        risk = tf.linalg.trace(residual @ sigma @ tf.transpose(residual))
    return np.asarray(tape.gradient(risk, layers))


def figure(measured: Sequence[Measured]) -> Any:
    """Draw relative errors against depth in the largest dimension, one line a seed."""
    d, chosen = group_by(measured, "d")[-1]
    picture, axes = panels(1, 6, 4)
    axes.set(xscale="log", yscale="log", xlabel="depth l", ylabel="relative distance to Lemma 2.4")
    labels = {
        "finite_difference_error": "central finite differences",
        "autodiff_error": "automatic differentiation",
    }
    for colour, (name, label) in enumerate(labels.items()):
        values = np.maximum(stack(chosen, name), 1e-17).T
        lines = axes.plot(chosen[0].steps, values, f"C{colour}o-", markersize=3)
        lines[0].set_label(label)
    axes.set_title(f"d = {d}, {len(chosen)} random instances", fontsize=10)
    axes.legend(fontsize=8)
    return picture


CLAIM = Theorem(
    source="HM Lemma 2.4",
    says="The gradient of the population risk of a linear residual network has a closed form",
    formula=r"\begin{split} "
    r"f(A) &= \mathbb{E}\, \lVert (I + A_l) \cdots (I + A_1) x - R x - \xi \rVert^2,\quad "
    r"E = (I + A_l) \cdots (I + A_1) - R, \\ "
    r"\frac{\partial f}{\partial A_i} &= 2\, (I + A_{i+1})^\top \cdots (I + A_l)^\top \, E \Sigma "
    r"\, (I + A_1)^\top \cdots (I + A_{i-1})^\top \end{split}",
    family="linear theory",
    scales={"smoke": Setting((1, 3), (1, 2, 4)), "cpu": Setting()},
    decided_by=(
        always("finite_difference_error", at_most=1e-7),
        always("autodiff_error", at_most=1e-12),
    ),
    costs={"cpu": seconds(13)},
    measure=measure_at("l", measure_depth),
    figure=figure,
    inner="l",
    charts=(("finite_difference_error", "autodiff_error"),),
    batch=10_000,
)
