"""MLflow's own tables, where they are those known here: many runs are read and written at once."""

import functools
import sys
from typing import Any

from pipelines import store

REVISION = "dc11669786a5"  # of the tables of MLflow 3.17.2, as their alembic_version says
DIALECTS = ("sqlite", "postgresql")

Point = tuple[int, int, float, bool]  # step, milliseconds since 1970, value, or 0 where it is NaN


def sql_store() -> Any:
    """MLflow's own SQL store if its tables are those known here, else None: use the client."""
    store.client()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service.utils import _get_store
    from sqlalchemy import text

    found = _get_store(store.uri())
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
    known = f"revision {revision}, and pipelines/schema.py knows {REVISION}"
    print(f"The database has {known}: runs are written one by one, slowly.", file=sys.stderr)
