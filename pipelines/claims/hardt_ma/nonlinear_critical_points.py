"""ReLU blocks have a bad critical point at the identity; it arises only within each layer.

HM section 5 conjecture for blocks of one ReLU layer what Theorem 2.2 says of linear ones. B, after
BEL: near the identity critical points arise only within a layer, where no change of its weights
does what a change of its function could do.

HM do not say in which variables the points are critical. In the weights the conjecture does not
hold at the identity itself: at U = V = s = 0 the risk has gradient 0 whatever it is. That point is
a saddle (`saddle_risk`, after a finite step over before). Where thresholds keep all units silent on
the sample (s < -|U x|, U and V small) the network is the identity on an open set of weights: the
risk is flat there, a bad local minimum. B's reading, in the layers' functions, holds: at both
points a small change of any one layer's function lessens the risk. It holds at critical points that
are not the identity as well: a first block all of whose units fire on the sample, which is then
linear, and fitted by least squares, with silent blocks after it.

Measured: labels of a teacher of the same blocks, |V_i| |U_i| = tau, so that the least risk is 0, on
Gaussian inputs. At the identity, layer by layer (the chart's step): `parameter_gradient`, the norm
of the exact gradient by U_i, V_i and s_i, and `silent_gradient` the same where all units are
silent; `parameter_slope`, the change of risk along a random unit direction of all weights over a
step of 1e-6, relative to `functional_gradient`, the norm of the derivative by the function h_i.
`functional_ratio` is that norm over B's bound 2 Q / |h - h*|. `excess_risk` is the risk there,
the least of all settings; `critical_excess_risk` the largest at which the gradient by all weights
is exactly 0.

At the fitted block, for a teacher of one block that is an odd function, on those inputs and their
negatives, so that the best affine map keeps 0: `fitted_gradient`, the norm by the weights of each
block, `fitted_excess_risk`, and `fitted_distance` of the first block from the identity;
`fitted_functional_ratio`, the norm by each block's function over B's bound, and
`fitted_descent_ratio`, what the risk falls by as h_i moves towards the labels, over that bound.

Run: python -m pipelines run nonlinear-critical-points
     python -m pipelines sweep nonlinear-critical-points --grid tau=0.1:0.9:0.2 --grid l=4
Expect: parameter_gradient and silent_gradient 0 exactly, parameter_slope 2e-7, critical_excess_risk
5.4 +- 5.1 (mean and deviation of 5 seeds), saddle_risk 0.39, functional_ratio 1.3; fitted_gradient
7e-16, fitted_excess_risk 5.2e-4 at least, fitted_distance 0.046, fitted_functional_ratio 1.28,
fitted_descent_ratio 1, its largest value for one block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cells, Curves, Measured, group_by, stack
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.relu_residual import Blocks, as_layers, gradient, move, outputs, risk
from theory.stationary_points import Layer, layer_gradient_norms, network, stationary_bound

STEP = 1e-6  # step of the differences
FAR = 0.7  # weights at which the saddle's descent is looked at
LINE = np.linspace(-1, 1, 41)  # the figure's axis


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and of the sample."""

    d: tuple[int, ...] = (1, 2, 8)
    """Widths; blocks have 2 d units."""
    l: tuple[int, ...] = (1, 2, 8)  # noqa: E741 - the project's letter
    """Numbers of blocks; the block's number is the chart's axis."""
    tau: tuple[float, ...] = (0.3, 0.9)
    """Distances of the teacher's blocks to the identity, below 1."""
    inputs: int = 200
    """Inputs of the sample."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, l=self.l, inputs=(self.inputs,))
        check_sizes(0.01, tau=self.tau)
        if max(self.tau) >= 1:
            raise UserError(
                f"Near the identity is tau < 1. Received: tau={max(self.tau):g}. Set --tau below 1."
            )
        if self.inputs <= max(self.d):
            raise UserError(
                "A sample must have more inputs than dimensions, or a linear block fits it. "
                f"Received: inputs={self.inputs}, d up to {max(self.d)}. Set --inputs."
            )


def random_instance(
    rng: np.random.Generator, d: int, depth: int, tau: float, inputs: int
) -> tuple[Array, ...]:
    """Return U, V and s of the teacher, U, V and s of a direction of norm 1, inputs [inputs, d]."""
    shapes = (depth, 2 * d, d), (depth, d, 2 * d), (depth, 2 * d)
    U, V, s = (rng.normal(size=shape) for shape in shapes)
    U *= np.sqrt(tau) / np.linalg.norm(U, 2, axis=(-2, -1), keepdims=True)
    V *= np.sqrt(tau) / np.linalg.norm(V, 2, axis=(-2, -1), keepdims=True)
    direction = [rng.normal(size=shape) for shape in shapes]
    size = np.sqrt(sum(np.sum(W**2) for W in direction))
    return U, V, 0.1 * s, *(W / size for W in direction), rng.normal(size=(inputs, d))


def measure(cells: Cells) -> Curves:
    """Return gradients by weights and by functions at both critical points, by block; [n, l]."""
    *weights, x = cells.draw(random_instance, "d", "l", "tau", "inputs")
    teacher, direction = Blocks(*weights[:3]), Blocks(*weights[3:])
    y, identity = outputs(teacher, x), Blocks(*(0 * W for W in teacher))
    layers = as_layers(identity)
    norms, bound = layer_gradient_norms(layers, x, y), stationary_bound(layers, x, y)[:, None]
    at_identity, along = risk(identity, x, y), risk(move(identity, STEP, direction), x, y)
    ones = np.ones((1, len(layers)))
    return range(1, len(layers) + 1), {
        "excess_risk": at_identity[:, None] * ones,
        "parameter_gradient": block_norms(identity, x, y),
        "silent_gradient": block_norms(silence_units(teacher, x), x, y),
        "parameter_slope": np.abs(along - at_identity)[:, None] / STEP / norms,
        "functional_gradient": norms,
        "functional_ratio": norms / bound,
        "saddle_risk": (risk(leave_saddle(identity, x, y), x, y) / at_identity)[:, None] * ones,
        **measure_fitted_block(teacher, x),
    }


def measure_fitted_block(teacher: Blocks, x: Array) -> dict[str, Array]:
    """Return gradients by weights and by functions where the first block is fitted; [n, l]."""
    x = np.concatenate([x, -x], axis=-2)
    y = outputs(odd_block(teacher), x)
    blocks = fit_first_block(teacher, x, y)
    layers = as_layers(blocks)
    bound, ones = stationary_bound(layers, x, y)[:, None], np.ones((1, len(layers)))
    return {
        "fitted_gradient": block_norms(blocks, x, y),
        "fitted_excess_risk": risk(blocks, x, y)[:, None] * ones,
        "fitted_distance": np.asarray(layers[0].distance)[:, None] * ones,
        "fitted_functional_ratio": layer_gradient_norms(layers, x, y) / bound,
        "fitted_descent_ratio": descent_rates(layers, x, y) / bound,
    }


def odd_block(teacher: Blocks) -> Blocks:
    """Return a block x + V (ReLU(U x - t) - ReLU(-U x - t)) as far from I as the teacher's.

    U and V are orthogonal up to that size, and t are the norms of the rows of U.
    """
    d = teacher.U.shape[-1]
    U = rotation(teacher.U[:, :1, :d]) * spectral_norms(teacher.U[:, :1]) / np.sqrt(2)
    V = rotation(teacher.V[:, :1, :, :d]) * spectral_norms(teacher.V[:, :1]) / np.sqrt(2)
    U, V = np.concatenate([U, -U], axis=-2), np.concatenate([V, -V], axis=-1)
    return teacher._replace(U=U, V=V, s=-np.linalg.norm(U, axis=-1))


def rotation(W: Array) -> Array:
    """Return the orthogonal factors of square matrices [..., d, d]."""
    left, _, right = np.linalg.svd(W)
    return np.asarray(left @ right)


def spectral_norms(W: Array) -> Array:
    """Return the spectral norms of matrices, of the shape [..., 1, 1]."""
    return np.asarray(np.linalg.norm(W, 2, axis=(-2, -1), keepdims=True))


def fit_first_block(teacher: Blocks, x: Array, y: Array) -> Blocks:
    """Return blocks, the first the best linear map x + W x on the sample, the others silent.

    The first one's units x + t and -x + t fire at all inputs. All are |W| from the identity.
    """
    d = x.shape[-1]
    W = (np.linalg.pinv(x) @ (y - x)).mT
    others = silence_units(teacher, x + x @ W.mT)
    U, s = others.U.copy(), others.s.copy()
    V = others.V * spectral_norms(W)[:, None]
    V /= spectral_norms(others.U) * spectral_norms(others.V)
    U[:, 0] = np.concatenate([np.eye(d), -np.eye(d)])
    V[:, 0] = np.concatenate([W, -W], axis=-1) / 2
    s[:, 0] = 1.01 * np.abs(x).max(axis=(-2, -1))[:, None]
    return teacher._replace(U=U, V=V, s=s)


def descent_rates(layers: list[Layer], x: Array, y: Array) -> Array:
    """Return what the risk falls by, over the step, as each h_i moves towards the labels; [n, l].

    The layers after it must be the identity near the sample.
    """

    def risk_of(changed: list[Layer]) -> Array:
        return np.asarray(np.mean(np.sum((network(changed, x) - y) ** 2, axis=-1), axis=-1) / 2)

    rates, u, h = [], x, network(layers, x)
    for i, layer in enumerate(layers):
        Delta, after = step_towards(u, y - h), layer.function(u)
        changed = layer._replace(function=partial(np.add, STEP * Delta + after - u))
        rates.append((risk_of(layers) - risk_of([*layers[:i], changed, *layers[i + 1 :]])) / STEP)
        u = after
    return np.stack(rates, axis=-1)


def step_towards(u: Array, missing: Array) -> Array:
    """Return a function's change at u along what is missing, nowhere longer than |u|; [n, k, d]."""
    far, near = (np.linalg.norm(v, axis=-1) for v in (missing, u))
    return np.asarray(missing / np.max(far / near, axis=-1)[:, None, None])


