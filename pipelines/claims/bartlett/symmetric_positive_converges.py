"""Gradient descent from the identity converges linearly on symmetric positive definite targets.

The slides ask for a depth l >= c3 ln(|Phi| / gamma). It is not needed for linear convergence at
this rate: at every l >= 1 each eigenvalue lam of the layers goes from 1 to mu = phi^(1/l) without
overshoot, |mu - lam| shrinking by rho = 1 - rate l min(1, gamma)^(2-2/l) or more a step, so that
the loss is <= eps after T(eps) steps, in closed form (ours).

Measured: spectra from gamma to `top`, both included, the rest log-uniform, over dimension,
conditioning and depth. `iterations` of the recursion until the loss is 1e-10, `bound` = T(1e-10),
and their `ratio`; `overshoot`, the furthest that lam^l / phi passed 1 on that way. For matrices
with random eigenvectors and the first 8 of the eigenvalues: `matrix_error`, the largest difference
between a layer and the recursion, `layer_spread`, between a layer and the first. They are followed
through all `bound` steps, to the loss of 1e-10, where these are at most 1,000; elsewhere only
through the first 100, and the rest of the way is that of the recursion alone. With a rate_factor >
1 the step leaves the premise: nothing is judged, and `bound` stays that of the largest step
allowed. `shallow_ratio` is the worst ratio where l < ln(top / gamma). `deep_arrived_pct` is the
share of the other depths that reach loss 1e-10 within 2 T(1e-10) steps: the slide's statement, if
its constant c3 is 1. `last_growth` is how much iterations still grow between the last two depths:
they saturate.

Run: python -m pipelines run symmetric-positive-converges
     python -m pipelines sweep symmetric-positive-converges --grid top=2 --grid rate_factor=0.5:4:2x
Expect: ratio at most 1, and 1 on some easy spectra; overshoot and matrix_error below 1e-13,
deep_arrived_pct 100; with gamma = 0.1, top = 10 and d = 64 about 1,440 iterations at l = 1 and
79,000 at l = 128.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import ASSUMPTION, Array, Cells, Curves, Measured, group_by, stack
from pipelines.measurement.quotation import FORMULA, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.descent import descent_path, eigenvalue_path, eigenvalue_recursion, product
from theory.descent_bounds import iteration_bound, iterations_to

TOLERANCE = 1e-10  # loss at which descent has converged
WIDTH = 8  # size of the matrices that confirm the recursion
ALL_THE_WAY, STEPS = 1000, 100  # up to which bound they do so to the end; for how long elsewhere


@dataclass(frozen=True)
class Setting:
    """Spectra, depths and step size."""

    d: tuple[int, ...] = (2, 16, 64)
    """Numbers of eigenvalues."""
    gamma: tuple[float, ...] = (0.1, 0.5)
    """Smallest eigenvalues of Phi."""
    top: tuple[float, ...] = (0.9, 2.0, 10.0)
    """Largest eigenvalues of Phi, its spectral norm."""
    rate_factor: float = 1.0
    """Step size over 1 / (l (1 + top^2)), the largest that the theorem allows."""
    l: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32, 64, 128)  # noqa: E741 - the paper's letter
    """Depths."""

    def __post_init__(self) -> None:
        check_sizes(2, d=self.d)
        check_sizes(1, l=self.l)
        positive = (*self.gamma, *self.top, self.rate_factor)
        if not all(0 < value < np.inf for value in positive):
            raise UserError(
                "gamma, top and rate_factor must be finite and > 0. Received: "
                f"gamma={self.gamma}, top={self.top}, rate_factor={self.rate_factor}. "
                "For negative eigenvalues run negative-eigenvalue-fails."
            )
        if max(self.gamma) > min(self.top):
            raise UserError(
                "The smallest eigenvalue cannot exceed the largest. Received: gamma up to "
                f"{max(self.gamma):g}, top from {min(self.top):g}. Set --gamma or --top."
            )


def spectrum(rng: np.random.Generator, d: int, gamma: float, top: float) -> tuple[Array, Array]:
    """Return eigenvalues [d] from gamma to top, eigenvectors [k, k] for the first k <= 8."""
    phi = np.exp(rng.uniform(np.log(gamma), np.log(top), size=d))
    phi[:2] = gamma, top
    k = min(d, WIDTH)
    return phi, np.linalg.qr(rng.normal(size=(k, k)))[0]


def measure(cells: Cells) -> Curves:
    """Return iterations, their bound, how matrices agree with the recursion; [n, depths]."""
    l = np.asarray(cells.shared("l"))  # noqa: E741
    phi, V = cells.draw(spectrum, "d", "gamma", "top")
    phi = phi[:, None]  # [n, 1, d] against depths [k]
    largest = 1 / (l * (1 + phi.max(axis=-1) ** 2))
    factor = cells.values("rate_factor")[:, None]
    bound = iteration_bound(phi, l, np.minimum(factor, 1) * largest, TOLERANCE)
    limit = 2 * int(bound.max())
    arrival = iterations_to(phi, l, factor * largest, TOLERANCE, limit)
    iterations = np.where(arrival < 0, np.inf, arrival)
    steps = np.where(bound <= ALL_THE_WAY, bound, STEPS).max(axis=0)  # equal in these cells
    return cells.shared("l"), {
        "iterations": iterations,
        "bound": bound,
        "ratio": iterations / np.maximum(bound, 1),
        "overshoot": overshoot(phi, l, factor * largest, int(arrival.max())),
        **compare_with_matrices(phi[:, 0, : V.shape[-1]], V, l, factor * largest, steps),
        ASSUMPTION: np.broadcast_to(factor <= 1, bound.shape),
    }


@np.errstate(over="ignore", invalid="ignore")  # steps beyond the premise may diverge
def overshoot(phi: Array, depth: NDArray[np.int64], rate: Array, steps: int) -> Array:
    """Return the furthest that an lam^l / phi passed 1 on the way from 1 / phi; [n, depths]."""
    scale = -np.sign(phi - 1) / phi
    furthest = np.zeros(np.broadcast_shapes(phi.shape, (len(depth), 1)))
    for _, gap in islice(eigenvalue_path(phi, depth[:, None], rate[..., None]), steps + 1):
        np.maximum(furthest, scale * gap, out=furthest)
    return np.asarray(furthest.max(axis=-1))


@np.errstate(over="ignore", invalid="ignore")
def compare_with_matrices(
    phi: Array, V: Array, depths: NDArray[np.int64], rate: Array, steps: NDArray[np.int64]
) -> dict[str, Array]:
    """Return the largest differences of matrix descent from the recursion; [n, depths]."""
    Phi = V * phi[:, None] @ V.mT
    errors, spreads = np.zeros(rate.shape), np.zeros(rate.shape)
    for k, (depth, last) in enumerate(zip(depths, steps, strict=True)):
        lam = eigenvalue_recursion(phi, depth, rate[:, k, None], last)
        path = descent_path((Phi + Phi.mT) / 2, int(depth), rate[:, k], last)
        for values, Theta in zip(lam, path, strict=True):
            exact = V * values[:, None] @ V.mT
            for worst, other in ((errors, exact[:, None]), (spreads, Theta[:, :1])):
                worst[:, k] = np.maximum(worst[:, k], np.abs(Theta - other).max(axis=(1, 2, 3)))
    return {"matrix_error": errors, "layer_spread": spreads}


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return depths below ln(top / gamma), which the slide excludes, and the others; saturation."""
    judged = [m for m in measured if m.holds.all()]
    below = [m.steps < np.log(m.point["top"] / m.point["gamma"]) for m in judged]
    shallow = [m.curves["ratio"][low] for m, low in zip(judged, below, strict=True)]
    deep = [m.curves["iterations"][~low] for m, low in zip(judged, below, strict=True)]
    last = [m.curves["iterations"][-2:] for m in judged if len(m.steps) > 1]
    metrics = {"last_growth": float(np.mean([b / a for a, b in last if a > 0]))} if last else {}
    worst, iterations = (np.concatenate(each or [np.empty(0)]) for each in (shallow, deep))
    if len(worst):
        metrics["shallow_ratio"] = float(worst.max())
    if len(iterations):
        metrics["deep_arrived_pct"] = 100 * float(np.mean(np.isfinite(iterations)))
    return metrics


