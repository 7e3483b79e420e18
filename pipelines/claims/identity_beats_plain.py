"""At equal depth and parameters, identity shortcuts make a deep network trainable.

Source: ours, a small cousin of LY Table 1 (a 56-layer ResNet errs 6.97 %, its plain twin 12.04 % on
CIFAR-10) and of HM section 4.1. The all-convolutional network of HM Table 1, narrower, 31
convolutions deep and without normalization, against the same convolutions without `x +`, on 1,797
handwritten digits, for 400 steps.

Measured: test error of both, with the same seeds, data order, steps, schedule and parameter count;
`advantage_pct` is plain minus identity. Each arm gets the initialization that suits it (1/(k² c)
for residual, He's for plain, whose signal the former makes vanish). Both peak at 0.05: in a search
beside this claim (LOG.md) no rate from 0.02 to 0.1 let the plain network learn. The twin learns if
it is shallower; this claim is about this depth, without normalization.

Run: python -m pipelines run identity-beats-plain        (2 minutes on 2 cores)
Expect: about 5 % against 89 %, advantage_pct about 84.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tyro

from pipelines.claim import Bench, Experiment, means, numbers
from pipelines.errors import Diverged
from pipelines.grid import Curves, Measured
from pipelines.published import named
from pipelines.recipes import Recipe
from pipelines.verdict import Bound

ARMS = {"identity": "allconv-digits", "plain": "plain-digits"}


@dataclass(frozen=True)
class Setting:
    """What may differ between the arms."""

    recipe_scale: tyro.conf.Suppress[str] = "cpu"
    """Scale of the two recipes."""
    identity_rate: float = 0.05
    """Peak learning rate with shortcuts."""
    plain_rate: float = 0.05
    """Peak learning rate without."""

    def __post_init__(self) -> None:
        for name in ARMS.values():
            for rate in (self.identity_rate, self.plain_rate):
                named(name, self.recipe_scale).override(learning_rate=rate)  # refuses what it must


def measure(setting: Setting, seed: int, bench: Bench) -> Curves:
    """Test error of both arms and their difference, in percent of the test set."""
    rates = {"identity": setting.identity_rate, "plain": setting.plain_rate}
    errors = {}
    for arm, name in ARMS.items():
        base = named(name, setting.recipe_scale)
        recipe = base.override(seed=seed, learning_rate=rates[arm])
        errors[f"{arm}_test_error_pct"] = _error(bench, recipe)
    advantage = errors["plain_test_error_pct"] - errors["identity_test_error_pct"]
    return numbers(errors | {"advantage_pct": advantage})


def _error(bench: Bench, recipe: Recipe) -> float:
    """Test error in percent; a run whose loss diverges has learned nothing: 100."""
    try:
        return bench.train(recipe).metrics["test_error_pct"]
    except Diverged:
        return 100.0


def figure(measured: Sequence[Measured]) -> Any:
    """Test error of both arms, one line a seed."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(ylabel="test error (%)")
    for m in measured:
        errors = [m.curves[f"{arm}_test_error_pct"][0] for arm in ARMS]
        axes.plot(list(ARMS), errors, "o-", color="C0", alpha=0.6)
    for position, arm in enumerate(ARMS):
        mean = float(np.mean([m.curves[f"{arm}_test_error_pct"] for m in measured]))
        axes.hlines(mean, position - 0.1, position + 0.1, color="C3", lw=3)
        axes.annotate(f"{mean:.1f} %", (position, mean), (12, 6), textcoords="offset points")
    axes.set_title(f"equal depth and parameters, {len(measured)} runs; bars are means", fontsize=10)
    axes.margins(x=0.3, y=0.15)
    axes.set_ylim(bottom=0)
    return picture


CLAIM = Experiment(
    source="after LY Table 1",
    says="At equal depth and parameters a network with identity shortcuts errs less than its "
    "plain twin",
    family="trained networks",
    scales={"smoke": Setting("smoke"), "cpu": Setting()},
    decided_by=(Bound("advantage_pct", at_least=0),),
    measure=measure,
    also=means(*(f"{arm}_test_error_pct" for arm in ARMS)),
    figure=figure,
)
