"""The database of a schedule: its tables, and the rows that say what became of every tick.

SQLAlchemy at the top: import this module inside the functions that need it.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from pipelines import alive, attempted, live, store
from pipelines.errors import (
    Unavailable,
    UserError,
    disk_error,
    missing_driver,
    short,
    without_password,
)
from pipelines.jobs import Job

QUEUED, RUNNING = "queued", "running"
ENDED = RAN, FAILED, KILLED = (attempted.RAN, attempted.FAILED, attempted.KILLED)
MISSED, SKIPPED = "missed", "skipped"

METADATA = sql.MetaData()
TICKS = sql.Table(
    "ticks",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("job", sql.String(60), nullable=False),
    sql.Column("tick", sql.Float(53), nullable=False),  # seconds since 1970, all of these
    sql.Column("until", sql.Float(53), nullable=False),  # the last tick of a row of several
    sql.Column("ticks", sql.Integer, nullable=False, default=1),
    sql.Column("attempt", sql.Integer, nullable=False, default=1),
    sql.Column("by_hand", sql.Boolean, nullable=False, default=False),
    sql.Column("state", sql.String(10), nullable=False),
    sql.Column("why", sql.Text, nullable=False, default=""),
    sql.Column("due", sql.Float(53)),  # before that a queued row is not started
    sql.Column("started", sql.Float(53)),
    sql.Column("ended", sql.Float(53)),
    sql.Column("beat", sql.Float(53)),  # the supervisor's last sign of life
    sql.Column("process", sql.String(100)),  # the supervisor, as alive.py names it
    sql.Column("machine", sql.String(300)),
    sql.Column("folder", sql.Text),
    sql.Column("code", sql.Integer),  # the command's exit code
    sql.Column("run_id", sql.String(64)),
    sql.Column("definition", sql.Text, nullable=False),  # the job as it was then
    sql.UniqueConstraint("job", "tick", "attempt"),
)
_RUNS = TICKS.c.state == RUNNING
sql.Index(  # of one job no two attempts run, whoever starts them
    "one_attempt_at_a_time", TICKS.c.job, unique=True, sqlite_where=_RUNS, postgresql_where=_RUNS
)
SERVERS = sql.Table(  # one row: who serves
    "servers",
    METADATA,
    sql.Column("pid", sql.Integer, nullable=False),
    sql.Column("host", sql.String(300), nullable=False),
    sql.Column("since", sql.Float(53), nullable=False),
)


@dataclass(frozen=True)
class Tick:
    """A row of the table."""

    id: int
    job: Job
    tick: float
    until: float
    ticks: int
    attempt: int
    by_hand: bool
    state: str
    why: str
    due: float | None
    started: float | None
    ended: float | None
    beat: float | None
    process: str | None
    machine: str | None
    folder: str | None
    code: int | None
    run_id: str | None

    @property
    def wall_s(self) -> float:
        """Seconds that the attempt has taken, until now if it is not over."""
        return (self.ended or time.time()) - self.started if self.started else 0.0

    def dead(self, one_machine: bool = False) -> str | None:
        """Why the supervisor of an attempt must have ended; None where it may live.

        Where the schedule is of `one_machine`, what ran before it was started again is over.
        """
        if self.process is None or self.machine is None:
            return "it was not begun"
        (host, boot), (our_host, our_boot) = map(_booted, (self.machine, alive.machine()))
        if one_machine and host == our_host and boot != our_boot:
            return "its machine has been started again"
        tags = {alive.PROCESS: self.process, alive.MACHINE: self.machine}
        return alive.why_dead(tags | {alive.BEAT: str(self.beat)})


def _booted(machine: str) -> tuple[str, str]:
    """Host and boot of a machine, as alive.py names it."""
    host, _, rest = machine.partition(" ")
    return host, rest.partition(" ")[0]


def place(storage: str | None = None) -> str:
    """The address of a schedule's database, the same from any folder.

    As given, else SCHEDULE_STORAGE, else schedule.db beside the tracking database. UserError for
    what is no address, or a database in memory, which other processes do not see.
    """
    found = storage or os.environ.get("SCHEDULE_STORAGE")
    if not found:
        return f"sqlite:///{store.home() / 'schedule.db'}"
    try:
        url = sql.make_url(found)
    except sql.exc.ArgumentError as error:
        raise _unanswered(found, error) from error
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise _unanswered(found, ValueError("a database in memory"))
        url = url.set(database=str(Path(str(url.database)).resolve()))
    return url.render_as_string(hide_password=False)


def _unanswered(storage: str, error: Exception) -> UserError | Unavailable:
    kind = disk_error(error) if isinstance(error, OSError) else UserError
    return (Unavailable if isinstance(error, sql.exc.OperationalError) else kind)(
        "The schedule needs a database that answers: sqlite:///FILE or postgresql://... "
        f"Received: {without_password(storage)}: {short(error)}. Set --storage so."
    )


@contextmanager
def connected(storage: str) -> Iterator[Any]:
    """An SQLAlchemy engine of the schedule's database, with the table of ticks.

    Unavailable where no database answers, UserError where none can; what fails later is raised as
    it is.
    """
    try:
        engine = _engine(storage)
        with live.locked(store.home() / "live", "schedule"):  # two would make the tables
            METADATA.create_all(engine)
    except ImportError as error:
        raise missing_driver(storage, error) from error
    except (sql.exc.SQLAlchemyError, OSError) as error:
        raise _unanswered(storage, error) from error
    try:
        yield engine
    finally:
        engine.dispose()


def _engine(storage: str) -> Any:
    url = sql.make_url(storage)
    if url.get_backend_name() != "sqlite":
        return sql.create_engine(url, pool_pre_ping=True)
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = sql.create_engine(url, connect_args={"timeout": 30})
    with engine.connect() as connection, contextlib.suppress(sql.exc.OperationalError):
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")  # readers do not wait
    return engine


def select(engine: Any, *conditions: Any, most: int | None = None) -> list[Tick]:
    """Rows under conditions on TICKS, newest first."""
    query = sql.select(TICKS).where(*conditions).order_by(TICKS.c.tick.desc(), TICKS.c.id.desc())
    with engine.connect() as connection:
        return [_row(row) for row in connection.execute(query.limit(most))]


def get(engine: Any, row: int) -> Tick:
    """The row with that id."""
    (found,) = select(engine, TICKS.c.id == row)
    return found


def _row(row: Any) -> Tick:
    values = dict(row._mapping)
    del values["definition"]
    definition = json.loads(row.definition)
    return Tick(**values | {"job": Job(**definition | {"words": tuple(definition["words"])})})
