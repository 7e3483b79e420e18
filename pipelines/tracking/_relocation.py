"""Artifacts of runs: found beside their database, wherever both are copied or moved to.

MLflow keeps absolute places. In an SQLite database of ours the place of its Default experiment says
where its artifacts were when it was last opened: all places below that one follow a move.
"""

import contextlib
import sqlite3
from pathlib import Path

FOLDER = "artifacts"  # of runs, beside an SQLite database
PLACES = {  # the columns of MLflow's tables that hold places
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "logged_models": ("artifact_location",),
    "model_versions": ("source", "storage_location"),
}


def follow_move(database: Path) -> None:
    """Make the places of an SQLite database those beside it, if it has been copied or moved.

    A database that cannot be written keeps the places that it has.
    """
    place = (database.parent / FOLDER).as_uri()
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(database)) as connection,
        connection,
    ):
        before = _known_place(connection)
        if before == place:
            return
        for table, columns in PLACES.items() if before else ():
            for column in columns:
                _replace_beginning(connection, table, column, (before, place))
        own = "UPDATE experiments SET artifact_location = ? WHERE experiment_id = 0"
        connection.execute(own, (place,))


def _known_place(connection: sqlite3.Connection) -> str:
    """Where the artifacts were; empty in a database that was never ours."""
    query = "SELECT artifact_location FROM experiments ORDER BY experiment_id"
    places = [str(place) for (place,) in connection.execute(query)]
    ours = [each for each in places if each.startswith("file:") and each.endswith(f"/{FOLDER}")]
    return ours[0] if ours else ""


def _replace_beginning(
    connection: sqlite3.Connection, table: str, column: str, change: tuple[str, str]
) -> None:
    """Let the places at or below one folder be at or below another."""
    before, after = change
    connection.execute(
        f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - names of PLACES
        f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
        (after, len(before) + 1, before, len(before) + 1, f"{before}/"),
    )
