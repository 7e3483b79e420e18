"""Verdicts: from one number a seed to whether a bound holds, and the words for a whole claim."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.running.seed_statistics import CONFIDENCE, mean_interval, prediction_interval

BROKEN, INCONCLUSIVE, HOLDS = OUTCOMES = ("broken", "inconclusive", "holds")  # weakest first
NOT_JUDGED = "not judged (smaller run)"
FORMERLY = "smaller scale"  # the same in runs of 0.2
NOT_DECIDABLE = "not decidable here"
NOT_RUN = "not run"
UNDECIDED = (NOT_RUN, NOT_DECIDABLE)  # without a run
VERDICTS = {  # in the order in which they are shown
    "holds": "every bound that decides the theorem holds, and nothing quoted has a slip or a wrong "
    "step",
    "holds as corrected": "the theorem holds; a quoted sentence has a slip, a constant or a step "
    "that does not",
    "reproduced": "every bound that decides the experiment holds",
    "refuted": "a bound of the theorem is broken: one counterexample is enough",
    "not reproduced": "a bound of the experiment is broken, by its interval over seeds, and the "
    "source states every setting that it needs",
    INCONCLUSIVE: "the interval over seeds straddles a bound (one seed has no interval); or a "
    "bound of an experiment is broken whose source does not state all settings; or networks in the "
    "source's own setting have not learned enough",
    NOT_JUDGED: "it ran, and not in the source's setting: the numbers are shown and not judged",
    NOT_DECIDABLE: "a decision takes a GPU, more than six hours of two cores, or data that are not "
    "at hand; the card states the price",
    NOT_RUN: "no run as stated is recorded",
}


@dataclass(frozen=True)
class Words:
    """The verdict of a claim whose bounds hold, and of one with a broken bound."""

    holds: str
    broken: str
    corrected: str
    """The verdict where the bounds hold, and a quoted sentence does not."""


THEOREM = Words("holds", "refuted", corrected="holds as corrected")
EXPERIMENT = Words("reproduced", "not reproduced", corrected="reproduced")
AFFIRMED = {word for words in (THEOREM, EXPERIMENT) for word in (words.holds, words.corrected)}
DENIED = {words.broken for words in (THEOREM, EXPERIMENT)}


def agree(first: str, second: str) -> bool:
    """Return whether two verdicts say the same, also in the words of older runs."""
    kinds = (AFFIRMED, DENIED, {NOT_JUDGED, FORMERLY}, {first})
    return next(kind for kind in kinds if first in kind).issuperset({second})


@dataclass(frozen=True)
class Look:
    """A judgement of trained networks after so many seeds, fixed before any of them is trained.

    Several looks share the 5 % by which one look may err at an end of an interval: two of 98 and
    97 % err in at most 2 and 3 %, together 5.
    """

    seeds: int
    level: float = CONFIDENCE
    """Level of the interval at each end."""


TWO_LOOKS: Mapping[str, Any] = {"seeds": 3, "looks": (Look(3, 0.98), Look(6, 0.97))}
"""Fields of a claim that is looked at after three seeds and, where they leave it open, six."""


@dataclass(frozen=True)
class Bound:
    """A condition on one metric that holds if the claim does.

    `every` is for theorems: one counterexample refutes. Otherwise the mean over seeds decides, by
    a one-sided Student confidence interval. A bound with two sides is a test of equivalence, two
    one-sided tests: it holds where the mean is shown to lie between them.
    """

    metric: str
    at_most: float = math.inf
    at_least: float = -math.inf
    every: bool = False
    level: float = CONFIDENCE
    """Level of the interval at each end."""

    def verdict(self, values: Sequence[float]) -> str:
        """Return `holds`, `broken` or `inconclusive` for one value a seed."""
        if not all(math.isfinite(value) for value in values):
            return BROKEN
        if self.every:
            holds = all(self.at_least <= value <= self.at_most for value in values)
            return HOLDS if holds else BROKEN
        low, high = self.mean_interval(values)
        if self.at_least <= low and high <= self.at_most:
            return HOLDS
        return BROKEN if low > self.at_most or high < self.at_least else INCONCLUSIVE

    def mean_interval(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the ends of two one-sided intervals about the mean of one value a seed."""
        return mean_interval(values, self.level)

    def deciding_interval(self, values: Sequence[float]) -> tuple[float, float] | None:
        """Return `mean_interval` where it decides: of two seeds or more, all of them finite."""
        if self.every or len(values) < 2 or not all(math.isfinite(value) for value in values):
            return None
        return self.mean_interval(values)

    def document(self, values: Sequence[float], is_judged: bool) -> dict[str, Any]:
        """Return it as JSON, with its outcome and the interval for one value a seed, if any."""
        interval = self.deciding_interval(values)
        return {
            "metric": self.metric,
            "rule": self.rule,
            "outcome": self.verdict(values) if len(values) and is_judged else "",
            "interval": interval and list(interval),
        }

    def worst(self, values: NDArray[np.float64]) -> float:
        """Return the value nearest to breaking the bound, or breaking it most; NaN is the worst."""
        excess = np.where(np.isnan(values), np.inf, -np.inf)
        if self.at_most < math.inf:
            excess = np.maximum(excess, values - self.at_most)
        if self.at_least > -math.inf:
            excess = np.maximum(excess, self.at_least - values)
        return float(values[np.argmax(excess)])

    @property
    def rule(self) -> str:
        """Return `<= 1 for every seed`."""
        sides = [f"<= {self.at_most:g}"] * (self.at_most < math.inf)
        sides += [f">= {self.at_least:g}"] * (self.at_least > -math.inf)
        return " and ".join(sides) + (" for every seed" if self.every else "")

    def __str__(self) -> str:
        return f"{self.metric} {self.rule}"


