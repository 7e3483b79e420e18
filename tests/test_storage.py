"""Where studies are: SQLite, PostgreSQL and the proxy, for many processes at once."""

import contextlib
import http.client
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Unavailable, UserError
from tests.conftest import ROOT, free_port
from tuning import storage, tickets
from tuning.plan import Plan

optuna = pytest.importorskip("optuna")

PLAN = Plan(recipe="mlp-digits", scale="smoke", space="lr-only", sampler="random")
WORKER = "import sys; from tests.test_storage import work; work(sys.argv[1], int(sys.argv[2]))"
SERVER = """
import sys
from pipelines.shell import guarded
from tuning import storage
def serve(words):
    getattr(storage, words[0])(words[1], words[2], int(words[3]))
sys.exit(guarded(serve, sys.argv[1:]))
"""


def database_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Where studies are, or where the proxy's are."""
    if kind == "postgresql":
        return str(request.getfixturevalue("postgresql_database"))
    return storage.place(f"journal:///{folder}/s.log") if kind == "journal" else sqlite_in(folder)


def sqlite_in(folder: Path) -> str:
    return storage.place(f"sqlite:///{folder}/studies.db")


def tell_one(study: Any) -> int:
    """What the study layer does of a trial, of the next that waits: its number."""
    while (trial := tickets.take(study, PLAN)) is None:
        study.enqueue_trial({})
    for name in "abcdef":
        trial.suggest_float(name, 0, 1)
    for step in range(1, 10):
        trial.report(1 / step, step)
    study.tell(trial, 1.0)
    return int(trial.number)


def work(url: str, trials: int) -> None:
    """A worker process: prints the numbers of its trials."""
    there = storage.connect(url)
    study = optuna.create_study(study_name="s", storage=there, load_if_exists=True)
    print(*[tell_one(study) for _ in range(trials)])


def crowd(url: str, workers: int, trials: int) -> list[int]:
    """The numbers of the trials that so many processes have told the study."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(trials)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(workers)
    ]
    said = [process.communicate(timeout=240) for process in processes]
    assert [errors for _, errors in said if errors] == []
    return [int(word) for output, _ in said for word in output.split()]


@contextmanager
def serving(*words: Any) -> Iterator[subprocess.Popen[str]]:
    """A server, once it has said where it is; told to end afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline() if process.stdout else ""


@contextmanager
def reachable(kind: str, database: str) -> Iterator[str]:
    """The URL by which workers reach a database: through the proxy, where that is the kind."""
    if kind != "grpc":
        yield database
        return
    port = free_port()
    with serving("serve", database, "127.0.0.1", port) as proxy:
        assert f"--storage grpc://127.0.0.1:{port}" in line(proxy)
        yield f"grpc://127.0.0.1:{port}"


def test_a_storage_is_the_one_named_or_the_environments_or_beside_the_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTUNA_STORAGE", raising=False)
    assert storage.place() == f"sqlite:///{home}/optuna.db"
    monkeypatch.setenv("OPTUNA_STORAGE", "grpc://h:1/")
    assert storage.place() == "grpc://h:1"
    assert storage.place(f"sqlite:///{home}/../a.db") == f"sqlite:///{home.parent}/a.db"
    for url in ("postgresql://me@h/db", "postgresql+psycopg2://me@h/db"):
        assert storage.place(url) == url


