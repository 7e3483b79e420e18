"""Attempts at due times in real processes: what is recorded, and what is left, however they end."""

import contextlib
import json
import os
import signal
import sqlite3
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.scheduling import attempt
from pipelines.scheduling.attempt import LOG, OUTCOME, SPEC, AttemptSpec, Outcome
from pipelines.tracking import history, mlflow_ui, store, tracked_run
from tests.results.test_watch import METRIC, NAME, result, webhook

__all__ = ["webhook"]  # a fixture

SCRIPTS = {
    "wrong": "import sys; sys.exit('error: first\\nerror: The grid is empty.\\nmore')",
    "sleeps": "import time; print('begun', flush=True); time.sleep(60)",
    "measures": f"""
        from pipelines.tracking import tracked_run
        from pipelines.tracking.history import JUDGED, NEEDED
        tags = dict.fromkeys((*NEEDED["claim"], *JUDGED), "5")
        tags |= {{"claim": "{NAME}", "scale": "cpu", "fingerprint": "f", "verdict": "refuted"}}
        with tracked_run.track("{NAME}", experiment="test", kind="claim", tags=tags) as run:
            run.log({{"{METRIC}": 0.5}})
        print("measured")
        """,
    "opens": """
        import subprocess, sys, time
        from pipelines.tracking import tracked_run
        with tracked_run.track("open", experiment="test", kind="training") as run:
            run.log({"loss": 1.0})
            subprocess.Popen([sys.executable, "-m", "sleeps"], start_new_session=True)
            print("begun", flush=True)
            time.sleep(60)
        """,
}


class Running:
    """An attempt that is carried out in a thread, as a server does."""

    def __init__(self, spec: AttemptSpec, folder: Path) -> None:
        self.folder, self.outcomes = folder, list[Outcome]()
        self.thread = threading.Thread(
            target=lambda: self.outcomes.append(attempt.run_in_process(spec, folder))
        )
        self.thread.start()

    def end(self) -> Outcome:
        """Wait for its end; how it ended."""
        self.thread.join(120)
        return self.outcomes[0]

    def until_begun(self) -> psutil.Process:
        """Wait until its command says so; the process that carries it out."""
        deadline = time.monotonic() + 60
        while not (self.folder / LOG).exists() or "begun" not in (self.folder / LOG).read_text():
            assert self.thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return next(
            each
            for each in psutil.Process().children(recursive=True)
            if str(self.folder) in each.cmdline()
        )


Start = Callable[..., Running]


def a_spec(script: str, job: str = "job-0", **fields: Any) -> AttemptSpec:
    common = {"job": job, "words": (script,), "due": "2027-01-15T08:00:00+00:00"}
    return AttemptSpec(**{**common, "attempt": 1, "workflow": "w", **fields})


