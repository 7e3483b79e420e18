"""Studies under kill -9: of workers and of their leader, on a journal and on PostgreSQL."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.tracking import history, recovery, store
from tests.conftest import ROOT
from tuning import catalog
from tuning.analysis import trial_results
from tuning.storage import copies, leader, storage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home", "digits")]
TRIALS = 5
RUN = ["run", "s", "--recipe", "mlp-digits", "--sampler", "random", "--steps", "1800"]
RUN += ["--trials", str(TRIALS), "--storage"]
WAIT_S = 240.0


def start_process(*words: str) -> subprocess.Popen[str]:
    """A command of ours, as a person starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuning", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def until(found: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What `found` finds, as soon as it finds something."""
    end = time.monotonic() + WAIT_S
    while not (result := found()):
        assert time.monotonic() < end
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(0.2)
    return result


def trials(where: str) -> list[Any]:
    """The study's trials; none before it is there, and while it is being made."""
    study = copies.load_if_there("s", storage.connect(where))
    return list(study.get_trials(deepcopy=False)) if study else []


def pids_at_work(where: str) -> list[int]:
    """The processes of the trials that are being trained and have been for a while."""
    running = [trial for trial in trials(where) if trial.state.name == "RUNNING"]
    workers = [t.user_attrs.get("worker") for t in running if "steps" in t.user_attrs]
    return [int(worker["process"].split()[0]) for worker in workers if worker]


def kill_at_work(where: str, process: subprocess.Popen[str], finished: int) -> None:
    """Kill a worker while it trains a trial, once so many are finished."""

    def is_killed() -> bool:
        for pid in pids_at_work(where) if count_finished(where) >= finished else []:
            with contextlib.suppress(psutil.NoSuchProcess):  # it was killed before
                worker = psutil.Process(pid)
                worker.suspend()  # else its trial may end before it is killed
                stopped = worker.status() == psutil.STATUS_STOPPED
                if stopped and pid in pids_at_work(where):
                    worker.kill()
                    return True
                worker.resume()
        return False

    until(is_killed, process)


def count_finished(where: str) -> int:
    return len(trial_results.finished_trials(trials(where)))


def check(where: str, process: subprocess.Popen[str]) -> None:
    """Exactly so many trials, all finished, each point once, and every run settled."""
    said = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 0, said
    ended = [trial for trial in trials(where) if trial.state.name != "FAIL"]  # killed twice
    assert [trial.state.name for trial in ended] == ["COMPLETE"] * TRIALS
    points = [trial.params.items() for trial in ended]
    assert not any(a == b for a, b in itertools.combinations(points, 2))
    recovery.recover()
    assert not history.rows("RUNNING")
    own = history.rows("FINISHED", kind="study", study="s")
    assert len(own) == 1
    children = history.rows("FINISHED", kind="trial", **{store.PARENT: own[0].id})
    assert sorted(row.id for row in children) == sorted(t.user_attrs["run_id"] for t in ended)


@pytest.fixture
def where(request: pytest.FixtureRequest, home: Path) -> str:
    """The storage of the study, empty: a journal, unless a test asks for PostgreSQL."""
    if getattr(request, "param", "journal") == "postgresql":
        return str(request.getfixturevalue("postgresql_database"))
    return f"journal:///{home / 'optuna.journal'}"


POSTGRESQL = pytest.mark.parametrize("where", ["postgresql"], indirect=True)


def test_killed_workers_trials_are_tried_again_by_others(where: str) -> None:
    process = start_process(*RUN, where, "--workers", "2")
    for finished in (1, 2):
        kill_at_work(where, process, finished)
    check(where, process)
    assert sum(trial.user_attrs.get("failures", 0) for trial in trials(where)) == 2


@POSTGRESQL
def test_a_leader_of_four_killed_with_a_worker_is_followed_by_resume(where: str) -> None:
    process = start_process(*RUN, where, "--workers", "4")
    victims = until(lambda: count_finished(where) >= 2 and pids_at_work(where), process)
    for pid in (process.pid, victims[0]):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    resumed = start_process("resume", "s", "--storage", where, "--workers", "4")
    check(where, resumed)
    assert not [pid for pid in victims if psutil.pid_exists(pid)]


def test_ctrl_c_stops_in_order_and_counts_as_no_failure(where: str) -> None:
    process = start_process(*RUN, where, "--workers", "2", "--steps", "60000")
    until(lambda: pids_at_work(where), process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 130, said
    assert not history.rows("RUNNING")
    assert history.rows("KILLED", kind="study")
    assert {trial.state.name for trial in trials(where)} <= {"WAITING", "COMPLETE"}
    reasons = [trial.user_attrs.get("reason", "") for trial in trials(where)]
    assert any("told to end" in reason for reason in reasons), (reasons, said)
    assert not any(trial.user_attrs.get("failures") for trial in trials(where))
    assert leader.living_leader(catalog.load("s", where)) is None


@POSTGRESQL
def test_a_second_command_joins_the_study(where: str) -> None:
    first = start_process(*RUN, where)
    until(lambda: pids_at_work(where), first)
    second = start_process(*RUN, where)
    check(where, first)
    said = second.communicate(timeout=WAIT_S)[0]
    assert second.returncode == 0, said
    writers = {
        t.user_attrs["worker"]["process"] for t in trial_results.finished_trials(trials(where))
    }
    assert len(writers) == 2
