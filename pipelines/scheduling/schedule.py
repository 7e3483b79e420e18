"""The jobs of a schedule, as its database holds them: added, changed, found.

DBOS at the top: import this module inside the functions that need it.
"""

from datetime import UTC, datetime

from dbos import DBOSClient

from pipelines.errors import UserError, unknown
from pipelines.scheduling import times
from pipelines.scheduling.jobs import Job

LISTED_BY = "python -m pipelines schedule list"


def add(client: DBOSClient, job: Job, replace: bool = False) -> None:
    """Add a job; UserError if one has that name, or its times never come."""
    times.check_cron(job.cron, job.zone)
    if client.get_schedule(job.name):
        if not replace:
            raise UserError(
                f"The name of a job must be new. Received: {job.name}, which exists. Add --replace "
                "to put this in its place, or choose another name."
            )
        client.delete_schedule(job.name)
    client.create_schedule(**job.entry)


def remove(client: DBOSClient, name: str) -> None:
    """Remove a job; its ticks stay in the history."""
    client.delete_schedule(find(client, name).name)


def pause(client: DBOSClient, name: str) -> None:
    """Stop the ticks of a job until it is resumed."""
    client.pause_schedule(find(client, name).name)


def resume(client: DBOSClient, name: str) -> None:
    """Let a paused job have ticks again, from now on: those of the pause do not count as missed."""
    job = find(client, name)
    if client.get_schedule(name)["status"] != "ACTIVE":  # type: ignore[index]
        client.delete_schedule(name)
        client.create_schedule(**job.entry)


def find(client: DBOSClient, name: str) -> Job:
    """Return the job of that name; UserError names the existing ones."""
    entry = client.get_schedule(name)
    if entry is None:
        raise unknown("A job", name, [job.name for job in next_ticks(client)], LISTED_BY)
    return Job.of(entry["context"])


def next_ticks(client: DBOSClient) -> dict[Job, datetime | None]:
    """Return every job with its next tick, the nearest first; None: paused."""
    now, due = datetime.now(UTC), dict[Job, datetime | None]()
    for entry in client.list_schedules():
        job = Job.of(entry["context"])
        due[job] = job.next_tick(now) if entry["status"] == "ACTIVE" else None
    late = datetime.max.replace(tzinfo=UTC)
    return dict(sorted(due.items(), key=lambda item: (item[1] or late, item[0].name)))
