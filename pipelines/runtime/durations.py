"""Durations and moments in words: `12 s`, `3 min`, `2.1 h`, `in 7 min`."""

from datetime import datetime

UNITS = (  # seconds in one, the first number of seconds that is said in it, how it is written
    (86_400, 48 * 3_600, "{:.1f} days"),
    (3_600, 7_200, "{:.1f} h"),
    (60, 120, "{:.0f} min"),
    (1, 9.5, "{:.0f} s"),
    (1, 0, "{:.1f} s"),
)


def format_duration(seconds: float) -> str:
    """Return `0.4 s`, `12 s`, `3 min`, `2.1 h` or `3.5 days`."""
    size, _, words = next(unit for unit in UNITS if abs(seconds) >= unit[1])
    return words.format(seconds / size)


def format_distance(moment: datetime, now: datetime) -> str:
    """Return how far a moment is: `in 7 min`, `7 min ago`."""
    seconds = (moment - now).total_seconds()
    return f"in {format_duration(seconds)}" if seconds >= 0 else f"{format_duration(-seconds)} ago"
