"""The server of a schedule, its supervisors and their commands as processes that are killed."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines import history, schedule, store, timetable
from pipelines.jobs import Job
from pipelines.timetable import KILLED, MISSED, RAN, RUNNING, SKIPPED, Tick
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
EVERY_S = 3


class Served:
    """A schedule with one job, and servers of it that come and go."""

    def __init__(self, folder: Path) -> None:
        self.storage, self.said = timetable.place(), folder / "said.txt"
        self.said.touch()
        self.servers: list[subprocess.Popen[bytes]] = []
        job = Job(
            name="x",
            words=("tests.ticker", str(self.said), "1.5"),
            tz="UTC",
            every_s=EVERY_S,
        )
        with schedule.opened(self.storage) as found:
            for shipped in found.jobs():
                found.remove(shipped.name)
            found.add(job)

    def serve(self, *options: str) -> None:
        words = [sys.executable, "-m", "pipelines", "schedule", "serve", *options]
        self.servers.append(subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL))

    def end(self, number: int) -> int:
        """Send a signal to the server; its exit code."""
        self.servers[-1].send_signal(number)
        return self.servers[-1].wait(60)

    def rows(self) -> list[Tick]:
        """The history, the oldest first."""
        with timetable.connected(self.storage) as engine:
            return timetable.select(engine)[::-1]

    def lines(self, word: str) -> list[list[str]]:
        """What the commands have said: process, seconds since 1970, attempt."""
        found = [line.split() for line in self.said.read_text().splitlines()]
        return [rest for first, *rest in found if first == word]

    def begun(self, after: int) -> int:
        """The process of the next command that begins, when there are `after` already."""
        _wait(lambda: len(self.lines("begin")) > after)
        return int(self.lines("begin")[-1][0])


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    found = Served(home)
    yield found
    for process in found.servers:
        process.kill()
        process.wait()


def _wait(condition: Callable[[], Any], most_s: float = 60.0) -> None:
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _over(served: Served) -> bool:
    return all(row.state != RUNNING for row in served.rows())


def test_whatever_is_killed_every_tick_is_accounted_for_and_none_runs_twice(
    served: Served,
) -> None:
    served.serve()
    os.kill(served.begun(0), signal.SIGKILL)  # the command
    served.begun(1)
    assert served.end(signal.SIGKILL) == -signal.SIGKILL  # the server: its attempt goes on
    _wait(lambda: _over(served))
    time.sleep(2 * EVERY_S)  # nothing serves
    served.serve()
    served.begun(2)
    (running,) = [row for row in served.rows() if row.state == RUNNING]
    served.servers[-1].kill()  # both
    os.kill(int(str(running.process).partition(" ")[0]), signal.SIGKILL)
    served.servers[-1].wait()
    served.serve("--on-stop", "hand-over")
    _wait(lambda: _over(served))
    served.begun(3)
    begun = time.monotonic()
    assert served.end(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 2.5  # it does not wait for the one that runs
    _wait(lambda: _over(served))
    served.serve()
    served.begun(4)
    assert served.end(signal.SIGTERM) == 0  # waits
    assert _over(served)
    _check(served)


def _check(served: Served) -> None:
    rows = served.rows()
    ticks = sorted(t for row in rows for t in range(int(row.tick), int(row.until) + 1, EVERY_S))
    assert all(later - tick == EVERY_S for tick, later in itertools.pairwise(ticks))
    attempts = [attempt for _, _, attempt in served.lines("begin")]
    assert len(attempts) == len(set(attempts)) == sum(row.started is not None for row in rows)
    states = [row.state for row in rows]
    assert (states.count(KILLED), states.count(RAN)) == (2, 3)
    assert {KILLED, RAN, MISSED} <= {*states} <= {KILLED, RAN, MISSED, SKIPPED}
    assert all(row.why for row in rows if row.state != RAN)
    parents = {row.id: row for row in history.rows(None, kind="scheduled")}
    assert not [row for row in history.rows(None) if row.status == "RUNNING"]
    for row in rows:
        if row.state == RAN:
            parent = parents[str(row.run_id)]
            assert parent.status == "FINISHED"
            assert store.artifact(parent.id, "log.txt") == b"well\n"
        elif row.run_id:
            assert parents[row.run_id].status == "KILLED"


def test_a_job_run_by_hand_needs_no_server_and_gives_its_exit_code(served: Served) -> None:
    words = [sys.executable, "-m", "pipelines", "schedule", "run-now", "x"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "well\n")
    (row,) = served.rows()
    assert (row.state, row.by_hand, row.job.name) == (RAN, True, "x")
    assert history.row(str(row.run_id)).tags["job"] == "x"


def test_after_a_kill_of_both_a_job_can_be_run_by_hand_again(served: Served) -> None:
    words = [sys.executable, "-m", "pipelines", "schedule", "run-now", "x"]
    first = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    served.begun(0)
    (running,) = served.rows()
    first.kill()
    os.kill(int(str(running.process).partition(" ")[0]), signal.SIGKILL)
    first.wait()
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0
    assert [row.state for row in served.rows()] == [KILLED, RAN]
