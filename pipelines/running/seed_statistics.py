"""Statistics over seeds: mean, deviation, intervals, and how they are written."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

CONFIDENCE = 0.95  # level of each one-sided interval, unless a claim states its own
PREDICTION = 0.95  # level of the two-sided interval for one more run
DIFFERENCE_LEVEL = 0.95
STATISTICS = ("mean", "sd", "n", "ci_low", "ci_high")  # of a metric over seeds
# Quantiles of Student's t come from scipy.special: scipy.stats takes 0.6 s to import.


def mean_interval(values: Sequence[float], level: float = CONFIDENCE) -> tuple[float, float]:
    """Return mean -+ t sd / sqrt(n), the ends of two one-sided intervals; infinite for n = 1."""
    from scipy.special import stdtrit

    n, centre = len(values), mean(values)
    if n < 2:
        return -math.inf, math.inf
    half = stdtrit(n - 1, level) * standard_deviation(values) / math.sqrt(n)
    return centre - half, centre + half


def prediction_interval(values: Sequence[float], runs: int = 1) -> tuple[float, float]:
    """Return mean -+ t sd sqrt(1/runs + 1/n), the two-sided 95 % interval of more runs' mean.

    By Student's t with n - 1 degrees of freedom; infinite for n = 1.
    """
    from scipy.special import stdtrit

    n, centre = len(values), mean(values)
    if n < 2:
        return -math.inf, math.inf
    spread = standard_deviation(values) * math.sqrt(1 / runs + 1 / n)
    half = float(stdtrit(n - 1, (1 + PREDICTION) / 2)) * spread
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


def metric_spreads(stored: Mapping[str, float], n: int) -> dict[str, dict[str, Any]]:
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


def write_table(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return statistics, as `metric_spreads` has them, as CSV: a metric a row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", *STATISTICS])
    writer.writerows(
        [key, *(metric[each] for each in STATISTICS)] for key, metric in metrics.items()
    )
    return text.getvalue()


def read_table(text: str) -> dict[str, dict[str, Any]]:
    """Return the statistics that `write_table` wrote."""
    return {
        row["metric"]: {
            key: (int if key == "n" else float)(row[key]) if row[key] else None
            for key in STATISTICS
        }
        for row in csv.DictReader(io.StringIO(text))
    }


def format_spread(metric: Mapping[str, Any]) -> str:
    """Return `mean ± sd (n)`, rounded to what a reader can use."""
    return f"{format_mean(metric)} (n = {metric['n']})"


def format_mean(metric: Mapping[str, Any]) -> str:
    """Return `432 ± 180` or `2.4e-09 ± 1.3e-09`: the mean to the second digit of the deviation.

    Of a deviation below a millionth of the mean both are rounded alone, as is a mean without one.
    """
    mean, sd = metric["mean"], metric["sd"]
    if not sd or not math.isfinite(sd) or not math.isfinite(mean):
        return format_number(mean)
    first = math.floor(math.log10(float(f"{sd:.1e}")))  # place of the first digit of the deviation
    size = max(abs(mean), sd)
    if not 1e-6 * size < sd:
        return f"{mean:.4g} ± {sd:.2g}"
    if not 1e-4 <= size < 1e7:
        digits = math.floor(math.log10(abs(mean) or sd)) - first + 1
        return f"{mean:.{max(0, digits)}e} ± {sd:.1e}"
    places = max(0, 1 - first)
    return f"{mean:,.{places}f} ± {round(sd, 1 - first):,.{places}f}"


def format_difference(value: float, low: float, high: float) -> tuple[str, str]:
    """Return `-2.0` and `-5.4 to +1.4`: all to the second digit of half the interval."""
    half = (high - low) / 2
    if not 1e-6 * abs(value) < half or not 1e-4 <= max(abs(value), half) < 1e7:
        return f"{value:+.3g}", f"{low:+.3g} to {high:+.3g}"
    digits = 1 - math.floor(math.log10(float(f"{half:.1e}")))
    shown = [f"{round(each, digits):+,.{max(0, digits)}f}" for each in (value, low, high)]
    return shown[0], " to ".join(shown[1:])


def format_number(value: float) -> str:
    """Return a number to four digits, a large one to its units: `0.4678`, `5.037`, `1,832`."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


Sample = tuple[float, float, float]
"""Mean, standard deviation, and number of values, 2 or more."""


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the interval of the mean of `new` less that of `old`; None where one has no spread.

    Both are of `metric_spreads`.
    """
    samples = [(metric["mean"], metric["sd"], metric["n"]) for metric in (old, new)]
    if any(n < 2 or sd is None or not math.isfinite(mean + sd) for mean, sd, n in samples):
        return None
    return difference_interval(*samples)


def difference_interval(old: Sample, new: Sample) -> tuple[float, float]:
    """Return Welch's interval of the mean of `new` less that of `old`, at DIFFERENCE_LEVEL."""
    from scipy.special import stdtrit

    scale = max(old[1], new[1])  # its square may overflow
    if scale == 0:
        return new[0] - old[0], new[0] - old[0]
    squares = [((sd / scale) ** 2 / n, n) for _, sd, n in (old, new)]
    total = sum(square for square, _ in squares)
    freedom = total**2 / sum(square**2 / (n - 1) for square, n in squares)
    half = float(stdtrit(freedom, (1 + DIFFERENCE_LEVEL) / 2)) * math.sqrt(total) * scale
    return new[0] - old[0] - half, new[0] - old[0] + half
