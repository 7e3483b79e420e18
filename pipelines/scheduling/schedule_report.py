"""The tables of a schedule: its jobs, and the history of the times at which they were due.

DBOS at the top: import this module inside the functions that need it.
"""

import dataclasses
import itertools
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dbos import DBOSClient, WorkflowStatus

from pipelines.errors import UserError, check_counts, unknown
from pipelines.runtime import notify
from pipelines.runtime.durations import format_distance, format_duration
from pipelines.runtime.plain_table import print_prose
from pipelines.scheduling import attempt, jobs, schedule, server
from pipelines.scheduling.jobs import ScheduledJob

UNREADABLE = "unreadable"  # state of a row that this project has not written so


def list_jobs(client: DBOSClient) -> list[dict[str, Any]]:
    """Return every job, the next one due first, with how it went last; `next` is None if paused."""
    rows = []
    for job, due in schedule.next_due_times(client).items():
        last = client.list_workflows(schedule_name=job.name, sort_desc=True, limit=1)
        row = {key: value for key, value in dataclasses.asdict(job).items() if key != "words"}
        row |= {"times": job.times, "command": job.command}
        row |= {"notify": notify.hide_secrets(job.notify)}
        row |= {"next": due.astimezone(job.zone).isoformat() if due else None}
        rows.append(row | {"last": _history_row(last[0]) if last else None})
    return rows


def list_history(client: DBOSClient, name: str | None, last: int) -> list[dict[str, Any]]:
    """Return what became of the newest due times, of all jobs or one, in the job's local time.

    Raise UserError for the name of a job that neither exists nor has a history.
    """
    check_counts(last=last)
    chosen = (row for row in _read_history(client) if name in (None, row["job"]))
    rows = list(itertools.islice(chosen, last))
    if (
        name
        and not rows
        and name not in (names := {job.name for job in schedule.next_due_times(client)})
    ):
        raise unknown(
            "A job", name, names | {row["job"] for row in _read_history(client)}, schedule.LISTED_BY
        )
    return rows


def _read_history(client: DBOSClient) -> Iterator[dict[str, Any]]:
    """Yield the rows of all due times, the newest first, read in pages."""
    page, offset = 500, 0
    while rows := client.list_workflows(
        application_name=server.APPLICATIONS, sort_desc=True, limit=page, offset=offset
    ):
        yield from map(_history_row, rows)
        offset += page


def _history_row(row: WorkflowStatus) -> dict[str, Any]:
    """Return the row of a due time, whose keys users script against; `unreadable` if it is none."""
    try:
        at, context = row.input["args"][:2]  # type: ignore[index]
        return _describe(row, ScheduledJob.of(context), at, {"code": None, **_result(row)})
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        at = datetime.fromtimestamp((row.created_at or 0) / 1000, UTC)
        unknown_job = ScheduledJob(name="unknown", words=(), tz="UTC", cron="")
        why = str(error) if isinstance(error, UserError) else jobs.NOT_OURS
        result = {"state": UNREADABLE, "why": why, "code": None}
        known = {"job": row.schedule_name or row.workflow_id, "command": ""}
        return _describe(row, unknown_job, at, result) | known


