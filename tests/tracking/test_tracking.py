"""Tracked runs on SQLite, PostgreSQL and an MLflow server: how they end, what survives a kill."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import shell
from pipelines.errors import Unavailable, UserError
from pipelines.runtime import heartbeat
from pipelines.tracking import history, journals, outbox, recovery, store
from pipelines.tracking.tracked_run import track
from tests.conftest import ROOT, command, free_port, mlflow_server
from tests.tracking.bundles import tracked

NEVER = -1e9  # on the clock of `time.monotonic`


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("server"), free_port()) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql", pytest.param("server", marks=pytest.mark.slow)])
def home(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    empty_database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """The tracking home of a store in force; each test holds in all three."""
    folder = tmp_path / "mlruns"
    (folder / "live").mkdir(parents=True)
    monkeypatch.setenv("MLRUNS_HOME", str(folder))
    monkeypatch.setattr(outbox.Outbox, "failed_at", NEVER)
    where = f"sqlite:///{folder}/mlflow.db"
    if request.param == "sqlite":
        shutil.copy(empty_database, folder / "mlflow.db")
    else:
        where = request.getfixturevalue(request.param)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", where)
    yield folder
    if request.param == "server":  # which the tests share
        for row in history.rows(None):
            store.client().delete_run(row.id)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tracking home where there is nothing yet, on SQLite."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    monkeypatch.setattr(outbox.Outbox, "failed_at", NEVER)
    return tmp_path / "mlruns"


@pytest.fixture
def on_sqlite(fresh: Path, empty_database: Path) -> Path:
    """The tracking home of an SQLite database."""
    fresh.mkdir()
    shutil.copy(empty_database, fresh / "mlflow.db")
    return fresh


WRITER = """
import sys, time
from pipelines.tracking import outbox, tracked_run
outbox.FLUSH_S = 600  # only when asked
with tracked_run.track("victim", experiment="test", kind="training") as run:
    time.sleep(1)  # what it begins with is sent
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


def dead_journal(home: Path, run_id: str, *lines: dict[str, object], host: str = "") -> Path:
    """What a process left behind that was killed, here if no other host is named."""
    head = {"uri": store.uri(), "host": host or socket.gethostname()}
    path = home / "live" / f"{run_id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    return path


def test_a_finished_run_holds_what_was_logged(home: Path) -> None:
    with tracked("r", params={"a": 1}, tags={"fingerprint": "f"}) as run:
        for step in range(2_500):  # more than one request
            run.log({"loss": step / 2}, step)
    row = history.row(run.id)
    assert (row.status, row.params, row.name) == ("FINISHED", {"a": "1"}, "r")
    assert history_of(run.id, "loss") == [(step, step / 2) for step in range(2_500)]
    assert not list((home / "live").glob("*.jsonl"))
    assert {"commit", "host", "python", "cpu", "kind", "version.keras"} <= row.tags.keys()
    names = [a.path for a in store.client().list_artifacts(run.id, "provenance")]
    assert "provenance/packages.txt" in names


