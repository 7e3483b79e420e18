"""Optuna's tables in a database: made once, and on SQLite written by one process at a time."""

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import live, store
from pipelines.errors import UserError, disk_error, without_password

ANSWER_S = 5.0
BUSY_S = 60.0  # that a process waits for the others' turns at an SQLite database
LIMITED = {"psycopg2", "psycopg", "pymysql", "mysqldb"}  # drivers with a limit to connecting
TRIES = 5  # machines that make the tables at one moment stumble over one another
shown = without_password  # of a storage's URL


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its log, and within the block without its word on what is experimental."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def opened(url: str) -> Any:
    """The storage in a database, whose tables one local process at a time makes."""
    if not url.startswith(store.SQLITE):
        return _made(url, {"pool_pre_ping": True, "connect_args": _limit(url)})
    path = Path(url.removeprefix(store.SQLITE))
    make_folder(path.parent)
    with live.locked(path.parent, path.name):
        found = _made(url, {"connect_args": {"timeout": BUSY_S}})
        _take_turns(found.engine)
    return found


def make_folder(folder: Path) -> None:
    """Make the folder of a storage. UserError or Unavailable where no file can be made there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise disk_error(error)(
            f"The folder of a storage must be writable. Received: {folder}: {error.strerror}. "
            "Change its permissions, or choose another with --storage or OPTUNA_STORAGE."
        ) from error


def _limit(url: str) -> dict[str, float]:
    """A server that takes the connection and then is silent is not waited for."""
    from sqlalchemy import make_url

    limited = make_url(url).get_dialect().driver in LIMITED
    return {"connect_timeout": int(ANSWER_S)} if limited else {}


def _made(url: str, options: dict[str, Any]) -> Any:
    """Optuna's tables at the URL, made anew where there are none; those of others stay."""
    _refuse_others(url, options)
    return _tried(url.replace("{", "{{").replace("}", "}}"), options, TRIES)  # Optuna's template


def _tried(template: str, options: dict[str, Any], tries: int) -> Any:
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    try:
        return RDBStorage(template, engine_kwargs=options)
    except (IntegrityError, ProgrammingError):  # another machine was faster
        if tries == 1:
            raise
    time.sleep(0.2)
    return _tried(template, options, tries - 1)


def _refuse_others(url: str, options: dict[str, Any]) -> None:
    """Optuna would take MLflow's table of versions for its own."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, **options)
    try:
        tables = set(sqlalchemy.inspect(engine).get_table_names())
    finally:
        engine.dispose()
    if "alembic_version" in tables and "version_info" not in tables:
        raise UserError(
            f"A storage must be a database of its own. Received: {shown(url)}, in which another "
            f"program has tables ({', '.join(sorted(tables)[:3])}). Name another with --storage."
        )


def _take_turns(engine: Any) -> None:
    """Let one process at a time do a transaction on an SQLite database, from its first reading on.

    Otherwise two workers read that an enqueued trial waits, and both take it: SQLite has no lock
    on a row. A write-ahead log makes turns short.
    """
    from sqlalchemy import event

    def relax(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we begin transactions, and not Python's sqlite3
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    event.listen(engine, "connect", relax)
    event.listen(engine, "begin", lambda each: each.exec_driver_sql("BEGIN IMMEDIATE"))
    engine.dispose()  # what has been opened without
