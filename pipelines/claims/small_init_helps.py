"""Residual convolutions that start near zero train better than those that start as is usual.

Source: HM section 4.1, in words: initial weights of standard deviation 1/(k² c) in the residual
convolutions, of kernel size k with c output channels, "helped training" against 1/(k √c).

Measured: test error of HM's network with either start, with the same seeds, pictures, order and
steps; `advantage_pct` is standard minus small. Both train at HM's rate of 0.05, without warm-up, as
HM do. A loss that is no longer finite is a result: an error of 100 %, where a guess would have 90.
A third arm, which does not decide, has the standard start at a rate it stands: 0.0005, of 0.05,
0.005, 0.001 and 0.0005 the largest at which no run of a search diverged (LOG.md). At 0.001 some
diverge and some come near: the small start helps by allowing HM's rate, as far as we see.

At cpu scale all 55 convolutions of HM Table 1, for each of which the standard start makes the
signal grow, with 4 to 16 channels for 64 to 256, and 200 steps of 64 pictures.

Run: python -m pipelines run small-init-helps        (6 minutes on 2 cores)
Expect: 75 % against 100 % (every run diverged within 10 steps), advantage_pct about 25; with
the standard start at the lowered rate 84 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import arms
from pipelines.arms import Arms
from pipelines.claim import Bench, Experiment, means, numbers
from pipelines.grid import Curves, Measured
from pipelines.recipes import Recipe
from pipelines.verdict import Bound

LABELS = {
    "small": "1/(k² c)",
    "standard": "1/(k √c)",
    "lowered": "1/(k √c), lowered rate",
}


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The network, and a second learning rate."""

    lowered_rate: float = 0.0005
    """Peak learning rate of a third arm: standard initial weights, and a rate they stand."""


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Small and standard initial weights at one rate, and standard ones at a lower rate."""
    small = setting.base(seed)
    standard = small.override(model_args={"init": "standard"})
    lowered = standard.override(learning_rate=setting.lowered_rate)
    return {"small": small, "standard": standard, "lowered": lowered}


def measure(setting: Setting, seed: int, bench: Bench) -> Curves:
    """Test error of the arms and what small initial weights gain, in percent of the test set."""
    errors = arms.errors(bench, recipes(setting, seed))
    small, standard, lowered = (errors[f"{arm}_test_error_pct"] for arm in LABELS)
    gains = {"advantage_pct": standard - small, "advantage_at_lowered_rate_pct": lowered - small}
    return numbers(errors | gains)


def figure(measured: Sequence[Measured]) -> Any:
    """Test error of the arms, one line a seed."""
    return arms.figure(measured, LABELS)


CLAIM = Experiment(
    source="HM section 4.1",
    says="Initial weights of standard deviation 1/(k² c) in the residual convolutions help "
    "training, against 1/(k √c)",
    family="trained networks",
    scales={
        "smoke": Setting(data="digits", steps=8, batch_size=32, blocks_per_stage=1, width=4),
        "cpu": Setting(steps=200, batch_size=64, width=4),
        "paper": Setting(),
    },
    decided_by=(Bound("advantage_pct", at_least=arms.LEAST_PCT),),
    measure=measure,
    recipes=recipes,
    also=means(*(f"{arm}_test_error_pct" for arm in LABELS), "advantage_at_lowered_rate_pct"),
    figure=figure,
)
