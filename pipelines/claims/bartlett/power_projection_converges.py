"""Power projection with balanced layers converges linearly to any target of positive margin.

Phi has margin gamma > 0: u^T Phi u >= gamma for all unit u. A step of power projection is one of
gradient descent, then the nearest matrix of margin gamma to the product, then its balanced layers
Theta_i = Q^(i/l) P^(1/l) Q^(-(i-1)/l) (QP the polar form).

The rate (ours): singular values of a matrix of margin gamma are at least gamma, so those of the
layers at least gamma^(1/l), and |grad|^2 >= 2 l gamma^(2-2/l) loss; the projection does not move
away from Phi, which has the margin. A step of a rate as small as one over the Hessian multiplies
the loss by at most 1 - rate l gamma^(2-2/l); measured with rate = 1/(l (1 + |Phi|^2)).

Measured: Phi = V diag(w) V^T + K, w uniform in [gamma, gamma + 1] with the least equal to gamma, V
uniform, K skew of norm `skew`, over d, l, skew, gamma, up to the iteration at which that bound is
1e-10. `decrement_ratio` is the least share of the loss that a step has taken off so far, over rate
l gamma^(2-2/l), at losses above rounding; `margin_ratio` the least margin of the products so far
over gamma, `balance_error` the largest relative distance of a layer's singular values from
s_j^(1/l), and `final_loss` the last loss over the first.

An empirical finding, for which no proof is known to us: plain gradient descent from the identity
reaches every target tried just as well (`plain_final_loss`), although in a share of them its
products lose the margin of Phi (`plain_below_margin_pct`) or even a positive one
(`plain_not_positive_pct`). Power projection from the same start takes about as many iterations;
from gamma^(1/l) I more or fewer, by target. For these random targets the projection was not needed.

Run: python -m pipelines run power-projection-converges
     python -m pipelines sweep power-projection-converges --grid skew=0:4:1 --grid d=3 --seeds 9
Expect: decrement_ratio 1.72 +- 0.11 (mean and deviation of 5 seeds), balance_error 1e-15, and to
1e-10 l(I) in the mean 77 iterations, 102 from the identity, 104 of plain descent, which in 52.5 +-
3.7 % of the targets loses the margin and in 0.8 +- 1.9 % a positive one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import ASSUMPTION, Array, Cells, Curves, Measured
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.descent import descent_path, loss, margin, product, projection_path

TARGET = 1e-10  # loss relative to the first
FLOOR = 1e-14  # loss relative to the first, at which a network stops


@dataclass(frozen=True)
class Setting:
    """Sizes of the networks and shapes of their targets."""

    d: tuple[int, ...] = (2, 5)
    """Matrix dimensions."""
    l: tuple[int, ...] = (2, 8)  # noqa: E741 - the paper's letter
    """Depths."""
    skew: tuple[float, ...] = (0.0, 1.0, 4.0)
    """Spectral norms of the skew part of Phi."""
    gamma: tuple[float, ...] = (0.2, 1.0)
    """Margins of Phi, the least eigenvalue of its symmetric part."""

    def __post_init__(self) -> None:
        check_sizes(2, d=self.d)  # Phi = gamma would be the start
        check_sizes(1, l=self.l)
        check_sizes(0, skew=self.skew)
        check_sizes(0.01, gamma=self.gamma)


def random_target(rng: np.random.Generator, d: int, skew: float, gamma: float) -> Array:
    """Return Phi of that margin and of a skew part of that norm; [d, d]."""
    V = np.linalg.qr(rng.normal(size=(d, d)))[0]
    w = gamma + np.append(0.0, rng.uniform(size=d - 1))
    N = rng.normal(size=(d, d))
    K = N - N.T
    return np.asarray(V * w @ V.T + skew * K / np.linalg.norm(K, 2))


def recorded_iterations(depth: int, skew: float, gamma: float) -> list[int]:
    """Return some 100 iterations, the early ones all, to 1e-10 by the bound.

    With |Phi| at its largest, gamma + 1 + skew.
    """
    shrink = gamma ** (2 - 2 / depth) / (1 + (gamma + 1 + skew) ** 2)
    last = int(np.ceil(np.log(TARGET) / np.log1p(-shrink)))
    return [int(t) - 1 for t in np.unique(np.geomspace(1, last + 1, 150).round())]


def measure(cells: Cells) -> Curves:
    """Return losses, margins and errors of three descents to the same targets; [n, iterations]."""
    d, depth, skew, gamma = (cells.shared(name) for name in ("d", "l", "skew", "gamma"))
    Phi = cells.draw(random_target, "d", "skew", "gamma")
    rate = 1 / (depth * (1 + np.linalg.norm(Phi, 2, axis=(-2, -1)) ** 2))
    steps = recorded_iterations(depth, skew, gamma)
    go = (Phi, depth, rate, steps[-1])
    identity = np.broadcast_to(np.eye(d), (depth, d, d))
    curves = follow(projection_path(*go, gamma), Phi, steps)
    again = follow(projection_path(*go, gamma, start=identity), Phi, steps)
    plain = follow(descent_path(*go), Phi, steps)
    curves |= {f"identity_{name}": again[name] for name in ("loss", "margin")}
    curves |= {f"plain_{name}": plain[name] for name in ("loss", "margin", "least_margin")}
    factor = (1 - rate * depth * gamma ** (2 - 2 / depth))[:, None]
    curves["bound"] = curves["loss"][:, :1] * factor ** np.array(steps)
    curves["decrement_ratio"] = (1 - curves.pop("factor")) / (1 - factor)
    curves["margin_ratio"] = curves.pop("least_margin") / gamma
    for name in ("", "plain_"):
        relative = curves[f"{name}loss"][:, -1:] / curves[f"{name}loss"][:, :1]
        curves[f"{name}final_loss"] = np.broadcast_to(relative, curves["loss"].shape)
    has_margin = (margin(Phi) >= gamma * (1 - 1e-9))[:, None]
    curves[ASSUMPTION] = np.broadcast_to(has_margin, curves["loss"].shape)
    return steps, curves


def follow(path: Iterable[Array], Phi: Array, steps: Sequence[int]) -> dict[str, Array]:
    """Return what is seen at those iterations; a network whose loss is rounding stays; [n, k].

    `least_margin` and `factor`, the largest factor of a step on the loss, are over all iterations.
    """
    rows: list[dict[str, Array]] = []
    for t, Theta in enumerate(path):
        new = observe(Theta, Phi)
        if t == 0:
            start, live = new["loss"], new["loss"] > 0
            last = new | {"least_margin": new["margin"], "factor": np.zeros(len(Phi))}
        else:
            factor = np.divide(new["loss"], last["loss"], out=np.zeros_like(start), where=live)
            new["factor"] = np.maximum(last["factor"], factor)
            new["least_margin"] = np.minimum(last["least_margin"], new["margin"])
            last = {key: np.where(live, value, last[key]) for key, value in new.items()}
        if t in steps:
            rows.append(last)
        live = last["loss"] > FLOOR * start
        if not live.any():
            break
    rows += [last] * (len(steps) - len(rows))
    return {key: np.stack([row[key] for row in rows], axis=-1) for key in last}


def observe(Theta: Array, Phi: Array) -> dict[str, Array]:
    """Return loss, margin of the product, and distance of the layers from balanced ones; [n]."""
    M = product(Theta)
    roots = np.linalg.svdvals(M)[..., None, :] ** (1 / Theta.shape[-3])
    error = np.abs(np.linalg.svdvals(Theta) / roots - 1).max(axis=(-2, -1))
    return {"loss": loss(Theta, Phi), "margin": margin(M), "balance_error": error}


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return plain descent beside power projection: losses, shares of targets, mean iterations."""
    least = np.array([m.curves["plain_least_margin"][-1] / m.point["gamma"] for m in measured])
    arrivals = {name: [iterations_to_target(m, f"{name}loss") for m in measured] for name in LABELS}
    return {
        "plain_final_loss": max(float(m.curves["plain_final_loss"][-1]) for m in measured),
        "plain_below_margin_pct": 100 * float(np.mean(least < 1 - 1e-9)),
        "plain_not_positive_pct": 100 * float(np.mean(least <= 0)),
        **{f"{name}iterations": float(np.mean(found)) for name, found in arrivals.items()},
    }


