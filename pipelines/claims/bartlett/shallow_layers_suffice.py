"""The near-identity layers of Henon's map are blocks x + A relu(Bx) with |A||B| of O(1/m).

B says in words, after BEL, that shallow networks x + A sigma(Bx) compute near-identity layers. The
slide was not at hand word for word, nor which sigma and which sizes it has; so nothing is quoted,
and what is measured is one construction (ours) on one map.

Henon's map normalized is (x1, x2 - a x1^2), a = 1.4, on the ball of radius R = 1. At equal steps
its layers are h_i(u) = (u1, u2 - (a/m) u1^2) (near-identity-layers). A block has k units relu(u1 -
t) and relu(-u1 - t), t = 0, h, 2h, ..., h = 2R/k, which interpolate the parabola between the points
of distance h. Its thresholds are the weights of a coordinate that is always 1, so that the block is
x + A relu(Bx) itself. Without it a block is positively homogeneous: the best multiple of |u1|
misses u1^2 by 3 - 2 sqrt 2 = 0.17 R^2 at its worst, whatever k (`without_thresholds`).

A block errs by (a/m) R^2/k^2, and its |A||B| is below 4aR/m: twice the seminorm |h_i - Id| = 2aR/m,
which no block that is h_i itself goes below. The errors of m layers add up to a R^2/k^2 at any m,
since the first coordinate stays.

Measured, by m (the chart's step): `norms`, m times |A||B|, `norm_share`, that over 4aR, and
`norm_growth`, its largest over its least m; `layer_share`, the largest distance of the blocks from
the layers of theory.composition, which know nothing of parabolas, over (a/m) R^2/k^2;
`composition_error`, the largest distance of the m blocks one after the other from the map, and
`composition_share`, that over a R^2/k^2; `error_slope`, the slope of its logarithm over log k.

Run: python -m pipelines run shallow-layers-suffice
     python -m pipelines sweep shallow-layers-suffice --grid k=2:512:2x
Expect: norm_share 0.997 at k = 256, norm_growth 1, layer_share and composition_share 1,
error_slope -2.00, without_thresholds 0.172.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Measured, group_by, measure_at, stack
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.composition import near_layers
from theory.near_identity import ball, scales
from theory.smooth_maps import HENON
from theory.smooth_maps import A as BEND  # a

RADIUS = 1.0


@dataclass(frozen=True)
class Setting:
    """The blocks."""

    k: tuple[int, ...] = (4, 16, 64, 256)
    """Units of a block, an even number."""
    m: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    """Numbers of layers."""
    samples: int = 400
    """Random points of the ball, beside those of the axes and between the knots."""

    def __post_init__(self) -> None:
        check_sizes(2, k=self.k)
        check_sizes(1, m=self.m, samples=(self.samples,))
        if odd := [k for k in self.k if k % 2]:
            raise UserError(f"k must be even. Received: k={odd[0]}. Set --k.")


def parabola_block(bend: float, k: int) -> tuple[Array, Array]:
    """Return A [3, k] and B [k, 3]: x + A relu(Bx) is (x1, x2 - bend x1^2, 1) but for bend R^2/k^2.

    x is (x1, x2, 1) with |x1| <= R. The slope of the interpolation is h between 0 and h, and grows
    by 2h at each further knot.
    """
    h = 2 * RADIUS / k
    t = h * np.arange(k // 2)
    growth = np.where(np.arange(k // 2) == 0, h, 2 * h)
    A, B = np.zeros((3, k)), np.zeros((k, 3))
    A[1] = -bend * np.tile(growth, 2)
    B[:, 0] = np.repeat([1.0, -1.0], k // 2)
    B[:, 2] = -np.tile(t, 2)
    return A, B


def apply_block(A: Array, B: Array, x: Array) -> Array:
    """Return x + A relu(Bx) at points x [n, 3]; [n, 3]."""
    return np.asarray(x + np.maximum(x @ B.T, 0) @ A.T)


def points(rng: np.random.Generator, k: int, samples: int) -> Array:
    """Return points of the ball, and of its first axis between the knots; [n, 2]."""
    between = (np.arange(k) + 0.5) * 2 * RADIUS / k - RADIUS
    axis = np.stack([between, np.zeros(k)], axis=-1)
    return np.concatenate([ball(2, RADIUS, samples, int(rng.integers(2**32))), axis])


def measure_blocks(cell: Cell, m: int) -> dict[str, float]:
    """Return the numbers of m blocks."""
    k = cell.point["k"]
    x = points(np.random.default_rng(cell.seed), k, cell.point["samples"])
    A, B = parabola_block(BEND / m, k)
    ones = np.ones((len(x), 1))
    u, layer_error = np.concatenate([x, ones], axis=1), 0.0
    exact = x
    for layer in near_layers(HENON.function, HENON.jacobian, scales(m)):
        after = layer(exact)
        block = apply_block(A, B, np.concatenate([exact, ones], axis=1))[:, :2]
        layer_error = max(layer_error, float(np.linalg.norm(block - after, axis=1).max()))
        exact, u = after, apply_block(A, B, u)
    error = float(np.linalg.norm(u[:, :2] - HENON(x), axis=1).max())
    norms = m * float(np.linalg.norm(A, 2) * np.linalg.norm(B, 2))
    allowed = BEND * RADIUS**2 / k**2
    return {
        "norms": norms,
        "norm_share": norms / (4 * BEND * RADIUS),
        "layer_error": layer_error,
        "layer_share": m * layer_error / allowed,
        "composition_error": error,
        "composition_share": error / allowed,
    }


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return how the norms depend on m, the error on k, and what no thresholds leave."""
    norms = stack(measured, "norms")
    u = np.linspace(-RADIUS, RADIUS, 2001)
    slopes = np.linspace(0, 2 * RADIUS, 2001)[:, None]
    missed = np.abs(u**2 - slopes * np.abs(u)).max(axis=1)
    numbers = {
        "norm_growth": float(np.max(norms.max(axis=1) / norms.min(axis=1))),
        "without_thresholds": float(missed.min()) / RADIUS**2,
    }
    by_units = group_by(measured, "k")
    if len(by_units) > 1:
        errors = [float(stack(cells, "composition_error").max()) for _, cells in by_units]
        slope = np.polyfit(np.log([k for k, _ in by_units]), np.log(errors), 1)[0]
        numbers["error_slope"] = float(slope)
    return numbers


