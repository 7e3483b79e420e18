"""The schedule: jobs at their times, kept by APScheduler in a database of the project.

APScheduler says when a job is due and remembers it over restarts; what became of every tick is in
ticks.py, which is written before APScheduler goes on to the next one.
APScheduler at the top: import this module inside the functions that need it.
"""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import tzlocal
from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.base import ConflictingIdError, JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.base import BaseScheduler
from sqlalchemy import inspect

from pipelines import jobs, ticks, times, timetable
from pipelines.errors import UserError, unknown
from pipelines.jobs import Job

DueTimes = dict[str, list[datetime]]


class Due(BaseExecutor):
    """Where APScheduler puts ticks that are due: noted here, and recorded by `Store`."""

    def __init__(self) -> None:
        super().__init__()
        self.times: DueTimes = {}

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        self.times[job.id] = run_times


class Store(SQLAlchemyJobStore):
    """APScheduler's table of jobs; a tick is in the table of ticks before its job moves on.

    Should that fail, as on a full disk, the job has not moved on and the tick is due again.
    """

    def __init__(self, engine: Any, due: Due) -> None:
        super().__init__(engine=engine)
        self.due = due

    def update_job(self, job: Any) -> None:
        found = [each.timestamp() for each in self.due.times.pop(job.id, [])]
        ticks.record(self.engine, job.func(**job.kwargs), found, datetime.now(UTC).timestamp())
        super().update_job(job)

    def shutdown(self) -> None:
        """The engine is closed by those who opened it."""


class Scheduler(BaseScheduler):
    """APScheduler without a thread of its own: `turn` looks once for jobs that are due."""

    def wakeup(self) -> None:
        """Nothing waits: turns come every second."""

    def shutdown(self, wait: bool = True) -> None:
        """As every scheduler must have it."""
        super().shutdown(wait)

    def turn(self) -> float:
        """Record what is due; seconds until more is."""
        try:
            wait = self._process_jobs()
        except JobLookupError:  # removed meanwhile
            return 0.0
        return sys.float_info.max if wait is None else wait


class Schedule:
    """The jobs of a database, and when each is due."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        new = not inspect(engine).has_table("apscheduler_jobs")
        due = Due()
        self.scheduler = Scheduler(
            jobstores={"default": Store(engine, due)},
            executors={"default": due},
            job_defaults={
                "coalesce": False,  # every tick is accounted for
                "misfire_grace_time": None,
                "max_instances": sys.maxsize,  # overlaps are decided in ticks.py
            },
            timezone=UTC,
        )
        self.scheduler.start(paused=True)
        if new:
            for job in jobs.shipped(local_zone()).values():
                self.add(job)

    def add(self, job: Job, replace: bool = False) -> None:
        """A new job. UserError for one of that name, or times that never come."""
        trigger = times.trigger(job, datetime.now(UTC))
        own = {"id": job.name, "kwargs": _arguments(job), "replace_existing": replace}
        try:
            self.scheduler.add_job(Job, trigger, **own)
        except ConflictingIdError as error:
            raise UserError(
                f"The name of a job must be new. Received: {job.name}, which is there. Add "
                "--replace to put this in its place, or choose another name."
            ) from error

    def remove(self, name: str) -> None:
        """Take a job away; what became of its ticks stays in the history."""
        self._job(name).remove()
        ticks.drop(self.engine, name, "the job was removed")

    def pause(self, name: str) -> None:
        """Let a job have no ticks until it is resumed."""
        self._job(name).pause()
        ticks.drop(self.engine, name, "the job was paused")

    def resume(self, name: str) -> None:
        """Let a job have ticks again, from now on."""
        self._job(name).resume()

    def jobs(self) -> dict[Job, datetime | None]:
        """Every job with its next tick, the nearest first; None: paused."""
        return {
            job.func(**job.kwargs): job.next_run_time for job in self.scheduler.get_jobs("default")
        }

    def job(self, name: str) -> Job:
        """The job of that name; UserError names those there are."""
        found = self._job(name)
        return Job(**found.kwargs)

    def _job(self, name: str) -> Any:
        found = self.scheduler.get_job(name)
        if found is None:
            raise unknown("A job", name, [job.name for job in self.jobs()])
        return found


def _arguments(job: Job) -> dict[str, Any]:
    return {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}


@contextmanager
def opened(storage: str) -> Iterator[Schedule]:
    """The schedule in that database, which is made where it is new, with the shipped jobs."""
    with timetable.connected(storage) as engine:
        yield Schedule(engine)


def local_zone() -> str:
    """The name of this machine's time zone; UTC where it has none."""
    return tzlocal.get_localzone_name() or "UTC"
