"""Durations as people say them."""

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.runtime.durations import format_distance, format_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.04, "0.0 s"), (0.42, "0.4 s"), (12.4, "12 s"), (119, "119 s"), (180, "3 min")),
        *((7_100, "118 min"), (7_560, "2.1 h"), (302_400, "3.5 days")),
    ],
)
def test_a_duration_has_the_unit_in_which_it_is_a_small_number(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_a_moment_is_told_from_now() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert format_distance(now + timedelta(minutes=7), now) == "in 7 min"
    assert format_distance(now - timedelta(hours=5), now) == "5.0 h ago"
