"""What MLflow is told of a run: numbers, tags, params, data sets and files."""

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines import live, schema, store

BATCH = 1_000  # metrics a request; MLflow's limit
TEXTS = 100  # params or tags a request
HALF = "half."  # begins the name of a file that is being written


@functools.cache
def check_name(metric: str) -> None:
    """Raise what MLflow says of a name that it refuses."""
    store.client()
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric)


def send(run_id: str, numbers: Sequence[live.Number]) -> None:
    """Write numbers into a run; at most BATCH of them."""
    database = schema.sql_store()
    if database is not None and schema.append(database, run_id, numbers):
        return
    from mlflow.entities import Metric

    metrics = [Metric(key, value, when, step) for key, value, step, when in numbers]
    store.client().log_batch(run_id, metrics=metrics)


def send_fact(run_id: str, kind: str, value: Any) -> None:
    """Write tags, params or a data set into a run."""
    if kind == "dataset":
        _send_dataset(run_id, value)
        return
    from mlflow.entities import Param, RunTag

    make: Any = RunTag if kind == "tags" else Param
    rows = [make(key, text) for key, text in value.items()]
    for start in range(0, len(rows), TEXTS):
        store.client().log_batch(run_id, **{kind: rows[start : start + TEXTS]})


def _send_dataset(run_id: str, value: Mapping[str, Any]) -> None:
    """Name the data that a run trains on, for the data set column of the UI."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name, source = value["name"], value["source"]
    profile = json.dumps({"train_examples": value["examples"]})
    where = json.dumps({source: name})
    entity = Dataset(name, value["digest"], source, where, profile=profile)
    context = [InputTag("mlflow.data.context", "training")]
    store.client().log_inputs(run_id, [DatasetInput(entity, context)])


def send_files(run_id: str, spool: Path) -> None:
    """Move the files of a folder, by their paths in it, to the artifacts of a run."""
    for path in sorted(spool.rglob("*")):
        if path.is_file() and not path.name.startswith(HALF):
            folder = path.parent.relative_to(spool).as_posix()
            store.client().log_artifact(run_id, str(path), None if folder == "." else folder)
            path.unlink()
