"""A smooth invertible map is a linear one and then m maps within O(1/m) of the identity.

With g(x) = Dh(x0)^{-1} (h(x0 + x) - h(x0)) and g_a(x) = g(ax)/a the layers are h_i = g_{a_i} o
g_{a_{i-1}}^{-1}, at scales that grow to a_m = 1; the linear part Dh(x0) of h, det > 0, is factored
by itself (HM Theorem 2.1). A function f: R^d -> R is extended to an invertible map, here to (x,
b) -> (x, b + f(x)), which gives f(x) at b = 0.

The claim holds, and without the logarithm, as BEL's abstract has it; the proof and the constant are
ours: geometric scales have it, equal steps a_i = i/m do not. Scales with equal distances are the
best of this family.

Measured: m times the largest |h_i - Id| of Henon's map, a tanh network's layer x + c tanh(Wx) near
(c = 0.3) and far from the identity (0.9), the flow of a damped pendulum, and a bump from R^d to R
so extended ("scalar"), from the Jacobians at points of the ball, at three schedules. `ratio` is
that of equal steps over alpha M R, `pair_ratio` the same from differences of pairs of points;
`whole` is for h itself, its linear layers included. `composition_error` is what running the layers
one by one, by Newton's method, adds up to; `scalar_error` the largest error of f(x) read off the
last one's output. For Henon's map the seminorms are known: 2aR/m at equal steps (`henon_gap`),
about 2aR log m / m at geometric ones. The slope is of log max |h_i - Id| against log m, m >= 16.
`printed_rate_growth` is how much m max |h_i - Id| / log m of equal steps grows from m = 16 on: at
most 1 if they are within O(log m / m).

Run: python -m pipelines run near-identity-layers
     python -m pipelines sweep near-identity-layers --grid map=pendulum --grid m=4:512:2x
Expect: ratio 0.46 +- 0.08 and pair_ratio 0.41 +- 0.10 (mean and deviation of 5 seeds),
composition_error 1e-14, scalar_error 6e-15, printed_rate_growth 0.51, uniform_slope -0.99 at its
largest, Henon's -1.000 (geometric -0.75), henon_gap below 1e-12; henon_whole, m max |h_i - Id| of
Henon's map with its linear layers, 5.08 at m = 256.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cells, Curves, Measured, select, stack, stack_rows
from pipelines.measurement.quotation import FORMULA, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory import near_identity, smooth_maps
from theory.composition import compose, near_layers, whole_layers, whole_profile
from theory.smooth_maps import SmoothMap

RADII = {"henon": 1.0, "tanh-0.3": 3.0, "tanh-0.9": 3.0, "pendulum": 2.0, "scalar": 2.0}
SCHEDULES = ("uniform", "geometric", "equalised")
FIT_FROM = 16  # smallest m of the slopes
RUN_TO = 64  # most layers that are run
POINTS = 50  # through which they are run


@dataclass(frozen=True)
class Setting:
    """The maps, and how closely they are looked at."""

    map: tuple[str, ...] = tuple(RADII)
    """Maps: henon, tanh-0.3, tanh-0.9, pendulum or scalar."""
    m: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)
    """Numbers of layers; slopes are fitted from 16 on, layers are run up to 64."""
    d: int = 4
    """Width of W, and of the scalar function's inputs; the other maps are of the plane."""
    samples: int = 200
    """Random points of the ball, beside its centre and the ends of the axes."""
    fine: int = 256
    """Equal steps from which the equalised scales are made."""

    def __post_init__(self) -> None:
        check_names("A map", self.map, RADII)
        check_sizes(2, m=self.m)
        check_sizes(1, d=(self.d,), samples=(self.samples,), fine=(self.fine,))
        if sum(m >= FIT_FROM for m in self.m) < 2:
            raise UserError(
                f"A slope needs two numbers of layers from {FIT_FROM} on. Received: {self.m}. "
                "Set --m."
            )


def instance(rng: np.random.Generator, name: str, d: int, samples: int) -> tuple[Array, Array]:
    """Return W [d, d] of norm 1, and points of the map's ball [n, d], [n, d + 1] or [n, 2]."""
    W = rng.normal(size=(d, d))
    width = {"tanh": d, "scalar": d + 1}.get(name.partition("-")[0], 2)
    points = near_identity.ball(width, RADII[name], samples, int(rng.integers(2**32)))
    return W / np.linalg.norm(W, 2), points