def figure(measured: Sequence[Measured]) -> Any:
    """Draw iterations and bounds against depth; paths of eigenvalues, real and complex."""
    picture, (left, middle, right) = panels(3, 13, 4)
    draw_iterations(left, measured)
    draw_eigenvalues(middle, measured[-1].point, int(measured[-1].steps[-1]))
    draw_rotations(right)
    return picture


def draw_iterations(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw iterations (points) under the bound (dashed), a colour a conditioning, largest d."""
    d, chosen = group_by(measured, "d")[-1]
    groups = [(g, *each) for g, row in group_by(chosen, "gamma") for each in group_by(row, "top")]
    for colour, (gamma, top, cells) in enumerate(reversed(groups)):
        label = f"γ = {gamma:g}, ||Φ|| = {top:g}"
        for name, style, text in (("iterations", "o-", label), ("bound", "--", "_")):
            values = stack(cells, name).mean(axis=0)
            axes.plot(cells[0].steps, values, f"C{colour}{style}", markersize=3, label=text)
    axes.set(xscale="log", yscale="log", xlabel="depth l", ylabel="iterations to loss 1e-10")
    axes.set_ylim(top=30 * axes.get_ylim()[1])
    axes.set_title(f"d = {d}, points measured, dashed the bound", fontsize=10)
    axes.legend(fontsize=7, ncols=2, loc="upper center")


def draw_eigenvalues(axes: Any, point: Any, depth: int) -> None:
    """Draw eigenvalues of the product against the iteration, for a measured spectrum."""
    gamma, top = point["gamma"], point["top"]
    phi = np.geomspace(gamma, top, 7)
    rate = 1 / (depth * (1 + top**2))
    steps = int(iterations_to(phi, depth, rate, 1e-4, 10**6))
    lam = eigenvalue_recursion(phi, depth, rate, steps)
    axes.plot(np.arange(steps + 1) + 1, lam**depth, linewidth=1.5)
    for value in phi:
        axes.axhline(value, color="grey", linewidth=0.5, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="iteration + 1", ylabel="eigenvalue of the product")
    axes.set_title(f"from 1 to those of Φ (dotted), l = {depth}", fontsize=10)


def draw_rotations(axes: Any) -> None:
    """Draw the product's eigenvalue on its way from 1 to that of a rotation, in small steps."""
    from matplotlib.patches import Circle

    angles, depth = np.radians([60, 120, 170, 180]), 4
    c, s = np.cos(angles), np.sin(angles)
    Phi = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    Phi[-1] = -np.eye(2)
    W = np.stack([product(Theta) for Theta in descent_path(Phi, depth, 0.02, 1500)])
    for k, angle in enumerate(np.degrees(angles)):
        axes.plot(W[:, k, 0, 0], W[:, k, 1, 0], f"C{k}-", linewidth=1.5)
        axes.plot(Phi[k, 0, 0], Phi[k, 1, 0], f"C{k}*", markersize=12, label=f"{angle:.0f}°")
    axes.add_patch(Circle((0, 0), 1, fill=False, color="grey", linewidth=0.5))
    axes.set(xlabel="Re", ylabel="Im", aspect="equal", xlim=(-1.15, 1.15), ylim=(-0.25, 1.15))
    axes.set_title(f"rotations (stars), l = {depth}: reached, but for 180°", fontsize=10)
    axes.legend(fontsize=8)


CLAIM = Theorem(
    source="B, after BHL",
    says="For symmetric Phi with eigenvalues >= gamma > 0, gradient descent from the identity with "
    "a step of at most 1 / (l (1 + |Phi|^2)) converges linearly, at every depth l",
    formula=r"\begin{split} "
    r"&\Phi = \Phi^\top \text{ of eigenvalues } \varphi_j \ge \gamma > 0,\; \Theta_i(0) = I,\; "
    r"0 < \eta \le \frac{1}{l\, (1 + \lVert \Phi \rVert^2)},\; l \ge 1: \\ "
    r"&\text{all } \Theta_i \text{ have the eigenvectors of } \Phi "
    r"\text{ and equal eigenvalues}, \\ "
    r"&\lambda_j \leftarrow \lambda_j + \eta \lambda_j^{l-1} (\varphi_j - \lambda_j^l), \\ "
    r"&\lvert \mu_j - \lambda_j(t + 1) \rvert \le \rho\, \lvert \mu_j - \lambda_j(t) \rvert "
    r"\text{ without overshoot}, \\ "
    r"&\mu_j = \varphi_j^{1/l},\quad \rho = 1 - \eta l \min(1, \gamma)^{2 - 2/l}, \\ "
    r"&\ell_t \le \epsilon \text{ for all } t \ge T(\epsilon) = \left\lceil "
    r"\frac{1}{-\log\, \rho} \log \left( "
    r"\sqrt{\frac{d}{2 \epsilon}}\; l \max(1, \lVert \Phi \rVert)^{1 - 1/l} "
    r"\max_j \lvert \mu_j - 1 \rvert \right) \right\rceil \end{split}",
    family="linear theory",
    scales={"smoke": Setting((2, 5), (0.5,), (0.9, 2.0), 1.0, (1, 2, 4, 8)), "cpu": Setting()},
    decided_by=(
        always("ratio", at_most=1),
        always("overshoot", at_most=1e-12),
        always("matrix_error", at_most=1e-10),
        always("layer_spread", at_most=1e-10),
    ),
    printed=(
        Quotation(
            words="L >= c_3 ln(|Phi| / gamma)",
            form=FORMULA,
            place="B's slides, symmetric positive Phi",
            needs={"c_3": False},
            note="at c_3 = 1 all converge, and so do shallower networks at this rate",
        ),
        Quotation(
            form=FORMULA,
            words="lambda <- lambda + eta lambda^(L-1) (lambda^L - lambda(t)^L)",
            place="B's slides, the recursion of the eigenvalues, in our letters",
            bounds=(always("matrix_error", at_most=1e-10),),
            note="where lambda^L is the eigenvalue of Phi",
        ),
    ),
    costs={"cpu": seconds(17)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    inner="l",
    charts=(("iterations", "bound"), ("ratio",)),
    batch_by=("d", "gamma", "top", "rate_factor"),
)
