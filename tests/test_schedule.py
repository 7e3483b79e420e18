"""Jobs and their ticks by a clock that the tests set; processes are in test_server.py."""

import dataclasses
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlalchemy as sql

from pipelines import alive, server_lock, ticks, timetable
from pipelines import schedule as scheduling
from pipelines.errors import Unavailable, UserError
from pipelines.jobs import Job, seconds, words
from pipelines.schedule import Schedule
from pipelines.ticks import GRACE_S
from pipelines.timetable import MISSED, QUEUED, RAN, RUNNING, SKIPPED, TICKS, Tick


class Clock(datetime):
    """What APScheduler and the schedule take the time from."""

    at: ClassVar[datetime] = datetime(2026, 3, 28, tzinfo=UTC)

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return cls.at.astimezone(tz)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Clock)
    monkeypatch.setattr(scheduling, "datetime", Clock)
    monkeypatch.setattr(Clock, "at", datetime(2026, 3, 28, tzinfo=UTC))
    return Clock


@pytest.fixture
def schedule(home: Path, clock: type[Clock]) -> Iterator[Schedule]:
    """A schedule without jobs."""
    with scheduling.opened(timetable.place()) as found:
        for job in found.jobs():
            found.remove(job.name)
        found.scheduler.resume()
        yield found


def a_job(**more: Any) -> Job:
    return Job(**{"name": "x", "words": ("pipelines", "list"), "tz": "Europe/Berlin"} | more)


def turn(schedule: Schedule, at: datetime) -> None:
    Clock.at = at
    schedule.turn()


def rows(schedule: Schedule) -> list[Tick]:
    """All rows, the oldest first."""
    return timetable.select(schedule.engine)[::-1]


def done(schedule: Schedule) -> None:
    """Whatever is queued has run."""
    change = sql.update(TICKS).where(TICKS.c.state == QUEUED).values(state=RAN)
    with schedule.engine.begin() as connection:
        connection.execute(change)


def served(schedule: Schedule, hours: float, step_min: float = 30.0) -> list[Tick]:
    """The ticks of a server that lives that long and turns that often."""
    end = Clock.at + timedelta(hours=hours)
    while Clock.at < end:
        turn(schedule, Clock.at + timedelta(minutes=step_min))
        done(schedule)
    return rows(schedule)


@pytest.mark.parametrize(
    "day", [datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)]
)
def test_a_job_at_half_past_two_runs_once_on_each_day_of_a_clock_change(
    schedule: Schedule, day: datetime
) -> None:
    Clock.at = day
    schedule.add(a_job(cron="30 2 * * *"))
    found = served(schedule, 96)
    days = [row.job.local(row.tick).date().isoformat() for row in found]
    assert days == sorted(set(days))
    assert len(days) == 4
    assert {row.state for row in found} == {RAN}


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_an_hourly_job_runs_as_often_as_the_day_has_hours(
    schedule: Schedule, day: str, hours: int
) -> None:
    Clock.at = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
    schedule.add(a_job(cron="30 * * * *"))
    found = served(schedule, 54, step_min=20)
    assert len([t for t in found if t.job.local(t.tick).date().isoformat() == day]) == hours
    assert all(b.tick - a.tick == 3600 for a, b in itertools.pairwise(found))


@pytest.mark.parametrize(("missed", "states"), [("once", [MISSED, QUEUED]), ("skip", [MISSED])])
def test_of_ticks_that_nothing_served_the_last_is_run_or_none(
    schedule: Schedule, missed: Any, states: list[str]
) -> None:
    schedule.add(a_job(every_s=600.0, missed=missed))
    first = served(schedule, 1)
    turn(schedule, Clock.at + timedelta(hours=5, seconds=2 * GRACE_S))
    found = rows(schedule)[len(first) :]
    assert [row.state for row in found] == states
    assert sum(row.ticks for row in found) == 30
    assert found[0].until == found[0].tick + 600 * (found[0].ticks - 1)
    if missed == "once":
        assert found[-1].ticks == 1
        assert "2 m late" in found[-1].why


