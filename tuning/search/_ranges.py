"""Ranges of what a study searches, as data, and recipes as points in them."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pipelines.recipes import lr
from pipelines.recipes.recipe import Recipe


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; `log`: even in the logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def ask(self, trial: Any, name: str) -> Any:
        """Return the trial's number under that name."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def widen_to(self, value: float) -> "Range":
        """Return the range, widened to hold `value`."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def near(self, value: float) -> "Range":
        """Return a quarter of the range, around `value`, cut at its ends."""
        if self.log:
            reach = (self.high / self.low) ** (1 / 8)
            low, high = value / reach, value * reach
        else:
            reach = (self.high - self.low) / 8
            low, high = value - reach, value + reach
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    @property
    def most(self) -> float:
        """Return how many different points it has."""
        if self.whole:
            return self.high - self.low + 1
        return math.inf if self.low < self.high else 1

    def points(self, count: int) -> list[float]:
        """Return the middles of `count` equal parts: a coarse grid wastes no point on an end."""
        middles = (np.arange(count) + 0.5) / count
        if self.whole:
            return [round(x) for x in self.low - 0.5 + (self.high - self.low + 1) * middles]
        if self.log:
            return [float(x) for x in self.low * (self.high / self.low) ** middles]
        return [float(x) for x in self.low + (self.high - self.low) * middles]


# Ranges of the arguments of schedules, by family.argument or, for every family, by argument. One
# without a row keeps its default. `drop`: share of the run still ahead at which a next boundary is.
SHAPES = {
    "drop": Range(0.1, 0.9),
    "steps.factor": Range(0.03, 0.5, log=True),
    "staircase.drops": Range(10, 100, log=True),
    "staircase.factor": Range(0.85, 0.99),
    "exponential.final": Range(1e-4, 0.3, log=True),
    "final": Range(0, 0.1),
    "power": Range(0.5, 4, log=True),
    "cycles": Range(2, 6, whole=True),
    "stretch": Range(1, 3, log=True),
    "damping": Range(0.3, 1),
    "decay": Range(0.05, 0.6),
    "rise": Range(0.1, 0.5),
    "start": Range(0.01, 0.3, log=True),
    "timescale": Range(0.01, 0.3, log=True),
}
DROPS = Range(1, 4, whole=True)  # boundaries of a schedule that has such
RATE = (1 / 32, 8)  # times the base's peak rate
DECAY = (1 / 10, 10)  # times the base's weight decay
WARMUP = Range(0, 0.2)
MOMENTUM = Range(0.8, 0.99)
LENGTH = Range(0.25, 1)  # share of the base's steps, where the cost of a trial counts


def ranges_of(base: Recipe, family: str) -> dict[str, Range]:
    """Return a family's ranges by the parameter's name, widened to hold what the base has."""
    rate, decay = base.learning_rate, base.weight_decay
    ranges = {"learning_rate": Range(rate * RATE[0], rate * RATE[1], log=True)}
    if lr.SCHEDULES[family](0.0) >= 1:  # one that starts below its peak brings its own warm-up
        ranges["warmup"] = WARMUP
    if base.momentum:
        ranges["momentum"] = MOMENTUM
    if decay:
        ranges["weight_decay"] = Range(decay * DECAY[0], decay * DECAY[1], log=True)
    for name in lr.defaults(family):
        if shape := SHAPES.get(f"{family}.{name}", SHAPES.get(name)):
            ranges[f"{family}.{name}"] = shape
    values = values_of(base)
    if "boundaries" in lr.defaults(family):
        ranges[f"{family}.drops"] = drops = DROPS.widen_to(values.get(f"{family}.drops", DROPS.low))
        names = [f"{family}.drop{i}" for i in range(1, int(drops.high) + 1)]
        ranges |= dict.fromkeys(names, SHAPES["drop"])
    return {name: r.widen_to(values[name]) if name in values else r for name, r in ranges.items()}


def values_of(recipe: Recipe) -> dict[str, Any]:
    """Return the value of every parameter that describes the recipe, by name."""
    values: dict[str, Any] = {"schedule": recipe.schedule}
    values |= {
        name: getattr(recipe, name)
        for name in ("learning_rate", "warmup", "momentum", "weight_decay")
    }
    for name, value in recipe.schedule_args.items():
        if name == "boundaries":
            shares = shares_of(value)
            values[f"{recipe.schedule}.drops"] = len(shares)
            values |= {f"{recipe.schedule}.drop{i + 1}": share for i, share in enumerate(shares)}
        else:
            values[f"{recipe.schedule}.{name}"] = value
    return values


def boundaries_of(shares: Sequence[float]) -> tuple[float, ...]:
    """Return boundaries from the share of the rest of the run that passes before each."""
    remaining = itertools.accumulate((1 - share for share in shares), lambda a, b: a * b)
    return tuple(1 - part for part in remaining)


def shares_of(boundaries: Sequence[float]) -> list[float]:
    """Return the shares that `boundaries_of` makes these boundaries of."""
    remaining = [1.0, *(1 - boundary for boundary in boundaries)]
    return [1 - after / before for before, after in itertools.pairwise(remaining)]


@dataclass
class RecordingTrial:
    """A stand-in for a trial: answers from a table, else the first choice; keeps what is asked."""

    answers: dict[str, Any]
    asked: dict[str, Any] = field(default_factory=dict)  # tuples of choices, and ranges

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        self.asked[name] = tuple(choices)
        return self.answers.get(name, choices[0])

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.asked[name] = Range(low, high, log)
        return float(self.answers.get(name, low))

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        self.asked[name] = Range(low, high, log, whole=True)
        return int(self.answers.get(name, low))
