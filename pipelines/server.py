"""The one process that serves a schedule: it starts what is due and settles what was killed.

It holds no command of its own in memory, and neither MLflow nor TensorFlow: every attempt is a
process that goes on without it, and that its successor finds in the table of ticks.
SQLAlchemy at the top: import this module inside the functions that need it.
"""

import contextlib
import math
import signal
import subprocess
import sys
import time
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sql

from pipelines import alive, launch, live, store, ticks, timetable
from pipelines.errors import short, without_password
from pipelines.schedule import Schedule, opened
from pipelines.server_lock import sole
from pipelines.timetable import QUEUED, RUNNING, SKIPPED, TICKS, Tick

TURN_S = 1.0  # at most, between two looks at the table: clocks jump, and others write to it
AHEAD_S = 6.0  # before a tick, its supervisor is started
PATIENCE_S = 5.0  # after a database that did not answer, or a full disk
OnStop = Literal["wait", "hand-over"]


def serve(storage: str, on_stop: OnStop) -> None:
    """Serve the schedule in that database until a signal ends it. Unavailable: another one does."""
    with opened(storage) as schedule, sole(schedule.engine, storage) as held:
        server = Server(schedule, storage, on_stop)
        before = {number: signal.signal(number, server.stop) for number in (2, 15)}
        try:
            server.begin()
            while server.goes_on():
                held()
                server.turn()
        finally:
            server.dismiss()
            for number, handler in before.items():
                signal.signal(number, handler)


class Server:
    """What is being served, and the processes that were started for it."""

    def __init__(self, schedule: Schedule, storage: str, on_stop: OnStop) -> None:
        self.schedule, self.engine = schedule, schedule.engine
        self.storage, self.on_stop = storage, on_stop
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.aside: list[subprocess.Popen[bytes]] = []  # they tidy up
        self.waiting: dict[str, tuple[float, launch.Supervisor]] = {}  # by job, until when
        self.stops, self.stopping = 0, False
        self.wait_s = 0.0
        self.trouble = ""

    def begin(self) -> None:
        """Take over from an earlier server."""
        ticks.lapse(self.engine, time.time())
        self.aside += [launch.bury(self.storage, tick) for tick in self._unburied()]
        self._settle()
        if not self.aside and live.leftovers(store.home() / "live", store.uri()):
            self.aside.append(launch.reap())
        self.schedule.scheduler.resume()
        said = [f"{job.name} ({job.times})" for job, due in self.schedule.jobs().items() if due]
        say(f"serving {without_password(self.storage)}: {', '.join(said) or 'no job'}")

    def _unburied(self) -> list[Tick]:
        """Attempts that were killed, and with them the process that was to tidy up."""
        mine = TICKS.c.folder.in_([str(folder) for folder in launch.folders()])
        over = timetable.select(self.engine, mine, TICKS.c.ended > 0)
        # a living one is about to tidy up itself
        return [tick for tick in over if launch.dead(self.engine, tick)]

    def stop(self, number: int, _: Any) -> None:
        """Once: start nothing more. Twice: do not wait either."""
        self.stops += 1

    def goes_on(self) -> bool:
        """Whether there is something left to do here."""
        if not self.stops:
            return True
        here = TICKS.c.machine == alive.machine()
        running = timetable.select(self.engine, TICKS.c.state == RUNNING, here)
        if running and self.on_stop == "wait" and self.stops == 1:
            if not self.stopping:
                say(f"stopping: waits for {len(running)} running (a second signal: no longer)")
            self.stopping = True
            return True
        said = f"; {len(running)} running are handed over to the next server" if running else ""
        say(f"stopped{said}")
        return False

    def turn(self) -> None:
        """Settle what has ended, record what is due, start it, and rest until more is due."""
        try:
            self._settle()
            self.wait_s = TURN_S
            if not self.stops:
                self.wait_s = self.schedule.turn()
                self._start()
            self._prepare()
            self.trouble = ""
        except (sql.exc.SQLAlchemyError, OSError) as error:
            if str(error) != self.trouble:
                say(f"waits for its database and disk: {short(error)}")
            self.trouble = str(error)
            time.sleep(PATIENCE_S)
        time.sleep(min(self.wait_s, TURN_S))

    def _start(self) -> None:
        due = timetable.select(self.engine, TICKS.c.state == QUEUED, TICKS.c.due <= time.time())
        there = self.schedule.jobs() if due else {}
        busy = self._running() if due else set()
        for tick in reversed(due):
            if not tick.by_hand and there.get(tick.job) is None:
                why = "the job was changed, paused or removed"
                ticks.leave(self.engine, tick, SKIPPED, why)
            elif tick.job.name not in busy:
                self._begin(tick)
                busy.add(tick.job.name)

    def _begin(self, tick: Tick) -> None:
        _, waiting = self.waiting.pop(tick.job.name, (0.0, None))
        if waiting and waiting.process.poll() is not None:  # it was killed
            waiting.dismiss()
            waiting = None
        child = launch.start(self.engine, self.storage, tick, waiting)
        if child:
            self.children[tick.id] = child
            say(f"{_named(tick)}: started")

    def _running(self) -> set[str]:
        """The names of the jobs that run."""
        return {t.job.name for t in timetable.select(self.engine, TICKS.c.state == RUNNING)}

    def _prepare(self) -> None:
        """Have a supervisor wait for every tick that is near; dismiss those that were not needed.

        Loading what it records with takes it longer than a command takes to begin.
        """
        now = time.time()
        self.dismiss(now)
        if self.stops or self.wait_s > AHEAD_S:
            return
        busy = self._running() | self.waiting.keys()
        for job, due in self.schedule.jobs().items():
            if due and due.timestamp() < now + AHEAD_S and job.name not in busy:
                self.waiting[job.name] = (now + 2 * AHEAD_S, launch.supervisor(job.name))

    def dismiss(self, now: float = math.inf) -> None:
        """Let the supervisors end whose ticks did not come, or were not to be run."""
        for job, (until, supervisor) in list(self.waiting.items()):
            if now > until or self.stops:
                del self.waiting[job]
                supervisor.dismiss()

    def _settle(self) -> None:
        """Say what became of our children; end the attempts that nobody supervises any more."""
        self.aside = [child for child in self.aside if child.poll() is None]
        over = [row for row, child in self.children.items() if child.poll() is not None]
        for tick in timetable.select(self.engine, TICKS.c.state == RUNNING):
            why = "process has ended" if tick.id in over else None
            if why is None and tick.id not in self.children:
                why = launch.dead(self.engine, tick)
            if why:
                burial = launch.killed(self.engine, self.storage, tick, why)
                self.aside += [burial] if burial else []
        for row in over:
            del self.children[row]
            say(_ended(timetable.get(self.engine, row)))


def _named(tick: Tick) -> str:
    again = f", attempt {tick.attempt}" if tick.attempt > 1 else ""
    return f"{tick.job.name} of {tick.job.local(tick.tick):%Y-%m-%d %H:%M:%S}{again}"


def _ended(tick: Tick) -> str:
    why = f": {tick.why}" if tick.why else ""
    return f"{_named(tick)}: {tick.state} after {tick.wall_s:.1f} s{why}"


def say(text: str) -> None:
    """A line of the server's log."""
    with contextlib.suppress(OSError, ValueError):  # of a terminal that is gone
        print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)
