"""The schedule: jobs at their times, kept by APScheduler in a database of the project.

APScheduler says when a job is due and remembers it over restarts; what became of every tick is in
ticks.py, which is written before APScheduler goes on to the next one.
APScheduler at the top: import this module inside the functions that need it.
"""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import tzlocal
from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.base import ConflictingIdError, JobLookupError
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.base import BaseScheduler
from sqlalchemy import inspect, select

from pipelines import jobs, live, store, ticks, times, timetable
from pipelines.errors import UserError, unknown
from pipelines.jobs import Job

DueTimes = dict[str, list[datetime]]
SLACK = timedelta(seconds=0.5)  # rounding of times that are added up


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
        """Write down the ticks that were due, then when the job is due next."""
        due = self.due.times.pop(job.id, [])
        if due:
            there = self.lookup_job(job.id)
            if there is None or there.next_run_time != due[0] or there.kwargs != job.kwargs:
                return  # changed by another process since it was read
            now = datetime.now(UTC).timestamp()
            found = [each.timestamp() for each in due]
            ticks.record(self.engine, job.func(**job.kwargs), found, now)
        super().update_job(job)

    def _get_jobs(self, *conditions: Any) -> list[Any]:
        """As APScheduler's, which deletes what it cannot read, were it only for a Ctrl-C."""
        table = self.jobs_t.c
        query = select(table.id, table.job_state).where(*conditions).order_by(table.next_run_time)
        with self.engine.connect() as connection:
            rows = connection.execute(query).all()
        return [self._read(name, state) for name, state in rows]

    def _read(self, name: str, state: bytes) -> Any:
        try:
            return self._reconstitute_job(state)
        except Exception as error:
            raise UserError(
                f"A job must be readable by this version. Received: {name}: {error}. Go back to "
                "the version that added it, or remove the schedule's database."
            ) from error

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
        due, self.before = Due(), datetime.max.replace(tzinfo=UTC)
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

    def turn(self) -> float:
        """Record what is due; seconds until more is."""
        now = datetime.now(UTC)
        if now < self.before:  # the first turn, or the clock was set back
            for job in self.scheduler.get_jobs("default"):
                self._set_back(job, now + timedelta(milliseconds=1))
        self.before = now
        return self.scheduler.turn()

    def _set_back(self, job: Any, now: datetime) -> None:
        """Where a job is due later than it should be, let it have the ticks that come."""
        due = job.trigger.get_next_fire_time(None, now)
        if job.next_run_time is None or due is None or job.next_run_time - due < SLACK:
            return

        def past(tick: float) -> list[float]:
            return times.between(job.trigger, datetime.fromtimestamp(tick, UTC), now)

        ticks.unwrite(self.engine, job.id, past, now.timestamp())
        job.modify(next_run_time=due)

    def add(self, job: Job, replace: bool = False) -> None:
        """A new job. UserError for one of that name, or times that never come."""
        trigger = times.trigger(job, datetime.now(UTC))
        own = {"id": job.name, "kwargs": dataclasses.asdict(job), "replace_existing": replace}
        if replace and self.scheduler.get_job(job.name):
            self._left(job.name, "the job was replaced")
        try:
            self.scheduler.add_job(Job, trigger, **own)
        except ConflictingIdError as error:
            raise UserError(
                f"The name of a job must be new. Received: {job.name}, which is there. Add "
                "--replace to put this in its place, or choose another name."
            ) from error

    def remove(self, name: str) -> None:
        """Take a job away; what became of its ticks stays in the history."""
        self._left(name, "the job was removed").remove()

    def pause(self, name: str) -> None:
        """Let a job have no ticks until it is resumed."""
        self._left(name, "the job was paused").pause()

    def resume(self, name: str) -> None:
        """Let a paused job have ticks again, from now on."""
        job = self._job(name)
        if job.next_run_time is None:
            job.resume()

    def _left(self, name: str, why: str) -> Any:
        """The job, of which no tick that was due or queued will run."""
        job = self._job(name)
        if job.next_run_time:
            found = times.between(job.trigger, job.next_run_time, datetime.now(UTC))
            ticks.miss(self.engine, job.func(**job.kwargs), found, f"nothing served then; {why}")
        ticks.drop(self.engine, name, why)
        return job

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


@contextmanager
def opened(storage: str) -> Iterator[Schedule]:
    """The schedule in that database, which is made where it is new, with the shipped jobs."""
    with timetable.connected(storage) as engine:
        with live.locked(store.home() / "live", "schedule"):  # two would make it
            found = Schedule(engine)
        yield found


def local_zone() -> str:
    """The name of this machine's time zone; UTC where it has none."""
    return tzlocal.get_localzone_name() or "UTC"
