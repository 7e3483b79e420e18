"""Shared fixtures: a tracking home of its own for every test, and prepared data."""

import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import ROOT, new_database, postgres_url

PREPARED = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
Go = Callable[[str], None]
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


LIBRARY = 200  # modules: so many are new where TensorFlow or MLflow was loaded
_modules = 0  # that were loaded when the collector was last told to leave what there is


def pytest_configure() -> None:
    """Take Ctrl-C, which is ignored in what a script has started with `&`; seldom collect garbage.

    Python's collector looks through all objects of the libraries again and again, a fifth of the
    time of all tests.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(200_000, 10, 10)


def pytest_runtest_logfinish() -> None:
    """Leave the objects of a library that was just loaded out of further collections."""
    global _modules
    if len(sys.modules) > _modules + LIBRARY:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def needs(name: str) -> pytest.MarkDecorator:
    """Skip, saying so, where a real data set is not prepared."""
    found = any((PREPARED / name).glob("[0-9]*.*.*/dataset_info.json"))
    return pytest.mark.skipif(not found, reason=f"{name} is not prepared in {PREPARED}")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without runs: copying it is ten times faster than making one."""
    from pipelines.tracking import store

    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        store.client()
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is copied is all of it
    return folder / "mlflow.db"


@pytest.fixture
def home(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tracking home, in force for this process and those it starts; no evidence here."""
    monkeypatch.setattr("pipelines.results.evidence.bundles.FOLDER", tmp_path / "no evidence")
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(empty_database, folder / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    return folder


@pytest.fixture
def go(home: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """`go("b")`: to another store, empty at first, where experiments have other ids."""

    from pipelines.tracking import store

    def to(name: str) -> None:
        folder = home.parent / name
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        if not folder.exists():
            folder.mkdir()
            shutil.copy(empty_database, folder / "mlflow.db")
            store.experiment(store.uri(), f"only in {name}")

    return to


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server of this process's own."""
    with postgres_url() as url:
        yield url


@pytest.fixture
def postgresql_database(postgresql_server: str) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL, for studies or a schedule."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture(scope="session")
def postgresql_migrated(
    postgresql_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a migrated database without runs: a copy of it is made in a moment."""
    with new_database(postgresql_server) as url:
        home = str(tmp_path_factory.mktemp("template"))
        subprocess.run(  # a database in use cannot be copied
            [sys.executable, "-c", "from pipelines.tracking import store; store.client()"],
            cwd=ROOT,
            env=os.environ | {"MLFLOW_TRACKING_URI": url, "MLRUNS_HOME": home},
            check=True,
        )
        yield url.rpartition("/")[2]


@pytest.fixture
def postgresql(postgresql_server: str, postgresql_migrated: str) -> Iterator[str]:
    """The URL of a database on PostgreSQL for runs, which holds none."""
    with new_database(postgresql_server, postgresql_migrated) as url:
        yield url


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[str]:
    """A real MLflow server on loopback with its database in `folder`; killed at the end."""
    words = ["server", "--backend-store-uri", f"sqlite:///{folder}/server.db", "--port", str(port)]
    words += ["--artifacts-destination", str(folder / "files")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words, "--workers", "1"],
        cwd=folder,
        env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        answered = False
        while not answered:
            assert process.poll() is None
            with contextlib.suppress(OSError):
                answered = urllib.request.urlopen(f"{address}/health").status == 200  # noqa: S310
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def prepared_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the embedded digits."""
    from pipelines.data import datasets

    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder))
        datasets.get("digits").prepare()
    return folder


@pytest.fixture
def digits(prepared_digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder with digits, in force for this process and those it starts."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared_digits))
    return prepared_digits


def journals(home: Path) -> str:
    """All that running trainings have written down; one may be delivered, and go, meanwhile."""
    texts = []
    for path in home.glob("live/*.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            texts.append(path.read_text())
    return "".join(texts)


def exit_code(function: Callable[..., Any], *arguments: Any) -> int | None:
    """That of a call in a process of its own, in this environment.

    A fork of our own process, whose threads and databases it would share, may crash.
    """
    apart = multiprocessing.get_context("forkserver")
    apart.set_forkserver_preload(["mlflow", function.__module__])
    process = apart.Process(target=_called, args=(dict(os.environ), function, arguments))
    process.start()
    process.join()
    return process.exitcode


def _called(
    environment: Mapping[str, str], function: Callable[..., Any], arguments: Sequence[Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


def command(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run `python -m ...` in the project, as a person would."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