@pytest.fixture
def scripts(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python -m NAME` run one of SCRIPTS."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))


@pytest.fixture
def start(home: Path, scripts: None) -> Iterator[Start]:
    """`start("measures", timeout_s=3)`: an attempt at a job that runs one of SCRIPTS."""
    started = list[Running]()

    def begin(script: str, **fields: Any) -> Running:
        job = f"job-{len(started)}"
        started.append(Running(a_spec(script, job, **fields), home / "scheduled" / job))
        return started[-1]

    yield begin
    attempt.end_all()
    for each in started:
        each.thread.join(60)
        attempt.end_processes(str(each.folder))


def test_an_attempt_records_its_command_and_is_the_parent_of_its_runs(
    scripts: None, tmp_path: Path
) -> None:
    outcome = attempt.run_tracked(a_spec("measures", attempt=2), tmp_path)
    assert (outcome.state, outcome.code) == ("ran", 0)
    (run,) = history.rows(kind="scheduled")
    assert run.id == outcome.run_id
    assert run.name == "job-0 2027-01-15 08:00:00"
    assert run.params == {"command": "measures"}
    tags = {"job": "job-0", "due": "2027-01-15T08:00:00+00:00", "attempt": "2", "exit_code": "0"}
    assert tags.items() <= run.tags.items()
    (measured,) = history.rows(kind="claim")
    assert measured.tags[store.PARENT] == run.id
    assert f"[{NAME}](#/experiments/" in run.tags[store.NOTE]
    assert (
        f"{mlflow_ui.run_link(measured.id)}) | claim | FINISHED | refuted |" in run.tags[store.NOTE]
    )
    assert store.artifact(run.id, LOG) == b"measured\n"


def test_a_command_s_password_and_webhook_are_in_no_row_no_message_and_no_file_left(
    scripts: None, home: Path, tmp_path: Path, webhook: str
) -> None:
    """Jobs that an earlier version took may have some."""
    from tests.results.test_watch import Webhook

    url, hook = "postgresql://me:s3cret@host/studies", "https://hooks.example.org/s3cret"
    words = ("wrong", "--storage", url, f"--storage={url}", "--notify", hook, f"--notify={hook}")
    spec = a_spec("wrong", words=words, notify=f"http://{webhook}/s3cret")
    assert attempt.run_tracked(spec, tmp_path).state == "failed"
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database:
        rows = "\n".join(database.iterdump())
    ((heard, _),) = Webhook.heard
    assert "s3cret" not in rows + json.dumps(heard)
    shown = "wrong --storage 'postgresql://me:***@host/studies'"
    assert history.rows(None)[0].params["command"].startswith(shown)
    assert heard["command"].startswith(f"python -m {shown}")
    files = [path for path in (home / "artifacts").rglob("*") if path.suffix in (".txt", ".json")]
    assert files
    assert not [path for path in files if b"s3cret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("code", "log", "outcome"),
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
    code: int, log: str | None, outcome: Outcome, tmp_path: Path
) -> None:
    if log is not None:
        (tmp_path / LOG).write_text(log)
    assert attempt.read_exit_code(code, tmp_path / LOG) == outcome


@pytest.mark.slow
def test_however_a_command_ends_it_is_said_and_nothing_goes_on(start: Start, webhook: str) -> None:
    with tracked_run.track("before", experiment="test", kind="training"):
        pass
    wrong, late = start("wrong"), start("sleeps", timeout_s=1.0)
    failed, over = wrong.end(), late.end()
    assert (failed.state, failed.why, failed.code) == ("failed", "The grid is empty.", 1)
    assert (over.state, over.why) == ("failed", "it took longer than its timeout of 1 s")
    killed, stopped = start("opens", notify=f"http://{webhook}/"), start("sleeps")
    (running,) = killed.until_begun().children()
    running.kill()
    stopped.until_begun().terminate()
    shot, ended = killed.end(), stopped.end()
    assert (shot.state, shot.code) == ("killed", -signal.SIGKILL)
    assert (ended.state, ended.why) == ("killed", "it was told to end")
    status = {row.id: row.status for row in history.rows(None)}
    runs = [str(each.run_id) for each in (failed, over, shot, ended)]
    assert [status[run] for run in runs] == ["FAILED", "FAILED", "KILLED", "KILLED"]
    assert "RUNNING" not in status.values()
    (below,) = history.rows(None, **{store.PARENT: runs[2]})
    assert (below.status, below.metrics) == ("KILLED", {"loss": 1.0})
    assert attempt.find_processes(str(killed.folder)) == []
    tags = history.row(runs[0]).tags
    assert tags["failure"] == "The grid is empty."
    assert [a.path for a in store.client().list_artifacts(runs[0])] == [LOG, "provenance"]


@pytest.mark.slow
def test_a_regression_makes_an_attempt_fail_and_is_told(start: Start, webhook: str) -> None:
    from tests.results.test_watch import Webhook

    previous = result(0.5, None, 1)
    outcome = start("measures", notify=f"http://{webhook}/").end()
    assert (outcome.state, outcome.code) == ("failed", 3)
    assert f"{NAME} (cpu): verdict reproduced -> refuted" in outcome.why
    run = history.row(str(outcome.run_id))
    assert run.status == "FAILED"
    assert outcome.why == run.tags["failure"]
    ((heard, _),) = Webhook.heard
    assert (heard["job"], heard["state"], heard["run_id"]) == ("job-0", "failed", run.id)
    assert heard["watch"]["changes"][0]["previous"] == previous


@pytest.mark.slow
def test_an_attempt_that_is_killed_is_closed_with_its_log_and_told_of(
    start: Start, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    begun = start("opens", notify=f"tee {heard}")
    os.kill(begun.until_begun().pid, signal.SIGKILL)
    outcome = begun.end()
    assert (outcome.state, outcome.why) == ("killed", "its process was killed")
    run = history.row(str(outcome.run_id))
    assert (run.status, run.tags["state"]) == ("KILLED", "killed")
    assert b"begun\n" in (store.artifact(run.id, LOG) or b"")
    assert {row.status for row in history.rows(None)} == {"KILLED"}
    assert attempt.find_processes(str(begun.folder)) == []
    assert json.loads(heard.read_text())["state"] == "killed"


@pytest.mark.slow
def test_an_attempt_that_came_to_its_end_is_not_repeated_for_a_server_that_was_killed(
    start: Start,
) -> None:
    first = start("measures")
    outcome = first.end()
    spec = AttemptSpec(**json.loads((first.folder / SPEC).read_text()))
    assert attempt.run_in_process(spec, first.folder) == outcome
    (first.folder / OUTCOME).unlink()  # killed between its run's end and its own
    assert attempt.run_in_process(spec, first.folder) == outcome
    assert len(history.rows(None, kind="scheduled")) == 1


@pytest.mark.slow
def test_an_attempt_without_a_store_fails_and_says_so(
    start: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(home))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nobody answers there
    outcome = start("wrong").end()
    assert (outcome.state, outcome.run_id) == ("failed", None)
    assert "The tracking store must be reachable." in outcome.why
