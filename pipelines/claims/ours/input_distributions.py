"""What is known of the two-layer ReLU network for Gaussian inputs, for correlated and other ones.

Source: LY section 6, which names inputs other than N(0, I): N(0, Sigma) and rotation-invariant
ones. What holds is ours. f is homogeneous of degree 1, so for x = r s, s uniform on the sphere and
r independent of it, the loss is E r^2 / d times that for N(0, I): theorems are the same, whatever
the law of r is. For x = Sigma^{1/2} y, y rotation-invariant with E|y|^2 = d, Lemma 2.1 holds with
Sigma^{1/2} (I + W) for I + W.

Near 0 the loss is one-point convex still, but by less. The density of N(0, Sigma) is nowhere less
than c = sqrt(l^d / det Sigma) times that of N(0, l I), l the least eigenvalue of Sigma, for which
the ratio <-grad, W* - W> / |W* - W|_F^2 is at least (pi/2 - 1) l, to first order and on the printed
scale. So it is at least (pi/2 - 1) l c. Where one eigenvalue is large, c is the condition of Sigma
to the power -1/2. That this is enough for every Sigma is our guess.

Measured: the closed form of the gradient against Monte Carlo of inputs of that covariance, with y
normal, on the sphere (`sphere`), or Student's t of 10 degrees of freedom (`student`); `z` is the
distance from the Monte Carlo mean in its own standard errors, entry by entry of W (the chart's
step). `least_ratio` is the least ratio as W and W* tend to 0, an eigenvalue; `proved_share` is its
quotient by (pi/2 - 1) l c, and `guessed_share` that by (pi/2 - 1) l over the root of the condition.
Both are 1 at Sigma = I. Sigma has trace d, and is random, with eigenvalues at equal ratios, or
`aligned`: one large eigenvalue, along (1, ..., 1), so that all units fire alike, the least ratio
that we know.

Run: python -m pipelines run input-distributions
     python -m pipelines sweep input-distributions --grid d=3,6,12 --grid condition=1:100:1.5x
     python -m pipelines run input-distributions --condition 1000 10000
Expect: z about 3; proved_share and guessed_share 1, at Sigma = I; least_ratio 0.0076, at a
condition of 100, aligned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.claims.li_yuan.population_gradient import monte_carlo, random_instance
from pipelines.errors import check_counts, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import (
    Array,
    Cell,
    Cells,
    Curves,
    Measured,
    group_by,
    join,
    stack,
    stack_rows,
)
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.relu_population import correlated_gradient

RADII = ("gaussian", "sphere", "student")
FREEDOM = 10  # degrees of Student's t, whose moments of eighth order exist
COVARIANCES = ("random", "aligned")
ISOTROPIC = np.pi / 2 - 1  # the least ratio at Sigma = I
ROUNDING = 1e-4  # allowance: the ratio is a quotient of differences
SMALL = 1e-5  # norm of W at which the limit of the ratio is taken


@dataclass(frozen=True)
class Setting:
    """The inputs, and the networks that they are given to."""

    condition: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    """Largest over least eigenvalue of the covariance."""
    covariance: tuple[str, ...] = COVARIANCES
    """Random, or aligned: with one large eigenvalue, along (1, ..., 1)."""
    radius: tuple[str, ...] = RADII
    """Distribution of the length of uncorrelated inputs."""
    d: int = 6
    """Width."""
    norm: float = 0.5
    """Largest spectral norm of W and W*."""
    samples: int = 200_000
    """Inputs."""

    def __post_init__(self) -> None:
        check_sizes(1, condition=self.condition)
        check_sizes(0.05, norm=(self.norm,))
        check_sizes(2, d=(self.d,))
        check_counts(samples=self.samples)
        check_names("A covariance", self.covariance, COVARIANCES)
        check_names("A distribution of the radius", self.radius, RADII)


def covariance_root(rng: np.random.Generator, d: int, condition: float, covariance: str) -> Array:
    """Return Sigma^{1/2}, Sigma of trace d and that condition; [d, d]."""
    if covariance == "aligned":
        root = np.eye(d) + (np.sqrt(condition) - 1) / d  # sqrt(condition) along (1, ..., 1)
    else:
        V = np.linalg.qr(rng.normal(size=(d, d)))[0]
        root = V * np.sqrt(np.geomspace(1, condition, d)) @ V.T
    return np.asarray(root * np.sqrt(d) / np.linalg.norm(root))


def draw_inputs(rng: np.random.Generator, root: Array, radius: str, count: int) -> Array:
    """Return inputs root y, y rotation-invariant with E|y|^2 = d; [count, d]."""
    y = rng.normal(size=(count, len(root)))
    if radius == "sphere":
        y *= np.sqrt(len(root)) / np.linalg.norm(y, axis=1, keepdims=True)
    elif radius == "student":
        y *= np.sqrt((FREEDOM - 2) / rng.chisquare(FREEDOM, size=(count, 1)))
    return np.asarray(y @ root.T)


def measure(cells: Cells) -> Curves:
    """Return formula and Monte Carlo at every entry of W, row by row; the least ratio; [n, d^2]."""
    rows = [measure_cell(cell) for cell in cells.cells]
    return range(cells.shared("d") ** 2), stack_rows(rows)


def measure_cell(cell: Cell) -> dict[str, Array]:
    """Return the curves of one cell; [d^2]."""
    point, rng = cell.point, np.random.default_rng(cell.seed)
    root = covariance_root(rng, point["d"], point["condition"], point["covariance"])
    W, W_star = random_instance(rng, point["d"], point["norm"], "random")
    draw = partial(draw_inputs, rng, root, point["radius"])
    estimate = monte_carlo(draw, W, W_star, point["samples"])
    formula, ratio = correlated_gradient(W, W_star, root), least_ratio(root)
    eigenvalues = np.linalg.eigvalsh(root) ** 2
    least, condition = eigenvalues[0], eigenvalues[-1] / eigenvalues[0]
    numbers = {
        "least_ratio": ratio,
        "proved_share": ratio / (ISOTROPIC * least * np.sqrt(least / eigenvalues).prod()),
        "guessed_share": ratio / (ISOTROPIC * least / np.sqrt(condition)),
    }
    return {
        "gradient": formula.ravel(),
        "monte_carlo": estimate["gradient"].ravel(),
        "z": np.abs((formula - estimate["gradient"]) / estimate["gradient_error"]).ravel(),
        **{name: np.full(W.size, number) for name, number in numbers.items()},
    }


def least_ratio(root: Array) -> float:
    """Return the least eigenvalue of the Hessian at W = W* = 0, on the printed scale."""
    d = len(root)
    moves = SMALL * np.eye(d * d).reshape(d * d, d, d)
    ahead, behind = (
        correlated_gradient(sign * moves, np.zeros((d, d)), root, "printed") for sign in (1, -1)
    )
    hessian = (ahead - behind).reshape(d * d, d * d) / (2 * SMALL)
    return float(np.linalg.eigvalsh((hessian + hessian.T) / 2)[0])


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the least of the ratios and of what they are of the guess."""
    return {name: float(join(measured, name).min()) for name in ("least_ratio", "guessed_share")}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the least ratio against the condition; Monte Carlo against formula at every entry."""
    picture, (left, right) = panels(2, 10, 4.2)
    for i, (covariance, chosen) in enumerate(group_by(measured, "covariance")):
        conditions = np.array([m.point["condition"] for m in chosen])
        guessed = stack(chosen, "guessed_share")[:, 0]
        ratios = ISOTROPIC * guessed / np.sqrt(conditions)
        left.plot(conditions, ratios, "os"[i], color=f"C{i}", markersize=4, label=covariance)
    line = np.unique([m.point["condition"] for m in measured])
    left.plot(line, ISOTROPIC / np.sqrt(line), "k--", label="(π/2 - 1) / √condition")
    left.set(xscale="log", yscale="log", xlabel="condition of Σ")
    left.set_ylabel("least <-grad, W* - W> / (λ |W* - W|_F²)")
    left.legend(fontsize=8, loc="lower left", title="Σ of least eigenvalue λ", title_fontsize=8)
    for i, (radius, chosen) in enumerate(group_by(measured, "radius")):
        x, y = (join(chosen, key) for key in ("gradient", "monte_carlo"))
        right.plot(x, y, "osv"[i], color=f"C{i}", markersize=3, fillstyle="none", label=radius)
    right.axline((0, 0), slope=1, color="k", linewidth=0.8)
    right.set(xlabel="entry of the gradient, closed form", ylabel="the same by Monte Carlo")
    right.legend(fontsize=8, loc="upper left", title="radius of inputs", title_fontsize=8)
    return picture


CLAIM = Theorem(
    source="ours, after LY section 6",
    says="For rotation-invariant inputs of covariance Sigma the gradient has LY's closed form with "
    "Sigma^{1/2} (I + W), and near 0 it is one-point convex: as W and W* tend to 0, "
    "pi <-grad, W* - W> is to leading order at least (pi/2 - 1) l sqrt(l^d / det Sigma) "
    "|W* - W|_F^2, l the least eigenvalue of Sigma",
    formula=r"\begin{split} &x = \Sigma^{1/2} y,\; y \text{ rotation-invariant},\; "
    r"\mathbb{E} \lVert y \rVert^2 = d,\; \operatorname{tr} \Sigma = d,\; "
    r"\lambda = \lambda_{\min}(\Sigma): \\ "
    r"&\nabla L_\Sigma(W, W^\star) = \Sigma^{1/2}\, \nabla L_I \bigl( \Sigma^{1/2} (I + W) - I,\; "
    r"\Sigma^{1/2} (I + W^\star) - I \bigr), \\ "
    r"&\pi\, \langle -\nabla L_\Sigma,\, W^\star - W \rangle \ge "
    r"\Bigl( \frac{\pi}{2} - 1 \Bigr)\, \lambda\, "
    r"\frac{\lambda^{d/2}}{\sqrt{\det \Sigma}}\; \lVert W^\star - W \rVert_F^2 "
    r"\text{ as } W, W^\star \to 0 \end{split}",
    family="two-layer ReLU networks",
    scales={
        "smoke": Setting((1.0, 10.0), radius=("gaussian", "sphere"), d=3, samples=20_000),
        "cpu": Setting(),
    },
    decided_by=(always("z", at_most=6), always("proved_share", at_least=1 - ROUNDING)),
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    shown=("least_ratio", "guessed_share"),
    costs={"cpu": seconds(27)},
    charts=(("gradient", "monte_carlo"), ("z",), ("least_ratio", "proved_share", "guessed_share")),
    batch_by=("d", "samples"),
    batch=2,
)