def build_maps(name: str, W: Array) -> tuple[SmoothMap, SmoothMap]:
    """Return the map h and, normalized at 0, g; leading axes are those of W [..., d, d]."""
    if name == "henon":
        return smooth_maps.henon_map(), smooth_maps.HENON
    if name == "scalar":
        h = smooth_maps.graph_map(W[..., 0, :])
    elif name == "pendulum":
        h = smooth_maps.pendulum()
    else:
        h = smooth_maps.tanh_map(W, float(name.removeprefix("tanh-")))
    return h, smooth_maps.normalize(h, np.zeros(h.dimension))


def measure(cells: Cells) -> Curves:
    """Return m times the largest distances and their bounds, and errors, for every m; [n, k]."""
    name = cells.shared("map")
    W, x = cells.draw(instance, "map", "d", "samples")
    h, g = build_maps(name, W)
    fine = near_identity.distances(g.jacobian, near_identity.scales(cells.shared("fine")), x)
    columns = []
    for m in cells.shared("m"):
        a = {name: near_identity.scales(m, name) for name in ("uniform", "geometric")}
        a["equalised"] = near_identity.equalise_scales(fine, m)
        distances = {key: near_identity.distances(g.jacobian, a[key], x) for key in a}
        distances["pairs"] = near_identity.quotients(g.function, a["uniform"], x)
        distances["whole"] = whole_profile(h, np.zeros(h.dimension), x, m)
        column = {key: m * profile.max(axis=-1) for key, profile in distances.items()}
        column["bound"] = m * near_identity.uniform_bound(g, RADII[name], m)
        column["composition_error"] = composition_error(g, a["uniform"], x[:, :POINTS])
        column["value_error"] = (
            value_error(h, W[..., 0, :], m, x[:, :POINTS]) if name == "scalar" else np.array(np.nan)
        )
        columns.append({key: np.broadcast_to(v, len(cells)) for key, v in column.items()})
    rows = stack_rows(columns, axis=-1)
    rows["ratio"], rows["pair_ratio"] = (rows[key] / rows["bound"] for key in ("uniform", "pairs"))
    return cells.shared("m"), rows


def composition_error(g: SmoothMap, a: Array, x: Array) -> Array:
    """Return the largest error of the layers, up to the 64th, run one by one; relative; [n]."""
    a = a[:RUN_TO]
    g_a = g(a[-1] * x) / a[-1]
    error = compose(near_layers(g.function, g.jacobian, a), x) - g_a
    return np.asarray(np.abs(error).max(axis=(-2, -1)) / np.abs(g_a).max(axis=(-2, -1)))


def value_error(h: SmoothMap, centre: Array, m: int, x: Array) -> Array:
    """Return the largest error of f(x), the last coordinate after all layers of h from (x, 0); [n].

    At most as many layers as RUN_TO, the last two of them linear.
    """
    flat = np.concatenate([x[..., :-1], np.zeros((*x.shape[:-1], 1))], axis=-1)
    few = near_identity.scales(min(m, RUN_TO))
    end = compose(whole_layers(h, np.zeros(h.dimension), few, 2), flat)[..., -1]
    return np.asarray(np.abs(end - smooth_maps.bump(centre, x[..., :-1])).max(axis=-1))


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return slopes of all maps and of Henon's, his whole map, and distances to exact values."""
    metrics = {
        "uniform_slope": max(slope(m, "uniform") for m in measured),
        "printed_rate_growth": max(growth(m) for m in measured),
    }
    if scalar := select(measured, map="scalar"):
        metrics["scalar_error"] = float(np.max(stack(scalar, "value_error")))
    for m in select(measured, map="henon"):
        metrics["henon_whole"] = float(m.curves["whole"][-1])
        metrics |= {f"henon_{key}_slope": slope(m, key) for key in SCHEDULES[:2]}
        for key, name in (("uniform", "henon_gap"), ("geometric", "henon_geometric_gap")):
            exact = np.array([n * smooth_maps.henon_largest(int(n), key) for n in m.steps])
            metrics[name] = float(np.max(np.abs(m.curves[key] / exact - 1)))
    return metrics


def growth(m: Measured) -> float:
    """Return the growth of m max |h_i - Id| / log m from m = 16 to the last, at equal steps."""
    fitted = m.steps >= FIT_FROM
    rates = m.curves["uniform"][fitted] / np.log(m.steps[fitted])
    return float(rates[-1] / rates[0])


