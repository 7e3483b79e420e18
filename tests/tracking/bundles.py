"""Runs as MLflow gives them back, for the tests that carry them from store to store."""

import pprint
from pathlib import Path
from typing import Any

from pipelines.tracking import history, store, tracked_run
from pipelines.tracking.bundles import exporting
from pipelines.tracking.bundles.shape import IMPORTING, ORIGIN

ADDED = {ORIGIN, IMPORTING}


def tracked(name: str, **options: Any) -> Any:
    return tracked_run.track(name, **{"experiment": "one", "kind": "training", **options})


def contents(run: Any, model: Any = None) -> dict[str, bytes]:
    from mlflow.artifacts import list_artifacts

    location = model.artifact_location if model else run.info.artifact_uri
    where = {"artifact_uri": location, "tracking_uri": store.uri()}
    if not list_artifacts(**where):
        return {}
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(**where))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "MLmodel"  # it names ids and places
    }


def picture(run_id: str) -> str:
    """Everything MLflow gives back of a run, under the ids of where it was measured."""
    client = store.client()
    run = client.get_run(run_id)
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    found = {
        "info": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
        "user": (run.info.user_id, run.info.lifecycle_stage),
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "params": run.data.params,
        "tags": {key: value for key, value in run.data.tags.items() if key not in ADDED},
        "metrics": {key: repr(value) for key, value in run.data.metrics.items()},
        "histories": {key: history_of(run_id, key) for key in run.data.metrics},
        "datasets": [given.to_dictionary() for given in run.inputs.dataset_inputs],
        "artifacts": contents(run),
        "outputs": [output.step for output in run.outputs.model_outputs],
        "models": [model_picture(run, each) for each in models],
    }
    return original(found)


def history_of(run_id: str, key: str) -> list[Any]:
    points = store.client().get_metric_history(run_id, key)
    return sorted((p.step, p.timestamp, repr(p.value)) for p in points)


def model_picture(run: Any, model: Any) -> dict[str, Any]:
    return {
        "what": (model.name, model.model_type or None, str(model.status), model.params),
        "tags": {key: value for key, value in model.tags.items() if key != "origin_model_id"},
        "metrics": sorted((m.key, m.step, m.timestamp, m.value) for m in model.metrics or []),
        "files": contents(run, model),
    }


def original(found: dict[str, Any]) -> str:
    """With the run ids of where runs were measured, and experiments by name."""
    text = pprint.pformat(found, width=200)
    for run in all_runs():
        text = text.replace(run.info.run_id, run.data.tags.get(ORIGIN, run.info.run_id))
    for each in store.client().search_experiments():
        text = text.replace(f"#/experiments/{each.experiment_id}/", f"#/experiments/{each.name}/")
    return text


def all_runs() -> list[Any]:
    return list(history.search(deleted=True))


def pictures() -> dict[str, str]:
    return {
        run.data.tags.get(ORIGIN, run.info.run_id): picture(run.info.run_id) for run in all_runs()
    }


def exported(file: Path, *names: str, filter: str | None = None) -> set[str]:
    document = exporting.export_runs(file, names, filter)
    assert document["bytes"] == file.stat().st_size
    return {run["name"] for run in document["runs"]}
