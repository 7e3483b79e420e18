"""Tracked runs on a real SQLite database: how they end, and what survives a kill."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines import history, live, settle, store, tracking
from pipelines.errors import UserError
from tests.conftest import ROOT, command

WRITER = """
import sys, time
from pipelines import tracking
with tracking.tracked("victim", experiment="test", kind="training") as run:
    for step in range(1, 51):
        run.log({"loss": 1.0 / step}, step)
        if step == 20:
            run.flush()
    print(run.id, flush=True)
    time.sleep(60)
"""


def writer() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def history_of(run_id: str, metric: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in store.client().get_metric_history(run_id, metric)]


def test_a_finished_run_holds_what_was_logged(home: Path) -> None:
    with tracking.tracked(
        "r", experiment="test", kind="training", params={"a": 1}, tags={"fingerprint": "f"}
    ) as run:
        for step in range(2_500):  # more than one request
            run.log({"loss": step / 2}, step)
    row = history.row(run.id)
    assert (row.status, row.params, row.name) == ("FINISHED", {"a": "1"}, "r")
    assert history_of(run.id, "loss") == [(step, step / 2) for step in range(2_500)]
    assert not list((home / "live").glob("*.jsonl"))


def test_every_run_says_where_it_came_from(home: Path) -> None:
    with tracking.tracked("r", experiment="test", kind="training") as run:
        pass
    tags = history.row(run.id).tags
    assert {"commit", "host", "python", "cpu", "kind", "version.keras"} <= tags.keys()
    names = [a.path for a in store.client().list_artifacts(run.id, "provenance")]
    assert "provenance/packages.txt" in names


def test_children_point_to_their_parent(home: Path) -> None:
    with (
        tracking.tracked("p", experiment="test", kind="claim") as parent,
        tracking.tracked("c", experiment="test", kind="setting", parent=parent) as child,
    ):
        pass
    assert history.row(child.id).tags["mlflow.parentRunId"] == parent.id


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), "KILLED"), (SystemExit(143), "KILLED"), (ValueError("why"), "FAILED")],
)
def test_an_exception_settles_the_run_and_goes_on(
    home: Path, error: BaseException, status: str
) -> None:
    with (
        pytest.raises(type(error)),
        tracking.tracked("r", experiment="test", kind="training") as run,
    ):
        run.log({"loss": 1.0}, 1)
        raise error
    assert history.row(run.id).status == status
    assert history_of(run.id, "loss") == [(1, 1.0)]
    if status == "FAILED":
        assert history.row(run.id).tags["failure"] == "ValueError: why"
        assert [a.path for a in store.client().list_artifacts(run.id)].count("traceback.txt")


def test_kill_9_loses_no_number_and_the_next_command_settles(home: Path) -> None:
    with writer() as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        assert history.row(run_id).status == "RUNNING"
        assert settle.settle_dead() == []  # its process lives
        process.kill()
    assert len(history_of(run_id, "loss")) < 50
    listed = command("pipelines", "list")
    assert run_id in listed.stderr
    assert history.row(run_id).status == "KILLED"
    assert history_of(run_id, "loss") == [(step, 1.0 / step) for step in range(1, 51)]
    assert settle.settle_dead() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_marks_killed(home: Path, digits: Path, sent: signal.Signals, code: int) -> None:
    if signal.getsignal(sent) is signal.SIG_IGN:
        pytest.skip("nohup: the command goes on")
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "run", "mlp-digits", "--steps", "1000000"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((home / "live").glob("*.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    journal = next((home / "live").glob("*.jsonl"))
    while '"batch_loss"' not in journal.read_text():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert history.row(journal.stem).status == "KILLED"
    assert history_of(journal.stem, "batch_loss")


def test_a_torn_last_line_of_a_journal_is_left_out(home: Path) -> None:
    folder = home / "live"
    with tracking.tracked("r", experiment="test", kind="training") as run:
        pass
    lines = [
        json.dumps({"uri": store.uri()}),
        json.dumps({"numbers": [["loss", 2.0, 1, 5]]}),
        '{"numbers": [["l',
    ]
    (folder / f"{run.id}.jsonl").write_text("\n".join(lines))
    assert settle.settle_dead() == [run.id]
    assert history_of(run.id, "loss") == [(1, 2.0)]


def test_a_journal_of_another_store_waits_for_that_store(home: Path) -> None:
    (home / "live").mkdir(exist_ok=True)
    (home / "live" / "r.jsonl").write_text('{"uri": "http://elsewhere"}\n{"numbers": []}\n')
    assert settle.settle_dead() == []
    assert live.leftovers(home / "live", "http://elsewhere")


def test_a_deleted_run_s_journal_is_put_aside(home: Path) -> None:
    store.client()
    journal = home / "live" / ("0" * 32 + ".jsonl")
    journal.write_text(json.dumps({"uri": store.uri()}) + "\n")
    assert settle.settle_dead() == []
    assert [path.suffix for path in (home / "live").glob("0*")] == [".orphan"]


@pytest.mark.parametrize("early", [True, False])
def test_a_name_mlflow_refuses_is_an_error_and_fails_the_run(home: Path, early: bool) -> None:
    import mlflow

    with (
        pytest.raises(mlflow.MlflowException, match="Invalid value"),
        tracking.tracked("r", experiment="test", kind="training") as run,
    ):
        run.log({"loss (train)": 1.0}, 1)
        if early:
            run.flush()
    assert history.row(run.id).status == "FAILED"
    assert not list((home / "live").glob("*.jsonl"))


def test_a_deleted_experiment_is_restored(home: Path) -> None:
    with tracking.tracked("r", experiment="gone", kind="training"):
        pass
    store.experiment.cache_clear()
    found = store.client().get_experiment_by_name("gone")
    store.client().delete_experiment(found.experiment_id)
    with tracking.tracked("again", experiment="gone", kind="training") as run:
        pass
    assert history.row(run.id).status == "FINISHED"


@pytest.mark.slow
def test_a_locked_database_loses_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sqlite3

    with tracking.tracked("r", experiment="test", kind="training") as run:
        run.log({"loss": 1.0}, 1)
        other = sqlite3.connect(home / "mlflow.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")  # for longer than MLflow waits
    assert "kept in" in capsys.readouterr().err
    other.execute("ROLLBACK")
    other.close()
    assert history.row(run.id).status == "RUNNING"
    assert settle.settle_dead() == [run.id]
    assert history.row(run.id).status == "FINISHED"
    assert history_of(run.id, "loss") == [(1, 1.0)]


def test_a_resumed_run_is_the_same_run(home: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        tracking.tracked("r", experiment="test", kind="study", tags={"code": "old"}) as first,
    ):
        first.log({"loss": 1.0}, 1)
        raise KeyboardInterrupt
    with tracking.tracked(
        "r", experiment="test", kind="study", tags={"code": "new"}, resume=first.id
    ) as second:
        second.log({"loss": 0.5}, 2)
    assert second.id == first.id
    row = history.row(first.id)
    assert (row.status, row.tags["code"], row.tags["begun_with_code"]) == ("FINISHED", "new", "old")
    assert history_of(first.id, "loss") == [(1, 1.0), (2, 0.5)]


@pytest.mark.slow
def test_processes_may_start_on_a_fresh_database_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from pipelines import tracking\n"
        "with tracking.tracked('r', experiment='test', kind='training') as run:\n"
        "    run.log({'loss': 1.0}, 1)\n"
    )

    def start(_: int) -> None:
        environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "PATH": ""}
        subprocess.run([sys.executable, "-c", source], cwd=ROOT, env=environment, check=True)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(start, range(3)))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    runs = history.rows(kind="training")
    assert [history_of(run.id, "loss") for run in runs] == [[(1, 1.0)]] * 3


def test_a_home_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(UserError, match="must be writable"):
        store.client()