def iterations_to_target(m: Measured, name: str) -> float:
    """Return the iteration at which that loss is 1e-10 l(I), interpolated; infinite if at none."""
    log_loss = np.log(np.maximum(m.curves[name] / m.curves["plain_loss"][0], 1e-300))
    below = np.flatnonzero(log_loss <= np.log(TARGET))
    if not len(below):
        return np.inf
    near = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-np.log(TARGET), -log_loss[near], m.steps[near]))


LABELS = {
    "": "power projection from γ^(1/l) I",
    "identity_": "power projection from I",
    "plain_": "plain descent from I",
}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw losses where a step is nearest its bound; margins where plain descent's are least."""
    near = min(measured, key=lambda m: m.curves["decrement_ratio"][-1])
    low = min(measured, key=lambda m: m.curves["plain_least_margin"][-1] / m.point["gamma"])
    picture, (left, right) = panels(2)
    left.plot(near.steps, near.curves["bound"], "k--", lw=1, label="bound for power projection")
    left.set(yscale="log", ylabel="loss")
    draw_descents(left, near, "loss", "The step nearest to its bound")
    left.set_ylim(bottom=10 * FLOOR * near.curves["loss"][0])
    draw_descents(right, low, "margin", "The lowest margin of plain descent, relative to γ")
    right.axhline(low.point["gamma"], color="k", lw=1, ls="--", label="γ, the margin of the target")
    right.axhline(0, color="k", lw=0.5)
    right.set(ylabel="margin of the product")
    right.legend(fontsize=7)
    return picture


