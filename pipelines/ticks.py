"""What becomes of ticks: each is written down before anything is started.

So no tick is run twice, and none is lost, whatever is killed. A row is one attempt at one tick, or
several ticks that were missed one after another.
SQLAlchemy at the top: import this module inside the functions that need it.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from pipelines import alive, jobs
from pipelines.jobs import Job
from pipelines.timetable import (
    FAILED,
    KILLED,
    MISSED,
    QUEUED,
    RUNNING,
    SKIPPED,
    TICKS,
    Tick,
    connected,
    get,
    select,
)

GRACE_S = 60.0  # a tick that is found due later than this was missed
MOST_S = 86_400.0  # between two attempts, unless a job asks for more
NOT_AGAIN = (2, 3)  # exit codes that another attempt would give too: a mistake, a regression


def _values(job: Job, tick: float, state: str, **more: Any) -> dict[str, Any]:
    definition = json.dumps(dataclasses.asdict(job))
    own = {"job": job.name, "tick": tick, "until": tick, "state": state, "definition": definition}
    return own | {"ticks": 1, "why": "", "due": None} | more


def record(engine: Any, job: Job, times: Sequence[float], now: float) -> None:
    """Account for the ticks of a job that are due, ascending; those that are there are left.

    The last is queued, unless the job's rules say otherwise; those before it were missed.
    """
    mine = TICKS.c.job == job.name
    open_ = sql.select(TICKS.c.state).where(mine, TICKS.c.state.in_((QUEUED, RUNNING)))
    with engine.begin() as connection:
        fresh = _fresh(connection, job, times)
        rows = decided(job, fresh, now, list(connection.execute(open_).scalars()))
        if rows:
            connection.execute(sql.insert(TICKS), rows)


def miss(engine: Any, job: Job, times: Sequence[float], why: str) -> None:
    """Account for ticks, ascending, that nothing will run; those that are there are left."""
    with engine.begin() as connection:
        if fresh := _fresh(connection, job, times):
            connection.execute(sql.insert(TICKS), [_missed(job, fresh, why)])


def _fresh(connection: Any, job: Job, times: Sequence[float]) -> list[float]:
    """Those of these ticks of which no row says what became of them."""
    if not times:
        return []
    near = (TICKS.c.until >= times[0], TICKS.c.tick <= times[-1], sql.not_(TICKS.c.by_hand))
    query = sql.select(TICKS.c.tick, TICKS.c.until).where(TICKS.c.job == job.name, *near)
    there = [tuple(row) for row in connection.execute(query)]
    return [t for t in times if not any(first <= t <= last for first, last in there)]


def unwrite(engine: Any, job: str, past: Callable[[float], Sequence[float]], now: float) -> None:
    """Take back what was written of ticks that are still to come: the clock was ahead.

    `past(tick)` are the ticks from that one until now. A tick that has run is not run again.
    """
    idle = TICKS.c.state.in_((MISSED, SKIPPED))
    ahead = [TICKS.c.job == job, sql.not_(TICKS.c.by_hand), TICKS.c.until > now]
    for row in select(engine, idle, *ahead):
        kept = past(row.tick)
        change = sql.update(TICKS).values(until=kept[-1], ticks=len(kept)) if kept else None
        with engine.begin() as connection:
            connection.execute(
                (sql.delete(TICKS) if change is None else change).where(TICKS.c.id == row.id)
            )
    waits = sql.update(TICKS).where(TICKS.c.job == job, TICKS.c.state == QUEUED, TICKS.c.due > now)
    with engine.begin() as connection:
        connection.execute(waits.values(due=now))


def decided(
    job: Job, times: Sequence[float], now: float, busy: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows for ticks that are due, ascending; `busy`: states of the attempts not yet over."""
    if not times:
        return []
    *earlier, latest = times
    late = now - latest > GRACE_S
    if late and job.missed == "skip":
        return [_missed(job, times, "nothing served the schedule then")]
    found = []
    if earlier:
        stands = f"nothing served then; that of {job.local(latest):%Y-%m-%d %H:%M:%S} stands for it"
        found.append(_missed(job, earlier, stands))
    if RUNNING in busy and job.overlap == "skip":
        why = "the job was still running"
    elif QUEUED in busy:
        why = "another attempt was queued already"
    else:
        behind = f"{jobs.spoken(round(now - latest))} late" if late else ""
        return [*found, _values(job, latest, QUEUED, due=now, why=behind)]
    return [*found, _values(job, latest, SKIPPED, why=why)]