def block_norms(blocks: Blocks, x: Array, y: Array) -> Array:
    """Return norms of the gradient by the weights of each block; [n, l]."""
    G = gradient(blocks, x, y)
    squares = [np.sum(W**2, axis=(-2, -1)) for W in G[:2]] + [np.sum(G.s**2, axis=-1)]
    return np.asarray(np.sqrt(sum(squares)))


def silence_units(teacher: Blocks, x: Array) -> Blocks:
    """Return the teacher's weights U, V, with thresholds under which no unit fires at any input."""
    longest = np.linalg.norm(x, axis=-1).max(axis=-1)[:, None]
    reach = np.linalg.norm(teacher.U, 2, axis=(-2, -1)) * longest
    return teacher._replace(s=np.broadcast_to(-1.01 * reach[..., None], teacher.s.shape))


def leave_saddle(identity: Blocks, x: Array, y: Array) -> Blocks:
    """Return weights off the identity in a direction of negative curvature, the first block's.

    Its units are x and -x, and V fits what is missing by least squares.
    """
    d = x.shape[-1]
    U, V = np.zeros_like(identity.U), np.zeros_like(identity.V)
    both = np.concatenate([np.eye(d), -np.eye(d)])
    U[:, 0] = FAR * both
    features = np.maximum(x @ both.T, 0)
    V[:, 0] = FAR * (np.linalg.pinv(features) @ (y - x)).mT
    return identity._replace(U=U, V=V)


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the largest risk at which the gradient by all weights is 0, or 0."""
    critical = [m for m in measured if not m.curves["parameter_gradient"].any()]
    largest = max((float(m.curves["excess_risk"].max()) for m in critical), default=0.0)
    return {"critical_excess_risk": largest}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw risks along lines through the identity; gradients of each block in the deepest nets."""
    picture, (left, right) = panels(2)
    draw_lines(left, measured[-1])
    deepest, chosen = group_by(measured, "l")[-1]
    for colour, (tau, cells) in enumerate(group_by(chosen, "tau")):
        mean = stack(cells, "functional_gradient").mean(axis=0)
        right.plot(chosen[0].steps, mean, f"C{colour}o-", markersize=4, label=f"τ = {tau:g}")
    zero = stack(chosen, "parameter_gradient").max(axis=0)
    right.plot(chosen[0].steps, zero, "ks", markersize=4, label="by the weights, every τ")
    right.set(xlabel="block", ylabel="norm of the gradient at the identity", ylim=(-0.02, None))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_title(f"by the function of a block, mean, {deepest} blocks", fontsize=10)
    right.legend(fontsize=8)
    return picture


