"""Near-identity networks of any kind have no stationary point above the least risk.

The slide's bound is true where every h_i(0) = 0, a premise that it omits: the layers u - 0.9 and u
at x = 1, y = 2 have the norms 1.9 and 0.19, and the bound 0.95 (`moved_zero_ratio` 0.2). With the
premise it holds also with 2 times the right-hand side (ours), which is attained: h_i(u) = (1 - eps)
u with labels y = c x. (The 2 may have been lost in the copy.) The slide's layers are Lipschitz;
ours are differentiable besides.

Measured: networks of the slides' layers u + A_i sigma(B_i u), sigma tanh or ReLU, 2 d units wide,
with |A_i| |B_i| = eps, random and mixed with layers that shrink, on random samples in which every
input occurs twice, with two labels. The functional gradient norm is computed exactly, by one pass
backward. `ratio` is the norm at layer i (the chart's step) over twice the slide's bound, the least
of tanh and of ReLU in `tanh_ratio` and `relu_ratio`, `slide_ratio` the least over the slide's;
`attained_gap` is the relative distance from equality in the case that attains it, which is what
keeps the test sharp: random networks are far from it when they are deep and eps is large.

Run: python -m pipelines run no-bad-stationary-points
     python -m pipelines sweep no-bad-stationary-points --grid eps=0.05:0.95:0.05 --grid l=8
Expect: ratio 1.37 +- 0.06 (mean and deviation of 5 seeds; tanh 1.37, ReLU 1.38), slide_ratio 2.74,
attained_gap 6e-16; moved_zero_ratio 0.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cells, Curves, Measured, group_by, join, select, stack
from pipelines.measurement.quotation import FORMULA, SLIP, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory import stationary_points

SIGMAS = ("tanh", "relu")


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and of the sample."""

    d: tuple[int, ...] = (1, 4, 16)
    """Widths."""
    l: tuple[int, ...] = (1, 4, 16)  # noqa: E741 - the project's letter; the slides call it m
    """Depths m of the slides; the layer number is the chart's axis."""
    eps: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Distances of the layers to the identity, below 1."""
    sigma: tuple[str, ...] = SIGMAS
    """Activations: tanh, relu."""
    inputs: int = 100
    """Distinct inputs; each occurs twice in the sample."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l, inputs=(self.inputs,))
        check_sizes(0, eps=self.eps)
        check_names("An activation", self.sigma, SIGMAS)
        if max(self.eps) >= 1:
            raise UserError(
                f"The theorem needs eps < 1. Received: eps={max(self.eps):g}. Set --eps below 1."
            )


def random_instance(
    rng: np.random.Generator, d: int, depth: int, eps: float, inputs: int
) -> tuple[Array, ...]:
    """Return A [l, d, 2d], B [l, 2d, d], |A| |B| = eps a layer; inputs, labels [2 inputs, d].

    Layers are random mixtures of Gaussian ones and of u - eps sigma(u), which shrink small inputs
    as the case of equality does; inputs have random sizes, and each occurs twice.
    """
    A, B = rng.normal(size=(depth, d, 2 * d)), rng.normal(size=(depth, 2 * d, d))
    share = rng.uniform(size=(depth, 1, 1))
    A *= (1 - share) / np.linalg.norm(A, 2, axis=(-2, -1), keepdims=True)
    B *= (1 - share) / np.linalg.norm(B, 2, axis=(-2, -1), keepdims=True)
    A, B = A - share * np.eye(d, 2 * d), B + share * np.eye(2 * d, d)
    sizes = np.linalg.norm(A, 2, axis=(-2, -1)) * np.linalg.norm(B, 2, axis=(-2, -1))
    x = np.repeat(rng.normal(size=(inputs, d)) * 10 ** rng.uniform(-1, 0.5), 2, axis=0)
    y = x @ (np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d)) + 0.3 * rng.normal(size=x.shape)
    return eps * A / sizes[:, None, None], B, x, y


def measure(cells: Cells) -> Curves:
    """Return functional gradient norms of all layers against the bound; [n, l]."""
    d, l = cells.shared("d"), cells.shared("l")  # noqa: E741
    A, B, x, y = cells.draw(random_instance, "d", "l", "eps", "inputs")
    layers = stationary_points.residual_layers(A, B, cells.shared("sigma"))
    norms = stationary_points.layer_gradient_norms(layers, x, y)  # [n, l]
    bound = stationary_points.stationary_bound(layers, x, y)[:, None]
    ones = np.ones((1, l))
    return range(1, l + 1), {
        "gradient_norm": norms,
        "bound": bound * ones,
        "slide_bound": bound / 2 * ones,
        "ratio": norms / bound,
        "attained_gap": attained_gap(cells.values("eps"), l, x.reshape(len(cells), -1, d)),
    }


