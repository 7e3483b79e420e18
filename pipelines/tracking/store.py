"""Where the runs are: the tracking store, its client, its experiments.

With tracking.py, sending.py, schema.py and bulk.py, which write runs, history.py and recorded.py,
which read many, and the two of an export (bundle_out.py, bundle_in.py), the only door to MLflow.
"""

import contextlib
import functools
import logging
import os
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from pipelines.errors import Unavailable, UserError, missing_driver, without_password
from pipelines.runtime import locks, provenance
from pipelines.tracking import _relocation

SQLITE = "sqlite:///"
PARENT, NOTE = "mlflow.parentRunId", "mlflow.note.content"  # tags that the UI reads
ORIGIN = "origin_run_id"  # tag of an imported run: its id where it was measured
OWNER, PROJECT = "origin", "project"  # tag of a run of the evidence that the project ships
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}
ANSWER_S = 5.0
CACHE_KB = 65_536  # of a database in memory: with the default indices of many runs are reread


def uri() -> str:
    """MLFLOW_TRACKING_URI, else the project's own database; the same text for the same store."""
    found = os.environ.get("MLFLOW_TRACKING_URI") or _own()
    if found.startswith(SQLITE):
        return f"{SQLITE}{Path(found.removeprefix(SQLITE)).resolve()}"
    return found.rstrip("/")


def _own() -> str:
    return f"{SQLITE}{_own_home() / 'mlflow.db'}"


def is_own() -> bool:
    """Return whether the store is the project's own home, and no other that was named."""
    return uri() == _own()


def shown() -> str:
    """The store as people may read it: without a password."""
    return without_password(uri())


def home() -> Path:
    """The folder of an SQLite database, else our own: journals, locks and artifacts live there."""
    if uri().startswith(SQLITE):
        return Path(uri().removeprefix(SQLITE)).resolve().parent
    return _own_home()


def _own_home() -> Path:
    """MLRUNS_HOME, for a project that cannot be written, else mlruns/ in the project."""
    return Path(os.environ.get("MLRUNS_HOME") or provenance.ROOT / "mlruns").resolve()


def client(where: str | None = None) -> Any:
    """The MLflow client of the present store, which is created under a lock where it is new."""
    found = _client(where or uri())
    import mlflow  # only now: it reads the environment when it is imported

    if mlflow.get_tracking_uri() != (where or uri()):  # of this process's last store
        mlflow.set_tracking_uri(where or uri())
    return found


@functools.cache
def _client(where: str) -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # stdout is for our documents
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    retries = os.environ.get(RETRIES)
    os.environ[RETRIES] = retries or "2"  # a wrong address is soon said to be one
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    with locks.locked(home() / "live", "database"):
        import mlflow

        _quiet()
        from sqlalchemy.exc import SQLAlchemyError

        try:
            _knock(where)
            _create(where)
            mlflow.set_tracking_uri(where)
            found = mlflow.MlflowClient(tracking_uri=where)
            found.search_experiments(max_results=1)
            if where.startswith(SQLITE):
                _relocation.follow_move(Path(where.removeprefix(SQLITE)))
        except ImportError as error:
            raise missing_driver(where, error) from error
        except (mlflow.MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise (Unavailable if _may_pass(error) else UserError)(
                f"The tracking store must be reachable. Received: {shown()}: "
                f"{str(error).splitlines()[0]}. Check MLFLOW_TRACKING_URI."
            ) from error
    os.environ[RETRIES] = retries or "3"  # one that has answered will again: wait a little
    return found


def _may_pass(error: Exception) -> bool:
    """Whether a store that does not open may open later: its address and its file are right."""
    import mlflow
    from sqlalchemy.exc import OperationalError

    if isinstance(error, mlflow.MlflowException):
        return bool(error.error_code != "INVALID_PARAMETER_VALUE")
    return isinstance(error, OSError | OperationalError | sqlite3.OperationalError)


def _knock(where: str) -> None:
    """OSError, within seconds, where a server takes no connection: MLflow would try for minutes."""
    parts = urlsplit(where)
    scheme = parts.scheme.partition("+")[0]
    port = parts.port or PORTS.get(scheme)
    if parts.hostname and port and scheme not in getproxies():
        socket.create_connection((parts.hostname, port), ANSWER_S).close()


def _create(where: str) -> None:
    """Make a new SQLite database beside its place, then move it there: none is half made."""
    path = Path(where.removeprefix(SQLITE))
    if not where.startswith(SQLITE):
        return
    import mlflow

    if not path.exists():
        half = path.with_suffix(".new")
        half.unlink(missing_ok=True)
        mlflow.MlflowClient(tracking_uri=f"{SQLITE}{half}").search_experiments(max_results=1)
        half.replace(path)
    _many_writers(path)


def _many_writers(path: Path) -> None:
    """Let readers and a writer of an SQLite database not wait for one another, and commits be fast.

    A write-ahead log, which stays in force; a commit then need not wait for the disk, for a crash
    of the machine alone could undo the last ones.
    """
    from sqlalchemy import Engine, event

    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(path, timeout=1)) as database,
    ):  # where it cannot be, as on a network's disk, all works, slower
        database.execute("PRAGMA journal_mode = WAL")

    if not event.contains(Engine, "connect", _relax):
        event.listen(Engine, "connect", _relax)


