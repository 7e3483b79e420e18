"""The tracking store: where the runs are, its client, its experiments.

With the other modules of this folder the only door to MLflow.
"""

import contextlib
import functools
import logging
import os
import re
import socket
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from pipelines.errors import Unavailable, UserError, missing_driver, short, without_password
from pipelines.runtime import files, places
from pipelines.tracking import database
from pipelines.tracking.database import MADE_BY, SQLITE, database_path

PARENT, NOTE = "mlflow.parentRunId", "mlflow.note.content"  # tags that the UI reads
TITLE = "title"  # tag of a training: its recipe and what it changes of it, the same for all seeds
ARM = "arm"  # tag of a training: what a claim calls it, the same for all seeds
RUN_AS = "run_as"  # tag of a training that a person started by name: name and scale
STANDING = "standing"  # tag of a claim's run: the claim, and whether the run counts; sorts them
# How the runs of a claim stand to each other, in this order.
YOURS, PROJECTS, PAPERS, UNCOUNTED = "1 yours", "2 project", "3 reported", "4 does not count"
PAPERS_ALONE = "papers_alone"  # tag of papers' numbers of a claim that has no run here: the claim
RESULT = "result"  # tag: the numbers that count, in one line
REUSED = "reused"  # begins tags that name, by their ids, the trainings of other runs
STUDIED = "studied"  # begins tags that name the studies that a claim's cells come from
NAMES_A_TAG = 150  # ids of runs in a tag, of which MLflow keeps 8,000 characters
ORIGIN = "origin_run_id"  # tag of an imported run: its id where it was measured
OURS = f" ({MADE_BY[1]})"  # ends the name of an experiment where another program has the name
OWNER, PROJECT = "origin", "project"  # tag of a run of the evidence that the project ships
RETRIES_VARIABLE = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}


def uri() -> str:
    """Return MLFLOW_TRACKING_URI, else the project's own database, in one spelling."""
    given = os.environ.get("MLFLOW_TRACKING_URI") or _project_uri()
    if given.startswith(SQLITE):
        _, mark, options = given.partition("?")
        return database.sqlite_uri(database_path(given)) + mark + options
    return given.rstrip("/")


def _project_uri() -> str:
    return database.sqlite_uri(places.home() / "mlflow.db")


def is_project_home() -> bool:
    """Return whether the store is the project's own home, and no other that was named."""
    return uri() == _project_uri()


def is_unmade() -> bool:
    """Return whether the store is an SQLite database that is not there: no run is in it.

    What only reads does without MLflow then, and makes none.
    """
    return uri().startswith(SQLITE) and not database_path(uri()).exists()


def read_links(tags: Mapping[str, str], kind: str) -> list[str]:
    """Return the runs (REUSED) or studies (STUDIED) that the tags of a run name.

    Older runs have a tag for each: `reused.ID`.
    """
    older = [key.removeprefix(f"{kind}.") for key in tags if key.startswith(f"{kind}.")]
    keys = [key for key in tags if re.fullmatch(rf"{kind}(_\d+)?", key)]
    keys.sort(key=lambda key: (len(key), key))
    return list(dict.fromkeys([*older, *(name for key in keys for name in tags[key].split())]))


def link_tags(kind: str, names: Sequence[str]) -> dict[str, str]:
    """Return the tags that name these, few as there are: `reused`, `reused_2`, ..."""
    parts = [names[i : i + NAMES_A_TAG] for i in range(0, len(names), NAMES_A_TAG)]
    return {f"{kind}_{i + 1}" if i else kind: " ".join(part) for i, part in enumerate(parts)}


def display_uri() -> str:
    """Return the store as people may read it: without a password."""
    return without_password(uri())


def home() -> Path:
    """Return the folder of journals, locks and artifacts: an SQLite database's, else our own."""
    if uri().startswith(SQLITE):
        return database_path(uri()).parent
    return places.home()


def announce_home() -> None:
    """Say where runs go if that folder is new, and the current one's because no other was named."""
    is_chosen = places.is_checkout() or places.HOME in os.environ
    if is_project_home() and not is_chosen and not home().exists():
        print(
            f"Runs are recorded in {home()}; set {places.HOME} to choose another folder.",
            file=sys.stderr,
        )


def client(where: str | None = None) -> Any:
    """Return the MLflow client of the present store, which is created under a lock if it is new."""
    mlflow_client = _client(where or uri())
    import mlflow  # only now: it reads the environment when it is imported

    if mlflow.get_tracking_uri() != (where or uri()):  # this process's last store was another
        mlflow.set_tracking_uri(where or uri())
    return mlflow_client


