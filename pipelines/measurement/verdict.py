"""Verdicts: from one number a seed and a bound to reproduced, refuted or inconclusive."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # of each one-sided interval
VERDICTS = ("refuted", "inconclusive", "reproduced")  # weakest first


@dataclass(frozen=True)
class Bound:
    """What one metric must satisfy for the claim to hold.

    `every` is for theorems: one counterexample refutes. Otherwise the mean over seeds decides, by
    a one-sided Student confidence interval. A bound with two sides is a test of equivalence, two
    one-sided tests: it holds where the mean is shown to lie between them.
    """

    metric: str
    at_most: float = math.inf
    at_least: float = -math.inf
    every: bool = False
    wording: str = ""
    """Of a printed statement: what is printed, where the rule alone does not say it."""

    def verdict(self, values: Sequence[float]) -> str:
        """Return `reproduced`, `refuted` or `inconclusive` for one value a seed."""
        if not all(math.isfinite(value) for value in values):
            return "refuted"
        if self.every:
            holds = all(self.at_least <= value <= self.at_most for value in values)
            return "reproduced" if holds else "refuted"
        low, high = self.mean_interval(values)
        if self.at_least <= low and high <= self.at_most:
            return "reproduced"
        return "refuted" if low > self.at_most or high < self.at_least else "inconclusive"

    def mean_interval(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the ends of two one-sided intervals about the mean of one value a seed."""
        return mean_interval(values)

    def deciding_interval(self, values: Sequence[float]) -> tuple[float, float] | None:
        """Return `mean_interval` where it decides: of two seeds or more, all of them finite."""
        if self.every or len(values) < 2 or not all(math.isfinite(value) for value in values):
            return None
        return self.mean_interval(values)

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


def always(
    metric: str, wording: str = "", *, at_least: float = -math.inf, at_most: float = math.inf
) -> Bound:
    """Return the bound of a theorem, which one counterexample refutes."""
    return Bound(metric, at_most, at_least, every=True, wording=wording)


@dataclass(frozen=True)
class Floor:
    """The error that networks must reach before a comparison of them is judged.

    The mean over seeds of the best of these metrics counts: how networks compare that have hardly
    learned says little of networks that have. A claim whose arms must all have learned has a floor
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

    def is_reached(self, values: Mapping[str, Sequence[float]]) -> bool:
        """Return whether the best arm errs no more than the floor."""
        return self.best(values) <= self.at_most

    def state(self, values: Mapping[str, Sequence[float]]) -> str:
        """Return `no: 57.3 (floor 27)`, as the scoreboard shows it; with the name of one metric."""
        answer = "yes" if self.is_reached(values) else "no"
        name = f"{self.metrics[0]} " if len(self.metrics) == 1 else ""
        return f"{answer}: {name}{self.best(values):.4g} (floor {self.at_most:g})"


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return mean -+ t sd / sqrt(n), the ends of two one-sided intervals; infinite for n = 1."""
    from scipy.stats import t

    n, centre = len(values), mean(values)
    if n < 2:
        return -math.inf, math.inf
    half = t.ppf(CONFIDENCE, n - 1) * standard_deviation(values) / math.sqrt(n)
    return centre - half, centre + half


def standard_deviation(values: Sequence[float]) -> float:
    """Return sample standard deviation; NaN for one value."""
    n, centre = len(values), mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan


def summarize(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the mean of each column under its own name, the number of its values under n/.

    Two values or more have the deviation under sd/, `mean_interval` under ci_low/ and ci_high/.
    """
    summary: dict[str, float] = {}
    for key, column in values.items():
        summary |= {key: mean(column), f"n/{key}": len(column)}
        if len(column) > 1:
            low, high = mean_interval(column)
            summary |= {f"sd/{key}": standard_deviation(column)}
            summary |= {f"ci_low/{key}": low, f"ci_high/{key}": high}
    return summary


def metric_spreads(stored: Mapping[str, float], n: int) -> dict[str, dict[str, float | int | None]]:
    """Return {metric: {"mean", "sd", "n", "ci_low", "ci_high"}} from what `summarize` returned.

    `n` seeds, where the numbers are those of a single run and hold none.
    """
    return {
        key: {
            "mean": value,
            "sd": stored.get(f"sd/{key}"),
            "n": int(stored.get(f"n/{key}", n)),
            "ci_low": stored.get(f"ci_low/{key}"),
            "ci_high": stored.get(f"ci_high/{key}"),
        }
        for key, value in sorted(stored.items())
        if "/" not in key
    }


def format_spread(metric: Mapping[str, Any]) -> str:
    """Return `mean ± sd (n)`, rounded to what a reader can use."""
    return f"{format_mean(metric)} (n = {metric['n']})"


def format_mean(metric: Mapping[str, Any]) -> str:
    """Return `mean ± sd`, so rounded."""
    return f"{metric['mean']:.4g}" + (f" ± {metric['sd']:.2g}" if metric["sd"] else "")


DIFFERENCE_LEVEL = 0.95

Sample = tuple[float, float, float]
"""Mean, standard deviation, and number of values, 2 or more."""


def difference_interval(old: Sample, new: Sample) -> tuple[float, float]:
    """Return the interval of the mean of `new` less that of `old`; one of the two has a spread."""
    from scipy.stats import t

    scale = max(old[1], new[1])  # of which the square need not be a finite number, nor above 0
    squares = [((sd / scale) ** 2 / n, n) for _, sd, n in (old, new)]
    total = sum(square for square, _ in squares)
    freedom = total**2 / sum(square**2 / (n - 1) for square, n in squares)
    half = float(t.ppf((1 + DIFFERENCE_LEVEL) / 2, freedom)) * math.sqrt(total) * scale
    return new[0] - old[0] - half, new[0] - old[0] + half
