"""What MLflow is told of a run: numbers, tags, params, data sets and files."""

import functools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.tracking import journals, store

BATCH = 1_000  # metrics a request; MLflow's limit
TEXTS = 100  # params or tags a request
HALF = "half."  # begins the name of a file or folder that is being written
MODEL = "model"  # the name of a run's logged model
SENT = f"{HALF}sent"  # what has been sent of a model, and is to be deleted
FOLDER = "logged-model"  # its folder among the files that wait; no artifact has that name


@functools.cache
def check_name(metric: str) -> None:
    """Raise what MLflow says of a name that it refuses."""
    store.client()
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric)


def send(run_id: str, numbers: Sequence[journals.Number]) -> None:
    """Write numbers into a run; at most BATCH of them."""
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
    """Move the files of a folder, by their paths in it, to the artifacts of a run.

    Its subfolder FOLDER becomes a logged model.
    """
    if (spool / FOLDER).is_dir():
        _send_model(run_id, spool / FOLDER)
    for path in sorted(spool.rglob("*")):
        place = path.relative_to(spool)
        if path.is_file() and not place.name.startswith(HALF) and not _is_of_model(place):
            folder = place.parent.as_posix()
            store.client().log_artifact(run_id, str(path), None if folder == "." else folder)
            path.unlink()


def _is_of_model(place: Path) -> bool:
    """Whether a file is of a model, which may have come just now, or is still being written."""
    return place.parts[0] in (FOLDER, f"{HALF}{FOLDER}", SENT)


def _send_model(run_id: str, folder: Path) -> None:
    """Make a folder of MLflow's form the logged model of a run, of which it has one.

    MLflow links it to the run last, so that a run has no model that is not whole. What a kill
    interrupts is done again, into the same logged model.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    to = store.client()
    run = to.get_run(run_id)
    models = to.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    model = models[0] if models else _create_model(run)
    about = Model.load(str(folder))
    about.model_id, about.artifact_path = model.model_id, model.artifact_location
    sent = folder.with_name(SENT)
    remove(sent)
    about.save(str(sent))
    sent.replace(folder / "MLmodel")
    to.log_model_artifacts(model.model_id, str(folder))
    to.finalize_logged_model(model.model_id, "READY")
    if model.model_id not in {output.model_id for output in run.outputs.model_outputs}:
        to.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
    folder.replace(sent)  # whole or gone, for whoever goes on
    remove(sent)


def _create_model(run: Any) -> Any:
    """Begin a logged model with the params and the origin of its run."""
    origin = ("mlflow.source", "mlflow.user")
    return store.client().create_logged_model(
        run.info.experiment_id,
        name=MODEL,
        source_run_id=run.info.run_id,
        tags={key: text for key, text in run.data.tags.items() if key.startswith(origin)},
        params=run.data.params,
    )


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