@functools.cache
def _client(where: str) -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # stdout is for our documents
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    retries = os.environ.get(RETRIES_VARIABLE)
    os.environ[RETRIES_VARIABLE] = retries or "2"  # a wrong address is soon said to be one
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    warnings.filterwarnings("ignore", "IProgress not found")  # a notebook shows its bars as text
    import mlflow

    for name in ("mlflow", "alembic"):  # a newcomer need not read of migrations and monitors
        logging.getLogger(name).setLevel(logging.WARNING)
    # a locked or full database: raised as well, and said by us in a sentence
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    from sqlalchemy.exc import OperationalError, SQLAlchemyError

    try:
        _check_connection(where)
        if not database.is_made_here(where, is_project_home()):
            database.check_revision(where)
        announce_home()
        with files.lock(home() / "live", "database"):
            if where.startswith(SQLITE):
                database.prepare(where, is_project_home())
            mlflow.set_tracking_uri(where)
            mlflow_client = mlflow.MlflowClient(tracking_uri=where)
            mlflow_client.search_experiments(max_results=1)
    except ImportError as error:
        raise missing_driver(where, error) from error
    except (mlflow.MlflowException, SQLAlchemyError, sqlite3.Error, OSError) as error:
        if isinstance(error, mlflow.MlflowException):
            is_mistake = error.error_code == "INVALID_PARAMETER_VALUE"
        else:  # an address that is right may answer later
            is_mistake = not isinstance(
                error, OSError | OperationalError | sqlite3.OperationalError
            )
        raise (UserError if is_mistake else Unavailable)(
            f"The tracking store must be reachable. Received: {display_uri()}: "
            f"{short(error).replace(where, display_uri())}. Check MLFLOW_TRACKING_URI."
        ) from error
    os.environ[RETRIES_VARIABLE] = retries or "3"  # one that has answered will again: wait a little
    return mlflow_client


def _check_connection(where: str) -> None:
    """Raise OSError, within seconds, if a server takes no connection: MLflow tries for minutes."""
    from requests.utils import get_environ_proxies, select_proxy  # MLflow asks a server by requests

    try:
        parts = urlsplit(where)
        scheme = parts.scheme.partition("+")[0]
        port = parts.port or PORTS.get(scheme)
    except ValueError as error:
        raise UserError(
            f"The tracking store must be an address. Received: {display_uri()}: {error}. Check "
            "MLFLOW_TRACKING_URI."
        ) from error
    proxy = scheme in ("http", "https") and select_proxy(where, get_environ_proxies(where))
    if parts.hostname and port and not proxy:
        socket.create_connection((parts.hostname, port), database.CONNECT_TIMEOUT_S).close()


@contextlib.contextmanager
def lock(name: str, waiting: str = "") -> Iterator[IO[str]]:
    """Let one process of this store at a time into the block, as `files.lock` does.

    A store that is refused gets no folder beside it.
    """
    client()
    with files.lock(home() / "live", name, waiting) as file:
        yield file


@functools.cache
def experiment(where: str, name: str) -> str:
    """Return the id of the experiment of that name, created if it is not there.

    Where another program has one of the name, ours has the ending OURS.
    """
    import mlflow

    entity = client(where).get_experiment_by_name(name)
    if entity is not None and not is_ours(entity) and not name.endswith(OURS):
        return experiment(where, name + OURS)
    if entity is None:
        on_server = where.startswith("http")  # a server has its own place
        artifacts = None if on_server else (home() / database.ARTIFACTS).as_uri()
        try:
            client(where).create_experiment(name, artifacts, dict([MADE_BY]))
        except mlflow.MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
        entity = client(where).get_experiment_by_name(name)
    if entity.lifecycle_stage == "deleted":
        client(where).restore_experiment(entity.experiment_id)
    return str(entity.experiment_id)


def is_ours(experiment: Any) -> bool:
    """Return whether the project has made an experiment, and may write views and notes into it."""
    return is_project_home() or experiment.tags.get(MADE_BY[0]) == MADE_BY[1]


def artifact(run_id: str, path: str) -> bytes | None:
    """Return one artifact of a run; None if there is none of that path."""
    from mlflow.artifacts import download_artifacts

    folder = str(PurePosixPath(path).parent)
    listed = client().list_artifacts(run_id, None if folder == "." else folder)
    if path not in {each.path for each in listed}:
        return None
    with tempfile.TemporaryDirectory() as place:
        copy = download_artifacts(
            run_id=run_id, artifact_path=path, dst_path=place, tracking_uri=uri()
        )
        return Path(copy).read_bytes()


def top_files(location: str) -> Any:
    """Return what MLflow finds directly below a place of artifacts; empty if nothing is there."""
    from mlflow.artifacts import list_artifacts

    return list_artifacts(artifact_uri=location, tracking_uri=uri())


def download(location: str, folder: Path) -> Path:
    """Copy what is at a place of artifacts into a folder; where that is."""
    from mlflow.artifacts import download_artifacts

    copy = download_artifacts(artifact_uri=location, tracking_uri=uri(), dst_path=str(folder))
    return Path(copy)


def is_away(error: Exception) -> bool:
    """Return whether an error says that the store is locked, full or away."""
    if "mlflow" not in sys.modules or not isinstance(error, unavailable()):
        return False
    unanswered = str(error).startswith("API request to ")
    return unanswered or getattr(error, "error_code", "") == "TEMPORARILY_UNAVAILABLE"


def unavailable() -> type[Exception]:
    """Return what MLflow raises when its store is locked, full or away."""
    import mlflow

    error: type[Exception] = mlflow.MlflowException
    return error


def is_server() -> bool:
    """Return whether the runs are on a tracking server, which has a UI of its own."""
    return uri().startswith("http")