def always(metric: str, *, at_least: float = -math.inf, at_most: float = math.inf) -> Bound:
    """Return the bound of a theorem, which one counterexample breaks."""
    return Bound(metric, at_most, at_least, every=True)


LEAST_RUNS = 3  # fewer runs have an interval in which almost any number lies


@dataclass(frozen=True)
class ReportedError(Bound):
    """An error that a source reports of one run, or as the mean of several.

    It is not reproduced where it lies below the two-sided 95 % prediction interval of as many more
    runs like ours, mean -+ t sd sqrt(1/runs + 1/n): runs like ours would hardly err so little.
    Above the interval ours have a lower error, so that the reported error is reached. Fewer than
    three runs decide nothing.
    """

    reported: float = math.nan
    runs: int = 1
    """Runs behind the reported number."""

    def verdict(self, values: Sequence[float]) -> str:
        """Return `holds`, `broken` or `inconclusive` for one error a seed."""
        if not all(math.isfinite(value) for value in values):
            return BROKEN
        if len(values) < LEAST_RUNS:
            return INCONCLUSIVE
        low, _ = self.mean_interval(values)
        return HOLDS if low <= self.reported else BROKEN

    def mean_interval(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the ends of the prediction interval; infinite for one value."""
        return prediction_interval(values, self.runs)

    @property
    def rule(self) -> str:
        """Return `<= 6.38 in the prediction interval of one more run`."""
        runs = "one more run" if self.runs == 1 else f"the mean of {self.runs} more runs"
        return f"<= {self.reported:g}, by the 95 % prediction interval of {runs}"


@dataclass(frozen=True)
class LearningLimit:
    """The error that networks must not exceed for a comparison of them to be judged.

    The mean over seeds of the best of these metrics counts: how networks compare that have hardly
    learned says little of networks that have. A claim whose arms must all have learned has a limit
    for each.
    """

    metrics: tuple[str, ...]
    at_most: float

    def best(self, values: Mapping[str, Sequence[float]]) -> float:
        """Return the least mean over seeds of its metrics; inf where none is a number.

        An arm that diverged has no error: NaN.
        """
        means = [mean(values[metric]) for metric in self.metrics if metric in values]
        return min((each for each in means if not math.isnan(each)), default=math.inf)

    def is_met(self, values: Mapping[str, Sequence[float]]) -> bool:
        """Return whether the best arm errs no more than the limit."""
        return self.best(values) <= self.at_most

    def state(self, values: Mapping[str, Sequence[float]]) -> str:
        """Return `no, 57.3 %, limit 27 %`; with the name of one metric."""
        answer = "yes" if self.is_met(values) else "no"
        name = f"{self.metrics[0]} " if len(self.metrics) == 1 else ""
        unit = " %" if all(metric.endswith("_pct") for metric in self.metrics) else ""
        return f"{answer}, {name}{self.best(values):.4g}{unit}, limit {self.at_most:g}{unit}"