def test_every_tick_is_accounted_for_once_however_the_clock_jumps(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=60.0, overlap="queue"))
    start = Clock.at
    for minutes in (1, 2, 2.5, 90, 91, 45, 30, 92, 93.2, 500, 100, 501):  # there and back
        turn(schedule, start + timedelta(minutes=minutes))
        done(schedule)
    covered = [
        tick
        for row in rows(schedule)
        for tick in range(int(row.tick), int(row.until) + 1, 60)
        if row.ticks == (row.until - row.tick) / 60 + 1
    ]
    first = int(start.timestamp())
    assert sorted(covered) == list(range(first, first + 501 * 60 + 1, 60))


def test_a_clock_that_was_a_year_ahead_stops_no_job(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=3600.0))
    start = Clock.at
    served(schedule, 2)
    turn(schedule, start + timedelta(days=365))
    done(schedule)
    ahead = rows(schedule)[-1]
    Clock.at = start + timedelta(hours=2, minutes=5)
    found = served(schedule, 4)
    assert found[-1].tick == ahead.tick  # it has run, and stays
    first = int(start.timestamp())
    covered = [t for r in found[:-1] for t in range(int(r.tick), int(r.until) + 1, 3600)]
    assert covered == list(range(first, first + 6 * 3600 + 1, 3600))
    assert [row.state for row in found[-4:-1]] == [RAN] * 3


def test_a_job_that_cannot_be_read_is_not_deleted(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=60.0))
    spoil = "UPDATE apscheduler_jobs SET job_state = x'00'"
    with schedule.engine.begin() as connection:
        connection.exec_driver_sql(spoil)
    with pytest.raises(UserError, match="Received: x"):
        schedule.jobs()
    with schedule.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT id FROM apscheduler_jobs").all()
    assert [tuple(row) for row in found] == [("x",)]


@pytest.mark.parametrize("change", ["pause", "remove", "resume"])
def test_ticks_before_a_change_are_accounted_for_though_nothing_served(
    schedule: Schedule, change: str
) -> None:
    schedule.add(a_job(every_s=60.0))
    Clock.at += timedelta(minutes=5, seconds=1)
    getattr(schedule, change)("x")
    if change == "resume":  # of a job that is not paused: nothing
        turn(schedule, Clock.at)
    assert sum(row.ticks for row in rows(schedule)) == 6


@pytest.mark.parametrize(
    ("overlap", "states"),
    [("skip", [SKIPPED, SKIPPED, SKIPPED]), ("queue", [QUEUED, SKIPPED, SKIPPED])],
)
def test_ticks_while_the_job_runs_are_skipped_or_one_waits(
    schedule: Schedule, overlap: Any, states: list[str]
) -> None:
    schedule.add(a_job(every_s=20.0, overlap=overlap))
    turn(schedule, Clock.at)
    (first,) = rows(schedule)
    assert ticks.begin(schedule.engine, first, "1 0", Path("nowhere"))
    for _ in states:
        turn(schedule, Clock.at + timedelta(seconds=20))
    assert [row.state for row in rows(schedule)] == [RUNNING, *states]
    assert all(row.why for row in rows(schedule) if row.state == SKIPPED)
    waiting = [row for row in rows(schedule) if row.state == QUEUED]
    assert not any(ticks.begin(schedule.engine, row, "2 0", Path("nowhere")) for row in waiting)


@pytest.mark.parametrize("table", ["ticks", "apscheduler_jobs"])
def test_a_full_disk_neither_loses_a_tick_nor_runs_it_twice(schedule: Schedule, table: str) -> None:
    """Whichever of the two tables cannot be written, the tick is there once when there is room."""
    schedule.add(a_job(every_s=20.0))
    verb = "INSERT" if table == "ticks" else "UPDATE"
    full = f"BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    with schedule.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TRIGGER full {full}")
    with pytest.raises(sql.exc.IntegrityError, match="disk is full"):
        turn(schedule, Clock.at)
    with schedule.engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER full")
    turn(schedule, Clock.at + timedelta(seconds=5))
    turn(schedule, Clock.at + timedelta(seconds=5))
    assert [(row.state, row.ticks) for row in rows(schedule)] == [(QUEUED, 1)]