def _relax(connection: Any, _: Any) -> None:
    """On every new connection to an SQLite database with a write-ahead log."""
    if isinstance(connection, sqlite3.Connection):
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal":
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")


def _quiet() -> None:
    """MLflow tells of its migrations and monitors at level INFO; a newcomer need not read them."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # a locked or full database: raised as well, and said by us in a sentence
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


@functools.cache
def experiment(where: str, name: str) -> str:
    """The id of the experiment of that name, created when it is not there."""
    import mlflow

    found = client(where).get_experiment_by_name(name)
    if found is None:
        own = where.startswith("http")  # a server has its own place
        artifacts = None if own else (home() / _relocation.FOLDER).as_uri()
        with contextlib.suppress(mlflow.MlflowException):  # another process was faster
            client(where).create_experiment(name, artifact_location=artifacts)
        found = client(where).get_experiment_by_name(name)
    if found.lifecycle_stage == "deleted":
        client(where).restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def artifact(run_id: str, path: str) -> bytes | None:
    """One artifact of a run; None where there is none of that path."""
    from mlflow.artifacts import download_artifacts

    folder = str(PurePosixPath(path).parent)
    listed = client().list_artifacts(run_id, None if folder == "." else folder)
    if path not in {each.path for each in listed}:
        return None
    with tempfile.TemporaryDirectory() as place:
        found = download_artifacts(
            run_id=run_id, artifact_path=path, dst_path=place, tracking_uri=uri()
        )
        return Path(found).read_bytes()


def logged_model(run_id: str) -> str | None:
    """The id of the whole model that a run stored last; None where it has none."""
    experiment = client().get_run(run_id).info.experiment_id
    newest = [{"field_name": "creation_time", "ascending": False}]
    models = client().search_logged_models(
        [experiment], f"source_run_id = '{run_id}'", order_by=newest
    )
    return next((str(model.model_id) for model in models if model.status == "READY"), None)


def keras_model(model_id: str) -> Any:
    """The network of a stored model, read anew. Import Keras first, on its backend (quiet.py)."""
    with _model_folder(model_id) as folder:
        import keras

        import keras_models.memorizer  # noqa: F401 - Keras looks for its layer
        from pipelines.tracking import model_files

        network = folder / model_files.NETWORK
        return keras.models.load_model(network, compile=False, safe_mode=True)


def check_model(model_id: str) -> None:
    """Raise UserError for a stored model that is not as this project stores one."""
    with _model_folder(model_id):
        pass


def top_files(location: str) -> Any:
    """What MLflow finds directly below a place of artifacts; empty where nothing is."""
    from mlflow.artifacts import list_artifacts

    return list_artifacts(artifact_uri=location, tracking_uri=uri())


def download(location: str, folder: Path) -> Path:
    """Copy what is at a place of artifacts into a folder; where that is."""
    from mlflow.artifacts import download_artifacts

    copy = download_artifacts(artifact_uri=location, tracking_uri=uri(), dst_path=str(folder))
    return Path(copy)


@contextlib.contextmanager
def _model_folder(model_id: str) -> Iterator[Path]:
    """A copy of the files of a stored model, once they are checked: no other is ever loaded."""
    from pipelines.tracking import model_files

    location = client().get_logged_model(model_id).artifact_location
    if not top_files(location):
        raise UserError(
            f"A stored model must have its files. Received: model {model_id}, which has none at "
            f"{location}. Put them back there, or train it again with --force."
        )
    with tempfile.TemporaryDirectory() as place:
        folder = download(location, Path(place))
        try:
            model_files.check(folder)
        except ValueError as error:
            raise UserError(
                f"{model_files.RULE} Received: in model {model_id}, {error}. Delete the run that "
                "has it, or train it again with --force."
            ) from error
        yield folder


def is_away(error: Exception) -> bool:
    """Whether an error says that the store is locked, full or away, and not what we did wrong."""
    if "mlflow" not in sys.modules or not isinstance(error, unavailable()):
        return False
    unanswered = str(error).startswith("API request to ")
    return unanswered or getattr(error, "error_code", "") == "TEMPORARILY_UNAVAILABLE"


def unavailable() -> type[Exception]:
    """What MLflow raises when its store is locked, full or away."""
    import mlflow

    error: type[Exception] = mlflow.MlflowException
    return error


def served() -> bool:
    """Whether the runs are on a tracking server, which has a UI of its own."""
    return uri().startswith("http")


REVISION = "dc11669786a5"  # of the tables of MLflow 3.17.2, as their alembic_version says
DIALECTS = ("sqlite", "postgresql")

Point = tuple[int, int, float, bool]  # step, milliseconds since 1970, value, or 0 where it is NaN


def sql_store() -> Any:
    """MLflow's own SQL store if its tables are those known here, else None: use the client."""
    client()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service.utils import _get_store
    from sqlalchemy import text

    found = _get_store(uri())
    if type(found) is not SqlAlchemyStore or found.db_type not in DIALECTS:
        return None
    with found.ManagedSessionMaker() as session:
        revision = session.scalar(text("SELECT version_num FROM alembic_version"))
    if revision != REVISION:
        _say_unknown(revision)
        return None
    return found


@functools.cache
def _say_unknown(revision: str) -> None:
    known = f"revision {revision}, and pipelines/tracking/store.py knows {REVISION}"
    print(f"The database has {known}: runs are written one by one, slowly.", file=sys.stderr)
