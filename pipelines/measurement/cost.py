"""What a measurement takes: `seconds(22)`, `minutes(8)`, `hours(10, 19)`, `hours(2, gpu=True)`."""

from dataclasses import dataclass

from pipelines.runtime.durations import format_duration


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
        space = " GPU " if self.gpu else " "
        ends = (format_duration(each) for each in (self.least_s, self.most_s))
        least, most = (end.replace(".0 ", " ").replace(" ", space) for end in ends)
        (number, _, unit), (_, _, last_unit) = least.partition(" "), most.partition(" ")
        first = number if unit == last_unit else least
        return most if least == most else f"{first} to {most}"


def seconds(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return a cost of so many seconds, or between two numbers of them."""
    return Cost(least, least if most is None else most, gpu)


def minutes(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return the same of minutes."""
    return seconds(least, most, gpu) * 60


def hours(least: float, most: float | None = None, gpu: bool = False) -> Cost:
    """Return the same of hours."""
    return seconds(least, most, gpu) * 3_600
