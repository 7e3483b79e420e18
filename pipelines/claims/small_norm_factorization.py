"""Every matrix of positive determinant is a product of matrices near the identity.

Source: HM Theorem 2.1. With R = Q P (polar), gamma = max |log singular value| and depth
l >= 3 gamma there are A_i with (I + A_l) ... (I + A_1) = R and max |A_i| <= (4 pi + 3 gamma) / l in
the spectral norm; for positive definite R, 3 gamma / l.

Measured: random R over dimension, conditioning and depth, factored by the balanced polar
construction (ours, with the smaller bound 2 sin(theta / 2l) + e^(gamma/l) - 1) and by the paper's
own split into 4q + p factors. `worst_ratio` is our largest norm over the paper's bound,
`psd_worst_ratio` the same for the positive definite factor, `over_lower_bound` our norm over what
no factorization can go below, at the largest depth. The theorem holds at every integer depth; the
paper's split, with integers q and p, does not keep its own bound at every depth
(`printed_violations_pct`). Matrices of negative determinant are factored after augmentation by one
dimension.

Run: python -m pipelines run small-norm-factorization        (10 s on 2 cores)
Expect: worst_ratio about 0.25, product_error below 1e-12.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claim import Bench, Claim
from pipelines.errors import UserError, check_sizes
from pipelines.verdict import Bound

Array = NDArray[np.float64]
SHALLOWEST = 5  # the paper's split needs 4q + p layers with q, p >= 1


@dataclass(frozen=True)
class Setting:
    """Sizes of the sweep."""

    dimensions: tuple[int, ...] = (2, 8, 64)
    """Matrix dimensions d."""
    conditionings: tuple[float, ...] = (0.1, 1.0, 3.0)
    """gamma: largest |log singular value|."""
    depths: tuple[int, ...] = (5, 6, 7, 8, 11, 16, 23, 32, 64, 128, 256)
    """Numbers of layers l; those under 3 gamma are left out, as the theorem does."""

    def __post_init__(self) -> None:
        check_sizes(1, dimensions=self.dimensions)
        check_sizes(0, conditionings=self.conditionings)
        check_sizes(SHALLOWEST, depths=self.depths)
        if max(self.depths) < 3 * max(self.conditionings):
            raise UserError(
                "The theorem needs a depth of at least 3 gamma. Received: depths up to "
                f"{max(self.depths)} for gamma = {max(self.conditionings):g}. Set --depths."
            )


def random_matrix(d: int, gamma: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """R = Q P and P: Q uniform on SO(d), P positive definite with max |log eigenvalue| = gamma."""
    from scipy.stats import ortho_group, special_ortho_group

    Q = special_ortho_group(d).rvs(random_state=rng)
    V = ortho_group(d).rvs(random_state=rng)
    logs = rng.uniform(-gamma, gamma, d)
    logs[0] = gamma
    P = V * np.exp(logs) @ V.T  # [d, d]
    return Q @ P, P


def measure(setting: Setting, seed: int, bench: Bench) -> tuple[dict[str, float], Any]:
    """The worst case over one seed's matrices; a child run for each, with depth as its axis."""
    rng = np.random.default_rng(seed)
    drawn, cases = {}, []
    for d in setting.dimensions:
        for gamma in setting.conditionings:
            depths = [depth for depth in setting.depths if depth >= 3 * gamma]
            R, P = random_matrix(d, gamma, rng)
            curves, case = factored(R, P, depths)
            name = f"d={d} gamma={gamma:g} seed={seed}"
            bench.curves(name, {"d": d, "gamma": gamma, "seed": seed}, curves, depths)
            cases.append(case)
            drawn[d, gamma] = (depths, curves)
    worst = {key: max(case[key] for case in cases) for key in cases[0]}
    violations = [c["printed"] > c["paper_bound"] for _, c in drawn.values()]
    share = float(np.mean(np.concatenate(violations)))
    return worst | {"printed_violations_pct": 100 * share}, drawn


def factored(
    R: Array, P: Array, depths: Sequence[int]
) -> tuple[dict[str, Array], dict[str, float]]:
    """Curves over depth, each l * max norm [n], and the worst numbers, of one matrix."""
    from theory.factorization import balanced, lower_bound, max_norm, paper_bound, printed

    layers = [balanced(R, depth) for depth in depths]
    flipped = R.copy()
    flipped[:, 0] *= -1  # det < 0, the same singular values
    l = np.asarray(depths)  # noqa: E741 - the paper's letter
    curves = {
        "balanced": l * [max_norm(A) for A in layers],
        "printed": l * [max_norm(printed(R, depth)) for depth in depths],
        "paper_bound": l * paper_bound(R, l),
        "lower_bound": l * lower_bound(R, l),
    }
    return curves, {
        "worst_ratio": float(np.max(curves["balanced"] / curves["paper_bound"])),
        "product_error": max(product_error(A, R) for A in layers),
        "psd_worst_ratio": max(psd_ratio(P, depth) for depth in depths),
        "augmented_product_error": augmented_error(flipped, depths[-1]),
        "over_lower_bound": float(curves["balanced"][-1] / curves["lower_bound"][-1]),
    }


def product_error(A: Array, R: Array) -> float:
    """|(I + A_l) ... (I + A_1) - R| / |R|, Frobenius norms."""
    from theory.factorization import compose

    return float(np.linalg.norm(compose(A) - R) / np.linalg.norm(R))


def psd_ratio(P: Array, depth: int) -> float:
    """Measured over 3 gamma / l for a positive definite matrix."""
    from theory.factorization import balanced, conditioning, max_norm

    return float(max_norm(balanced(P, depth)) * depth / (3 * conditioning(P)))


def augmented_error(R: Array, depth: int) -> float:
    """Product error of diag(R, -1), whose determinant is positive where det R < 0."""
    from theory.factorization import augment, balanced

    return product_error(balanced(augment(R), depth), augment(R))


def figure(drawn: list[Any]) -> Any:
    """l * max norm against l in the largest dimension, hardest conditioning; mean over seeds."""
    from matplotlib.figure import Figure

    key = max(drawn[0])
    depths = drawn[0][key][0]
    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(xscale="log", yscale="log", xlabel="depth l", ylabel="l · max |A_i|")
    labels = {
        "paper_bound": "paper's bound 4π + 3γ",
        "printed": "paper's construction",
        "balanced": "balanced polar construction",
        "lower_bound": "lower bound for any construction",
    }
    for name, label in labels.items():
        mean = np.mean([seed[key][1][name] for seed in drawn], axis=0)
        axes.plot(depths, mean, "--" if "bound" in name else "o-", label=label, markersize=3)
    axes.set_title(f"d = {key[0]}, γ = {key[1]:g}, mean of {len(drawn)} matrices", fontsize=10)
    axes.legend(fontsize=8)
    return picture


CLAIM = Claim(
    source="HM Theorem 2.1",
    says="For det R > 0 and depth l >= 3 gamma there are A_i with prod (I + A_i) = R and "
    "max |A_i| <= (4 pi + 3 gamma) / l",
    family="linear theory",
    scales={"smoke": Setting((2, 5), (0.5,), (5, 8, 16)), "cpu": Setting()},
    decided_by=(
        Bound("worst_ratio", at_most=1, every=True),
        Bound("psd_worst_ratio", at_most=1, every=True),
        Bound("product_error", at_most=1e-12, every=True),
        Bound("augmented_product_error", at_most=1e-12, every=True),
    ),
    measure=measure,
    figure=figure,
)
