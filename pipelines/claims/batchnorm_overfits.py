"""With batch normalization HM's network overfits CIFAR-10, without it not so quickly.

Source: HM section 4.1, in words: 13.6 million weights do not "seem to overfit too quickly" on
50,000 pictures, while a network of this size with batch normalization was difficult to train
"without significant overfitting".

Measured: training and test error of HM's network, and of the same convolutions with batch
normalization after each of a residual branch, with the same seeds, pictures, order and steps.
`better_fit_pct` is the training error without minus with normalization; the gap of an arm is its
test error minus its training error, `wider_gap_pct` the gap with minus that without. Overfitting so
understood does not mean that the normalized network errs more on the test set: its error is shown.
The training error is the mean over the last epoch. Where an arm diverges, both differences are 0.

At cpu scale 1,000 pictures, without augmentation, stand for 50,000 with it, and 7 convolutions of
16 to 64 channels for 55 of 64 to 256: 74 weights a picture, where HM have 270. The networks see
every picture 60 times.

Run: python -m pipelines run batchnorm-overfits        (8 minutes on 2 cores)
Expect: after 30 passes, one seed, 61 % in training and 68 % in test with normalization, 62 and 67 %
without; with 5 seeds after 60 passes not measured yet.
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

LABELS = {"plain": "without normalization", "normalized": "batch normalization"}
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The network, and the pictures it is trained on."""

    train_examples: int | None = None
    """Use only the first so many training pictures (None: all)."""
    augment: bool = True
    """Random crops and flips in training."""


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """HM's network, and the same convolutions with batch normalization after each of a branch."""
    plain = setting.base(seed).override(
        train_examples=setting.train_examples, augment=setting.augment
    )
    return {"plain": plain, "normalized": plain.override(model_args={"batch_norm": True})}


def measure(setting: Setting, seed: int, bench: Bench) -> Curves:
    """Training and test error of both arms, their gaps and what normalization adds to the gap."""
    errors = arms.errors(bench, recipes(setting, seed), SPLITS)
    gaps = {
        arm: errors[f"{arm}_test_error_pct"] - errors[f"{arm}_train_error_pct"] for arm in LABELS
    }
    differences = {
        "better_fit_pct": errors["plain_train_error_pct"] - errors["normalized_train_error_pct"],
        "wider_gap_pct": gaps["normalized"] - gaps["plain"],
    }
    return numbers(
        errors
        | {f"{arm}_gap_pct": gap for arm, gap in gaps.items()}
        | arms.decisive(errors, differences)
    )


def figure(measured: Sequence[Measured]) -> Any:
    """Training and test error of both arms, a line a seed."""
    return arms.figure(measured, LABELS, SPLITS)


CLAIM = Experiment(
    source="HM section 4.1",
    says="With batch normalization a network of the same size overfits CIFAR-10: it fits the "
    "training set better, and its test error is further from its training error",
    family="trained networks",
    scales={
        "smoke": Setting(
            data="digits", train_examples=64, steps=8, batch_size=32, blocks_per_stage=1, width=4
        ),
        "cpu": Setting(
            train_examples=1_000,
            augment=False,
            steps=900,
            batch_size=64,
            blocks_per_stage=1,
            width=16,
        ),
        "paper": Setting(),
    },
    decided_by=(
        Bound("better_fit_pct", at_least=arms.LEAST_PCT),
        Bound("wider_gap_pct", at_least=arms.LEAST_PCT),
    ),
    measure=measure,
    recipes=recipes,
    also=means(
        *(f"{arm}_{split}_error_pct" for arm in LABELS for split in SPLITS),
        *(f"{arm}_gap_pct" for arm in LABELS),
    ),
    figure=figure,
)
