"""Servers of a schedule, their attempts and their commands as processes that are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.scheduling import attempt, engine, schedule, schedule_report
from pipelines.scheduling.jobs import ScheduledJob
from pipelines.tracking import history, store
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
EVERY_S = 10


class Bench:
    """A schedule with one job, and servers of it that come and go."""

    def __init__(self, folder: Path, storage: str) -> None:
        self.storage, self.lines = storage, folder / "lines.txt"
        self.lines.touch()
        self.servers: list[subprocess.Popen[bytes]] = []
        cron = f"*/{EVERY_S} * * * * *"
        words = ("tests.scheduling.ticker", str(self.lines))
        jobs = [
            ScheduledJob(name="x", words=(*words, "2"), tz="UTC", cron=cron),
            ScheduledJob(name="long", words=(*words, "20"), tz="UTC", cron="0 0 1 1 *"),
        ]
        with engine.open_client(storage) as client:
            for shipped in schedule.next_due_times(client):
                schedule.remove(client, shipped.name)
            for job in jobs:
                schedule.add(client, job)

    def serve(self) -> None:
        words = [sys.executable, "-m", "pipelines", "schedule", "serve", "--storage", self.storage]
        self.servers.append(subprocess.Popen(words, cwd=ROOT, stderr=subprocess.DEVNULL))

    def rows(self) -> list[dict[str, Any]]:
        """Return the history, the oldest first."""
        with engine.open_client(self.storage) as client:
            return schedule_report.list_history(client, None, 100)[::-1]

    def words(self, first: str) -> list[list[str]]:
        """Return what the commands have said: process, seconds since 1970, folder."""
        lines = [line.split() for line in self.lines.read_text().splitlines()]
        return [rest for word, *rest in lines if word == first]

    def next_command(self) -> int:
        """Wait for the next command that begins; its process."""
        before = len(self.words("begin"))
        wait(lambda: len(self.words("begin")) > before)
        return int(self.words("begin")[-1][0])

    def check(self) -> None:
        """Check that every due time is in the history once, and that nothing is left behind."""
        rows = self.rows()
        times = [datetime.fromisoformat(row["due"]).timestamp() for row in rows]
        ends = [datetime.fromisoformat(row["until"]).timestamp() for row in rows]
        assert all(moment - end == EVERY_S for end, moment in zip(ends, times[1:], strict=False))
        assert {row["state"] for row in rows} <= {"ran", "killed", "missed", "skipped"}
        assert all(row["why"] for row in rows if row["state"] != "ran")
        assert not [row for row in history.rows(None) if row.status == "RUNNING"]
        assert not list((store.home() / "scheduled").iterdir())
        assert not [each for each in psutil.process_iter(["environ"]) if _is_member(each)]
        ended = [folder for _, _, folder in self.words("end")]
        assert len(ended) == len(set(ended)) == [row["state"] for row in rows].count("ran")


def _is_member(process: psutil.Process) -> bool:
    folder = (process.info["environ"] or {}).get(attempt.ATTEMPT, "")
    return folder.startswith(str(store.home()))


def wait(condition: Callable[[], Any], most_s: float = 90.0) -> None:
    deadline = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgresql"])
def bench(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """A schedule on either database."""
    storage = None
    if request.param == "postgresql":
        storage = request.getfixturevalue("postgresql_database")
    begun = Bench(home, engine.database_url(storage))
    yield begun
    for process in begun.servers:
        process.kill()
        process.wait()


def test_whatever_is_killed_every_due_time_is_accounted_for_and_none_is_done_twice(
    bench: Bench,
) -> None:
    bench.serve()
    os.kill(bench.next_command(), signal.SIGKILL)  # the command alone
    bench.next_command()
    bench.servers[0].kill()  # the server, and with it all
    bench.servers[0].wait()
    time.sleep(2 * EVERY_S)  # nothing serves
    bench.serve()
    bench.serve()  # two that share the job
    bench.next_command()  # what was killed, again
    bench.next_command()
    bench.servers[1].kill()
    bench.next_command()
    bench.next_command()
    bench.servers[2].terminate()
    assert bench.servers[2].wait(60) == 0
    bench.serve()
    bench.next_command()
    with engine.open_client(bench.storage) as client:
        schedule.pause(client, "x")
    wait(lambda: all(row["state"] not in ("running", "queued") for row in bench.rows()))
    bench.servers[3].terminate()
    assert bench.servers[3].wait(60) == 0
    bench.check()
    states = [row["state"] for row in bench.rows()]
    assert states[0] == "killed"
    assert states.count("killed") == 1
    assert states.count("ran") >= 3


def test_a_job_run_by_hand_needs_no_server_and_gives_its_exit_code(bench: Bench) -> None:
    words = [sys.executable, "-m", "pipelines", "schedule", "run-now", "long"]
    words += ["--storage", bench.storage]
    first = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
    bench.next_command()
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "runs once at a time" in again.stderr
    first.kill()
    first.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        wait(lambda: not [p for p in psutil.process_iter(["environ"]) if _is_member(p)])
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "well\n")
    killed, row = bench.rows()
    assert (killed["state"], row["state"], row["by_hand"]) == ("killed", "ran", True)
    assert history.row(str(row["run_id"])).tags["job"] == "long"
    assert json.loads(json.dumps(row)) == row
