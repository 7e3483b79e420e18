"""Runs that are over and only have to be written down: the settings of a sweep, one run each.

MLflow's client writes them one after another, at tens of milliseconds a run. A database whose
tables database.py knows takes a list of them in one transaction, all or none, and then holds
exactly what the client would have written: tests/tracking/test_bulk.py compares the two.
"""

import operator
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipelines.runtime import heartbeat, provenance
from pipelines.tracking import store, tracked_run

Point = tuple[int, int, float, bool]  # step, milliseconds since 1970, value, or 0 where it is NaN
TEXT_COLUMNS = ("run_uuid", "key", "value")  # columns, in the order of the rows
POINT_COLUMNS = ("run_uuid", "key", "step", "timestamp", "value", "is_nan")
POINT_ORDER = operator.itemgetter(2, 3, 4)  # of a curve, the greatest by step, time and value


@dataclass(frozen=True)
class FinishedRun:
    """A run that is over, with curves over integer steps; its points are dated to its end."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    steps: Sequence[int]  # [k], of every curve
    curves: Mapping[str, ArrayLike]  # by metric; [k] each
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class RunRecord:
    """A run as the tables hold it, with its id, its status and a date for every point."""

    run_id: str
    name: str
    status: str
    start_ms: int
    end_ms: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    curves: Mapping[str, Sequence[Point]]


def write(experiment: str, runs: Sequence[FinishedRun], parent_id: str | None) -> list[str]:
    """Write the runs, FINISHED, below their parent, with the tags of every child; their ids.

    Raise what `store.unavailable()` names: before it writes, for a name that MLflow refuses; for
    a store that is locked, full or away, when a database holds none of the runs and any other
    store those that were sent. Raise ValueError for a curve that has not one value a step.
    """
    experiment_id = store.experiment(store.uri(), experiment)
    checked = _normalize(runs, parent_id)
    database = store.sql_store()
    if database is None:
        return [_send(experiment, experiment_id, run) for run in checked]
    records = _assign_ids(checked)
    insert(database, experiment_id, records)
    return [each.run_id for each in records]


def analyze() -> None:
    """Tell SQLite how its tables have grown; call it once, when a sweep has been recorded.

    The UI then sorts 50,000 runs by a metric in a second, not in minutes. PostgreSQL needs no call.
    """
    database = store.sql_store()
    if database is not None and database.db_type == "sqlite":
        with database.ManagedSessionMaker(read_only=False) as session:
            for statement in ("PRAGMA analysis_limit = 1000", "ANALYZE"):
                session.connection().exec_driver_sql(statement)


def _normalize(runs: Iterable[FinishedRun], parent_id: str | None) -> list[FinishedRun]:
    """Return the runs as MLflow keeps them: all tags, long values cut. Raise for bad names."""
    from mlflow.utils.validation import _validate_param, _validate_tag

    def texts(validate: Any, values: Mapping[str, Any]) -> dict[str, str]:
        return {key: validate(key, str(value)).value for key, value in values.items()}

    links = {store.PARENT: parent_id} if parent_id else {}
    shared = texts(_validate_tag, {**provenance.tags(), **links, "kind": "setting"})
    return [
        replace(
            run,
            params=texts(_validate_param, run.params),
            tags=shared | texts(_validate_tag, {**run.tags, "mlflow.runName": run.name}),
            steps=[operator.index(step) for step in run.steps],
            curves=_arrays(run),
        )
        for run in runs
    ]


def _arrays(run: FinishedRun) -> dict[str, NDArray[np.float64]]:
    from mlflow.utils.validation import _validate_metric

    arrays = {metric: np.asarray(values, np.float64) for metric, values in run.curves.items()}
    for metric, values in arrays.items():
        _validate_metric(metric, 0.0, run.end_ms, 0)
        if values.shape != (len(run.steps),):
            raise ValueError(
                f"A curve must have one value a step. Received: {metric} of shape {values.shape} "
                f"over {len(run.steps)} steps, in {run.name}. Give an array of shape [k]."
            )
    return arrays


def _send(experiment: str, experiment_id: str, run: FinishedRun) -> str:
    """Write a run through MLflow's client; a journal closes it if this process is killed."""
    from mlflow.entities import Param

    to = store.client()
    tags = heartbeat.tags() | dict(run.tags)
    run_id = str(to.create_run(experiment_id, run.start_ms, tags, run.name).info.run_id)
    with tracked_run.track(run.name, experiment=experiment, kind="setting", resume=run_id) as sent:
        to.log_batch(run_id, params=[Param(key, value) for key, value in run.params.items()])
        sent.outbox.add_numbers(
            [
                (metric, value, step, run.end_ms)
                for metric, values in run.curves.items()
                for step, value in zip(run.steps, np.asarray(values).tolist(), strict=True)
            ]
        )
    to.set_terminated(run_id, "FINISHED", run.end_ms)  # `track` has dated the end to now
    return run_id


