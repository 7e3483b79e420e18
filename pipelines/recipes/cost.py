"""Costs of measurements: `seconds(22)`, `minutes(8)`, `hours(10, 19)`, `hours(2, gpu=True)`."""

from dataclasses import dataclass

from pipelines.runtime.durations import in_unit


@dataclass(frozen=True)
class Cost:
    """The time that all seeds of a claim take at a scale, on 2 cores or on a GPU."""

    least_s: float
    most_s: float
    """On the slowest machine that it was measured on."""
    gpu: bool = False

    def __mul__(self, factor: float) -> "Cost":
        """Return what so many times as much takes."""
        return Cost(self.least_s * factor, self.most_s * factor, self.gpu)

    def __str__(self) -> str:
        """Return `8 min`, `10 to 19 h`, `2 GPU h`."""
        (least, unit), (most, last_unit) = map(in_unit, (self.least_s, self.most_s))
        space = " GPU " if self.gpu else " "
        last = f"{most.removesuffix('.0')}{space}{last_unit}"
        if (least, unit) == (most, last_unit):
            return last
        first = least.removesuffix(".0") + (f"{space}{unit}" if unit != last_unit else "")
        return f"{first} to {last}"


def seconds(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return a cost of so many seconds, or between two numbers of them."""
    return Cost(least, least if most is None else most, gpu)


def minutes(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return the same of minutes."""
    return seconds(least, most, gpu) * 60


def hours(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return the same of hours."""
    return seconds(least, most, gpu) * 3_600
