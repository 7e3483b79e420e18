"""MLflow's own tables, where they are those known here: `append` fills them with numbers.

MLflow's client takes 55 ms of the processor for 1,000 numbers, which a training beside it feels.
What is written here is what the client would have written: tests/test_schema.py compares the two.
"""

import functools
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

from pipelines import live, store

REVISION = "dc11669786a5"  # of the tables of MLflow 3.17.2, as their alembic_version says
DIALECTS = ("sqlite", "postgresql")
LATEST = operator.itemgetter("step", "timestamp", "value")  # of a curve, the greatest

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


def append(database: Any, run_id: str, numbers: Sequence[live.Number]) -> bool:
    """Write numbers into a run as MLflow's log_batch does, equal ones once; False: it is deleted.

    Each metric's latest point is the greatest by step, time and value.
    """
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlRun
    from sqlalchemy import select

    run, insert = SqlRun.__table__.c, _insert(database)
    rows = [_row(run_id, number) for number in numbers]
    newest = {row["key"]: row for row in sorted(rows, key=LATEST)}
    with database.ManagedSessionMaker(read_only=False) as session:
        stage = session.scalar(select(run.lifecycle_stage).where(run.run_uuid == run_id))
        if stage != "active":
            return False
        session.execute(insert(SqlMetric.__table__).on_conflict_do_nothing(), rows)
        session.execute(_or_newer(insert(SqlLatestMetric.__table__)), list(newest.values()))
    return True


def _row(run_id: str, number: live.Number) -> dict[str, Any]:
    """As MLflow keeps a number: NaN as a marked 0, infinity as the largest number."""
    metric, value, step, date_ms = number
    nan, most = math.isnan(value), sys.float_info.max
    return {
        "run_uuid": run_id,
        "key": metric,
        "step": step,
        "timestamp": date_ms,
        "value": 0.0 if nan else max(-most, min(most, value)),
        "is_nan": nan,
    }


def _insert(database: Any) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT."""
    from sqlalchemy.dialects import postgresql, sqlite

    return postgresql.insert if database.db_type == "postgresql" else sqlite.insert


def _or_newer(statement: Any) -> Any:
    """Replace a metric's latest point by a later one only."""
    from sqlalchemy import tuple_

    new, old = statement.excluded, statement.table.c
    later = tuple_(new.step, new.timestamp, new.value) > tuple_(old.step, old.timestamp, old.value)
    return statement.on_conflict_do_update(
        index_elements=[old.key, old.run_uuid],
        set_={name: new[name] for name in ("step", "timestamp", "value", "is_nan")},
        where=later,
    )
