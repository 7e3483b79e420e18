"""What is said of a schedule: its jobs, and what became of their ticks.

APScheduler at the top: import this module inside the functions that need it.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from pipelines import jobs as job_list
from pipelines import notify, timetable
from pipelines.attempted import LOG
from pipelines.errors import check_counts, unknown
from pipelines.schedule import Schedule
from pipelines.timetable import TICKS, Tick

STYLES = {"ran": "green", "failed": "red", "killed": "red", "running": "cyan", "missed": "yellow"}


def jobs(schedule: Schedule) -> list[dict[str, Any]]:
    """Every job, the next one due first, with its last tick; `next` is null of a paused one."""
    return [_job(schedule, job, due) for job, due in schedule.jobs().items()]


def _job(schedule: Schedule, job: job_list.Job, due: datetime | None) -> dict[str, Any]:
    last = timetable.select(schedule.engine, TICKS.c.job == job.name, most=1)
    return {
        **{key: value for key, value in dataclasses.asdict(job).items() if key != "words"},
        "times": job.times,
        "command": job.command,
        "notify": notify.shown(job.notify),
        "next": due.astimezone(job.zone).isoformat() if due else None,
        "last": tick(last[0]) if last else None,
    }


def history(engine: Any, name: str | None, last: int) -> list[dict[str, Any]]:
    """The newest rows, of all jobs or of one, the newest first; times are the job's local ones.

    UserError for the name of a job that there neither is nor was.
    """
    check_counts(last=last)
    conditions = [TICKS.c.job == name] if name else []
    rows = [tick(row) for row in timetable.select(engine, *conditions, most=last)]
    if name and not rows:
        _check_name(engine, name)
    return rows


def _check_name(engine: Any, name: str) -> None:
    with engine.connect() as connection:
        past = connection.scalars(sql.select(TICKS.c.job).distinct()).all()
    every = [*past, *(job.name for job in Schedule(engine).jobs())]
    if name not in every:
        raise unknown("A job", name, every)


def tick(row: Tick) -> dict[str, Any]:
    """A row as users script against it."""

    def at(seconds: float | None) -> str | None:
        return None if seconds is None else row.job.local(seconds).isoformat()

    log = Path(row.folder or "") / LOG
    return {
        "job": row.job.name,
        "tick": at(row.tick),
        "until": at(row.until),
        "ticks": row.ticks,
        "attempt": row.attempt,
        "state": row.state,
        "why": row.why,
        "by_hand": row.by_hand,
        "started": at(row.started),
        "ended": at(row.ended),
        "wall_s": round(row.wall_s, 3) if row.started else None,
        "code": row.code,
        "run_id": row.run_id,
        "command": row.job.command,
        "log": str(log) if row.folder and log.exists() else None,
    }


def show_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    """The jobs in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("job", "times", "next", "last tick", "command", box=box.SIMPLE_HEAD)
    for row in rows:
        last = row["last"]
        ended = f"{_time(last['tick'])} {_colored(last['state'])}" if last else "-"
        due = _time(row["next"]) if row["next"] else "paused"
        table.add_row(
            row["name"], row["times"], due, ended, row["command"].removeprefix("python -m ")
        )
    Console().print(table)


def show_history(rows: Sequence[Mapping[str, Any]]) -> None:
    """What became of ticks in the terminal, the newest last, a line each."""
    if not rows:
        print("No tick yet. Jobs run while `python -m pipelines schedule serve` does.")
        return
    width = max(len(row["job"]) for row in rows)
    for row in reversed(rows):
        took = "" if row["wall_s"] is None else f"{row['wall_s']:.1f} s"
        run = (row["run_id"] or "")[:8]
        line = f"{_time(row['tick'])}  {row['job']:<{width}}  {row['state']:<7} {took:>9}  {run:<8}"
        print(f"{line}  {'; '.join(_notes(row))}".rstrip())


def _notes(row: Mapping[str, Any]) -> Iterator[str]:
    """What the columns of a row do not say."""
    if row["ticks"] > 1:
        yield f"{row['ticks']} ticks until {_time(row['until'])}"
    if row["attempt"] > 1:
        yield f"attempt {row['attempt']}"
    if row["why"]:
        yield row["why"]


def _time(text: str) -> str:
    """`2026-11-22 03:00:00+01:00`."""
    return datetime.fromisoformat(text).isoformat(" ", "seconds")


def _colored(state: str) -> str:
    style = STYLES.get(state, "")
    return f"[{style}]{state}[/]" if style else state