def test_a_paused_job_has_no_ticks_and_a_resumed_one_none_of_the_past(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=60.0))
    before = len(served(schedule, 0.5, step_min=1))
    schedule.pause("x")
    assert schedule.jobs()[a_job(every_s=60.0)] is None
    assert len(served(schedule, 2)) == before
    schedule.resume("x")
    turn(schedule, Clock.at + timedelta(seconds=59))
    assert len(rows(schedule)) in (before, before + 1)
    assert all(row.ticks == 1 for row in rows(schedule))


def test_a_failed_attempt_is_made_again_later_and_later_but_not_after_a_mistake(
    schedule: Schedule,
) -> None:
    schedule.add(a_job(every_s=3600.0, retries=2, backoff_s=100.0))
    turn(schedule, Clock.at)
    waits = []
    for _ in range(3):
        *_, tick = rows(schedule)
        assert ticks.begin(schedule.engine, tick, "1 0", Path("nowhere"))
        storage = timetable.place()
        ticks.finish(storage, tick.id, state="failed", why="it broke", code=1)
        ended = timetable.get(schedule.engine, tick.id)
        *_, last = rows(schedule)
        if last.id != tick.id:
            waits.append(round((last.due or 0) - (ended.ended or 0)))
    assert waits == [100, 200]
    assert [row.attempt for row in rows(schedule)] == [1, 2, 3]
    assert len({row.tick for row in rows(schedule)}) == 1
    turn(schedule, Clock.at + timedelta(hours=1))
    *_, tick = rows(schedule)
    assert ticks.begin(schedule.engine, tick, "1 0", Path("nowhere"))
    ticks.finish(timetable.place(), tick.id, state="failed", why="a mistake", code=2)
    assert rows(schedule)[-1].id == tick.id


def test_what_an_earlier_server_left_queued_is_run_unless_its_job_skips_what_is_late(
    schedule: Schedule,
) -> None:
    schedule.add(a_job(every_s=3600.0))
    schedule.add(a_job(name="y", every_s=3600.0, missed="skip"))
    turn(schedule, Clock.at)
    ticks.lapse(schedule.engine, Clock.at.timestamp() + GRACE_S - 1)
    assert {row.state for row in rows(schedule)} == {QUEUED}
    ticks.lapse(schedule.engine, Clock.at.timestamp() + GRACE_S + 1)
    assert {row.job.name: row.state for row in rows(schedule)} == {"x": QUEUED, "y": MISSED}


def test_a_schedule_begins_with_the_shipped_jobs_once(home: Path) -> None:
    storage = timetable.place()
    with scheduling.opened(storage) as found:
        names = {job.name for job in found.jobs()}
        assert names == {"nightly-claims", "weekly-study", "data-check", "reap"}
        assert all(due for due in found.jobs().values())
        found.remove("reap")
    with scheduling.opened(storage) as found:
        assert {job.name for job in found.jobs()} == names - {"reap"}


def test_a_second_server_is_refused_with_the_first_ones_process_and_host(home: Path) -> None:
    _refused(timetable.place())


def test_on_postgresql_jobs_ticks_and_the_lock_work_as_on_sqlite(
    home: Path, postgresql_database: str, clock: type[Clock]
) -> None:
    with scheduling.opened(postgresql_database) as found:
        found.add(a_job(every_s=20.0, missed="once"))
        found.scheduler.resume()
        turn(found, Clock.at)
        (first,) = rows(found)
        assert ticks.begin(found.engine, first, "1 0", Path("nowhere"))
        turn(found, Clock.at + timedelta(seconds=20))
        assert [row.state for row in rows(found)] == [RUNNING, SKIPPED]
        again = ticks.enqueue(found.engine, first.job, 5.0)
        assert not ticks.begin(found.engine, timetable.get(found.engine, again), "2 0", Path("x"))
        found.remove("x")
    _refused(postgresql_database)


