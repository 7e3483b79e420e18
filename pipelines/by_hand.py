"""A job run once by a person, in the table of ticks as if its time had come.

APScheduler at the top: import this module inside the functions that need it.
"""

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from pipelines import jobs, launch, schedule, ticks, timetable
from pipelines.attempted import LOG
from pipelines.errors import Unavailable
from pipelines.timetable import ENDED, QUEUED, RAN, RUNNING, SKIPPED, TICKS, Tick

LOOK_S = 0.2


def run_now(storage: str, name: str) -> int:
    """Run a job in this terminal, where what it says is shown; its exit code.

    A server, if there is one, takes it for a run of the job like any other. Unavailable where
    the job is running already.
    """
    with schedule.opened(storage) as found:
        job, engine = found.job(name), found.engine
        for other in timetable.select(engine, TICKS.c.job == name, TICKS.c.state == RUNNING):
            _refuse(engine, storage, other)
        once = dataclasses.replace(job, retries=0)  # who asks for it sees how it goes
        row = ticks.enqueue(engine, once, time.time())
        child = launch.start(engine, storage, timetable.get(engine, row))
        try:
            if child is None:
                _let_go(engine, storage, timetable.get(engine, row))
            ended = _followed(engine, row, child)
        except BaseException:
            if child:
                child.terminate()
                child.wait()
                _settled(engine, storage, row)
            raise
        ended = _settled(engine, storage, row) if child else ended
    print(f"{name}: {ended.state}{f': {ended.why}' if ended.why else ''}", file=sys.stderr)
    if ended.code is None:
        return 0 if ended.state == RAN else 1
    return 128 - ended.code if ended.code < 0 else ended.code


def _refuse(engine: Any, storage: str, other: Tick) -> None:
    """Unavailable for a job that runs; what was killed meanwhile is ended instead."""
    why = launch.dead(engine, other)
    if why:
        _wait(launch.killed(engine, storage, other, why))
        return
    raise Unavailable(
        f"A job runs once at a time. Received: {other.job.name}, of which that of "
        f"{other.job.local(other.tick):%Y-%m-%d %H:%M:%S} has been running for "
        f"{jobs.spoken(round(other.wall_s))}. Wait for its end: schedule history {other.job.name}"
    )


def _let_go(engine: Any, storage: str, tick: Tick) -> None:
    """Of an attempt that we could not start: leave it to who has, or let it be."""
    if tick.state == QUEUED:
        ticks.leave(engine, tick, SKIPPED, "the job was still running")
        own = (TICKS.c.job == tick.job.name, TICKS.c.state == RUNNING)
        for other in timetable.select(engine, *own):
            _refuse(engine, storage, other)
        raise Unavailable(
            f"A job runs once at a time. Received: {tick.job.name}, which has just ended. Repeat "
            "the command."
        )


def _settled(engine: Any, storage: str, row: int) -> Tick:
    """An attempt whose supervisor, ours, is over: it was killed where the table still waits."""
    tick = timetable.get(engine, row)
    if tick.state == RUNNING:
        _wait(launch.killed(engine, storage, tick, "its process has ended"))
    return timetable.get(engine, row)


def _wait(burial: subprocess.Popen[bytes] | None) -> None:
    if burial:
        burial.wait()


def _followed(engine: Any, row: int, child: Any) -> Tick:
    """The attempt when it is over, or its supervisor, if it is ours, is; what it says is shown."""
    log: BinaryIO | None = None
    while True:
        over = child is not None and child.poll() is not None
        tick = timetable.get(engine, row)
        place = Path(tick.folder or "") / LOG
        if log is None and tick.folder and place.exists():
            log = place.open("rb")
        if log:
            sys.stdout.write(log.read().decode(errors="replace"))
            sys.stdout.flush()
        if tick.state in ENDED or over:
            return tick
        time.sleep(LOOK_S)
