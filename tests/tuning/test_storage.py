"""Where studies are: a journal, PostgreSQL and the proxy, for many processes; copies of studies."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

from pipelines.errors import Unavailable, UserError
from pipelines.tracking import store
from tests.conftest import ROOT, free_port
from tuning.execution import trial_queue, workers
from tuning.optuna_log import silence
from tuning.plan import StudyPlan
from tuning.storage import copies, serving, storage

PLAN = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only", sampler="random")
WORKER = (
    "import sys; from tests.tuning.test_storage import work; work(sys.argv[1], int(sys.argv[2]))"
)
GUIDE = ROOT / "docs" / "how-to" / "tune.md"


def database_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Where studies are, or where the proxy's are."""
    if kind == "postgresql":
        return str(request.getfixturevalue("postgresql_database"))
    return journal_in(folder)


def journal_in(folder: Path) -> str:
    return storage.resolve_url(f"journal:///{folder}/studies.journal")


def tell_one(study: Any) -> int:
    """What the study layer does of a trial, of the next that waits: its number."""
    while (trial := trial_queue.start_next(study, PLAN)) is None:
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
def running(words: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process of Python, told to end afterwards."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def dashboard(url: str, host: str, port: int) -> Any:
    words = ("-m", "tuning", "dashboard", "--storage", url, "--host", host, "--port", str(port))
    return running(words)


def line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline() if process.stdout else ""


@contextmanager
def reachable(kind: str, database: str) -> Iterator[str]:
    """The URL by which workers reach a database: through the proxy, where that is the kind."""
    if kind != "grpc":
        yield database
        return
    port = free_port()
    (program,) = re.findall(r'^python -c "(.*?)"$', GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    program = program.replace("0.0.0.0", "127.0.0.1").replace("13000", str(port))  # noqa: S104
    with running(("-c", program), OPTUNA_STORAGE=database):
        deadline, is_there = time.monotonic() + 60, False
        while not is_there:
            assert time.monotonic() < deadline
            with socket.socket() as probe:
                is_there = probe.connect_ex(("127.0.0.1", port)) == 0
            time.sleep(0.1)
        yield f"grpc://127.0.0.1:{port}"


def test_a_storage_is_the_one_named_or_the_environments_or_beside_the_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTUNA_STORAGE", raising=False)
    assert storage.resolve_url() == f"journal:///{home}/optuna.journal"
    monkeypatch.setenv("OPTUNA_STORAGE", "grpc://h:1/")
    assert storage.resolve_url() == "grpc://h:1"
    assert storage.resolve_url(f"journal:///{home}/../a") == f"journal:///{home.parent}/a"
    for url in ("postgresql://me@h/db", "postgresql+psycopg2://me@h/db"):
        assert storage.resolve_url(url) == url


def test_every_tracking_server_has_studies_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTUNA_STORAGE", raising=False)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    places = []
    for server in ("http://one:5000", "http://two:5000"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
        places.append(storage.resolve_url())
    assert places[0] != places[1]
    assert all(
        re.fullmatch(rf"journal:///{tmp_path}/optuna-\w+\.journal", place) for place in places
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("studies.db", "A storage must be journal:///FILE"),
        ("redis://h/0", "A storage must be journal:///FILE"),
        ("postgres://me:secret@h/db", "A storage must be journal:///FILE"),
        ("postgresql://me:se@secret@127.0.0.1/db", "an @ of the password is %40"),
        ("postgresql://me:secret@h:port/db", "A storage must be journal:///FILE"),
        ("postgresql://me:sec[secret@h/db", "A storage must be journal:///FILE"),
        ("sqlite:////a.db", "A storage must be journal:///FILE"),
        ("grpc://", "A storage must be journal:///FILE"),
        ("grpc://127.0.0.1:9", "must be reachable.*timeout"),
        ("postgresql://me:secret@127.0.0.1:9/db", "must be reachable.*onnection refused"),
        ("postgresql+none://me:secret@127.0.0.1/db", "must be reachable"),
        ("journal:////proc/none/studies", "file of a storage must be writable"),
        ("journal:////proc", "file of a storage must be writable"),
        ("journal://studies.log", "A storage must be journal:///FILE"),
    ],
)
def test_a_storage_that_cannot_be_is_one_sentence(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "CONNECT_S", 1)
    refused = Unavailable if said.startswith("must be reachable") else UserError
    with pytest.raises(refused, match=said) as caught:
        storage.connect(storage.resolve_url(url))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_takes_the_connection_and_is_silent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "CONNECT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Unavailable, match="must be reachable"):
            storage.connect(f"grpc://127.0.0.1:{port}")


def test_a_missing_driver_is_named_with_its_package(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mysql+pymysql://me:secret@127.0.0.1:{server.getsockname()[1]}/db"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for use in (store.client, lambda: storage.connect(url)):
            with pytest.raises(UserError, match=r"me:\*\*\*@.* 'pymysql'.*pip install pymysql"):
                use()


def test_a_file_of_others_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no journal\n" * 100)
    with pytest.raises(UserError, match=r"operation of Optuna's.*none in line 1 "):
        storage.connect(f"journal:///{text}")
    assert text.read_text() == "no journal\n" * 100


def test_mlflows_database_is_refused_and_not_touched(empty_database: Path) -> None:
    before = empty_database.read_bytes()
    with pytest.raises(UserError, match="A storage must be a database of its own"):
        storage._refuse_others(f"sqlite:///{empty_database}", {})
    assert empty_database.read_bytes() == before


def test_a_line_that_a_kill_tore_is_cut_off_by_the_next(tmp_path: Path) -> None:
    url, path = journal_in(tmp_path), tmp_path / "studies.journal"
    study = optuna.create_study(study_name="s", storage=storage.connect(url))
    with path.open("a") as file:
        file.write('{"op_code":4,"wor')
    study.enqueue_trial({})
    assert len(study.trials) == 1
    anew = storage.connect.__wrapped__(url)  # as another process opens it
    assert len(optuna.load_study(study_name="s", storage=anew).trials) == 1


def test_a_process_that_is_killed_as_it_writes_holds_nobody_up(tmp_path: Path) -> None:
    url = journal_in(tmp_path)
    study = optuna.create_study(study_name="s", storage=storage.connect(url))
    program = (
        "import os, signal; from pathlib import Path; from tuning.storage import storage\n"
        f"storage._FileLock(Path({str(tmp_path / 'studies.journal')!r})).acquire()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    begun = time.monotonic()
    study.enqueue_trial({})
    assert time.monotonic() - begun < 5


def journal_of(file: Path, *names: str) -> str:
    """A journal with studies of three trials; its URL."""
    there = storage.connect(url := f"journal:///{file}")
    for name in names:
        study = optuna.create_study(study_name=name, storage=there)
        study.set_user_attr("plan", PLAN.identity)
        study.set_user_attr("run_id", f"of {name}")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    return url


def test_a_proxy_that_goes_away_is_one_sentence() -> None:
    from optuna.storages._grpc import server

    port = free_port()
    with silence():
        proxy = server.make_server(optuna.storages.InMemoryStorage(), "127.0.0.1", port)
    proxy.start()
    url = f"grpc://127.0.0.1:{port}"
    study = optuna.create_study(storage=storage.connect(url))
    proxy.stop(0).wait()
    with pytest.raises(Unavailable) as caught, storage.translate_errors(url):
        study.ask()
    said = str(caught.value)
    assert f"Received: {url}: UNAVAILABLE: " in said
    assert "RPC" not in said
    assert "\n" not in said


def test_what_is_no_proxy_of_optunas_is_said_once() -> None:
    import grpc

    other, port = grpc.server(ThreadPoolExecutor(1)), free_port()
    other.add_insecure_port(f"127.0.0.1:{port}")
    other.start()
    with pytest.raises(Unavailable) as caught:
        storage.connect(f"grpc://127.0.0.1:{port}")
    other.stop(0).wait()
    said = f"grpc://127.0.0.1:{port}: no proxy of Optuna's: UNIMPLEMENTED: Method not found. "
    assert said in str(caught.value)


def test_a_study_is_copied_whole_and_again_when_more_of_its_trials_have_ended(
    tmp_path: Path,
) -> None:
    old, where = journal_of(tmp_path / "old.journal", "a"), journal_in(tmp_path)
    origin = optuna.load_study(study_name="a", storage=storage.connect(old))
    for _ in range(2):
        origin.enqueue_trial({"x": 0.5})
    assert copies.copy(old, [], where) == ["a"]
    origin.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert copies.copy(old, [], where) == ["a"]
    there = optuna.load_study(study_name="a", storage=storage.connect(where))
    assert [trial.state.name for trial in there.trials] == ["COMPLETE"] * 5
    assert [trial.params for trial in there.trials] == [trial.params for trial in origin.trials]
    assert there.user_attrs == {"plan": PLAN.identity, "run_id": "of a"}
    assert copies.copy(where, [], old) == []


def test_a_copy_goes_on_where_a_kill_cut_it_short_and_replaces_no_other_study(
    tmp_path: Path,
) -> None:
    old, where = journal_of(tmp_path / "old.journal", "a", "b"), journal_in(tmp_path)
    here = storage.connect(where)
    half = optuna.create_study(study_name="a", storage=here)
    half.set_user_attr("plan", PLAN.identity)
    half.set_user_attr("run_id", "of a")
    assert copies.copy(old, ["a"], where) == ["a"]
    assert len(optuna.load_study(study_name="a", storage=here).trials) == 3
    assert copies.copy(old, [], where) == ["b"]
    assert copies.copy(old, [], where) == []
    optuna.load_study(study_name="b", storage=here).set_user_attr("run_id", "another")
    with pytest.raises(UserError, match="Received: b, which is another study"):
        copies.copy(old, ["b"], where)
    with pytest.raises(UserError, match="file to copy must be there"):
        copies.copy(f"journal:///{tmp_path}/none.journal", [], where)
    with pytest.raises(UserError, match=r"A study of journal.*Choices: a, b"):
        copies.copy(old, ["c"], where)


def test_a_worker_s_password_is_not_among_its_arguments(home: Path) -> None:
    study, url = optuna.create_study(study_name="s"), "postgresql://me:s3cret@127.0.0.1:1/studies"
    with Path(os.devnull).open("w") as sink:
        process = workers._start(study, url, 0, 1, sink.fileno())
    process.kill()
    process.wait()
    assert process.args == [sys.executable, "-P", "-m", "tuning", "work", "s"]
    assert workers._environment(url, 0, 1)["OPTUNA_STORAGE"] == url


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "postgresql", "grpc"])
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
    with dashboard(journal_in(tmp_path), at, port) as process:
        assert line(process).endswith(f":{port}\n")
        assert {host: status(port, host) for host in OWN + own} == dict.fromkeys(OWN + own, 200)
        refused = FOREIGN + foreign
        assert {host: status(port, host) for host in refused} == dict.fromkeys(refused, 403)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "postgresql", "grpc"])
def test_the_dashboard_shows_a_study_of_every_storage(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, port = database_of(kind, tmp_path, request), free_port()
    study = optuna.create_study(study_name="shown", storage=storage.connect(database))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    with (
        reachable(kind, database) as url,
        dashboard(url, "127.0.0.1", port) as process,
    ):
        address = line(process).split()[-1]
        assert address == f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{address}/api/studies", timeout=20) as answer:  # noqa: S310
            assert '"study_name": "shown"' in answer.read().decode()
        with pytest.raises(UserError, match="must be free"):
            serving.serve_dashboard(url, "127.0.0.1", port)
    optuna.delete_study(study_name="shown", storage=storage.connect(database))