def _refused(storage: str) -> None:
    import os
    import socket

    with timetable.connected(storage) as one, timetable.connected(storage) as two:
        said = f"process {os.getpid()} on {socket.gethostname()}"
        with server_lock.sole(one, storage) as check:
            check()
            with pytest.raises(Unavailable, match=said), server_lock.sole(two, storage):
                pass
        with server_lock.sole(two, storage):
            pass  # the first is gone


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cron": "30 2 * *"}, "five fields"),
        ({"cron": "61 2 * * *"}, "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "cron expression"),
        ({"every_s": 0.5}, "at least 1 s"),
        ({"cron": "* * * * *", "every_s": 5.0}, "either"),
        ({}, "either"),
        ({"name": "No Name", "every_s": 5.0}, "small letters"),
        ({"tz": "Europe/Berlim", "cron": "* * * * *"}, "Europe/Berlin"),
        ({"every_s": 5.0, "retries": -1}, "retries"),
        ({"every_s": 5.0, "timeout_s": 0.0}, "timeout"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_a_sentence(
    schedule: Schedule, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        schedule.add(a_job(**wrong))
    assert schedule.jobs() == {}


def test_a_schedules_address_is_the_same_from_any_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert timetable.place("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"
    assert timetable.place() == f"sqlite:///{home}/schedule.db"
    monkeypatch.setenv("SCHEDULE_STORAGE", "postgresql://me:secret@host/x")
    assert timetable.place() == "postgresql://me:secret@host/x"
    for wrong in ("sqlite://", "sqlite:///:memory:", "nonsense"):
        with pytest.raises(UserError, match="sqlite:///FILE"):
            timetable.place(wrong)


def test_what_ran_before_its_machine_was_started_again_is_over(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=60.0))
    turn(schedule, Clock.at)
    (tick,) = rows(schedule)
    assert ticks.begin(schedule.engine, tick, "1 0", Path("nowhere"))
    host, _, rest = alive.machine().partition(" ")
    boot, _, space = rest.partition(" ")
    (tick,) = rows(schedule)
    here = dataclasses.replace(tick, machine=f"{host} other-boot {space}")
    there = dataclasses.replace(tick, machine=f"{host} {boot} other-space")
    assert here.dead(one_machine=True)
    assert not here.dead()
    assert not there.dead(one_machine=True)  # a container of this machine


def test_names_are_new_and_known(schedule: Schedule) -> None:
    schedule.add(a_job(every_s=5.0))
    with pytest.raises(UserError, match="--replace"):
        schedule.add(a_job(every_s=6.0))
    schedule.add(a_job(every_s=6.0), replace=True)
    assert [job.every_s for job in schedule.jobs()] == [6.0]
    with pytest.raises(UserError, match="Choices: x"):
        schedule.pause("y")


def test_a_command_line_may_begin_as_people_type_it() -> None:
    typed = ["python -m pipelines run x --force", "-m pipelines run x --force", "run x --force"]
    found = {
        words(line.split()) for line in [*typed, ".venv/bin/python3.11 -m pipelines run x --force"]
    }
    assert found == {("pipelines", "run", "x", "--force")}
    assert words(["tuning", "run", "y"]) == ("tuning", "run", "y")
    with pytest.raises(UserError, match="after --"):
        words(["python", "-m"])


def test_the_day_of_a_tick_is_that_of_the_jobs_time_zone() -> None:
    job = a_job(words=("tuning", "run", "weekly-{date}"), cron="0 4 * * SUN", tz="Asia/Tokyo")
    tick = datetime(2026, 11, 21, 19, tzinfo=UTC).timestamp()
    assert job.at(tick) == ("tuning", "run", "weekly-2026-11-22")


def test_lengths_of_time_are_read() -> None:
    assert [seconds(text) for text in ("90s", "20m", "1.5h", "1d")] == [90, 1200, 5400, 86400]
    for wrong in ("90", "m", "-1s", "1 week"):
        with pytest.raises(UserError, match="number with s, m, h or d"):
            seconds(wrong)
