"""Stores that other programs made are read as they are, or refused; never changed."""

import contextlib
import hashlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import sqlalchemy
from alembic import command as alembic
from alembic.config import Config
from mlflow.store.tracking.dbmodels import initial_models

from pipelines.__main__ import dispatch
from pipelines.cli.doctor import check_tracking_store
from pipelines.errors import Unavailable, UserError
from pipelines.tracking import database, history, mlflow_ui, store, ui_server
from tests.postgres import execute
from tests.tracking.bundles import tracked

OLDER = "0584bdc529eb"  # of the tables of MLflow 2.22
READING = (["compare", "a", "b"], ["report"], ["watch"], ["recover"])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def everything(folder: Path) -> dict[Path, str]:
    return {path: sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database that MLflow made without us, of runs whose files were elsewhere."""
    path, away = tmp_path / "theirs" / "mlflow.db", tmp_path / "away" / "artifacts"
    path.parent.mkdir()
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}")
    for name, place in (("one", away.as_uri()), ("tuning", None)):
        number = client.create_experiment(name, artifact_location=place)
        for run_name in ("a", "b"):
            run = client.create_run(number, run_name=run_name, tags={"kind": "training"})
            for step in range(3):
                client.log_metric(run.info.run_id, "loss", step / 2, step=step)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    return path


@pytest.fixture(scope="module")
def older_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the tables of an older MLflow, made by its own migrations."""
    path = tmp_path_factory.mktemp("older") / "mlflow.db"
    config = Config()
    migrations = Path(mlflow.__path__[0]) / "store" / "db_migrations"
    config.set_main_option("script_location", str(migrations))
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    initial_models.Base.metadata.create_all(engine)
    engine.dispose()
    alembic.upgrade(config, OLDER)
    return path


@pytest.fixture
def older(tmp_path: Path, older_tables: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a database as the store of this process."""
    path = tmp_path / "older" / "mlflow.db"
    path.parent.mkdir()
    shutil.copy(older_tables, path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    return path


def test_reading_commands_leave_a_database_of_others_byte_for_byte(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sha256(theirs)
    for words in READING:
        dispatch([*words, *(["--out", str(tmp_path / "out")] if words == ["report"] else [])])
    links = mlflow_ui.links(ui_server.address())
    assert links["tuning"] == "http://127.0.0.1:5000/#/experiments/2/runs?" + mlflow_ui.MODELS
    assert "it can be read" in check_tracking_store().found
    assert sha256(theirs) == before
    assert "compare-experiments" in capsys.readouterr().out


def test_what_is_recorded_in_a_store_of_others_is_beside_it_and_leaves_theirs(
    theirs: Path,
) -> None:
    runs = {row.id: row for row in history.rows(None)}
    places = {e.name: e.artifact_location for e in store.client().search_experiments()}
    with tracked("ours", experiment="trained networks") as run:
        run.text("text", "text.txt")
    assert store.artifact(run.id, "text.txt") == b"text"
    assert (theirs.parent / "artifacts" / run.id).is_dir()
    now = {e.name: e for e in store.client().search_experiments()}
    assert {name: now[name].artifact_location for name in places} == places
    assert {row.id: row for row in history.rows(None) if row.id != run.id} == runs
    assert [name for name, each in now.items() if store.is_ours(each)] == ["trained networks"]
    mlflow_ui.links(ui_server.address())
    now = {e.name: e for e in store.client().search_experiments()}
    assert {name: now[name].tags for name in places} == {name: {} for name in places}


@pytest.mark.parametrize("deleted", [False, True])
def test_an_experiment_of_others_with_our_name_gets_no_run(theirs: Path, deleted: bool) -> None:
    if deleted:
        store.client().delete_experiment("2")
    with tracked("ours", experiment="tuning", kind="study") as run:
        pass
    here = store.client().get_experiment(store.client().get_run(run.id).info.experiment_id)
    assert here.name == "tuning (near-identity)"
    assert store.client().get_experiment("2").lifecycle_stage == ["active", "deleted"][deleted]
    mlflow_ui.links(ui_server.address())
    note = store.client().get_experiment(here.experiment_id).tags[store.NOTE]
    assert note == mlflow_ui.DESCRIPTIONS["tuning"]


def test_a_log_that_its_writer_left_stays_in_a_database_that_is_refused(older: Path) -> None:
    writer = (
        "import os, sqlite3, sys; d = sqlite3.connect(sys.argv[1]); "
        "d.execute('PRAGMA journal_mode = WAL'); d.execute('CREATE TABLE t (x)'); "
        "d.commit(); os._exit(0)"  # without a close, which would merge the log
    )
    subprocess.run([sys.executable, "-c", writer, str(older)], check=True)
    before = everything(older.parent)
    assert len(before) == 3
    with pytest.raises(UserError, match="with tables of revision"):
        store.client()
    kept = {path: content for path, content in everything(older.parent).items() if path in before}
    assert {p: c for p, c in kept.items() if not p.name.endswith("-shm")} == {
        p: c for p, c in before.items() if not p.name.endswith("-shm")
    }


@pytest.mark.parametrize("uri", ["sqlite:///file:/x/y.db?mode=ro&uri=true", "sqlite:///:memory:"])
def test_an_address_for_which_mlflow_would_make_a_folder_of_its_name_is_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError, match="must be sqlite:///PATH"):
        store.client()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["a part", "none"])
def test_a_copy_without_all_of_its_files_keeps_the_places_that_it_has(
    left: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for text in ("one", "two"):
        with tracked("r") as run:
            run.text(text, "text.txt")
        runs.append(run.id)
    other = tmp_path / "backup"
    shutil.copytree(home, other)
    for run_id in runs[left == "a part" :]:
        shutil.rmtree(other / "artifacts" / run_id)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    assert store.artifact(runs[1], "text.txt") == b"two"


@pytest.mark.parametrize("words", [*READING, ["reference"], ["ui", "--port", "5937"], ["doctor"]])
def test_a_database_of_another_revision_is_refused_as_it_is(
    older: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(older.parent)
    with pytest.raises((UserError, SystemExit)) as refused:
        dispatch(words)
    said = f"{refused.value} {capsys.readouterr().out}"
    assert f"with tables of revision {OLDER}" in said
    assert "mlflow db upgrade" in said
    assert everything(older.parent) == before
    with contextlib.closing(sqlite3.connect(older)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_database_of_another_program_is_refused_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (text)")
    before = everything(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    with pytest.raises(UserError, match=r"with other tables\. It is left as it is"):
        store.client()
    assert everything(tmp_path) == before


def test_a_server_s_database_of_another_revision_is_refused_as_it_is(
    postgresql: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    update = "UPDATE alembic_version SET version_num = '{}'"
    execute(postgresql, update.format(OLDER))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgresql)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path / "home"))
    with pytest.raises(UserError, match=f"with tables of revision {OLDER}"):
        store.client()
    execute(postgresql, update.format(database.REVISION))
    assert store.client().search_experiments()


@pytest.mark.parametrize("name", ["feature%2Fx", "a%20b", "what?", "50 %", "a#b", "mode=ro?x=1"])
def test_a_home_of_any_name_is_made_there_and_nowhere_else(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    with tracked("r") as run:
        run.text("text", "text.txt")
    assert store.artifact(run.id, "text.txt") == b"text"
    assert store.is_project_home()
    assert store.home() == tmp_path / name
    assert (tmp_path / name / "mlflow.db").is_file()
    assert list(tmp_path.iterdir()) == [tmp_path / name]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri())
    assert history.row(run.id).name == "r"


def test_a_tilde_is_the_user_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLRUNS_HOME", "~/runs")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert store.home() == tmp_path / "runs"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///~/x.db")
    assert store.uri() == f"sqlite:///{tmp_path}/x.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///~nobody-of-that-name/x.db")
    with pytest.raises(UserError, match="a home that is not known"):
        store.uri()


@contextlib.contextmanager
def closing_server() -> Iterator[int]:
    """Serve a port that closes every connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_each() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=close_each, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_database_that_closes_each_connection_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    with closing_server() as port:
        url = f"postgresql://user:secret@127.0.0.1:{port}/runs"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        begun = time.monotonic()
        with pytest.raises(Unavailable, match=r"user:\*\*\*@127.0.0.1") as refused:
            store.client()
        assert time.monotonic() - begun < 15
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"])
def test_a_server_behind_a_proxy_is_asked_through_it(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("all_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.upper(), raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    store._check_connection("http://host-behind-the-proxy.invalid:5000")
    monkeypatch.setenv("NO_PROXY", "host-behind-the-proxy.invalid")
    with pytest.raises(OSError, match=r"."):
        store._check_connection("http://host-behind-the-proxy.invalid:5000")


def test_the_ui_s_server_gets_the_password_by_its_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(ui_server.os, "execv", lambda _, words: started.append(words))
    monkeypatch.setattr(ui_server.subprocess, "Popen", lambda words, env: started.append(words))
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    url = "postgresql://user:secret@127.0.0.1/runs"
    for key in ("BACKEND_STORE_URI", "SERVER_ENABLE_JOB_EXECUTION", "LOGGING_LEVEL"):
        monkeypatch.setenv(f"MLFLOW_{key}", "")
    monkeypatch.setenv("PYTHONWARNINGS", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    ui_server.serve("127.0.0.1", 5000, "http://127.0.0.1:5000/#/first")
    assert len(started) == 2 and not any("secret" in word for words in started for word in words)
    assert ui_server.os.environ["MLFLOW_BACKEND_STORE_URI"] == url