def draw_lines(axes: Any, m: Measured) -> None:
    """Draw risk over the identity's: along random weights, the way down, and a layer's function."""
    names = ("d", "l", "tau", "inputs")
    *weights, x = Cells((m.cell,)).draw(random_instance, *names)
    teacher, direction = Blocks(*weights[:3]), Blocks(*weights[3:])
    y, identity = outputs(teacher, x), Blocks(*(0 * W for W in teacher))
    start, down = risk(identity, x, y), leave_saddle(identity, x, y)
    lines = {
        "weights, a random direction": [risk(move(identity, t, direction), x, y) for t in LINE],
        "weights, down from the saddle": [risk(move(identity, t, down), x, y) for t in LINE],
        "function of a block": [
            np.mean(np.sum((x + t * step_towards(x, y - x) - y) ** 2, axis=-1)) / 2 for t in LINE
        ],
    }
    for label, values in lines.items():
        axes.plot(LINE, np.ravel(values) / start, label=label)
    axes.axhline(0, color="k", linewidth=0.8)
    axes.set(xlabel="step from the identity", ylabel="risk / risk of the identity")
    d, blocks, tau = (m.point[name] for name in ("d", "l", "tau"))
    axes.set_title(f"d = {d}, {blocks} blocks, τ = {tau:g}", fontsize=10)
    axes.legend(fontsize=8)