def test_every_tracking_server_has_studies_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTUNA_STORAGE", raising=False)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    places = []
    for server in ("http://one:5000", "http://two:5000"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
        places.append(storage.place())
    assert places[0] != places[1]
    assert all(re.fullmatch(rf"sqlite:///{tmp_path}/optuna-\w+\.db", place) for place in places)


def test_only_sqlite_is_for_one_machine() -> None:
    urls = ("sqlite:////a.db", "postgresql+psycopg2://h/db", "mysql+pymysql://h/db", "grpc://h:1")
    assert [storage.one_machine(url) for url in urls] == [True, False, False, False]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:secret@h/db", "postgresql://me:***@h/db"),
        ("postgresql://me:se@cr/et@h/db", "postgresql://me:***@h/db"),
        ("me:secret@h/db", "me:***@h/db"),
        ("postgresql://h/db?password=secret&user=me", "postgresql://h/db?password=***&user=me"),
        ("postgresql://me@h:5432/db", "postgresql://me@h:5432/db"),
        ("sqlite:////home/me@work/a:b.db", "sqlite:////home/me@work/a:b.db"),
        ("grpc://h:13000", "grpc://h:13000"),
    ],
)
def test_people_see_no_password(url: str, said: str) -> None:
    assert storage.shown(url) == said


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("studies.db", "A storage must be sqlite:///FILE"),
        ("redis://h/0", "A storage must be sqlite:///FILE"),
        ("postgres://me:secret@h/db", "A storage must be sqlite:///FILE"),
        ("postgresql://me:se@secret@127.0.0.1/db", "an @ of the password is %40"),
        ("postgresql://me:secret@h:port/db", "A storage must be sqlite:///FILE"),
        ("sqlite:///:memory:", "A storage must be sqlite:///FILE"),
        ("sqlite://", "A storage must be sqlite:///FILE"),
        ("grpc://", "A storage must be sqlite:///FILE"),
        ("grpc://127.0.0.1:9", "must be reachable.*Connection refused"),
        ("postgresql://me:secret@127.0.0.1:9/db", "must be reachable.*Connection refused"),
        ("postgresql+none://me:secret@127.0.0.1/db", "must be reachable"),
        ("sqlite:////proc/none/studies.db", "folder of a storage must be writable"),
        ("journal:////proc/none/studies.log", "folder of a storage must be writable"),
        ("journal://studies.log", "A storage must be sqlite:///FILE"),
    ],
)
def test_a_storage_that_cannot_be_is_one_sentence(url: str, said: str) -> None:
    refused = Unavailable if said.startswith("must be reachable") else UserError
    with pytest.raises(refused, match=said) as caught:
        storage.connect(storage.place(url))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_takes_the_connection_and_is_silent_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="must be reachable"):
            storage.connect(f"grpc://127.0.0.1:{port}")
    assert time.monotonic() - begun < 2 * storage.ANSWER_S


def test_a_missing_driver_is_named_with_its_package() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=r"driver.*No module named.*pip install pymysql"):
            storage.connect(f"mysql+cymysql://me:secret@127.0.0.1:{port}/db")


def test_a_file_or_a_database_of_others_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database\n" * 100)
    with pytest.raises(Unavailable, match="file is not a database"):
        storage.connect(f"sqlite:///{text}")
    with pytest.raises(Unavailable, match="unable to open"):
        storage.connect(f"sqlite:///{tmp_path}")
    assert text.read_text() == "not a database\n" * 100


def test_mlflows_database_is_refused_and_not_touched(empty_database: Path) -> None:
    def tables() -> list[Any]:
        with contextlib.closing(sqlite3.connect(empty_database)) as database:
            return database.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()

    before = tables()
    with pytest.raises(UserError, match="A storage must be a database of its own"):
        storage.connect(f"sqlite:///{empty_database}")
    assert tables() == before


def test_connecting_and_searching_warn_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there = storage.connect(sqlite_in(tmp_path))
    assert storage.connect(sqlite_in(tmp_path)) is there
    optuna.create_study(storage=there)


def test_a_folder_may_be_new_and_have_any_name(tmp_path: Path) -> None:
    url = sqlite_in(tmp_path / "{new} 100% @home")
    study = optuna.create_study(study_name="s", storage=storage.connect(url))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert (tmp_path / "{new} 100% @home" / "studies.db").exists()


def test_what_is_told_is_in_the_file_at_once(tmp_path: Path) -> None:
    there = storage.connect(sqlite_in(tmp_path))
    study = optuna.create_study(study_name="s", storage=there)
    trial = study.ask()
    trial.report(50.0, 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "studies.db")) as other:
        assert other.execute("SELECT count(*) FROM trial_intermediate_values").fetchone() == (1,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_transaction_on_sqlite_keeps_writers_out_from_its_first_reading_on(
    tmp_path: Path,
) -> None:
    # Else two workers read that an enqueued trial waits, and both take it.
    engine = storage.connect(sqlite_in(tmp_path)).engine
    other = sqlite3.connect(tmp_path / "studies.db", timeout=0.05, isolation_level=None)
    with contextlib.closing(other):
        with engine.begin() as reading:
            reading.exec_driver_sql("SELECT * FROM trials").all()
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                other.execute("BEGIN IMMEDIATE")
            assert other.execute("SELECT count(*) FROM trials").fetchone() == (0,)
        other.execute("BEGIN IMMEDIATE")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal", "postgresql"])
def test_eight_processes_may_start_at_once_where_nothing_is(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = database_of(kind, tmp_path, request)
    numbers = crowd(url, workers=8, trials=1)
    assert sorted(numbers) == list(range(8))
    optuna.delete_study(study_name="s", storage=storage.connect(url))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "journal", "postgresql", "grpc"])