def figure(measured: Sequence[Measured]) -> Any:
    """Draw |A||B| and errors of a layer against m; errors of the composition against k."""
    picture, (left, right) = panels(2)
    m = measured[0].steps
    for colour, (k, cells) in enumerate(group_by(measured, "k")):
        left.plot(m, cells[0].curves["norms"] / m, f"C{colour}o-", ms=3, label=f"|A||B|, k = {k}")
        left.plot(m, cells[0].curves["layer_error"], f"C{colour}s--", ms=3)
        right.plot(k, cells[0].curves["composition_error"].max(), f"C{colour}o")
    left.plot(m, 2 * BEND * RADIUS / m, "k:", label="|h_i - Id| = 2aR / m")
    left.plot([], [], "ks--", ms=3, label="error of a layer")
    left.set(xscale="log", yscale="log", xlabel="number of layers m")
    left.set_xticks(m, [str(each) for each in m])
    left.minorticks_off()
    left.legend(fontsize=7, loc="lower left")
    units = np.array([k for k, _ in group_by(measured, "k")])
    right.plot(units, BEND * RADIUS**2 / units**2, "k:", label="a R² / k²")
    right.set(xscale="log", yscale="log", xlabel="units of a block k")
    right.set_ylabel("largest error of the composition, over m")
    right.legend(fontsize=8)
    return picture


CLAIM = Theorem(
    source="B, in words, after BEL",
    says="The m near-identity layers of Henon's map are computed by shallow blocks x + A relu(Bx) "
    "with |A||B| below 4aR/m, twice the seminorm of h_i - Id; with k units the composition errs by "
    "at most a R^2/k^2",
    formula=r"\begin{split} "
    r"&h_i(u) = \bigl( u_1,\; u_2 - \tfrac{a}{m} u_1^2 \bigr),\quad |u| \le R: \\ "
    r"&\exists A, B \text{ with } k \text{ units}: \quad "
    r"\lVert x + A \operatorname{relu}(B x) - h_i(x) \rVert \le \frac{a R^2}{m\, k^2}, \\ "
    r"&\lVert A \rVert \lVert B \rVert \le \frac{4 a R}{m} "
    r"= 2\, \lVert h_i - \operatorname{Id} \rVert_{\text{Lip}}, \\ "
    r"&\text{and } m \text{ blocks one after the other err by at most } \frac{a R^2}{k^2} "
    r"\end{split}",
    family="linear theory",
    scales={"smoke": Setting((4, 16), (2, 8), samples=50), "cpu": Setting()},
    decided_by=(
        always("norm_share", at_most=1),
        always("norm_growth", at_most=1 + 1e-9),
        always("layer_share", at_most=1 + 1e-6),
        always("composition_share", at_most=1 + 1e-6),
        always("error_slope", at_most=-1.9),
    ),
    measure=measure_at("m", measure_blocks),
    extra_metrics=extra_metrics,
    figure=figure,
    shown=("without_thresholds",),
    seeds=3,
    costs={"cpu": seconds(13)},
    inner="m",
    charts=(("norms",), ("layer_error", "composition_error")),
    batch_by=("k", "samples"),
)
