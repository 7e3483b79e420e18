"""Attempts at ticks in real processes: what is recorded, and what is left, however they end."""

import dataclasses
import json
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pipelines import history, launch, linked, store, supervised, ticks, timetable, tracking
from pipelines.attempted import LOG, PARENT, Outcome
from pipelines.jobs import Job
from pipelines.timetable import Tick
from tests.test_watch import METRIC, NAME, result, webhook

__all__ = ["webhook"]  # a fixture

SCRIPTS = {
    "wrong": "import sys; sys.exit('error: first\\nerror: The grid is empty.\\nmore')",
    "sleeps": "import time; print('begun', flush=True); time.sleep(60)",
    "measures": f"""
        from pipelines import tracking
        tags = {{"claim": "{NAME}", "scale": "cpu", "fingerprint": "f", "verdict": "refuted"}}
        with tracking.tracked("{NAME}", experiment="test", kind="claim", tags=tags) as run:
            run.log({{"{METRIC}": 0.5}})
        print("measured")
        """,
    "away": """
        import os, sys
        os.environ["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:9"  # nobody answers there
        from pipelines import __main__, shell
        sys.exit(shell.guarded(__main__.dispatch, ["compare", "a", "b"]))
        """,
    "mistake": """
        import sys
        from pipelines import __main__, shell
        sys.exit(shell.guarded(__main__.dispatch, ["run", "gradient-formul"]))
        """,
    "opens": """
        import subprocess, sys, time
        from pipelines import tracking
        with tracking.tracked("open", experiment="test", kind="training") as run:
            run.log({"loss": 1.0})
            subprocess.Popen([sys.executable, "-m", "sleeps"], start_new_session=True)
            print("begun", flush=True)
            time.sleep(60)
        """,
}
Start = Callable[..., "Attempt"]


@dataclasses.dataclass
class Attempt:
    """One that was started as a server does."""

    storage: str
    row: int
    child: "subprocess.Popen[bytes]"

    def look(self) -> Tick:
        with timetable.connected(self.storage) as engine:
            return timetable.get(engine, self.row)

    @property
    def folder(self) -> Path:
        return Path(self.look().folder or "")

    def end(self) -> Tick:
        """What became of it, when its supervisor has ended."""
        self.child.wait(60)
        return self.look()

    def until(self, text: str) -> None:
        """Wait until that is in its log, and its command knows its run."""
        folder, end = self.folder, time.monotonic() + 60
        while text not in (folder / LOG).read_text() or not (folder / PARENT).exists():
            assert self.child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)

    def command(self) -> psutil.Process:
        (found,) = psutil.Process(self.child.pid).children()
        return found


