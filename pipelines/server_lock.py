"""One server a schedule: the lock that it holds, and who holds it.

SQLAlchemy at the top: import this module inside the functions that need it.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from pipelines.errors import Unavailable, UserError, short, without_password
from pipelines.timetable import SERVERS

ADVISORY = 0x6E656172  # the lock of a schedule on PostgreSQL


@contextmanager
def sole(engine: Any, storage: str) -> Iterator[Any]:
    """Be the only server of a schedule for as long as the block lasts; a check that one still is.

    The lock goes with the process, however that ends.
    """
    lock = _file_lock if engine.dialect.name == "sqlite" else _server_lock
    with lock(engine) as (held, check):
        if not held:
            raise _refused(engine, storage)
        with engine.begin() as connection:
            own = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            connection.execute(sql.delete(SERVERS))
            connection.execute(sql.insert(SERVERS).values(own))
        yield check


@contextmanager
def _file_lock(engine: Any) -> Iterator[tuple[bool, Any]]:
    with Path(f"{engine.url.database}.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False, None
            return
        yield True, lambda: None


@contextmanager
def _server_lock(engine: Any) -> Iterator[tuple[bool, Any]]:
    """A lock of PostgreSQL that is the connection's."""
    if engine.dialect.name != "postgresql":
        raise UserError(
            "A schedule is served from SQLite or PostgreSQL. Received: a database of "
            f"{engine.dialect.name}. Set --storage to one of these."
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        held = connection.execute(sql.select(sql.func.pg_try_advisory_lock(ADVISORY))).scalar()

        def check() -> None:
            try:
                connection.execute(sql.select(1))
            except sql.exc.SQLAlchemyError as error:
                raise Unavailable(
                    "A server must keep its lock. Received: a lost connection to its database: "
                    f"{short(error)}. Serve again when the database answers."
                ) from error

        try:
            yield bool(held), check
        finally:  # the connection itself goes back to its pool
            with contextlib.suppress(sql.exc.SQLAlchemyError):
                connection.execute(sql.select(sql.func.pg_advisory_unlock_all()))


def _refused(engine: Any, storage: str) -> Unavailable:
    with engine.connect() as connection:
        row = connection.execute(sql.select(SERVERS)).first()
    who = (
        f"process {row.pid} on {row.host}, since {datetime.fromtimestamp(row.since):%Y-%m-%d %H:%M}"
        if row
        else "another process"
    )
    return Unavailable(
        f"A schedule is served by one process. Received: {without_password(storage)}, which {who} "
        "serves. Stop that one first, or leave it: it sees every change within a second."
    )
