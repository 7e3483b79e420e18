"""The jobs of a schedule: what is kept of them in its database, and how that is changed.

DBOS at the top: import this module inside the functions that need it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dbos import DBOSClient

from pipelines.errors import UserError, unknown
from pipelines.scheduling import times
from pipelines.scheduling.jobs import Job


def add(client: DBOSClient, job: Job, replace: bool = False) -> None:
    """Add a job. UserError for one of that name, or times that never come."""
    times.check_cron(job.cron, job.zone)
    there = client.get_schedule(job.name)
    if there and not replace:
        raise UserError(
            f"The name of a job must be new. Received: {job.name}, which is there. Add --replace "
            "to put this in its place, or choose another name."
        )
    if there:
        client.delete_schedule(job.name)
    client.create_schedule(**job.entry)


def remove(client: DBOSClient, name: str) -> None:
    """Take a job away; what became of its ticks stays in the history."""
    client.delete_schedule(find(client, name).name)


def pause(client: DBOSClient, name: str) -> None:
    """Let a job have no ticks until it is resumed."""
    client.pause_schedule(find(client, name).name)


def resume(client: DBOSClient, name: str) -> None:
    """Let a paused job have ticks again, from now on: those of the pause were not missed."""
    job = find(client, name)
    if client.get_schedule(name)["status"] != "ACTIVE":  # type: ignore[index]
        client.delete_schedule(name)
        client.create_schedule(**job.entry)


def find(client: DBOSClient, name: str) -> Job:
    """Return the job of that name; UserError names those there are."""
    entry = client.get_schedule(name)
    if entry is None:
        raise unknown("A job", name, [job.name for job in next_ticks(client)])
    return Job.of(entry["context"])


def next_ticks(client: DBOSClient) -> dict[Job, datetime | None]:
    """Return every job with its next tick, the nearest first; None: paused."""
    now = datetime.now(UTC)
    due = {
        (job := Job.of(entry["context"])): _next_tick(job, entry, now)
        for entry in client.list_schedules()
    }
    late = datetime.max.replace(tzinfo=UTC)
    return dict(sorted(due.items(), key=lambda item: (item[1] or late, item[0].name)))


def _next_tick(job: Job, entry: Mapping[str, Any], now: datetime) -> datetime | None:
    return job.next_tick(now) if entry["status"] == "ACTIVE" else None
