"""A job run once by a person, in the table of ticks as if its time had come.

APScheduler at the top: import this module inside the functions that need it.
"""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from pipelines import jobs, launch, schedule, ticks, timetable
from pipelines.attempted import LOG
from pipelines.errors import UserError
from pipelines.timetable import ENDED, RAN, RUNNING, TICKS, Tick

LOOK_S = 0.2


def run_now(storage: str, name: str) -> int:
    """Run a job in this terminal, where what it says is shown; its exit code.

    A server, if there is one, takes it for a run of the job like any other. UserError where the
    job is running already.
    """
    with schedule.opened(storage) as found:
        job, engine = found.job(name), found.engine
        for other in timetable.select(engine, TICKS.c.job == name, TICKS.c.state == RUNNING):
            raise UserError(
                f"A job runs once at a time. Received: {name}, of which that of "
                f"{job.local(other.tick):%Y-%m-%d %H:%M:%S} has been running for "
                f"{jobs.spoken(round(other.wall_s))}. Wait for its end: schedule history {name}"
            )
        once = dataclasses.replace(job, retries=0)  # who asks for it sees how it goes
        row = ticks.enqueue(engine, once, time.time())
        child = launch.start(engine, storage, timetable.get(engine, row))
        try:
            ended = _followed(engine, row, child)
        except BaseException:
            if child:
                child.terminate()
                child.wait()
            raise
        if ended.state == RUNNING:
            burial = launch.killed(engine, storage, ended, "its process has ended")
            burial.wait() if burial else None
            ended = timetable.get(engine, row)
    print(f"{name}: {ended.state}{f': {ended.why}' if ended.why else ''}", file=sys.stderr)
    return ended.code if ended.code is not None else 0 if ended.state == RAN else 1


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
