"""Trained comparisons as cards: arms that are trained alike but for what their claim is about."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.claims import _arm_figure
from pipelines.claims._arms import choose_rate, error_names, is_extreme_rate, search_space
from pipelines.errors import Diverged
from pipelines.measurement.claim import means
from pipelines.measurement.experiment import Experiment, Trainer, Training, numbers
from pipelines.measurement.grid import Curves, Measured
from pipelines.recipes.recipe import Recipe

ERRORS = {"train": "final_train_error_pct", "test": "test_error_pct"}  # a split's error at the end
Numbers = Mapping[str, float]
Differences = Mapping[str, tuple[str, str]]
"""By name what is subtracted from what: two errors, such as `fixed_test_error_pct`, or differences
before it."""


def compare(
    labels: Mapping[str, str],
    recipes: Callable[[Any, int], dict[str, Recipe]],
    differences: Differences,
    more: Callable[[Numbers], Numbers] = lambda numbers: {},
    *,
    splits: Sequence[str] = ("test",),
    searched: Sequence[str] = (),
    **card: Any,
) -> Experiment:
    """Return the claim that the arms differ as its bounds say; `card` states the rest of it.

    `labels` has a label for each arm, `recipes(setting, seed)` what it trains; `more` makes other
    numbers of the errors and their differences. The arms `searched` are trained at the best of
    `setting.rates` rates. The figure shows what is reported where the setting is the paper's.
    """
    decided = {bound.metric for bound in card["decided_by"]}

    def trainings(setting: Any, seed: int) -> dict[str, Recipe]:
        arms = recipes(setting, seed)
        return arms | {
            f"{arm}, search {i}": each
            for arm in searched
            for i, each in enumerate(search_space(arms[arm], setting.rates))
        }

    def measure(setting: Any, seed: int, trainer: Trainer) -> Curves:
        arms = recipes(setting, seed)
        best = {arm: choose_rate(trainer, arms[arm], setting.rates) for arm in searched}
        rates = {f"{arm}_rate": recipe.learning_rate for arm, recipe in best.items()}
        if searched:  # a better rate may lie beyond the largest and the smallest tried
            rates["rates_at_an_end"] = float(
                sum(is_extreme_rate(arms[a], rates[f"{a}_rate"], setting.rates) for a in searched)
            )
        return measure_arms(trainer, arms | best, differences, more, splits=splits, rates=rates)

    def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
        return means(*(name for name in measured[0].curves if name not in decided))(measured)

    def figure(measured: Sequence[Measured], trainings: Sequence[Sequence[Training]]) -> Any:
        paper = card["scales"].get("paper")
        published = paper is not None and measured[0].point == dataclasses.asdict(paper)
        reported = card.get("reported", {}) if published else {}
        return draw_arms(measured, trainings, labels, splits, reported=reported)

    made = {"recipes": trainings, "extra_metrics": extra_metrics, "figure": figure}
    return Experiment(**{"measure": measure, **made, **card})


def measure_arms(
    trainer: Trainer,
    recipes: Mapping[str, Recipe],
    differences: Differences,
    more: Callable[[Numbers], Numbers] = lambda numbers: {},
    *,
    splits: Sequence[str] = ("test",),
    rates: Numbers | None = None,
) -> Curves:
    """Return the errors of the arms once trained, the rates, the differences, and more."""
    found = {**train_arms(trainer, recipes, splits), **(rates or {})}
    for name, (minuend, subtrahend) in differences.items():
        found[name] = found[minuend] - found[subtrahend]
    return numbers({**found, **more(found)})


def train_arms(
    trainer: Trainer, recipes: Mapping[str, Recipe], splits: Sequence[str] = ("test",)
) -> dict[str, float]:
    """Return `{arm}_{split}_error_pct` of every arm once trained, as it is tested.

    NaN where its loss diverged, so that no difference from it is a number. The training error, too,
    is of the network at its end, on training pictures that are not augmented.
    """
    errors: dict[str, float] = {}
    for arm, recipe in recipes.items():
        try:
            metrics: Mapping[str, float] = trainer.train(recipe).metrics
        except Diverged:
            metrics = dict.fromkeys(ERRORS.values(), math.nan)
        errors |= {f"{arm}_{split}_error_pct": metrics[ERRORS[split]] for split in splits}
    return errors


def draw_arms(
    measured: Sequence[Measured],
    trainings: Sequence[Sequence[Training]],
    labels: Mapping[str, str],
    splits: Sequence[str] = ("test",),
    *,
    reported: Numbers | None = None,
    beside: Callable[[Any, Sequence[_arm_figure.Arm]], None] | None = None,
) -> Any:
    """Draw how the arms learn, and their errors at the end, in the order of their labels.

    `trainings` has those of every cell; means are over the seeds that did not diverge. `beside`
    draws the arms into a third panel.
    """
    known, arms = reported or {}, []
    for arm, label in labels.items():
        names = dict(zip(splits, error_names([arm], splits), strict=True))
        errors = {
            split: np.array([m.curves[name][0] for m in measured]) for split, name in names.items()
        }
        found = [find_training(arm, *each) for each in zip(measured, trainings, strict=True)]
        printed = {split: known[name] for split, name in names.items() if name in known}
        arms.append(_arm_figure.Arm(label, errors, found, printed))
    third = None if beside is None else (lambda axes: beside(axes, arms))
    return _arm_figure.draw(arms, [m.cell.seed for m in measured], third)


def find_training(arm: str, m: Measured, trainings: Sequence[Training]) -> Training | None:
    """Return the training of an arm in a cell, by its name, else by the error that it ended in.

    Settings that a study found have no name, those that another claim trained first have its name.
    """
    named = [t for t in trainings if t.arm == arm]
    others = [t for t in trainings if f"{t.arm}_test_error_pct" not in m.curves]
    error = m.curves[f"{arm}_test_error_pct"][0]
    ended_so = [t for t in others if error in t.curves.get("test_error_pct", ())]
    return next(iter(named or ended_so), None)
