"""At equal depth and parameters, identity shortcuts make a deep network trainable.

Source: ours, a small cousin of LY Table 1 (a 56-layer ResNet errs 6.97 %, its plain twin 12.04 % on
CIFAR-10) and of HM section 4.1. The all-convolutional network of HM Table 1, narrower, 31
convolutions deep and without normalization, against the same convolutions without `x +`, on 1,797
handwritten digits, for 400 steps.

Measured: test error of both, with the same seeds, data order, steps, schedule and parameter count;
`advantage_pct` is plain minus identity. Each arm gets the initialization that suits it (1/(k² c)
for residual, He's for plain, whose signal the former makes vanish). Both peak at 0.05: in a search
beside this claim (LOG.md) no rate from 0.02 to 0.1 let the plain network learn. The twin learns if
it is shallower; this claim is about this depth, without normalization. With no limit for the twin,
it says who learns at all, and nothing of how two networks compare that have learned.

Run: python -m pipelines run identity-beats-plain
Expect: about 5 % against 90 %, advantage_pct about 85.
"""

import dataclasses
from dataclasses import dataclass

from pipelines.claims import _arms
from pipelines.claims._arms import ArmBound, Arms
from pipelines.claims._comparison import compare, measure_arms
from pipelines.measurement.experiment import Trainer
from pipelines.measurement.grid import Curves
from pipelines.measurement.verdict import LearningLimit
from pipelines.recipes.cost import minutes
from pipelines.recipes.recipe import Recipe

LABELS = {"identity": "with identity shortcuts", "plain": "without"}
ADVANTAGE = {"advantage_pct": ("plain_test_error_pct", "identity_test_error_pct")}
LEAST_PCT = 1.0  # point of test error that matters: 4.5 of the 450 digits
LIMIT_PCT = 10.0  # where guessing errs 90 %


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The network, and the learning rate of its plain twin."""

    plain_rate: float = 0.05
    """Peak learning rate without shortcuts."""
    plain_warmup: float | None = None
    """Share of the steps in which that rate is reached (None: as with shortcuts)."""
    rates: int = 1
    """Rates tried without shortcuts: its own, a half, twice, a quarter and an eighth of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _arms.check_rates(self.rates)
        recipes(self, 0)  # refuses what it must


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return the residual network, and the same convolutions without shortcuts."""
    identity, warmup = setting.base(seed), setting.plain_warmup
    return {
        "identity": identity,
        "plain": identity.override(
            learning_rate=setting.plain_rate,
            warmup=identity.warmup if warmup is None else warmup,
            model_args={"shortcut": "none", "init": "he"},
        ),
    }


def measure(setting: Setting, seed: int, trainer: Trainer) -> Curves:
    """Return what is compared, and the rate without shortcuts, whether or not at an end."""
    arms = recipes(setting, seed)
    arms["plain"] = _arms.choose_rate(trainer, arms["plain"], setting.rates)
    rate = {"plain_rate": arms["plain"].learning_rate}
    return measure_arms(trainer, arms, ADVANTAGE, rates=rate)


DIGITS = Setting(
    recipe="allconv-digits", data="digits", steps=400, batch_size=32, blocks_per_stage=5, width=8
)
CLAIM = compare(
    LABELS,
    recipes,
    ADVANTAGE,
    searched=("plain",),
    source="ours, after LY Table 1",
    says="At equal depth and parameters a network with identity shortcuts learns where its plain "
    "twin hardly learns at all",
    formula=r"\begin{split} "
    r"&\mathbb{E}\, [\operatorname{err}_{\text{plain}} - \operatorname{err}_{\text{residual}}] "
    r"\ge 1 \text{ point}, \\ "
    r"&\text{judged where the better errs at most } 10\,\% \end{split}",
    scales={
        "smoke": dataclasses.replace(DIGITS, steps=8, blocks_per_stage=1, width=4),
        "cpu": DIGITS,
    },
    decided_by=(ArmBound("advantage_pct", at_least=LEAST_PCT),),
    costs={"cpu": minutes(2)},
    limits=(LearningLimit(_arms.error_names(LABELS), LIMIT_PCT),),
    measure=measure,
)