def _describe(
    row: WorkflowStatus, job: ScheduledJob, at: datetime, result: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row of a due time at that moment with that end."""

    def local(seconds: float | None) -> str | None:
        return datetime.fromtimestamp(seconds, job.zone).isoformat() if seconds else None

    until = datetime.fromisoformat(result.get("until", at.isoformat()))
    began, ended = result.get("started"), result.get("ended")
    return {
        "job": job.name,
        "due": at.astimezone(job.zone).isoformat(),
        "until": local(until.timestamp()),
        "due_times": int(result.get("ticks", 1)),
        "attempt": int(result.get("attempt", 1)),
        "state": str(result["state"]),
        "why": str(result["why"]),
        "by_hand": row.name == server.RUN_BY_HAND,
        "started": local(began),
        "ended": local(ended),
        "wall_s": round(ended - began, 3) if began and ended else None,
        "code": result["code"],
        "run_id": result.get("run_id"),
        "command": job.command,
        "tz": job.tz,
    }


def _result(row: WorkflowStatus) -> dict[str, Any]:
    """Return how the workflow of a due time ended, or its present state."""
    if row.status == "SUCCESS":
        return dict(row.output or {})
    if row.status in server.OPEN_STATES:
        began = {"started": row.dequeued_at and row.dequeued_at / 1000}
        reason = server.reason_dead(row)
        if reason and row.application_name == server.BY_HAND:
            return {"state": attempt.KILLED, "why": reason, **began}
        why = f"{reason}; the next server repeats it" if reason else ""
        running = (row.attributes or {}).get("phase") == server.RUNNING
        return {"state": server.RUNNING if running else "queued", "why": why, **began}
    if row.status == "CANCELLED":
        return {"state": attempt.KILLED, "why": "it was told to end, or its process was killed"}
    return {"state": attempt.FAILED, "why": str(row.error or row.status).splitlines()[0]}


def show_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the jobs, each with its command below it, and those that can be added by name."""
    now, lines = datetime.now(UTC), [("job", "times", "due next", "last run")]
    for row in rows:
        due, last = row["next"], row["last"]
        ended = f"{last['state']} {_distance(last['due'], now)}" if last else "-"
        due = _distance(due, now) if due else "paused"
        lines.append((row["name"], row["times"], due, ended))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    commands = ["", *(_shorten(row["command"]) for row in rows)]
    for line, command in zip(lines if rows else (), commands, strict=bool(rows)):
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
        if command:
            print_prose(command, "  ", after="    ")
    names = {row["name"] for row in rows}
    others = [job for name, job in jobs.shipped_jobs("UTC").items() if name not in names]
    if others:
        lead = "These can be added" if rows else "No job yet. These come with the project"
        print(f"{lead}: python -m pipelines schedule add NAME")
    for job in others:
        words = f"{job.name:<17}{job.cron:<13}{_shorten(job.command)}"
        print_prose(f"{words}; at most {format_duration(job.timeout_s or 0)}", "  ", after="    ")


def _shorten(command: str) -> str:
    """Return a command without the words with which all of ours begin."""
    return command.removeprefix("python -m ").removeprefix("pipelines ")


def show_history(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line a due time, the newest last, in the jobs' time zone, below it why it was so."""
    if not rows:
        print("Nothing was due yet. Jobs run while `python -m pipelines schedule serve` does.")
        return
    zones = {row["tz"] for row in rows}
    zone = zoneinfo.ZoneInfo(zones.pop() if len(zones) == 1 else "UTC")
    width = max(len(row["job"]) for row in rows)
    print(f"{f'due ({zone})':<19}  {'job':<{width}}  {'state':<10} {'took':>8}  run")
    for row in reversed(rows):
        due, until = (_format_time(row[key], zone) for key in ("due", "until"))
        took = "" if row["wall_s"] is None else format_duration(row["wall_s"])
        run = (row["run_id"] or "")[:8]
        print(f"{due}  {row['job']:<{width}}  {row['state']:<10} {took:>8}  {run}".rstrip())
        notes = [f"{row['due_times']} times that it was due, until {until}"] * (
            row["due_times"] > 1
        )
        notes += [f"attempt {row['attempt']}"] * (row["attempt"] > 1) + [row["why"]]
        if said := "; ".join(filter(None, notes)):
            print_prose(said, " " * 21)


def _format_time(text: str, zone: zoneinfo.ZoneInfo) -> str:
    """Return `2026-11-22 03:00:00` there."""
    return f"{datetime.fromisoformat(text).astimezone(zone):%Y-%m-%d %H:%M:%S}"


def _distance(text: str, now: datetime) -> str:
    """Return `in 7 min`, `2.1 h ago`."""
    return format_distance(datetime.fromisoformat(text), now)
