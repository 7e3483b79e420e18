"""At equal depth and parameters, identity shortcuts make a deep network trainable.

Source: ours, a small cousin of LY Table 1 (a 56-layer ResNet errs 6.97 %, its plain twin 12.04 % on
CIFAR-10) and of HM section 4.1. The all-convolutional network of HM Table 1, narrower, against the
same convolutions without `x +`, on 1,797 handwritten digits.

Measured: test error of both, the same seeds, data order, steps and parameter count. Each arm gets
the initialization that suits it (1/(k² c) for residual, He's for plain, whose signal the former
makes vanish) and the best of the listed learning rates by validation error. The default lists one:
of 0.1, 0.05, 0.02 and 0.01 at seed 0, 0.05 had the smallest validation error for both arms.

Run: python -m pipelines run identity-beats-plain        (2 minutes on 2 cores)
Expect: advantage_pct well above 0.
"""

from dataclasses import dataclass
from typing import Any

from pipelines.claim import Bench, Claim
from pipelines.recipes import named
from pipelines.verdict import Bound

ARMS = {"identity": "allconv-digits", "plain": "plain-digits"}


@dataclass(frozen=True)
class Setting:
    """What both arms share."""

    scale: str = "cpu"
    """Scale of the two recipes."""
    learning_rates: tuple[float, ...] = (0.05,)
    """Peak rates each arm may choose from, by validation error."""


def measure(setting: Setting, seed: int, bench: Bench) -> tuple[dict[str, float], Any]:
    """Test error of both arms and their difference, in percent of the test set."""
    chosen = {arm: best(bench, recipe, setting, seed) for arm, recipe in ARMS.items()}
    errors = {f"{arm}_test_error_pct": run["test_error_pct"] for arm, run in chosen.items()}
    advantage = errors["plain_test_error_pct"] - errors["identity_test_error_pct"]
    return errors | {"advantage_pct": advantage}, errors


def best(bench: Bench, recipe: str, setting: Setting, seed: int) -> dict[str, float]:
    """The run of the rate with the smallest validation error."""
    base = named(recipe, setting.scale).override(seed=seed)
    runs = [bench.train(base.override(learning_rate=rate)) for rate in setting.learning_rates]
    return min(runs, key=lambda run: run["best_val_error_pct"])


def figure(drawn: list[Any]) -> Any:
    """Test error of both arms, one line a seed."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(ylabel="test error (%)", ylim=(0, None))
    for errors in drawn:
        axes.plot(list(ARMS), list(errors.values()), "o-", color="C0", alpha=0.6)
    for position, arm in enumerate(ARMS):
        column = [errors[f"{arm}_test_error_pct"] for errors in drawn]
        mean = sum(column) / len(column)
        axes.hlines(mean, position - 0.1, position + 0.1, color="C3", lw=3)
        axes.annotate(f"{mean:.1f} %", (position, mean), (12, 6), textcoords="offset points")
    axes.set_title(f"equal depth and parameters, {len(drawn)} seeds; bars are means", fontsize=10)
    axes.margins(x=0.3)
    return picture


CLAIM = Claim(
    source="after LY Table 1",
    says="At equal depth and parameters a network with identity shortcuts errs less than its "
    "plain twin",
    family="trained networks",
    scales={"smoke": Setting("smoke"), "cpu": Setting()},
    decided_by=(Bound("advantage_pct", at_least=0),),
    measure=measure,
    figure=figure,
)
