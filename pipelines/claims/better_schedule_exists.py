"""A better learning-rate schedule than the published one exists.

Source: HM section 4.2, in words: it is likely that a better learning-rate schedule and other
hyperparameters could substantially improve the results of their network.

Measured: a study searches schedules for the network on validation pictures, beginning with the
published ones (`python -m tuning`). Its best schedule and the published one are then trained with
seeds that the search has not used; `gain_pct` is the published one's test error minus the best
one's. The search sees no test picture, and the seeds' spread is what decides, not the search's.

At cpu scale CIFAR-10 stands for ImageNet, with 13 convolutions of 16 to 64 channels and 200 steps
of 64 pictures: a schedule that is better for so short a run is not known to be for a long one.

Run: python -m pipelines run better-schedule-exists        (13 minutes on 2 cores)
Expect: 70.3 against 74.5 % as published, gain_pct 4.2 ± 1.3 points. Two workers search, so what is
found depends on which of them is faster.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pipelines import arms
from pipelines.claim import Bench, Experiment, means, numbers
from pipelines.grid import Curves, Measured
from pipelines.recipes import Recipe
from pipelines.searches import Search, best_changes
from pipelines.verdict import Bound

LABELS = {"published": "published schedule", "found": "found by the search"}


def recipes(setting: Search, seed: int, found: dict[str, Any]) -> dict[str, Recipe]:
    """The published schedule and the one that was found, with a seed that no trial had."""
    published = setting.base(seed + 1)
    return {
        "published": published,
        "found": dataclasses.replace(published, **best_changes(found)),
    }


def measure(setting: Search, seed: int, bench: Bench) -> Curves:
    """Test errors of both schedules and what the search gained, in percent of the test set."""
    document = setting.study("better-schedule", setting.base(0))
    bench.run.tag("study", document["study"])
    errors = arms.errors(bench, recipes(setting, seed, document))
    published, found = (errors[f"{arm}_test_error_pct"] for arm in LABELS)
    return numbers(errors | {"gain_pct": published - found})


def figure(measured: Sequence[Measured]) -> Any:
    """Test error under both schedules, a line a seed."""
    return arms.figure(measured, LABELS)


CLAIM = Experiment(
    source="HM section 4.2",
    says="A better learning-rate schedule than the published one exists: the best that a search "
    "finds on validation pictures errs less on the test set",
    family="trained networks",
    scales={
        "smoke": Search(
            data="digits",
            steps=8,
            batch_size=32,
            blocks_per_stage=1,
            width=4,
            trials=2,
            workers=1,
        ),
        "cpu": Search(steps=200, batch_size=64, blocks_per_stage=2, width=16, trials=40),
        "paper": Search(),
    },
    decided_by=(Bound("gain_pct", at_least=arms.LEAST_PCT),),
    measure=measure,
    recipes=lambda setting, seed: {"published": setting.base(seed + 1)},
    also=means(*(f"{arm}_test_error_pct" for arm in LABELS)),
    figure=figure,
)
