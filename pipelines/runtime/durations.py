"""Durations and moments in words: `12 s`, `3 min`, `2.1 h`, `in 7 min`."""

from datetime import datetime

UNITS = (  # seconds in one, the first number of seconds that is said in it, decimals, its name
    (86_400, 48 * 3_600, 1, "days"),
    (3_600, 7_200, 1, "h"),
    (60, 120, 0, "min"),
    (1, 9.5, 0, "s"),
    (1, 0, 1, "s"),
)


def in_unit(seconds: float) -> tuple[str, str]:
    """Return the number and the unit of a duration: `2.1` and `h`."""
    size, _, decimals, unit = next(unit for unit in UNITS if abs(seconds) >= unit[1])
    return f"{seconds / size:.{decimals}f}", unit


def format_duration(seconds: float) -> str:
    """Return `0.4 s`, `12 s`, `3 min`, `2.1 h` or `3.5 days`."""
    return " ".join(in_unit(seconds))


def format_distance(moment: datetime, now: datetime) -> str:
    """Return how far a moment is: `in 7 min`, `7 min ago`."""
    seconds = (moment - now).total_seconds()
    return f"in {format_duration(seconds)}" if seconds >= 0 else f"{format_duration(-seconds)} ago"
