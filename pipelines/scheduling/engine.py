"""DBOS: workflows whose steps are kept in a database, so that a kill repeats none that is done.

The database is `schedule.db` beside the runs, or PostgreSQL where several machines share jobs. What
DBOS writes there is JSON. A row may name DBOS's pickles instead, whoever wrote it: the class by
which DBOS reads them (`dbos._serialization.DefaultSerializer`) refuses them here.
DBOS at the top: import this module inside the functions that need it.
"""

import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from dbos import DBOS, DBOSClient, Serializer
from dbos._serialization import DefaultSerializer

from pipelines.errors import Unavailable, UserError, disk_error, short, without_password
from pipelines.runtime import files, heartbeat
from pipelines.tracking import store
from pipelines.tracking.database import sqlite_uri

POLL_S = 5.0  # between two reads of the jobs, which may be added or changed
LISTEN_S = 30.0  # between two reads of a server for messages, of which we send none
END_S = 0.5  # the same of a command: DBOS ends only after such a read
CONNECT_S = 5  # time that a server has to answer
SCHEDULE = "near-identity"  # the application whose processes run jobs at their times


@sql.event.listens_for(sql.Engine, "connect")
def _add_unixepoch(connection: Any, _: Any) -> None:
    """Give SQLite before 3.42 what DBOS asks of it for the time in milliseconds.

    It is `unixepoch('subsec')`, which is NULL there; DBOS asks for it from Python 3.12 on.
    """
    if isinstance(connection, sqlite3.Connection) and sqlite3.sqlite_version_info < (3, 42):
        connection.create_function("unixepoch", 1, lambda _: time.time())


def _refuse_pickle(cls: DefaultSerializer, serialized_data: str) -> Any:
    raise TypeError("py_pickle is not read, for it may run code.")


DefaultSerializer.deserialize = _refuse_pickle  # type: ignore[method-assign]


class Json(Serializer):
    """Serialize what DBOS keeps as JSON, times and errors too."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=_encode)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data, object_hook=_decode)


def _encode(value: Any) -> dict[str, str]:
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, BaseException):
        return {"error": f"{type(value).__name__}: {value}"}
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON.")


def _decode(value: dict[str, Any]) -> Any:
    if value.keys() == {"datetime"}:
        return datetime.fromisoformat(value["datetime"])
    if value.keys() == {"error"} and isinstance(value["error"], str):
        return RuntimeError(value["error"])
    return value


def database_url(storage: str | None = None) -> str:
    """Return the address of the database, the same from any folder.

    It is `storage`, else SCHEDULE_STORAGE, else schedule.db beside the tracking database. Raise
    UserError for what is no address, or a database in memory, which other processes do not see.
    """
    address = storage or os.environ.get("SCHEDULE_STORAGE")
    if not address:
        return sqlite_uri(store.home() / "schedule.db")
    try:
        url = sql.make_url(address)
    except (sql.exc.ArgumentError, ValueError) as error:
        raise _database_error(address, error) from error
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    elif url.get_backend_name() != "sqlite":
        raise _database_error(address, ValueError(f"a database of {url.get_backend_name()}"))
    elif url.database in (None, "", ":memory:"):
        raise _database_error(address, ValueError("a database in memory"))
    else:
        url = url.set(database=str(files.user_path(str(url.database)).resolve()))
    return url.render_as_string(hide_password=False)


def _database_error(storage: str, error: Exception) -> UserError | Unavailable:
    kind = disk_error(error) if isinstance(error, OSError) else UserError
    return (Unavailable if isinstance(error, sql.exc.OperationalError) else kind)(
        "The schedule needs a database that answers: sqlite:///FILE or postgresql://... "
        f"Received: {without_password(storage)}: {short(error)}. Move away a file that is no "
        "schedule, or name another database with --storage."
    )


@contextmanager
def open_client(storage: str | None = None) -> Iterator[DBOSClient]:
    """Open the database to read or change what is scheduled.

    Raise Unavailable if no database answers, UserError if none can.
    """
    url = _prepare_database(storage)
    client = DBOSClient(
        system_database_url=url,
        serializer=Json(),
        application_name=SCHEDULE,
        retry_connection_errors=False,
    )
    try:
        yield client
    except sql.exc.DatabaseError as error:
        raise _database_error(url, error) from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(
            "A schedule's rows must be as DBOS wrote them. Received: one that is no JSON, in "
            f"{without_password(url)}: {short(error)}. Restore a copy, or name another with "
            "--storage."
        ) from error
    finally:
        client.destroy()


@contextmanager
def serve_workflows(application: str, storage: str | None = None) -> Iterator[None]:
    """Run workflows in this process for as long as the block lasts.

    The schedules of one application are served by its processes alone.
    """
    url = _prepare_database(storage)
    listen_s = LISTEN_S if application == SCHEDULE else END_S
    DBOS(
        config={
            "name": application,
            "system_database_url": url,
            "application_version": application,  # whatever the code, it goes on with what was begun
            "executor_id": ", ".join(
                [
                    heartbeat.machine(),
                    heartbeat.process_name(os.getpid()),
                    sql.make_url(url).get_backend_name(),
                ]
            ),
            "serializer": Json(),
            "scheduler_polling_interval_sec": POLL_S,
            "notification_listener_polling_interval_sec": listen_s,
        }
    )
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


def reason_dead(executor: str, beat: float) -> str | None:
    """Return why the process of that executor id must have ended; None if it may live.

    `beat` is its last sign of life, in seconds since 1970: all that is known of another machine's.
    A database in SQLite is one machine's, which may have been started again since.
    """
    if executor.count(", ") != 2:  # no process of ours
        return None
    machine, process, kind = executor.split(", ")
    (host, *boot), (our_host, *our_boot) = machine.split(" "), heartbeat.machine().split(" ")
    if kind == "sqlite" and host == our_host and boot[:1] != our_boot[:1]:
        return "its machine has been started again"
    return heartbeat.reason_dead(
        {heartbeat.MACHINE: machine, heartbeat.PROCESS: process, heartbeat.HEARTBEAT: str(beat)}
    )


def _prepare_database(storage: str | None) -> str:
    """Return the address of the database; a new one gets its tables."""
    url = database_url(storage)
    logging.getLogger("dbos").handlers = [logging.NullHandler()]  # the history has what fails
    store.announce_home()
    try:
        with files.lock(store.home() / "live", "schedule"):  # two would create them
            if _is_new(url):
                DBOS.migrate(url)
    except (sql.exc.SQLAlchemyError, OSError) as error:
        raise _database_error(url, error) from error
    return url


def _is_new(storage: str) -> bool:
    """Return whether a database has no tables of DBOS; UserError for a file of something else."""
    url = sql.make_url(storage)
    is_file = url.get_backend_name() == "sqlite"
    if is_file:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = sql.create_engine(url, connect_args={} if is_file else {"connect_timeout": CONNECT_S})
    try:
        tables = sql.inspect(engine).get_table_names(schema=None if is_file else "dbos")
        if tables and is_file and "dbos_migrations" not in tables:
            raise _database_error(storage, ValueError(f"a file with tables of others: {tables[0]}"))
        return "dbos_migrations" not in tables
    finally:
        engine.dispose()