CLAIM = Theorem(
    source="B, after BEL, on HM section 5",
    says="For ReLU blocks x + V ReLU(U x + s) the identity is a critical point of positive excess "
    "risk, and critical points arise only within a layer: the functional gradient is not 0 there, "
    "nor where all units are silent, nor at a fitted block, a critical point that is not the "
    "identity",
    formula=r"\begin{split} "
    r"&h = h_m \circ \cdots \circ h_1,\quad h_i(u) = u + V_i \operatorname{ReLU}(U_i u + s_i), \\ "
    r"&Q = \frac{1}{2n} \sum_k \lVert h(x_k) - y_k \rVert^2,\quad \min Q = 0: \\ "
    r"&\nabla_{U, V, s}\, Q = 0 \text{ and } Q > 0 \text{ at } U = V = s = 0, "
    r"\text{ and where } U_i h + s_i < 0 \text{ on the sample}, \\ "
    r"&\text{and at a fitted linear } h_1 \ne \operatorname{Id} "
    r"\text{ before such silent blocks; yet there} \\ "
    r"&\lVert D_{h_i} Q \rVert \ge "
    r"\frac{2\, (1 - \varepsilon)^{m-1}\, Q(h)}{\lVert h - h^\star \rVert} > 0 "
    r"\text{ for every } i, \\ "
    r"&\varepsilon = \max_i \lVert h_i - \operatorname{Id} \rVert_{\text{Lip}} \text{ on the "
    r"sample} \end{split}",
    family="linear theory",
    scales={"smoke": Setting((2,), (1, 3), (0.5,), 50), "cpu": Setting()},
    decided_by=(
        always("parameter_gradient", at_most=0),
        always("silent_gradient", at_most=0),
        always("parameter_slope", at_most=1e-3),
        always("excess_risk", at_least=1e-6),
        always("saddle_risk", at_most=0.99),
        always("functional_ratio", at_least=1 - 1e-12),
        always("fitted_gradient", at_most=1e-10),
        always("fitted_excess_risk", at_least=1e-6),
        always("fitted_distance", at_least=1e-3),
        always("fitted_functional_ratio", at_least=1 - 1e-12),
        always("fitted_descent_ratio", at_least=1 - 1e-3),
    ),
    printed=(
        Quotation(
            words="We conjecture that a result analogous to Theorem 2.2 is true for the general "
            "non-linear case. Unlike with the standard parameterization, we see no fundamental "
            "obstacle for such a result.",
            place="HM section 5",
            needs={"whether the points are critical in the weights or in the layers": False},
            bounds=(always("critical_excess_risk", at_most=1e-9),),
            note="this is of the weights; of the layers' functions, as B has it, it holds",
        ),
    ),
    costs={"cpu": seconds(11)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    batch_by=("d", "l", "inputs"),
    charts=(("functional_gradient", "parameter_gradient"), ("fitted_functional_ratio",)),
)
