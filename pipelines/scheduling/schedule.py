"""The jobs of a schedule, as its database holds them: added, changed, found.

DBOS at the top: import this module inside the functions that need it.
"""

import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from dbos import DBOSClient, WorkflowSchedule

from pipelines.errors import UserError, unknown
from pipelines.scheduling import times
from pipelines.scheduling.jobs import NOT_OURS, ScheduledJob, shipped_jobs

LISTED_BY = "python -m pipelines schedule list"


def add(client: DBOSClient, job: ScheduledJob, replace: bool = False) -> None:
    """Add a job, from now on; UserError if one has that name, or its times never come.

    One that is replaced stands until the new one does. What it missed is not run: under another
    time zone DBOS would know those due times by other names, and repeat what has run.
    """
    times.check_cron(job.cron, job.zone)
    if client.get_schedule(job.name) is None:
        client.create_schedule(**job.entry)
        return
    if not replace:
        raise UserError(
            f"The name of a job must be new. Received: {job.name}, which exists. Add --replace "
            "to put this in its place, or choose another name."
        )
    client._sys_db.update_last_fired_at(job.name, datetime.now(UTC).isoformat())
    client.apply_schedules([job.entry])  # type: ignore[list-item]
    client.resume_schedule(job.name)


def remove(client: DBOSClient, name: str) -> None:
    """Remove a job; its history stays."""
    client.delete_schedule(_entry(client, name)["schedule_name"])


def pause(client: DBOSClient, name: str) -> None:
    """Pause a job until it is resumed."""
    client.pause_schedule(_entry(client, name)["schedule_name"])


def resume(client: DBOSClient, name: str) -> None:
    """Let a paused job run again from now on: its times in the pause do not count as missed."""
    job = find(client, name)
    if client.get_schedule(name)["status"] != "ACTIVE":  # type: ignore[index]
        add(client, job, replace=True)


def find(client: DBOSClient, name: str) -> ScheduledJob:
    """Return the job of that name; UserError names the existing ones."""
    return job_of(_entry(client, name))


def _entry(client: DBOSClient, name: str) -> WorkflowSchedule:
    entry = client.get_schedule(name)
    if entry is None:
        shipped = shipped_jobs("UTC")
        if name in shipped:
            raise UserError(
                f"A job must be in the schedule. Received: {name}, which comes with the project "
                f"and is not added. Add it: python -m pipelines schedule add {name}"
            )
        names = [entry["schedule_name"] for entry in client.list_schedules()]
        raise unknown("A job", name, [*names, *shipped], LISTED_BY)
    return entry


def job_of(entry: WorkflowSchedule) -> ScheduledJob:
    """Return the job of a row; UserError where the row is not as `add` writes it."""
    job = ScheduledJob.of(entry["context"])
    row: dict[str, Any] = {**entry, "context": job.entry["context"]}
    with contextlib.suppress(TypeError, ValueError):
        datetime.fromisoformat(row["last_fired_at"] or "2026-01-01").astimezone(UTC)
        if job.entry.items() <= row.items():
            return job
    raise UserError(f"{NOT_OURS}: its row has another name, time or workflow than its job")


def read_jobs(client: DBOSClient) -> Iterator[tuple[ScheduledJob, WorkflowSchedule]]:
    """Yield the jobs with their rows; print why one that cannot be read is left out."""
    for entry in client.list_schedules():
        try:
            yield job_of(entry), entry
        except UserError as error:
            print(f"Job {entry['schedule_name']} is left out: {error}", file=sys.stderr)


def next_due_times(client: DBOSClient) -> dict[ScheduledJob, datetime | None]:
    """Return every job with its next due time, the nearest first; None: paused."""
    now, due = datetime.now(UTC), dict[ScheduledJob, datetime | None]()
    for job, entry in read_jobs(client):
        due[job] = job.next_due(now) if entry["status"] == "ACTIVE" else None
    late = datetime.max.replace(tzinfo=UTC)
    return dict(sorted(due.items(), key=lambda item: (item[1] or late, item[0].name)))