def _assign_ids(runs: Sequence[FinishedRun]) -> list[RunRecord]:
    """Return runs as the tables hold them; ids in order of time are appended to the indices."""
    now = time.time_ns()
    return [
        RunRecord(
            run_id=f"{now + i:016x}{secrets.token_hex(8)}",
            name=run.name,
            status="FINISHED",
            start_ms=run.start_ms,
            end_ms=run.end_ms,
            params=run.params,
            tags=run.tags,
            curves=_curves(run),
        )
        for i, run in enumerate(runs)
    ]


def _curves(run: FinishedRun) -> dict[str, list[Point]]:
    curves = {}
    for metric, curve in run.curves.items():
        numbers, nan = np.nan_to_num(curve).tolist(), np.isnan(curve).tolist()
        dates = [run.end_ms] * len(run.steps)
        curves[metric] = list(zip(run.steps, dates, numbers, nan, strict=True))
    return curves


def insert(database: Any, experiment_id: str, runs: Sequence[RunRecord]) -> None:
    """Fill the tables as MLflow's SqlAlchemyStore does in create_run and log_batch: all or none."""
    if not runs:
        return
    root = database.get_experiment(experiment_id).artifact_location
    rows = [_run_row(run, experiment_id, root) for run in runs]
    points, latest = [], []  # equal points once; of each curve the latest
    for run in runs:
        for metric, curve in run.curves.items():
            of_curve = [(run.run_id, metric, *point) for point in dict.fromkeys(curve)]
            points += of_curve
            latest += [max(of_curve, key=POINT_ORDER)] if of_curve else []
    tables = {  # the others refer to the first
        "runs": (rows[0].keys(), [tuple(row.values()) for row in rows]),
        "tags": (TEXT_COLUMNS, _text_rows((run.run_id, run.tags) for run in runs)),
        "params": (TEXT_COLUMNS, _text_rows((run.run_id, run.params) for run in runs)),
        "metrics": (POINT_COLUMNS, points),
        "latest_metrics": (POINT_COLUMNS, latest),
    }
    mark = "?" if database.db_type == "sqlite" else "%s"
    with database.ManagedSessionMaker(read_only=False) as session:
        for table, (columns, tuples) in tables.items():
            if tuples:  # by the driver: SQLAlchemy would look through a dict a row
                values = f"({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"
                session.connection().exec_driver_sql(f"INSERT INTO {table} {values}", tuples)


def _run_row(run: RunRecord, experiment_id: str, root: str) -> dict[str, Any]:
    from mlflow.utils.uri import append_to_uri_path

    return {
        "run_uuid": run.run_id,
        "name": run.name,
        "experiment_id": int(experiment_id),
        "artifact_uri": append_to_uri_path(root, run.run_id, "artifacts"),
        "user_id": run.tags.get("mlflow.user", "unknown"),
        "status": run.status,
        "lifecycle_stage": "active",
        "start_time": run.start_ms,
        "end_time": run.end_ms,
        "source_type": "UNKNOWN",
        **dict.fromkeys(("source_name", "source_version", "entry_point_name"), ""),
    }


def _text_rows(texts: Iterable[tuple[str, Mapping[str, str]]]) -> list[Any]:
    return [(run_id, *pair) for run_id, pairs in texts for pair in pairs.items()]