def slope(m: Measured, schedule: str) -> float:
    """Return the slope of log max |h_i - Id| against log m, from m = 16 on."""
    fitted = m.steps >= FIT_FROM
    logs = np.log(m.steps[fitted]), np.log(m.curves[schedule][fitted])
    return float(np.polyfit(*logs, 1)[0]) - 1


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the largest distance of Henon's layers, or the first map's; m times it, of every map."""
    names = list(dict.fromkeys(m.point["map"] for m in measured))
    first, n = "henon" if "henon" in names else names[0], measured[0].steps
    picture, (left, right) = panels(2, height=4.5)
    for key, mark in zip(SCHEDULES, ("o-", "s-", "x"), strict=True):
        distance = stack(select(measured, map=first), key).mean(axis=0) / n
        left.plot(n, distance, mark, ms=5, label=f"{key} scales")
    line = stack(select(measured, map=first), "uniform").mean(axis=0)[-1]
    left.plot(n, line / n, "k--", lw=1, label=f"{line:.3g} / m")
    left.plot(n, line * np.log(n) / n, "k:", lw=1, label=f"{line:.3g} ln m / m")
    left.set(ylabel="max |h_i - Id|")
    left.set_title(first, fontsize=10)
    left.legend(fontsize=8)
    for i, name in enumerate(names):
        for key, style in zip(SCHEDULES, ("o-", "s--", "x:"), strict=True):
            curve = stack(select(measured, map=name), key).mean(axis=0)
            right.plot(n, curve, style, ms=3, color=f"C{i}", label=f"{name}, {key}")
    right.set(ylabel="m · max |h_i - Id|")
    right.set_title("every map", fontsize=10)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="number of layers m")
        axes.set_xticks(n, [str(each) for each in n])
        axes.minorticks_off()
    entries = right.get_legend_handles_labels()
    picture.legend(*entries, loc="outside lower center", ncols=len(names), fontsize=8)
    return picture


CLAIM = Theorem(
    source="B, after BEL",
    says="A smooth map g with a smooth inverse, g(0) = 0 and Dg(0) = I, is on a ball a composition "
    "of m maps whose Lipschitz distance to the identity is O(log m / m), and even at most "
    "alpha M R / m",
    formula=r"\begin{split} "
    r"g(x) &= Dh(x_0)^{-1} (h(x_0 + x) - h(x_0)),\quad g_a(x) = \frac{g(a x)}{a},\; "
    r"g_0 = \operatorname{Id}, \\ "
    r"g &= h_m \circ \cdots \circ h_1,\quad h_i = g_{i/m} \circ g_{(i-1)/m}^{-1}, \\ "
    r"\lVert h_i - \operatorname{Id} \rVert_{\text{Lip}} &\le \frac{\alpha M R}{m} "
    r"\text{ on } \lVert x \rVert \le R,\quad "
    r"\alpha = \operatorname{Lip}(Dg),\; M = \operatorname{Lip}(g^{-1}), \\ "
    r"\lVert h_i - \operatorname{Id} \rVert_{\text{Lip}} &\le \frac{2 a R}{m} \text{, attained, "
    r"for } (x_1, x_2 - a x_1^2), \\ "
    r"f : \mathbb{R}^d \to \mathbb{R} &\text{ is the last coordinate of } "
    r"(x, b) \mapsto (x, b + f(x)) \text{ at } b = 0 \end{split}",
    family="linear theory",
    scales={
        "smoke": Setting(("henon", "scalar"), (4, 16, 64), d=2, samples=50, fine=64),
        "cpu": Setting(),
    },
    decided_by=(
        always("ratio", at_most=1),
        always("pair_ratio", at_most=1),
        always("composition_error", at_most=1e-10),
        always("uniform_slope", at_most=-0.95),
        always("henon_uniform_slope", at_least=-1.02, at_most=-0.98),
        always("henon_gap", at_most=1e-10),
        always("scalar_error", at_most=1e-10),
    ),
    printed=(
        Quotation(
            form=FORMULA,
            words="h = h_m o ... o h_1, |h_i - Id|_L = O(log m / m)",
            place="B's slides, near-identity layers, in our letters",
            bounds=(
                always("composition_error", at_most=1e-10),
                always("printed_rate_growth", at_most=1),
            ),
        ),
    ),
    costs={"cpu": seconds(64)},
    measure=measure,
    unstable={"whole": np.inf},
    extra_metrics=extra_metrics,
    figure=figure,
    inner="m",
    batch_by=("map", "d", "samples", "fine"),
    batch=3,
    charts=(("uniform", "geometric", "equalised", "bound"), ("ratio", "pair_ratio")),
)