@pytest.fixture
def start(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """`start("measures", timeout_s=3)`: an attempt at a job that runs one of SCRIPTS."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    storage, started = timetable.place(), list[Attempt]()

    def begin(script: str, attempt: int = 1, **how: object) -> Attempt:
        (tmp_path / f"{script}.py").write_text(textwrap.dedent(SCRIPTS[script]))
        number = len(started)
        job = Job(**{"name": f"job-{number}", "words": (script,), "tz": "UTC", "every_s": 60} | how)
        with timetable.connected(storage) as engine:
            row = ticks.enqueue(engine, job, 1_800_000_000 + number)
            tick = dataclasses.replace(timetable.get(engine, row), attempt=attempt)
            child = launch.start(engine, storage, tick)
        assert child is not None
        started.append(Attempt(storage, row, child))
        return started[-1]

    yield begin
    for each in started:
        folder = str(each.folder)
        each.child.kill()
        each.child.wait()
        supervised.end_members(folder)


def test_an_attempt_records_its_command_and_is_the_parent_of_its_runs(start: Start) -> None:
    begun = start("measures", attempt=2)
    tick, folder = begun.end(), begun.folder
    assert (tick.state, tick.code) == ("ran", 0)
    (run,) = history.rows(kind="scheduled")
    assert run.id == tick.run_id
    assert run.name == "job-0 2027-01-15 08:00:00"
    assert run.params == {"command": "measures"}
    own = {"job": "job-0", "tick": "2027-01-15T08:00:00+00:00", "attempt": "2", "exit_code": "0"}
    assert own.items() <= run.tags.items()
    (measured,) = history.rows(kind="claim")
    assert measured.tags[store.PARENT] == run.id
    assert f"[{NAME}](#/experiments/" in run.tags[store.NOTE]
    assert f"/runs/{measured.id}) | claim | FINISHED | refuted |" in run.tags[store.NOTE]
    assert store.artifact(run.id, LOG) == b"measured\n"
    assert not folder.exists()


def test_without_an_order_nothing_is_done(home: Path, tmp_path: Path) -> None:
    for said, after_s in ((b"", 0.5), (b"", 0.0), (b'{"id": 1', 0.0)):  # its server was killed
        waiting = launch.supervisor("x")
        time.sleep(after_s)
        assert waiting.process.communicate(said) == (None, None)
        assert waiting.process.returncode == 0
        assert not waiting.folder.exists()
    assert not [*home.glob("live/*.jsonl"), *home.glob("schedule.db*")]


@pytest.mark.parametrize(
    ("code", "said", "outcome"),
    [
        (0, "error: of no weight", Outcome("ran", "", 0)),
        (2, "error: one\nerror: two\nthree", Outcome("failed", "two", 2)),
        (1, "Traceback:\nValueError: x\n\n", Outcome("failed", "ValueError: x", 1)),
        (1, None, Outcome("failed", "exit code 1", 1)),
        (-9, "error: of no weight", Outcome("killed", "its command was ended by SIGKILL", -9)),
        (143, "", Outcome("killed", "its command was ended by SIGTERM", 143)),
    ],
)
def test_what_an_exit_code_means(
    code: int, said: str | None, outcome: Outcome, tmp_path: Path
) -> None:
    if said is not None:
        (tmp_path / LOG).write_text(said)
    assert supervised.judged(code, tmp_path / LOG) == outcome


def test_what_ended_a_command_decides_whatever_its_exit_code_is(tmp_path: Path) -> None:
    (tmp_path / "yields.py").write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "time.sleep(int(sys.argv[2]))\n"
    )
    late, environment = Outcome("failed", "late"), {"PYTHONPATH": str(tmp_path)}
    waits = supervised.Command(["yields", str(tmp_path / "ready"), "60"], environment)
    over = supervised.Command(["yields", str(tmp_path / "over"), "0"], environment)
    while psutil.Process(over.process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    over.end(late, signal.SIGTERM)
    assert over.wait(tmp_path) == Outcome("ran", "", 0)
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    waits.end(late, signal.SIGTERM)
    assert waits.wait(tmp_path) == Outcome("failed", "late", 0)


@pytest.mark.slow
def test_however_a_command_ends_it_is_said_and_nothing_goes_on(start: Start, webhook: str) -> None:
    with tracking.tracked("before", experiment="test", kind="training"):
        pass
    wrong, late = start("wrong"), start("sleeps", timeout_s=1.0)
    failed, over = wrong.end(), late.end()
    assert (failed.state, failed.why, failed.code) == ("failed", "by hand; The grid is empty.", 1)
    assert (over.state, over.code) == ("failed", -signal.SIGTERM)
    assert over.why.endswith("it took longer than its timeout of 1 s")
    killed, told = start("opens", notify=f"http://{webhook}/"), start("sleeps")
    killed.until("begun")
    killed.command().kill()
    told.until("begun")
    told.child.terminate()
    shot, stopped = killed.end(), told.end()
    assert (shot.state, shot.code) == ("killed", -signal.SIGKILL)
    assert (stopped.state, stopped.why) == ("killed", "by hand; its supervisor was told to end")
    status = {row.id: row.status for row in history.rows(None)}
    runs = [str(each.run_id) for each in (failed, over, shot, stopped)]
    assert [status[run] for run in runs] == ["FAILED", "FAILED", "KILLED", "KILLED"]
    assert "RUNNING" not in status.values()
    (below,) = history.rows(None, **{store.PARENT: runs[2]})
    assert (below.status, below.metrics) == ("KILLED", {"loss": 1.0})
    assert supervised.members(str(shot.folder)) == []
    tags = history.row(runs[0]).tags
    assert tags["failure"] == "The grid is empty."
    assert [a.path for a in store.client().list_artifacts(runs[0])] == [LOG, "provenance"]


@pytest.mark.slow
def test_a_regression_makes_an_attempt_fail_and_is_told(start: Start, webhook: str) -> None:
    from tests.test_watch import Webhook

    previous = result(0.5, None, 1)
    tick = start("measures", notify=f"http://{webhook}/").end()
    assert (tick.state, tick.code) == ("failed", 3)
    assert f"{NAME} (cpu): verdict reproduced -> refuted" in tick.why
    run = history.row(str(tick.run_id))
    assert run.status == "FAILED"
    assert tick.why.endswith(run.tags["failure"])
    ((heard, _),) = Webhook.heard
    assert (heard["job"], heard["state"], heard["run_id"]) == ("job-0", "failed", run.id)
    assert heard["watch"]["changes"][0]["previous"] == previous


@pytest.mark.slow
def test_an_attempt_whose_supervisor_is_killed_is_buried(start: Start, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    begun = start("opens", notify=f"tee {heard}")
    begun.until("begun")
    begun.child.kill()
    begun.child.wait()
    tick, end = begun.look(), time.monotonic() + 20
    while any("opens" in each.cmdline() for each in supervised.members(str(tick.folder))):
        assert time.monotonic() < end  # the command ends with its supervisor
        time.sleep(0.05)
    with timetable.connected(begun.storage) as engine:
        burial = launch.killed(engine, begun.storage, tick, "no process")
    assert burial is not None
    assert burial.wait(60) == 0
    over = begun.look()
    assert (over.state, bool(over.run_id), begun.folder.exists()) == ("killed", True, False)
    run = history.row(str(over.run_id))
    assert (run.status, run.tags["state"]) == ("KILLED", "killed")
    assert run.tags["failure"].endswith("its supervisor was killed: no process")
    assert b"begun\n" in (store.artifact(run.id, LOG) or b"")
    assert {row.status for row in history.rows(None)} == {"KILLED"}
    assert supervised.members(str(tick.folder)) == []
    assert json.loads(heard.read_text())["state"] == "killed"


@pytest.mark.slow
def test_a_supervisor_may_be_started_before_its_tick(home: Path) -> None:
    storage, job = timetable.place(), Job(name="x", words=("json",), tz="UTC", every_s=60)
    waiting = launch.supervisor("x")
    time.sleep(0.5)  # it gets ready
    with timetable.connected(storage) as engine:
        tick = timetable.get(engine, ticks.enqueue(engine, job, 1_800_000_000))
        assert launch.start(engine, storage, tick, waiting) is waiting.process
        assert waiting.process.wait(60) == 0
        over = timetable.get(engine, tick.id)
    assert (over.state, "No module named json.__main__" in over.why) == ("failed", True)
    assert history.row(str(over.run_id)).status == "FAILED"


@pytest.mark.slow
def test_a_command_is_supervised_without_a_store(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDULE_STORAGE", timetable.place())
    monkeypatch.setenv("MLRUNS_HOME", str(store.home()))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nobody answers there
    begun = start("wrong")
    tick = begun.end()
    assert (tick.state, tick.why, tick.run_id) == ("failed", "by hand; The grid is empty.", None)
    assert linked.given(begun.folder / PARENT) is None
    log = (begun.folder / LOG).read_text()
    assert "This attempt is not all in its store: The tracking store must be reachable." in log