def attained_gap(eps: Array, l: int, x: Array) -> Array:  # noqa: E741
    """Return |norm / bound - 1| at every layer of h_i(u) = (1 - eps) u with labels 3 x; [n, l]."""
    shrink = 1 - eps[:, None, None]
    layer = stationary_points.Layer(lambda u: shrink * u, lambda u, v: shrink * v, eps)
    norms = stationary_points.layer_gradient_norms([layer] * l, x, 3 * x)
    return np.abs(norms / stationary_points.stationary_bound([layer] * l, x, 3 * x)[:, None] - 1)


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the least ratios: by activation, over the slide's bound, where h_1(0) is not 0."""
    ratios = ((name, join(chosen, "ratio")) for name, chosen in group_by(measured, "sigma"))
    least = {f"{name}_ratio": float(ratio.min()) for name, ratio in ratios}
    numbers = {"slide_ratio": 2 * min(least.values()), "moved_zero_ratio": moved_zero_ratio(-0.9)}
    return least | numbers


def moved_zero_ratio(shift: float) -> float:
    """Return the least norm / the slide's bound, of the layers u + shift and u at x = 1, y = 2."""
    layers = [
        stationary_points.Layer(lambda u: u + shift, lambda u, v: v, 0.0),
        stationary_points.Layer(lambda u: u, lambda u, v: v, 0.0),
    ]
    x, y = np.array([[1.0]]), np.array([[2.0]])
    norms = stationary_points.layer_gradient_norms(layers, x, y)
    return float(norms.min() / stationary_points.slide_bound(layers, x, y))


def figure(measured: Sequence[Measured]) -> Any:
    """Draw norms by layer, over the bound, for growing eps; and smallest ratio against eps."""
    d, depths = max(m.point["d"] for m in measured), sorted({m.point["l"] for m in measured})
    depth = depths[len(depths) // 2]
    picture, (left, right) = panels(2)
    for i, (eps, chosen) in enumerate(group_by(select(measured, d=d, l=depth), "eps")):
        ratio = stack(chosen, "ratio").min(axis=0)
        left.plot(chosen[0].steps, ratio, "o-", color=f"C{i % 10}", ms=3, label=f"ε = {eps:g}")
    attained = 1 + stack(select(measured, d=d, l=depth), "attained_gap").max(axis=0)
    left.plot(chosen[0].steps, attained, "kx", label="layers (1-ε) u, every ε")
    left.axhline(1, color="k", ls="--", lw=1)
    left.set(yscale="log", xlabel="layer i", ylabel="|D_{h_i} Q| / bound, smallest of all seeds")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_title(f"d = {d}, m = {depth}", fontsize=10)
    left.set_ylim(top=20 * left.get_ylim()[1])  # room for the legend
    left.legend(fontsize=7, ncols=2, loc="upper left")
    for size, deep in group_by(select(measured, d=d), "l"):
        worst = {eps: join(chosen, "ratio").min() for eps, chosen in group_by(deep, "eps")}
        right.plot([*worst], [*worst.values()], "o-", ms=3, label=f"m = {size}")
    right.axhline(1, color="k", ls="--", lw=1, label="the bound, attained by (1-ε) u")
    right.axhline(0.5, color="grey", ls=":", lw=1, label="the slide's")
    right.set(yscale="log", xlabel="ε", ylabel="smallest |D_{h_i} Q| / bound")
    right.legend(fontsize=7)
    return picture


CLAIM = Theorem(
    source="B, after BEL",
    says="Layers within eps < 1 of the identity, all h_i(0) = 0: the functional gradient at every "
    "layer is at least (1 - eps)^(m-1) (Q(h) - Q(h*)) / |h - h*|, and even twice that",
    formula=r"\begin{split} &h = h_m \circ \cdots \circ h_1,\quad h_i(0) = 0,\quad "
    r"\lVert h_i - \operatorname{Id} \rVert_{\text{Lip}} \le \varepsilon < 1 \\ "
    r"&\;\Longrightarrow\; \lVert D_{h_i} Q \rVert \ge \frac{2\, (1 - \varepsilon)^{m-1} "
    r"(Q(h) - Q(h^\star))}{\lVert h - h^\star \rVert} \text{ for every } i,\quad "
    r"Q(h) = \tfrac12 \mathbb{E}\, \lVert h(X) - Y \rVert^2, \\ "
    r"&\text{with equality for } h_i(u) = (1 - \varepsilon) u,\; Y = c X \end{split}",
    family="linear theory",
    scales={"smoke": Setting((2,), (1, 3), (0.2, 0.8), inputs=20), "cpu": Setting()},
    decided_by=(always("ratio", at_least=1 - 1e-12), always("attained_gap", at_most=1e-12)),
    printed=(
        Quotation(
            form=FORMULA,
            words="|D_{h_i} Q| >= (1 - eps)^(m-1) (Q(h) - Q(h*)) / |h - h*|",
            place="B's slides, stationary points, in our letters",
            bounds=(
                always("slide_ratio", at_least=1 - 1e-12),
                always("moved_zero_ratio", at_least=1),
            ),
            broken=SLIP,
            note="the slide omits h_i(0) = 0; with it the bound holds, even twice",
        ),
    ),
    costs={"cpu": seconds(8)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    batch_by=("d", "l", "sigma", "inputs"),
    charts=(("gradient_norm", "bound", "slide_bound"), ("ratio",)),
)
