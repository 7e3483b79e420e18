"""Near-identity networks of any kind have no stationary point above the least risk.

Source: B, after BEL. For h = h_m o ... o h_1 with h_i(0) = 0 and |h_i - Id|_Lipschitz <= eps < 1,
and the risk Q(h) = E |h(X) - Y|^2 / 2, least at h*, the functional gradient with respect to every
layer satisfies, as the slide prints it,
    |D_{h_i} Q| >= (1 - eps)^(m-1) (Q(h) - Q(h*)) / |h - h*|.
It is true, and also with 2 times that right-hand side (ours), which is attained: h_i(u) = (1-eps) u
with labels y = c x. (The slides were read in a damaged copy: the 2 may have been lost there.)

Measured: networks of layers u + A_i tanh(B_i u) with |A_i| |B_i| = eps, on random samples in which
every input occurs twice, with two labels. The functional gradient norm is computed exactly, by one
pass backward. `ratio` is the norm at layer i (the chart's step) over twice the slide's bound,
`attained_gap` the relative distance from equality in the case that attains it.

The figure that convinces: the norms of all layers above the bound, while eps grows.

Run: python -m pipelines run no-bad-stationary-points        (5 s on 2 cores)
     python -m pipelines sweep no-bad-stationary-points --grid eps=0.05:0.95:0.05 --grid l=8
Expect: ratio about 1.4 at its smallest, attained_gap below 1e-13.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claim import Theorem
from pipelines.errors import UserError, check_sizes
from pipelines.grid import Cells, Curves, Measured, select, stack
from pipelines.verdict import Bound

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and of the sample."""

    d: tuple[int, ...] = (1, 4, 16)
    """Widths."""
    l: tuple[int, ...] = (1, 4, 16)  # noqa: E741 - the project's letter; the slides call it m
    """Depths m of the slides; the layer number is the chart's axis."""
    eps: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Distances of the layers to the identity, below 1."""
    inputs: int = 100
    """Distinct inputs; each occurs twice in the sample."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l, inputs=(self.inputs,))
        check_sizes(0, eps=self.eps)
        if max(self.eps) >= 1:
            raise UserError(
                f"The theorem needs eps < 1. Received: eps={max(self.eps):g}. Set --eps below 1."
            )


def random_network(rng: np.random.Generator, d: int, l: int, eps: float) -> tuple[Array, Array]:  # noqa: E741
    """A and B [l, d, d] of layers u + A tanh(B u), with |A| |B| = eps in every layer."""
    A, B = rng.normal(size=(2, l, d, d))
    A /= np.linalg.norm(A, 2, axis=(-2, -1), keepdims=True)
    B /= np.linalg.norm(B, 2, axis=(-2, -1), keepdims=True)
    return eps * A, B


def random_sample(rng: np.random.Generator, d: int, inputs: int) -> tuple[Array, Array]:
    """Inputs and labels [2 inputs, d]: Gaussian inputs twice each, labels turned tanh and noise."""
    x = np.repeat(rng.normal(size=(inputs, d)), 2, axis=0)
    W = rng.normal(size=(d, d)) / np.sqrt(d)
    return x, x + 2 * np.tanh(x @ W) + 0.3 * rng.normal(size=x.shape)


def measure(cells: Cells) -> Curves:
    """Functional gradient norms of all layers against the bound; [n, l]."""
    from theory import near_identity

    d, l = cells.shared("d"), cells.shared("l")  # noqa: E741
    A, B = cells.draw(random_network, "d", "l", "eps")
    x, y = cells.draw(random_sample, "d", "inputs")
    layers = near_identity.tanh_layers(A, B)
    norms = near_identity.layer_gradient_norms(layers, x, y)  # [n, l]
    bound = near_identity.stationary_bound(layers, x, y)[:, None]
    same = np.ones((1, l))
    return range(1, l + 1), {
        "gradient_norm": norms,
        "bound": bound * same,
        "slide_bound": bound / 2 * same,
        "ratio": norms / bound,
        "attained_gap": attained_gap(cells.values("eps"), l, x.reshape(len(cells), -1, d)),
    }


def attained_gap(eps: Array, l: int, x: Array) -> Array:  # noqa: E741
    """|norm / bound - 1| at every layer of h_i(u) = (1 - eps) u with labels 3 x; [n, l]."""
    from theory import near_identity

    shrink = 1 - eps[:, None, None]
    layer = near_identity.Layer(lambda u: shrink * u, lambda u, v: shrink * v, eps)
    norms = near_identity.layer_gradient_norms([layer] * l, x, 3 * x)
    return np.abs(norms / near_identity.stationary_bound([layer] * l, x, 3 * x)[:, None] - 1)


def also(measured: Sequence[Measured]) -> dict[str, float]:
    """The slide's own ratio: twice ours, and so at least 2."""
    return {"slide_ratio": min(2 * float(m.curves["ratio"].min()) for m in measured)}


def figure(measured: Sequence[Measured]) -> Any:
    """Norms by layer, over the bound, for growing eps; and smallest ratio against eps."""
    from matplotlib.figure import Figure

    d, depths = max(m.point["d"] for m in measured), sorted({m.point["l"] for m in measured})
    depth = depths[len(depths) // 2]
    grid = sorted({m.point["eps"] for m in measured})
    picture = Figure(figsize=(10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for i, eps in enumerate(grid):
        chosen = select(measured, d=d, l=depth, eps=eps)
        colour = f"C{i % 10}"
        norms = stack(chosen, "gradient_norm").mean(axis=0)
        left.plot(chosen[0].steps, norms, "o-", color=colour, ms=3, label=f"ε = {eps:g}")
        left.plot(chosen[0].steps, stack(chosen, "bound").mean(axis=0), "--", color=colour)
    left.set(yscale="log", xlabel="layer i", ylabel="|D_{h_i} Q| (solid), bound (dashed)")
    left.set_title(f"d = {d}, m = {depth}, mean of {len(chosen)} networks", fontsize=10)
    left.set_ylim(bottom=left.get_ylim()[0] / 30)  # room for the legend
    left.legend(fontsize=7, loc="lower left", ncols=2)
    for size in depths:
        worst = [stack(select(measured, l=size, eps=eps, d=d), "ratio").min() for eps in grid]
        right.plot(grid, worst, "o-", ms=3, label=f"m = {size}")
    right.axhline(1, color="k", ls="--", lw=1, label="the bound, attained by (1-ε) u")
    right.axhline(0.5, color="grey", ls=":", lw=1, label="the slide's")
    right.set(yscale="log", xlabel="ε", ylabel="smallest |D_{h_i} Q| / bound")
    right.legend(fontsize=7)
    return picture


CLAIM = Theorem(
    source="B, BEL",
    says="Layers within eps < 1 of the identity: the functional gradient at every layer is at "
    "least (1 - eps)^(m-1) (Q(h) - Q(h*)) / |h - h*|",
    family="linear theory",
    scales={"smoke": Setting((2,), (1, 3), (0.2, 0.8), 20), "cpu": Setting()},
    decided_by=(
        Bound("ratio", at_least=1 - 1e-12, every=True),
        Bound("attained_gap", at_most=1e-12, every=True),
    ),
    measure=measure,
    also=also,
    figure=figure,
    apart=("d", "l", "inputs"),
)