@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), "KILLED"), (SystemExit(143), "KILLED"), (ValueError("why"), "FAILED")],
)
def test_an_exception_settles_the_run_and_goes_on(
    home: Path, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), tracked("r") as run:
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
        assert recovery.deliver_journals() == []  # its process lives
        process.kill()
    assert len(history_of(run_id, "loss")) < 50
    listed = command("pipelines", "list")
    assert run_id in listed.stderr
    assert history.row(run_id).status == "KILLED"
    assert history_of(run_id, "loss") == [(step, 1.0 / step) for step in range(1, 51)]
    assert recovery.deliver_journals() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_marks_killed(
    on_sqlite: Path, digits: Path, sent: signal.Signals, code: int
) -> None:
    if signal.getsignal(sent) is signal.SIG_IGN:
        pytest.skip("nohup: the command goes on")
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "run", "mlp-digits", "--steps", "1000000"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((on_sqlite / "live").glob("*.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    journal = next((on_sqlite / "live").glob("*.jsonl"))
    while '"batch_loss"' not in journal.read_text():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert history.row(journal.stem).status == "KILLED"
    assert history_of(journal.stem, "batch_loss")


def test_a_signal_while_a_run_is_closed_waits_until_it_is(
    on_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = store.client()
    end = type(client).set_terminated

    def interrupt_and_end(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        end(*arguments)

    monkeypatch.setattr(type(client), "set_terminated", interrupt_and_end)
    with pytest.raises(KeyboardInterrupt), tracked("r") as run:
        run.log({"loss": 1.0}, 1)
    assert history.row(run.id).status == "FINISHED"
    assert journals.find_stale(store.home() / "live", store.uri()) == []


def test_a_torn_last_line_of_a_journal_is_left_out(home: Path) -> None:
    folder = home / "live"
    with tracked("r") as run:
        pass
    lines = [
        json.dumps({"uri": store.uri()}),
        json.dumps({"numbers": [["loss", 2.0, 1, 5]]}),
        '{"numbers": [["l',
    ]
    (folder / f"{run.id}.jsonl").write_text("\n".join(lines))
    assert recovery.deliver_journals() == [run.id]
    assert history_of(run.id, "loss") == [(1, 2.0)]


def test_a_journal_of_another_store_waits_for_that_store(home: Path) -> None:
    (home / "live").mkdir(exist_ok=True)
    (home / "live" / "r.jsonl").write_text('{"uri": "http://elsewhere"}\n{"numbers": []}\n')
    assert recovery.deliver_journals() == []
    assert journals.find_stale(home / "live", "http://elsewhere")


def test_recover_says_what_it_delivered(home: Path) -> None:
    with tracked("r") as run:
        pass
    dead_journal(home, run.id)
    recovered = command("pipelines", "recover", "--json")
    assert json.loads(recovered.stdout)["settled"] == {run.id: "delivered from its journal"}


def test_a_journal_waits_for_a_store_that_cannot_be_opened(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.client()
    journal = dead_journal(home, "0" * 32)

    def refuse(*_: Any) -> None:
        raise UserError("file is not a database")

    with monkeypatch.context() as patch:
        patch.setattr(store, "client", refuse)
        assert recovery.deliver_journals() == []
    assert journal.exists()
    assert "1 runs wait for their store: file is not a database" in capsys.readouterr().err


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_run_that_was_deleted_meanwhile_is_a_sentence(home: Path, is_waiting: bool) -> None:
    with (
        pytest.raises(UserError, match="If the run was deleted, repeat its command"),
        tracked("r") as run,
    ):
        run.log({"loss": 1.0}, 1)
        run.flush()
        store.client().delete_run(run.id)
        if is_waiting:
            run.log({"loss": 0.5}, 2)
    with tracked("next") as run:
        run.log({"loss": 1.0}, 1)
    assert history.row(run.id).status == "FINISHED"


def test_a_deleted_run_s_journal_is_put_aside(home: Path) -> None:
    store.client()
    journal = dead_journal(home, "0" * 32)
    assert recovery.deliver_journals() == []
    assert journal.with_suffix(".orphan").exists() and not journal.exists()


@pytest.mark.parametrize("early", [True, False])
def test_a_name_mlflow_refuses_is_an_error_and_fails_the_run(home: Path, early: bool) -> None:
    import mlflow

    with pytest.raises(mlflow.MlflowException, match="Invalid value"), tracked("r") as run:
        run.log({"good": 1.0}, 1)
        run.log({"loss (train)": 1.0}, 1)
        if early:
            run.flush()
    assert history.row(run.id).status == "FAILED"
    assert history_of(run.id, "good") == [(1, 1.0)]
    assert not list((home / "live").glob("*.jsonl"))


def test_a_deleted_experiment_is_restored(home: Path) -> None:
    with tracked("r", experiment="gone"):
        pass
    store.experiment.cache_clear()
    found = store.client().get_experiment_by_name("gone")
    store.client().delete_experiment(found.experiment_id)
    with tracked("again", experiment="gone") as run:
        pass
    assert history.row(run.id).status == "FINISHED"


@pytest.mark.slow
def test_a_locked_database_loses_nothing(on_sqlite: Path) -> None:
    with (
        pytest.raises(Unavailable, match=r"r is kept in .*: the next command delivers it"),
        tracked("r") as run,
    ):
        run.log({"loss": 1.0}, 1)
        other = sqlite3.connect(on_sqlite / "mlflow.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")  # for longer than MLflow waits
    other.execute("ROLLBACK")
    other.close()
    assert history.row(run.id).status == "RUNNING"
    assert recovery.deliver_journals() == [run.id]
    assert history.row(run.id).status == "FINISHED"
    assert history_of(run.id, "loss") == [(1, 1.0)]


def test_a_resumed_run_is_the_same_run_under_its_new_name(home: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        tracked("r 9", kind="study", tags={"code": "old"}) as first,
    ):
        first.log({"loss": 1.0, "same": 3.0}, 1)
        raise KeyboardInterrupt
    time.sleep(0.01)  # another moment
    with tracked("r 40", kind="study", tags={"code": "new"}, resume=first.id) as second:
        assert history.row(first.id).status == "RUNNING"
        second.log({"loss": 0.5}, 2)
        second.log({"same": 3.0}, 1)
    assert second.id == first.id
    row = history.row(first.id)
    assert (row.status, row.tags["code"], row.tags["begun_with_code"]) == ("FINISHED", "new", "old")
    assert (row.name, row.tags["mlflow.runName"]) == ("r 40", "r 40")
    assert history_of(first.id, "loss") == [(1, 1.0), (2, 0.5)]
    assert history_of(first.id, "same") == [(1, 3.0)]


MANY = """
import sys
from pipelines.tracking import tracked_run
for n in range(5):
    with tracked_run.track(f"{sys.argv[1]} {n}", experiment="test", kind="training") as run:
        for step in range(1_500):
            run.log({"loss": step / 2}, step)
        run.tag("whose", sys.argv[1])
        run.text(sys.argv[1], "whose.txt")
"""


@pytest.mark.slow
def test_eight_processes_write_one_fresh_database(fresh: Path) -> None:

    def start(number: int) -> str:
        words = [sys.executable, "-c", MANY, str(number)]
        done = subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=True)
        return done.stderr

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(start, range(8))) == [""] * 8
    rows = history.rows(kind="training")
    assert sorted(row.name for row in rows) == [f"{p} {n}" for p in range(8) for n in range(5)]
    for row in rows:
        assert history_of(row.id, "loss") == [(step, step / 2) for step in range(1_500)]
        assert row.tags["whose"] == row.name.split()[0]
        artifact = fresh / "artifacts" / row.id / "artifacts" / "whose.txt"
        assert artifact.read_text() == row.tags["whose"]


def test_a_home_that_cannot_be_written_is_one_sentence(fresh: Path) -> None:
    fresh.write_text("")
    with pytest.raises(UserError, match="must be writable"):
        store.client()


@pytest.fixture
def small_disk(fresh: Path, empty_database: Path) -> Iterator[Path]:
    """A tracking home on a disk of eight megabytes; a file in it that can fill it."""
    fresh.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(fresh)]
    if shutil.which("mount") is None or subprocess.run(words, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        shutil.copy(empty_database, fresh / "mlflow.db")
        yield fresh / "filler"
    finally:
        subprocess.run(["umount", "--lazy", str(fresh)], check=True)


def fill(filler: Path) -> None:
    """Take all room that is left."""
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        for size in (2**16, 2**10, 1):
            while file.write(bytes(size)) == size:
                pass


def test_a_full_disk_ends_a_run_and_loses_nothing_that_was_logged(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, tracked("r") as run:
        run.log({"loss": 1.0}, 1)
        run.flush()
        fill(small_disk)
        for step in range(2, 3_000):
            run.log({"loss": 1.0 / step}, step)
    assert shell._describe_failure(caught.value) is not None
    small_disk.unlink()
    assert recovery.deliver_journals() == [run.id]
    assert history.row(run.id).status in ("FAILED", "KILLED")
    steps = [step for step, _ in history_of(run.id, "loss")]
    assert steps == list(range(1, len(steps) + 1))


def refusing(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path / "mlruns"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder, port = tmp_path / "server", free_port()
    folder.mkdir()
    with mlflow_server(folder, port) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        first = tracked("back in time")
        second = tracked("back too late")
        runs = [first.__enter__(), second.__enter__()]
        for run in runs:
            run.log({"loss": 1.0}, 1)
            run.flush()
    for run in runs:  # nobody answers now
        run.log({"loss": 0.5}, 2)
        run.tag("verdict", "kept")
        run.text("kept", "folder/kept.txt")
    with pytest.raises(Unavailable, match="back too late is kept in"):
        second.__exit__(None, None, None)
    outbox.Outbox.failed_at = NEVER  # as if minutes had gone by
    with mlflow_server(folder, port):
        first.__exit__(None, None, None)
        assert history.row(runs[0].id).status == "FINISHED"
        assert recovery.deliver_journals() == [runs[1].id]
        for run in runs:
            row = history.row(run.id)
            assert (row.status, row.tags["verdict"]) == ("FINISHED", "kept")
            assert history_of(run.id, "loss") == [(1, 1.0), (2, 0.5)]
            assert store.artifact(run.id, "folder/kept.txt") == b"kept"
        assert not list((tmp_path / "mlruns" / "live").glob("*.jsonl"))


def test_a_store_that_stops_answering_is_one_sentence(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    def ask(_: list[str]) -> None:
        raise mlflow.MlflowException("API request to http://h failed\nlong story")

    store.client()
    assert shell.run_command_safely(ask, []) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: The tracking store must answer. Received: ")
    assert len(said.splitlines()) == 1


def running(name: str, **tags: str) -> str:
    """The id of a run that says RUNNING and has no journal here."""
    experiment = store.experiment(store.uri(), "test")
    own = {"kind": "training", **heartbeat.tags(), **tags}
    return str(store.client().create_run(experiment, tags=own, run_name=name).info.run_id)


def test_the_reaper_settles_the_dead_and_no_other(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    silent = str(time.time() - 2 * heartbeat.LOST_S)
    other = {"machine": "elsewhere 8c2f pid:[1]"}
    dead = {
        running("its process is gone", process=f"{gone.pid} 1.00"),
        running("its number was given again", process=f"{os.getpid()} 1.00"),
        running("its machine is silent", heartbeat=silent, **other),
    }
    living = {
        running("this process"),
        running("long silent, but here and alive", heartbeat=silent),
        running("of another machine", process="1 1.00", **other),
    }
    stranger = store.client().create_run(store.experiment(store.uri(), "test")).info.run_id
    assert recovery.recover().keys() == dead
    assert {row.id for row in history.rows("KILLED")} == dead
    assert {row.id for row in history.rows("RUNNING")} == living | {stranger}
    assert all("settled" in history.row(run_id).tags for run_id in dead)
    assert recovery.recover() == {}


def test_a_journal_of_another_host_is_left_until_it_is_silent(home: Path) -> None:
    run_id = running("elsewhere", machine="elsewhere 8c2f")
    journal = dead_journal(home, run_id, {"numbers": [["loss", 1.0, 1, 5]]}, host="elsewhere")
    assert recovery.recover() == {}
    before = time.time() - 2 * heartbeat.JOURNAL_LOST_S
    os.utime(journal, (before, before))
    assert recovery.deliver_journals() == [run_id]
    assert history_of(run_id, "loss") == [(1, 1.0)]


def test_a_living_run_gives_signs_of_life(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.tracking.outbox.FLUSH_S", 0.05)
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.0)
    monkeypatch.setattr(heartbeat, "LOST_S", 0.0)
    with tracked("r") as run:
        store.client().set_tag(run.id, heartbeat.HEARTBEAT, "0")
        store.client().set_terminated(run.id, "KILLED")  # as by a reaper elsewhere
        ends = time.monotonic() + 20
        row = history.row(run.id)
        while row.status != "RUNNING" or float(row.tags[heartbeat.HEARTBEAT]) < time.time() - 100:
            assert time.monotonic() < ends
            time.sleep(0.05)
            row = history.row(run.id)
    assert history.row(run.id).status == "FINISHED"


def test_a_resumed_run_delivers_what_an_earlier_process_could_not(home: Path) -> None:
    with pytest.raises(KeyboardInterrupt), tracked("r", kind="study") as first:
        raise KeyboardInterrupt
    left = {"numbers": [["loss", 1.0, 1, 5], ["loss", 0.5, 2, 6]]}
    dead_journal(home, first.id, left, {"tags": {"whose": "the first"}}, {"end": "FAILED"})
    with tracked("r", kind="study", resume=first.id) as second:
        second.log_new({"loss": 9.0}, 2)  # repeated from a checkpoint: it is there already
        second.log_new({"loss": 0.25}, 3)
    assert history_of(first.id, "loss") == [(1, 1.0), (2, 0.5), (3, 0.25)]
    row = history.row(first.id)
    assert (row.status, row.tags["whose"]) == ("FINISHED", "the first")


def test_a_run_killed_as_it_began_is_whole_when_it_has_gone_on(home: Path) -> None:
    run_id = running("r", process="999999 1.00")  # neither params nor packages yet
    assert recovery.recover().keys() == {run_id}
    for _ in range(2):
        with tracked("r", params={"a": 1}, resume=run_id):
            pass
    assert history.row(run_id).params == {"a": "1"}
    assert b"mlflow==" in (store.artifact(run_id, "provenance/packages.txt") or b"")


def test_how_an_earlier_part_ended_is_not_how_the_last_did(home: Path) -> None:
    run_id = running("r")
    head = {"uri": store.uri(), "host": socket.gethostname()}
    dead_journal(home, run_id, {"end": "FAILED"}, head, {"numbers": [["loss", 1.0, 1, 5]]})
    assert recovery.deliver_journals() == [run_id]
    assert history.row(run_id).status == "KILLED"


def test_the_reaper_leaves_a_run_whose_journal_waits(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [running("r", process=f"{os.getpid()} 1.00") for _ in range(3)]
    for run_id in ids:
        dead_journal(home, run_id, {"numbers": [["loss", 1.0, 1, 5]]})
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "send_batch", refusing)
        assert recovery.recover() == {}
    assert "3 runs wait for their store" in capsys.readouterr().err
    assert {history.row(run_id).status for run_id in ids} == {"RUNNING"}
    assert recovery.recover().keys() == set(ids)
    assert [history_of(run_id, "loss") for run_id in ids] == [[(1, 1.0)]] * 3


def test_what_a_dying_process_still_holds_is_waited_for(home: Path) -> None:
    with subprocess.Popen(["sleep", "0.5"]) as dying:  # without its lock, but not yet gone
        process = heartbeat.process_name(dying.pid)
        run_id = running("r", process=process)
        lock = home / "live" / "it.lock"
        lock.write_text(json.dumps(heartbeat.tags() | {heartbeat.PROCESS: process}))
        with recovery.one_at_a_time("it", ""):
            assert history.row(run_id).status == "KILLED"
            holder = json.loads(lock.read_text())[heartbeat.PROCESS]
            assert holder == heartbeat.process_name(os.getpid())
    assert lock.read_text() == ""


def test_who_takes_over_a_running_run_is_its_process(home: Path) -> None:
    run_id = running("r", process="999999 1.00")
    with tracked("r", kind="study", resume=run_id):
        assert history.row(run_id).tags[heartbeat.PROCESS] == heartbeat.tags()[heartbeat.PROCESS]
        assert recovery.recover() == {}
    assert history.row(run_id).status == "FINISHED"


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"[1, 2]\n", b"", b"\n\n{}"])
def test_a_journal_that_says_nothing_harms_no_command(on_sqlite: Path, content: bytes) -> None:
    (on_sqlite / "live").mkdir(exist_ok=True)
    (on_sqlite / "live" / ("1" * 32 + ".jsonl")).write_bytes(content)
    assert shell.run_command_safely(lambda _: None, []) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"numbers": 5}, {"numbers": [[1, 2]]}, {"numbers": [["a", "b", 1, 5]]}, {"tags": ["a"]}],
)
def test_a_journal_of_wrong_types_is_put_aside_and_said_so(
    on_sqlite: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any]
) -> None:
    run_id = running("r")
    (on_sqlite / "live").mkdir(exist_ok=True)
    path = dead_journal(on_sqlite, run_id, wrong)
    content = path.read_text()
    assert shell.run_command_safely(lambda _: None, []) == 0
    assert f"{run_id}.orphan cannot be delivered whole: " in capsys.readouterr().err
    assert path.with_suffix(".orphan").read_text() == content
    assert not path.exists()


def test_a_journal_is_nobody_s_before_its_header(home: Path) -> None:
    run_id = running("just created")
    path = home / "live" / f"{run_id}.jsonl"
    path.touch()
    assert recovery.deliver_journals() == []
    assert path.exists()


@pytest.mark.parametrize("content", ["", '{"uri": "sql'])
def test_a_run_that_was_killed_before_its_journal_had_a_header_is_closed(
    home: Path, content: str
) -> None:
    run_id = running("r", process="999999 1.00")
    path = home / "live" / f"{run_id}.jsonl"
    path.write_text(content)
    assert recovery.recover().keys() == {run_id}
    assert history.row(run_id).status == "KILLED"
    assert not path.exists()


def test_a_journal_has_no_password_and_is_found_under_another_one(home: Path) -> None:
    uri = "postgresql://me:{}@127.0.0.1/runs"
    folder = home / "live"
    journal = journals.Journal(folder, "r", uri.format("secret"))
    journal.close(delivered=False)
    assert "secret" not in (folder / "r.jsonl").read_text()
    assert journals.find_stale(folder, uri.format("another")) == [folder / "r.jsonl"]
    assert journals.find_stale(folder, uri.format("secret").replace("runs", "others")) == []


def test_a_header_that_a_full_disk_refused_comes_before_the_first_number(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(journals.Journal, "_append", refusing)
        journal = journals.Journal(home / "live", "r", "http://elsewhere")
    journal.write(numbers=[["loss", 1.0, 1, 5]])
    journal.close(delivered=False)
    head, numbers = map(json.loads, journal.path.read_text().splitlines())
    assert (head["uri"], numbers) == ("http://elsewhere", {"numbers": [["loss", 1.0, 1, 5]]})


def test_a_journal_that_is_delivered_meanwhile_is_begun_anew(home: Path) -> None:
    run_id = running("r")
    path = dead_journal(home, run_id, {"numbers": [["loss", 1.0, 1, 5]]})
    with ThreadPoolExecutor(1) as pool:
        with journals.claim_stale(path, store.uri()) as left:
            assert left is not None
            opened = pool.submit(journals.Journal, path.parent, run_id, store.uri())
            time.sleep(0.2)
            assert not opened.done()  # it waits for who delivers
            journals.delete(path)
        journal = opened.result()
    assert journal.undelivered.numbers == []
    journal.write(numbers=[["loss", 2.0, 2, 6]])
    assert "2.0" in path.read_text()
    journal.close(delivered=True)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:////a/b/../c.db", "sqlite:////a/c.db"),
        ("http://h:5000/", "http://h:5000"),
        ("postgresql://me:secret@h/db", "postgresql://me:secret@h/db"),
    ],
)
def test_a_store_has_one_spelling_and_no_password_to_read(
    given: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert store.uri() == meant
    assert "secret" not in store.display_uri()


def test_an_absent_server_is_soon_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    for where in ("http://127.0.0.1:9", "postgresql://me:secret@127.0.0.1:9/db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", where)
        began = time.monotonic()
        with pytest.raises(Unavailable, match="must be reachable") as caught:
            store.client()
        assert time.monotonic() - began < 30  # MLflow tries PostgreSQL for minutes
        assert "secret" not in str(caught.value)


def test_links_are_few_tags_and_those_of_older_runs_are_read(home: Path) -> None:
    ids = [f"{number:032x}" for number in range(400)]
    with track("x", experiment="x", kind="training") as run:
        for each in [*ids, *ids[:3]]:
            run.link(store.REUSED, each)
        run.link(store.STUDIED, "mine")
    tags = history.row(run.id).tags
    assert {key for key in tags if key.startswith("reused")} == {"reused", "reused_2", "reused_3"}
    assert store.read_links(tags, store.REUSED) == ids
    assert store.read_links(tags, store.STUDIED) == ["mine"]
    older = {f"reused.{ids[0]}": "a seed 0", "studied.s": "", "reused": ids[1]}
    assert store.read_links(older, store.REUSED) == ids[:2]
    assert store.read_links(older, store.STUDIED) == ["s"]


def test_a_run_that_goes_on_keeps_its_links(home: Path) -> None:
    with contextlib.suppress(KeyboardInterrupt), track("x", experiment="x", kind="training") as run:
        run.link(store.REUSED, "a")
        raise KeyboardInterrupt
    with track("x", experiment="x", kind="training", resume=run.id) as again:
        again.link(store.REUSED, "b")
    assert store.read_links(history.row(run.id).tags, store.REUSED) == ["a", "b"]
