"""MLflow's databases: made, set up, and moved with their home; those of others are left alone.

The columns of MLflow's tables that hold places are written here, and nowhere else, by SQL: no
client of MLflow changes where the files of a run are.
"""

import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pipelines.errors import UserError, without_password
from pipelines.runtime import files, provenance

SQLITE = "sqlite:///"
MADE_BY = ("made_by", "near-identity")  # tag of the experiments that the project has created
CONNECT_TIMEOUT_S = 5
CACHE_KB = 65_536  # a database's cache: with the default, indices of many runs are reread
REVISION = "dc11669786a5"  # alembic_version of the tables of MLflow 3.17.2
ARTIFACTS = "artifacts"  # folder of runs' files, beside an SQLite database
LOCATION_COLUMNS = {  # the columns of MLflow's tables that hold places
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}


def sqlite_uri(path: Path) -> str:
    """Return the address of an SQLite database, as SQLAlchemy reads it: it decodes `%XX`.

    Where a path needs escapes its slashes are escaped too: MLflow, which does not decode, would
    make the folder whose name has the escapes.
    """
    escaped = "%" in str(path) or "?" in str(path)
    return SQLITE + (quote(str(path), safe="") if escaped else str(path))


def database_path(uri: str) -> Path:
    """Return the file of the SQLite database at an address; UserError if it names none."""
    if uri.startswith((f"{SQLITE}file:", f"{SQLITE}:memory:")):
        raise UserError(
            f"The address of an SQLite database must be {SQLITE}PATH. Received: {uri}, for which "
            "MLflow would make a folder of that name. Set MLFLOW_TRACKING_URI to the path."
        )
    return files.user_path(unquote(uri.removeprefix(SQLITE).partition("?")[0])).resolve()


def is_made_here(where: str, own_home: bool) -> bool:
    """Return whether the project has made the SQLite database at an address, or will make it.

    Of a database in the project's `own_home`, which earlier versions made without the tag, the
    place of artifacts says it.
    """
    if not where.startswith(SQLITE):
        return False
    path = database_path(where)
    if not path.exists():
        return True
    with contextlib.closing(_read(path)) as database:
        try:
            return bool(_find_tag(database)) or (
                own_home and _default_place(database).endswith(f"/{ARTIFACTS}")
            )
        except sqlite3.DatabaseError:  # it has no such tables, or is no database
            return False


def _read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)


def _find_tag(database: sqlite3.Connection) -> list[Any]:
    query = "SELECT 1 FROM experiment_tags WHERE experiment_id = 0 AND key = ? AND value = ?"
    return database.execute(query, MADE_BY).fetchall()


def _default_place(database: sqlite3.Connection) -> str:
    query = "SELECT artifact_location FROM experiments WHERE experiment_id = 0"
    return next((str(place) for (place,) in database.execute(query)), "")


def check_revision(where: str) -> None:
    """Raise UserError for a database whose tables MLflow would have to upgrade or to make.

    Its owner's MLflow could not open it afterwards. Made by MLflow are the tables of an empty one.
    """
    if where.startswith("http"):
        return
    import sqlalchemy as sql

    scheme = urlsplit(where).scheme.partition("+")[0]
    limited = scheme in ("postgresql", "mysql") and "connect_timeout" not in where
    options = {"connect_timeout": CONNECT_TIMEOUT_S} if limited else {}
    if where.startswith(SQLITE):  # read alone: a log that its writer left stays
        engine = sql.create_engine("sqlite://", creator=lambda: _read(database_path(where)))
    else:
        engine = sql.create_engine(where, poolclass=sql.NullPool, connect_args=options)
    with engine.connect() as connection:
        tables = sql.inspect(connection).get_table_names()
        query = sql.text("SELECT version_num FROM alembic_version")
        revision = connection.scalar(query) if "alembic_version" in tables else None
    engine.dispose()
    if tables and revision != REVISION:
        found = f"tables of revision {revision}" if revision else "other tables"
        version = f"{provenance.version('mlflow')} (revision {REVISION})"
        raise UserError(
            f"A database that is named must have the tables of MLflow {version}, or none. "
            f"Received: {without_password(where)}, with {found}. It is left as it is. Name another "
            "by MLFLOW_TRACKING_URI; or back it up, then run: mlflow db upgrade ADDRESS (an MLflow "
            "before this one cannot open it afterwards)."
        )


def prepare(where: str, own_home: bool) -> None:
    """Make an SQLite database that is not there, and set up one that the project made.

    It is made beside its place, then moved there: none is half made. A write-ahead log, which
    stays in force, lets readers and a writer not wait for one another; a commit then need not wait
    for the disk, for a crash of the machine alone could undo the last ones.
    """
    import mlflow
    from sqlalchemy import Engine, event

    path = database_path(where)
    if not event.contains(Engine, "connect", _set_pragmas):
        event.listen(Engine, "connect", _set_pragmas)
    if not is_made_here(where, own_home):
        return
    if not path.exists():
        with files.replace_whole(path) as half:
            mlflow.MlflowClient(tracking_uri=sqlite_uri(half)).set_experiment_tag("0", *MADE_BY)
    with contextlib.closing(sqlite3.connect(path, timeout=1)) as database:
        with contextlib.suppress(sqlite3.OperationalError):  # on a network's disk: slower without
            database.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(sqlite3.OperationalError), database:  # it may not be writable
            if not _find_tag(database):
                tag = "INSERT INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, 0)"
                database.execute(tag, MADE_BY)
            _follow_move(database, path.parent / ARTIFACTS)


def _set_pragmas(connection: Any, _: Any) -> None:
    """Set up a new connection to an SQLite database with a write-ahead log."""
    if isinstance(connection, sqlite3.Connection):
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal":
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")


def _follow_move(connection: sqlite3.Connection, place: Path) -> None:
    """Make the places in a database of the project those beside it, if it was moved or copied.

    Only if all files of its runs came along, or none is left where they were; this is printed.
    """
    before = _default_place(connection)
    if before in ("", place.as_uri()):
        return
    runs = connection.execute(
        "SELECT substr(artifact_uri, ?) FROM runs WHERE substr(artifact_uri, 1, ?) = ?",
        (len(before) + 2, len(before) + 1, f"{before}/"),
    ).fetchall()
    if runs:
        old = Path(unquote(urlsplit(before).path))
        left = [each for (name,) in runs if (old / (each := name.partition("/")[0])).is_dir()]
        if not (place.is_dir() and all((place / each).is_dir() for each in left)):
            return
        print(f"The files of runs are in {place} now; before, in {before}.", file=sys.stderr)
    for table, columns in LOCATION_COLUMNS.items():
        for column in columns:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - our names
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (place.as_uri(), len(before) + 1, before, len(before) + 1, f"{before}/"),
            )