def draw_descents(axes: Any, m: Measured, kind: str, why: str) -> None:
    """Draw losses or margins of the three descents in a cell, the later thinner to show all."""
    for colour, (prefix, label) in enumerate(LABELS.items()):
        width = 4 - 1.5 * colour
        axes.plot(m.steps, m.curves[prefix + kind], f"C{colour}", lw=width, label=label)
    last = max(iterations_to_target(m, f"{prefix}loss") for prefix in LABELS)
    axes.set(xlabel="iteration", xlim=(0, 1.2 * last if np.isfinite(last) else m.steps[-1]))
    axes.xaxis.get_major_locator().set_params(integer=True)
    cell = ", ".join(f"{k} = {v:g}" for k, v in m.cell.params.items())
    axes.set_title(f"{why}:\n{cell}", fontsize=10)
    axes.legend(fontsize=7)


CLAIM = Theorem(
    source="B, after BHL",
    says="Power projection with balanced factorization converges linearly to every target of "
    "positive margin, symmetric or not",
    formula=r"\begin{split} "
    r"&u^\top \Phi u \ge \gamma \lVert u \rVert^2 \text{ for all } u,\; \gamma > 0,\quad "
    r"\eta = \frac{1}{l\, (1 + \lVert \Phi \rVert^2)} \\ "
    r"&\;\Longrightarrow\; \ell_{t+1} \le (1 - \eta l \gamma^{2 - 2/l})\, \ell_t,\quad "
    r"\ell = \tfrac12 \lVert \Theta_l \cdots \Theta_1 - \Phi \rVert_F^2, \\ "
    r"&\text{a step: descent by } \eta \text{, then the nearest } Q P "
    r"\text{ of margin } \gamma \text{ to the product, then} \\ "
    r"&\Theta_i = Q^{i/l} P^{1/l} Q^{-(i-1)/l},\quad s_j(\Theta_i) = s_j(Q P)^{1/l} \end{split}",
    family="linear theory",
    scales={"smoke": Setting((2,), (3,), (0.0, 1.0), (1.0,)), "cpu": Setting()},
    decided_by=(
        always("decrement_ratio", at_least=1),
        always("margin_ratio", at_least=1 - 1e-9),
        always("balance_error", at_most=1e-12),
        always("final_loss", at_most=TARGET),
    ),
    costs={"cpu": seconds(16)},
    measure=measure,
    extra_metrics=extra_metrics,
    figure=figure,
    batch_by=("d", "l", "skew", "gamma"),
    charts=(("loss", "bound", "plain_loss"), ("margin", "plain_margin")),
)
