"""The tables of a schedule: its jobs, and the history of their ticks.

DBOS at the top: import this module inside the functions that need it.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dbos import DBOSClient, WorkflowStatus

from pipelines.errors import UserError, check_counts, unknown
from pipelines.runtime import notify
from pipelines.runtime.durations import format_distance, format_duration
from pipelines.runtime.plain_table import plain_table
from pipelines.scheduling import attempt, jobs, schedule, server
from pipelines.scheduling.jobs import ScheduledJob

UNREADABLE = "unreadable"  # state of a row that this project has not written so
STYLES = {"ran": "green", "failed": "red", "killed": "red", "running": "cyan", "missed": "yellow"}


def list_jobs(client: DBOSClient) -> list[dict[str, Any]]:
    """Return every job, the next one due first, with its last tick; `next` is None if paused."""
    rows = []
    for job, due in schedule.next_ticks(client).items():
        last = client.list_workflows(schedule_name=job.name, sort_desc=True, limit=1)
        row = {key: value for key, value in dataclasses.asdict(job).items() if key != "words"}
        row |= {"times": job.times, "command": job.command}
        row |= {"notify": notify.hide_secrets(job.notify)}
        row |= {"next": due.astimezone(job.zone).isoformat() if due else None}
        rows.append(row | {"last": _tick_row(last[0]) if last else None})
    return rows


def list_ticks(client: DBOSClient, name: str | None, last: int) -> list[dict[str, Any]]:
    """Return the newest ticks, of all jobs or of one, the newest first, in the job's local time.

    Raise UserError for the name of a job that neither exists nor has a history.
    """
    check_counts(last=last)
    chosen = (row for row in _read_ticks(client) if name in (None, row["job"]))
    rows = list(itertools.islice(chosen, last))
    if (
        name
        and not rows
        and name not in (names := {job.name for job in schedule.next_ticks(client)})
    ):
        raise unknown(
            "A job", name, names | {row["job"] for row in _read_ticks(client)}, schedule.LISTED_BY
        )
    return rows


def _read_ticks(client: DBOSClient) -> Iterator[dict[str, Any]]:
    """Yield the rows of all ticks, the newest first, read in pages."""
    page, offset = 500, 0
    while rows := client.list_workflows(
        application_name=server.APPLICATIONS, sort_desc=True, limit=page, offset=offset
    ):
        yield from map(_tick_row, rows)
        offset += page


def _tick_row(row: WorkflowStatus) -> dict[str, Any]:
    """Return the row of a tick, whose keys users script against; `unreadable` if it is no tick."""
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
    """Return the row of a tick at that moment with that end."""

    def local(seconds: float | None) -> str | None:
        return datetime.fromtimestamp(seconds, job.zone).isoformat() if seconds else None

    until = datetime.fromisoformat(result.get("until", at.isoformat()))
    began, ended = result.get("started"), result.get("ended")
    return {
        "job": job.name,
        "tick": at.astimezone(job.zone).isoformat(),
        "until": local(until.timestamp()),
        "ticks": int(result.get("ticks", 1)),
        "attempt": int(result.get("attempt", 1)),
        "state": str(result["state"]),
        "why": str(result["why"]),
        "by_hand": row.name == server.BY_HAND_TICK,
        "started": local(began),
        "ended": local(ended),
        "wall_s": round(ended - began, 3) if began and ended else None,
        "code": result["code"],
        "run_id": result.get("run_id"),
        "command": job.command,
    }


def _result(row: WorkflowStatus) -> dict[str, Any]:
    """Return how the workflow of a tick ended, or its present state."""
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
    """Print the jobs."""
    from rich.console import Console

    table = plain_table("job", "times", "next", "last tick", "command")
    for row in rows:
        last = row["last"]
        style = STYLES.get(last["state"], "none") if last else ""
        ended = f"[{style}]{last['state']}[/] {_format_distance(last['tick'])}" if last else "-"
        due = _format_distance(row["next"]) if row["next"] else "paused"
        command = row["command"].removeprefix("python -m ").removeprefix("pipelines ")
        table.add_row(row["name"], row["times"], due, ended, command)
    Console(highlight=False).print(table)


def show_history(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line a tick, the newest last."""
    if not rows:
        print("No tick yet. Jobs run while `python -m pipelines schedule serve` does.")
        return
    width = max(len(row["job"]) for row in rows)
    for row in reversed(rows):
        took = "" if row["wall_s"] is None else format_duration(row["wall_s"])
        run = (row["run_id"] or "")[:8]
        cells = f"{row['job']:<{width}}  {row['state']:<7} {took:>9}  {run:<8}"
        notes = [f"{row['ticks']} ticks until {_format_time(row['until'])}"] * (row["ticks"] > 1)
        notes += [f"attempt {row['attempt']}"] * (row["attempt"] > 1) + [row["why"]]
        print(f"{_format_time(row['tick'])}  {cells}  {'; '.join(filter(None, notes))}".rstrip())


def _format_time(text: str) -> str:
    """Return `2026-11-22 03:00:00+01:00`."""
    return datetime.fromisoformat(text).isoformat(" ", "seconds")


def _format_distance(text: str) -> str:
    """Return `in 7 min`, `2.1 h ago`."""
    return format_distance(datetime.fromisoformat(text), datetime.now(UTC))
