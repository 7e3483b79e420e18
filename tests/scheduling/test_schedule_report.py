"""The table of jobs as a person reads it."""

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.scheduling import schedule_report


def test_jobs_are_due_in_so_long(capsys: pytest.CaptureFixture[str]) -> None:
    def moment(minutes: float) -> str:
        return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()

    job = {"name": "nightly", "times": "0 3 * * * UTC", "command": "python -m pipelines list"}
    last = {"tick": moment(-180), "state": "ran"}
    rows = [
        {**job, "next": moment(7), "last": last},
        {**job, "name": "never", "next": None, "last": None},
    ]
    schedule_report.show_jobs(rows)
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "nightly 0 3 * * * UTC in 7 min ran 3.0 h ago list" in shown
    assert "never 0 3 * * * UTC paused - list" in shown
