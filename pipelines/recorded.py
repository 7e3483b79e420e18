"""What is recorded of cells, read back in bulk: their curves, and which of them are finished.

From a database whose tables schema.py knows in one query each, else through MLflow's client.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import history, schema, store

Table = tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]
Point = tuple[str, str, int, int, float]  # run, metric, step, milliseconds since 1970, value
CHUNK = 500  # run ids a query


def curves(run_ids: Sequence[str]) -> dict[str, Table]:
    """Return the histories of runs: by run id, the steps [k], ascending, and by metric values [k].

    NaN where a metric lacks a step of another.
    """
    return {run_id: table(metrics) for run_id, metrics in histories(run_ids).items()}


def histories(run_ids: Sequence[str]) -> dict[str, dict[str, dict[int, float]]]:
    """Return by run id and metric the values by step.

    Of a step that was logged twice, the value that MLflow calls latest. Infinity, and the largest
    float64 that stands for it, come as infinity.
    """
    found: dict[str, dict[str, dict[int, float]]] = {run_id: {} for run_id in run_ids}
    for run_id, metric, step, _, value in points(run_ids):
        found[run_id].setdefault(metric, {})[step] = value
    return found


def points(run_ids: Sequence[str]) -> Iterator[Point]:
    """Yield every point of runs, of each step the latest last, with infinity as it was logged."""
    database = schema.sql_store()
    yield from _fetch(run_ids) if database is None else _select(database, run_ids)


def finished_anywhere(claim: str, code: str) -> dict[str, str]:
    """Return run ids by fingerprint, of the finished cells of a claim, by whatever code.

    Where a cell was measured more than once, that by this code, else the newest.
    """
    rows = history.everyones(kind="setting", claim=claim)
    best_last = sorted(rows, key=lambda row: (row.tags["code"] == code, row.start_ms))
    return {row.tags["fingerprint"]: row.id for row in best_last}


def finished(claim: str, code: str) -> dict[str, str]:
    """Return run ids by fingerprint, of the finished cells of a claim that this code measured here.

    Where a cell was measured more than once, the newest.
    """
    rows = reversed(history.rows(kind="setting", claim=claim, code=code))
    return {row.tags["fingerprint"]: row.id for row in rows}


def measured_s(rows: Iterable[history.Row]) -> float:
    """Return the seconds in which runs were measured; those at the same time share theirs."""
    seconds, until_ms = 0.0, 0
    for row in sorted(rows, key=lambda row: row.start_ms):
        end_ms = row.end_ms or row.start_ms
        seconds += max(0, end_ms - max(row.start_ms, until_ms)) / 1000
        until_ms = max(end_ms, until_ms)
    return seconds


def _select(database: Any, run_ids: Sequence[str]) -> Iterator[Point]:
    """Yield every point from the tables."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric
    from sqlalchemy import select

    t = SqlMetric.__table__.c
    query = select(t.run_uuid, t.key, t.step, t.timestamp, t.value, t.is_nan)
    query = query.order_by(t.timestamp, t.value)
    with database.ManagedSessionMaker() as session:
        for start in range(0, len(run_ids), CHUNK):
            some = query.where(t.run_uuid.in_(run_ids[start : start + CHUNK]))
            for *place, value, is_nan in session.execute(some):
                yield *place, history.number(None if is_nan else value)


def _fetch(run_ids: Sequence[str]) -> Iterator[Point]:
    """Yield the same through MLflow's client."""
    for run_id in run_ids:
        for metric in store.client().get_run(run_id).data.metrics:
            for point in store.client().get_metric_history(run_id, metric):
                value = history.number(point.value)
                yield run_id, metric, point.step, point.timestamp, value


def table(metrics: Mapping[str, Mapping[int, float]]) -> Table:
    """Return the steps [k], ascending, and the values [k] of metrics given by step."""
    steps = sorted(set[int]().union(*metrics.values()))
    found = {m: np.array([metrics[m].get(step, np.nan) for step in steps]) for m in sorted(metrics)}
    return np.array(steps, np.int64), found
