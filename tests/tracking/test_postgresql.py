"""The documented URL, postgresql://USER:PASSWORD@HOST/DATABASE: runs, studies, the schedule."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psycopg
import pytest

from pipelines.tracking import history
from tests.conftest import command
from tests.postgres import ROOT, execute
from tuning.storage import storage

DOCUMENTED = r"postgresql://\w+:\w+@127\.0\.0\.1:\d+/\w+"
HISTORY = ("pipelines", "schedule", "history", "--json")
DIES = """
import os, signal
from tests.postgres import postgres_url
with postgres_url() as url:
    print(url, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_study_keeps_numbers_of_any_kind(postgresql_database: str) -> None:
    study = optuna.create_study(storage=storage.connect(storage.resolve_url(postgresql_database)))
    trial = study.ask()
    trial.suggest_float("x", 0.1 + 0.2, 1e308)
    trial.suggest_categorical("100%", [None, True, 2**60, "it's {x} %(y)s"])
    trial.report(float("nan"), 1)
    trial.report(float("-inf"), 2**31 - 1)
    study.tell(trial, float("inf"))
    (kept,) = study.get_trials()
    assert kept.params == trial.params
    assert str(kept.intermediate_values) == "{1: nan, 2147483647: -inf}"
    assert kept.value == float("inf")


@pytest.mark.slow
def test_commands_keep_runs_studies_and_jobs_at_the_documented_url(
    postgresql: str,
    postgresql_database: str,
    tmp_path: Path,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in (postgresql, postgresql_database):
        assert re.fullmatch(DOCUMENTED, url)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgresql)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    here = ("--storage", postgresql_database)
    study = ("--recipe", "mlp-digits", "--scale", "smoke", "--trials", "2", "--workers", "2")
    run("pipelines", "sweep", "gradient-formula", "--grid", "d=2,4", "--seeds", "2")
    assert len(history.rows("FINISHED", kind="setting")) == 4
    run("tuning", "run", "s", *study, *here)
    assert len(history.rows("FINISHED", kind="trial")) == 2
    run("pipelines", "schedule", "add", "often", "--every", "10s", *here, "--", "list")
    server = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "schedule", "serve", *here], cwd=ROOT
    )
    ticks: list[str] = []
    while ticks.count("ran") < 2:
        time.sleep(2)
        ticks = [row["state"] for row in json.loads(run(*HISTORY, *here))]
        assert server.poll() is None
    server.terminate()
    assert server.wait() == 0
    assert set(ticks) <= {"ran", "running", "queued", "skipped"}
    assert len(history.rows("FINISHED", job="often")) >= 2


def run(*words: str) -> str:
    """Return what a command prints that ends well."""
    done = command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_ends_with_the_process_that_asked_for_it_even_if_that_is_killed() -> None:
    dead = subprocess.run(
        [sys.executable, "-c", DIES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert dead.returncode == -signal.SIGKILL
    url = dead.stdout.strip()
    assert re.fullmatch(DOCUMENTED, url)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        for _ in range(50):
            execute(url, "SELECT 1")
            time.sleep(0.1)