def _missed(job: Job, times: Sequence[float], why: str) -> dict[str, Any]:
    return _values(job, times[0], MISSED, until=times[-1], ticks=len(times), why=why)


def enqueue(engine: Any, job: Job, tick: float) -> int:
    """A tick made by hand, to be started now; its row."""
    values = _values(job, tick, QUEUED, due=tick, by_hand=True, why="by hand")
    with engine.begin() as connection:
        return int(connection.execute(sql.insert(TICKS).values(values)).inserted_primary_key[0])


def begin(engine: Any, tick: Tick, process: str, folder: Path) -> bool:
    """Mark a queued attempt as running in that process, unless it, or another of its job, is."""
    now = time.time()
    own = {"process": process, "machine": alive.machine(), "folder": str(folder)}
    change = sql.update(TICKS).where(TICKS.c.id == tick.id, TICKS.c.state == QUEUED)
    try:
        with engine.begin() as connection:
            done = connection.execute(change.values(state=RUNNING, started=now, beat=now, **own))
            return bool(done.rowcount)
    except sql.exc.IntegrityError:
        return False


def beat(storage: str, row: int) -> None:
    """A sign of life of the supervisor of an attempt."""
    with connected(storage) as engine, engine.begin() as connection:
        connection.execute(sql.update(TICKS).where(TICKS.c.id == row).values(beat=time.time()))


def finish(
    storage: str,
    row: int,
    *,
    state: str,
    why: str = "",
    code: int | None = None,
    run_id: str | None = None,
) -> None:
    """End an attempt that runs, and queue the next one where its job asks for it."""
    with connected(storage) as engine:
        end(engine, get(engine, row), state, {"why": why, "code": code, "run_id": run_id})


def end(engine: Any, tick: Tick, state: str, result: dict[str, Any]) -> bool:
    """The same; False where it had ended already."""
    change = sql.update(TICKS).where(TICKS.c.id == tick.id, TICKS.c.state == RUNNING)
    why = "; ".join(filter(None, [tick.why, result.get("why")]))
    with engine.begin() as connection:
        done = connection.execute(
            change.values(result | {"state": state, "why": why, "ended": time.time()})
        )
        if not done.rowcount:
            return False
        if state in (FAILED, KILLED) and _again(tick, result.get("code")):
            due = time.time() + _wait_s(tick)
            more = {"attempt": tick.attempt + 1, "by_hand": tick.by_hand, "due": due}
            row = _values(tick.job, tick.tick, QUEUED, **more)
            connection.execute(sql.insert(TICKS).values(row))
    return True


def _wait_s(tick: Tick) -> float:
    """Seconds before the next attempt: twice as many each time, up to a day, or what is asked."""
    first = tick.job.backoff_s
    return min(first * 2.0 ** min(tick.attempt - 1, 20), max(first, MOST_S))


def lapse(engine: Any, now: float) -> None:
    """Give up what an earlier server left queued too long ago: asked for by hand, or not when late.

    To be called once, when a server begins: what waits for a job that still runs is not late.
    """
    for tick in select(engine, TICKS.c.state == QUEUED, TICKS.c.due < now - GRACE_S):
        if tick.by_hand or tick.job.missed == "skip":
            leave(engine, tick, MISSED, "nothing served the schedule then")


def drop(engine: Any, job: str, why: str) -> None:
    """Leave out what is queued of a job that is paused or removed."""
    for tick in select(engine, TICKS.c.state == QUEUED, TICKS.c.job == job):
        leave(engine, tick, SKIPPED, why)


def leave(engine: Any, tick: Tick, state: str, why: str) -> None:
    """Do not start a queued attempt after all."""
    change = sql.update(TICKS).where(TICKS.c.id == tick.id, TICKS.c.state == QUEUED)
    with engine.begin() as connection:
        connection.execute(change.values(state=state, why=why))


def _again(tick: Tick, code: int | None) -> bool:
    return tick.attempt <= tick.job.retries and code not in NOT_AGAIN