def test_four_workers_as_fast_as_they_can_lose_nothing_and_repeat_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with reachable(kind, database_of(kind, tmp_path, request)) as url:
        study = optuna.create_study(study_name="s", storage=storage.connect(url))
        for waiting in range(100):  # each is one worker's: to two of them none may be given
            study.enqueue_trial({"a": waiting / 100})
        numbers = crowd(url, workers=4, trials=25)
        assert sorted(numbers) == list(range(100))
        trials = study.get_trials()
        assert {trial.state.name for trial in trials} == {"COMPLETE"}
        assert all(len(trial.intermediate_values) == 9 for trial in trials)
        assert [trial.params["a"] for trial in trials] == [each / 100 for each in range(100)]
        optuna.delete_study(study_name="s", storage=storage.connect(url))


def test_a_trial_costs_little_on_sqlite(tmp_path: Path) -> None:
    study = optuna.create_study(storage=storage.connect(sqlite_in(tmp_path)))
    begun = time.process_time()
    for _ in range(10):
        tell_one(study)
    assert (time.process_time() - begun) / 10 < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_says_what_workers_take_and_ends_when_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    url, port = sqlite_in(tmp_path), free_port()
    with serving("serve", url, "127.0.0.1", port) as process:
        said = line(process)
        assert said == f"Workers of {url} take: --storage grpc://127.0.0.1:{port}\n"
        there = storage.connect(f"grpc://127.0.0.1:{port}")
        optuna.create_study(study_name="through the proxy", storage=there)
        with pytest.raises(UserError, match="must be free"):
            storage.serve(url, "127.0.0.1", port)
        with pytest.raises(UserError, match="A proxy stands before a database"):
            storage.serve(f"grpc://127.0.0.1:{port}", "127.0.0.1", free_port())
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert errors.splitlines() == [
        "It asks for no password: let only machines you trust reach it.",
        "The proxy has ended; the studies are kept.",
    ]
    assert optuna.get_all_study_names(storage.connect(url)) == ["through the proxy"]


def status(port: int, host: str | None) -> int:
    """What a dashboard answers to a request for that host; None: for no host."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.putrequest("GET", "/api/studies", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
    assert (answer.status == 403) == text.startswith("The dashboard answers at ")
    return answer.status


OWN = ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example:8080",
    "127.0.0.1.evil.example",
    "[::1",
    "",
    None,
]


@pytest.mark.parametrize(
    ("at", "own", "foreign"),
    [
        ("127.0.0.1", [], ["10.0.0.1", socket.gethostname()]),
        pytest.param(
            "0.0.0.0",  # noqa: S104
            [socket.gethostname(), "10.0.0.1:8080", "[fe80::1]"],
            [],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_dashboard_answers_no_foreign_host(
    tmp_path: Path, at: str, own: list[str], foreign: list[str]
) -> None:
    port = free_port()
    with serving("dashboard", sqlite_in(tmp_path), at, port) as process:
        assert line(process).endswith(f":{port}\n")
        assert {host: status(port, host) for host in OWN + own} == dict.fromkeys(OWN + own, 200)
        refused = FOREIGN + foreign
        assert {host: status(port, host) for host in refused} == dict.fromkeys(refused, 403)


def pages(address: str, names: Sequence[str]) -> list[str]:
    """What a dashboard answers: its page, and the studies it lists."""
    found = []
    for name in names:
        with urllib.request.urlopen(f"{address}/{name}", timeout=20) as answer:  # noqa: S310
            found.append(answer.read().decode())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "grpc"])
def test_the_dashboard_shows_a_study_of_every_storage(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, port = database_of(kind, tmp_path, request), free_port()
    study = optuna.create_study(study_name="shown", storage=storage.connect(database))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    with (
        reachable(kind, database) as url,
        serving("dashboard", url, "127.0.0.1", port) as process,
    ):
        address = line(process).split()[-1]
        assert address == f"http://127.0.0.1:{port}"
        page, studies = pages(address, ["dashboard", "api/studies"])
        assert "<title>Optuna Dashboard" in page
        assert '"study_name": "shown"' in studies
        with pytest.raises(UserError, match="must be free"):
            storage.dashboard(url, "127.0.0.1", port)
    optuna.delete_study(study_name="shown", storage=storage.connect(database))
