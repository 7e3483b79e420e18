"""What HM's theorems promise of a linear residual network's landscape improves with its depth.

The results that HM section 1.2 speaks of are Theorem 2.1, which finds an optimum in the ball max
|A_i| <= (4 pi + 3 gamma)/l, and (2.3), by which |grad f|^2 is at least 4 l (1 - tau)^(2l-2)
s_min(Sigma) (f - C_opt) in a ball of radius tau < 1. Together they promise more of deeper networks:
the radius falls, and the factor rises with l from the depth on at which the radius is below 1. In a
ball of radius 1 or more, from two layers on, there is no such factor: A_1 = A_2 = -I is a critical
point of any risk.

Two things belong beside it. A single layer is a convex problem, whose factor is 4 in any ball;
deeper networks exceed it from about l = e^(2c) on, c = l tau: from 8 layers on where R is positive
definite and gamma = 1, by the balanced factorization, but from 8e10 e^(6 gamma) on with the radius
of Theorem 2.1. And descent takes more steps in deep networks than in networks of two layers, for
every R that was tried.

Measured, by depth (the chart's step), for R of log norm gamma = 1 that are positive definite,
turned by angles up to 3 pi/4, or turned at random, and for Sigma = I and a random one. With the
radius of Theorem 2.1 (`printed_radius`) and that of the balanced factorization (`balanced_radius`,
never above): `printed_least` and `balanced_least`, the factor 4 l (1 - tau)^(2l-2), 0 at tau >= 1.
It bounds |grad f|^2/(f - C_opt)/s_min(Sigma) in the ball: `least_ratio` is the least of these
quotients over the factor, at A_i = -tau I and at random points. For Sigma = I it is 1 at the
former, so that the factor is the minimum; `attained_gap` is how far from 1. `growth` is the least
factor of a depth over that of the depth before, where both radii are below 1;
`printed_single_layer_share` and `balanced_single_layer_share` the largest factor over 4.

`steps` is how many steps gradient descent takes from A = 0 to 1e-6 of the risk there, at the best
rate of a list for each depth, 2^(j/2)/(2 l |Sigma| max(1, |R|)^(2 - 2/l)), j from -6 to 6: about
the inverse of the largest curvature, and what is best about it. `steps_growth` is the steps of the
deepest over those of two layers, the least over all R and Sigma; `fewer_pct`, how often a depth
takes fewer steps than the depth before; `unfinished`, how many descents do not arrive in
`most_steps`; `at_an_end`, the share of best rates that are the first or the last of the list.

Run: python -m pipelines run deeper-landscapes
     python -m pipelines sweep deeper-landscapes --grid gamma=0.1,0.3,1 --grid d=2,4,8
Expect: growth 2.0, least_ratio 1, attained_gap 1e-14; printed_single_layer_share 6e-13 and
balanced_single_layer_share 17 (at l = 128); steps_growth 2.7 ± 0.7, fewer_pct 3.8 ± 2.7, unfinished
and at_an_end 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_counts, check_names, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Measured, join, measure_at, select, stack
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import minutes
from theory.factorization import balanced_bound, max_norm, paper_bound
from theory.linear_resnet import excess_risk, gradient

TARGETS = ("positive", "random", "turned")
COVARIANCES = ("identity", "random")
RADII = ("printed", "balanced")
ANGLE = 0.75 * np.pi  # largest of a turned R
ARRIVED = 1e-6  # relative to the risk at the start
FACTORS = 2.0 ** np.arange(-3, 3.1, 0.5)  # rates that are tried, relative to 1/L
POINTS = 20  # random points of a ball
FARTHEST = 1e3  # norm of a layer that has diverged
LAYERS = (-3, -2, -1)  # axes of a network


@dataclass(frozen=True)
class Setting:
    """The problems and the depths."""

    target: tuple[str, ...] = TARGETS
    """Matrices R."""
    covariance: tuple[str, ...] = COVARIANCES
    """Sigma."""
    l: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)  # noqa: E741 - the paper's letter
    """Depths."""
    d: tuple[int, ...] = (4,)
    """Matrix dimensions."""
    gamma: tuple[float, ...] = (1.0,)
    """Largest |log singular value| of R."""
    most_steps: int = 4_000
    """Steps of a descent, at most."""

    def __post_init__(self) -> None:
        check_sizes(2, d=self.d)
        check_sizes(1, l=self.l)
        check_sizes(0, gamma=self.gamma)
        check_counts(most_steps=self.most_steps)
        check_names("A target", self.target, TARGETS)
        check_names("A covariance", self.covariance, COVARIANCES)
        if 2 not in self.l or max(self.l) < 3:
            raise UserError(
                "Depths are compared with two layers: l must have 2 and more. Received: "
                f"{', '.join(map(str, self.l))}. Set --l."
            )


def random_problem(rng: np.random.Generator, cell: Cell) -> tuple[Array, Array]:
    """Return R [d, d] of positive determinant and Sigma [d, d]."""
    from scipy.linalg import expm

    d, target = cell.point["d"], cell.point["target"]
    U, s, Vt = np.linalg.svd(rng.normal(size=(d, d)))
    P = Vt.T * np.exp(cell.point["gamma"] * np.log(s) / np.abs(np.log(s)).max()) @ Vt
    skew, root = rng.normal(size=(d, d)), rng.normal(size=(d, d)) / np.sqrt(d)
    skew = skew - skew.T
    U[:, -1] *= np.linalg.slogdet(U @ Vt)[0]
    Q = {
        "positive": np.eye(d),
        "random": U @ Vt,
        "turned": expm(ANGLE * skew / np.abs(np.linalg.eigvals(skew)).max()),
    }[target]
    is_plain = cell.point["covariance"] == "identity"
    return Q @ P, np.eye(d) if is_plain else root @ root.T + 0.1 * np.eye(d)


def measure_depth(cell: Cell, depth: int) -> dict[str, float]:
    """Return the numbers of one problem at one depth."""
    R, sigma = random_problem(np.random.default_rng(cell.seed), cell)
    rng = np.random.default_rng([cell.seed, depth])
    numbers: dict[str, float] = {}
    ratios, gaps = [1e300], [0.0]
    for name, bound in zip(RADII, (paper_bound, balanced_bound), strict=True):
        tau = float(bound(R, depth))
        least = least_factor(depth, tau)
        numbers |= {f"{name}_radius": tau, f"{name}_least": least}
        if tau < 1:
            found = quotients(rng, R, sigma, depth, tau) / least
            ratios.append(float(found.min()))
            gaps.append(abs(float(found[0]) - 1))
    steps, rate = steps_to_arrive(R, sigma, depth, cell.point["most_steps"])
    is_plain = cell.point["covariance"] == "identity"
    return numbers | {
        "least_ratio": min(ratios),  # 1e300 where no radius is below 1
        "attained_gap": max(gaps) if is_plain else 0.0,
        "steps": steps,
        "rate_factor": rate,
    }


def least_factor(depth: int, tau: float) -> float:
    """Return 4 l (1 - tau)^(2l-2), 4 of a single layer, 0 of more in a ball of radius >= 1."""
    return 4.0 * depth * max(1 - tau, 0.0) ** (2 * depth - 2)


def quotients(rng: np.random.Generator, R: Array, sigma: Array, depth: int, tau: float) -> Array:
    """Return |grad f|^2/(f - C_opt)/s_min(Sigma) at A_i = -tau I, then at random points; [k]."""
    A = rng.normal(size=(POINTS, depth, *R.shape))
    A *= tau / np.linalg.norm(A, 2, axis=(-2, -1))[..., None, None]
    A[0] = -tau * np.eye(len(R))
    A[1::2] += rng.uniform(size=(len(A[1::2]), 1, 1, 1)) * (A[0] - A[1::2])  # nearer to the worst
    squares = np.sum(gradient(A, R, sigma) ** 2, axis=LAYERS)
    return np.asarray(squares / excess_risk(A, R, sigma) / np.linalg.norm(sigma, -2))


def steps_to_arrive(R: Array, sigma: Array, depth: int, most: int) -> tuple[float, float]:
    """Return the fewest steps of gradient descent from A = 0, and which of FACTORS takes them.

    One more than the most where no rate arrives.
    """
    norm, factors = max(1.0, float(np.linalg.norm(R, 2))), FACTORS
    rate = 1 / (2 * depth * np.linalg.norm(sigma, 2) * norm ** (2 - 2 / depth))
    A = np.zeros((len(factors), depth, *R.shape))
    start = excess_risk(A[0], R, sigma)
    for step in range(most + 1):
        risk = excess_risk(A, R, sigma) / start
        if np.any(risk <= ARRIVED):
            return float(step), float(factors[np.argmin(risk)])
        A = A - rate * factors[:, None, None, None] * gradient(A, R, sigma)
        stays = max_norm(A) < FARTHEST
        A, factors = A[stays], factors[stays]
    return most + 1.0, 0.0


def growths(measured: Sequence[Measured]) -> Array:
    """Return factors of a depth over those of the depth before, where both radii are below 1."""
    found = []
    for m in measured:
        for name in RADII:
            least, tau = m.curves[f"{name}_least"], m.curves[f"{name}_radius"]
            both = (tau[:-1] < 1) & (m.steps[:-1] > 1)
            found.append(least[1:][both] / least[:-1][both])
    return np.concatenate(found)


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return how the factors grow, and how the steps do."""
    steps, depths = stack(measured, "steps"), measured[0].steps
    deep, growth = depths > 1, growths(measured)
    numbers = {
        f"{name}_single_layer_share": float(
            np.max(stack(measured, f"{name}_least")[:, deep]) / least_factor(1, 0.0)
        )
        for name in RADII
    }
    numbers |= {
        "steps_growth": float(np.min(steps[:, -1] / steps[:, depths == 2][:, 0])),
        "fewer_pct": 100 * float(np.mean(np.diff(steps) < 0)),
        "unfinished": float(sum(np.sum(m.curves["rate_factor"] == 0) for m in measured)),
        "at_an_end": float(np.mean(np.isin(join(measured, "rate_factor"), FACTORS[[0, -1]]))),
    }
    return numbers | ({"growth": float(growth.min())} if len(growth) else {})


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the factors by depth, with that of a single layer; steps by depth."""
    picture, (left, right) = panels(2, 11, 4.2)
    gamma, d = max(m.point["gamma"] for m in measured), max(m.point["d"] for m in measured)
    chosen = select(measured, gamma=gamma, d=d)
    depths = chosen[0].steps
    labels = {"printed": "(4π + 3γ)/l, Theorem 2.1", "balanced": "balanced factorization"}
    for colour, (name, radius) in enumerate(labels.items()):
        for m in chosen:
            least = m.curves[f"{name}_least"]
            left.plot(depths[1:], np.where(least > 0, least, np.nan)[1:], f"C{colour}.-", lw=0.7)
        left.plot([], [], f"C{colour}.-", label=radius)
    left.axhline(4, color="k", linestyle=":", label="a single layer")
    left.set(xscale="log", yscale="log", xlabel="depth l", ylim=(1e-16, 200))
    left.set_ylabel("least |grad f|² / (f - C_opt) / s_min(Σ) in the ball")
    left.set_title(f"d = {d}, γ = {gamma:g}; not drawn: less, and 0", fontsize=10)
    left.legend(fontsize=8, title="radius of the ball", loc="center right")
    for colour, target in enumerate(TARGETS):
        for covariance, style in zip(COVARIANCES, ("-", "--"), strict=True):
            for m in select(chosen, target=target, covariance=covariance):
                right.plot(depths, m.curves["steps"], f"C{colour}{style}", lw=0.8)
            right.plot([], [], f"C{colour}{style}", label=f"R {target}, Σ {covariance}")
    right.set(xscale="log", yscale="log", xlabel="depth l", ylabel="steps to 1e-6, best rate")
    right.legend(fontsize=8)
    return picture


CLAIM = Theorem(
    source="HM section 1.2",
    says="What Theorems 2.1 and 2.2 promise of the landscape improves with depth, from two layers "
    "on: the factor between squared gradient and risk rises, in a ball that holds an optimum and "
    "shrinks. Descent takes more steps in deeper networks all the same",
    formula=r"\begin{split} &\tau_l = \frac{4 \pi + 3 \gamma}{l} < 1: \quad "
    r"\min_{\max \lVert A_i \rVert \le \tau_l} "
    r"\frac{\lVert \nabla f(A) \rVert_F^2}{s_{\min}(\Sigma)\, (f(A) - C_{\text{opt}})} "
    r"\ge \kappa_l = 4 l\, (1 - \tau_l)^{2l - 2}, \\ "
    r"&\text{with equality for } \Sigma = I \text{ at } A_i = -\tau_l I;\quad "
    r"\kappa_{l'} \ge \kappa_l \text{ for } l' > l > 4 \pi + 3 \gamma \end{split}",
    family="linear theory",
    scales={
        "smoke": Setting(("positive",), l=(1, 2, 16, 32, 64), d=(2,), most_steps=1_000),
        "cpu": Setting(),
    },
    decided_by=(
        always("growth", at_least=1),
        always("least_ratio", at_least=1 - 1e-9),
        always("attained_gap", at_most=1e-9),
    ),
    printed=(
        Quotation(
            words="Our results also indicate that deeper networks may have more desirable "
            "optimization landscapes compared with shallower ones.",
            place="HM section 1.2",
            bounds=(always("growth", at_least=1),),
            note="read of what Theorems 2.1 and 2.2 promise together, from two layers on; "
            '"may" and "indicate" ask for no more',
        ),
    ),
    costs={"cpu": minutes(2)},
    measure=measure_at("l", measure_depth),
    extra_metrics=extra_metrics,
    shown=(
        "printed_single_layer_share",
        "balanced_single_layer_share",
        "steps_growth",
        "fewer_pct",
    ),
    figure=figure,
    inner="l",
    charts=(("printed_least", "balanced_least"), ("steps",)),
    batch_by=("d",),
    batch=1,
)
