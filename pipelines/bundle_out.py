"""Runs of the tracking store: which there are; as documents and files, which `export` writes."""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import history, recorded, schema, store
from pipelines.bundle_shape import IMPORTING, LEAVE_OUT, READY, Document, Point, validate
from pipelines.history import LARGEST
from pipelines.runtime import heartbeat
from pipelines.store import ORIGIN, PARENT

WHOLE = ("claim", "setting", "sweep")  # kinds of runs whose curves are never thinned
POINTS = 400  # of a curve: a figure is not so many pixels wide
PAGE = 100  # run ids a request


@dataclass(frozen=True)
class Present:
    """A run of this store, as an import must know it."""

    run_id: str
    unfinished: bool
    deleted: bool


def by_id(run_ids: Sequence[str], deleted: bool = False) -> Iterator[Any]:
    """MLflow's runs with these ids, in their order; those that are gone left out."""
    for start in range(0, len(run_ids), PAGE):
        some = run_ids[start : start + PAGE]
        condition = f"attributes.run_id IN ({', '.join(map(repr, some))})"
        found = {run.info.run_id: run for run in history.search(condition, deleted)}
        yield from (found[run_id] for run_id in some if run_id in found)


def present(run_ids: Sequence[str]) -> dict[str, Present]:
    """The runs of this store by id, and by the id that they had where they were measured.

    Of a store that is no database known to schema.py: those with the ids given, and imported ones.
    """
    database = schema.sql_store()
    rows = _searched(run_ids) if database is None else _selected(database)
    own, origins = {}, {}
    for run_id, stage, tags in rows:
        own[run_id] = Present(run_id, IMPORTING in tags, stage == "deleted")
        origins[tags.get(ORIGIN, run_id)] = own[run_id]
    return origins | own


def _selected(database: Any) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
    from sqlalchemy import select

    runs, tags = SqlRun.__table__.c, SqlTag.__table__.c
    marked = select(tags.run_uuid, tags.key, tags.value).where(tags.key.in_((ORIGIN, IMPORTING)))
    found: dict[str, dict[str, str]] = {}
    with database.ManagedSessionMaker() as session:
        for run_id, key, value in session.execute(marked):
            found.setdefault(run_id, {})[key] = value
        for run_id, stage in session.execute(select(runs.run_uuid, runs.lifecycle_stage)):
            yield run_id, stage, found.get(run_id, {})


def _searched(run_ids: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    yield from map(_told, history.search(f"tags.{ORIGIN} LIKE '%'", deleted=True))
    yield from map(_told, by_id(run_ids, deleted=True))


def _told(run: Any) -> tuple[str, str, Mapping[str, str]]:
    return run.info.run_id, run.info.lifecycle_stage, run.data.tags


def models() -> dict[str, list[Any]]:
    """MLflow's logged models of all experiments, oldest first, by the run that made them."""
    made: dict[str, list[Any]] = {}
    for model in history.logged_models():
        made.setdefault(str(model.source_run_id), []).append(model)
    return made


def document(run: Any, experiment: str, models: Sequence[Any]) -> Document:
    """Return everything of a run but its files; UserError for what no import would take."""
    info, data = run.info, run.data
    steps = {output.model_id: output.step for output in run.outputs.model_outputs}
    document = {
        "run_id": info.run_id,
        "name": info.run_name,
        "experiment": experiment,
        "status": info.status,
        "start_ms": info.start_time,
        "end_ms": info.end_time,
        "params": dict(data.params),
        "tags": dict(data.tags),
        "metrics": _curves(info.run_id),
        "datasets": sorted(map(_dataset, run.inputs.dataset_inputs), key=json.dumps),
        "models": [_model(m, info.run_id, steps.get(m.model_id)) for m in models],
    }
    return validate(Document, document, f"run {info.run_id}", LEAVE_OUT)


def thin_training(document: Document) -> Document:
    """Return a run with at most some POINTS of every curve; of a claim or its cells, with all.

    Verdicts come from the curves of cells, so that they are never thinned. The first and the last
    point of a curve are kept.
    """
    if document.tags.get("kind") in WHOLE:
        return document
    thin = {metric: _thin(curve) for metric, curve in document.metrics.items()}
    return document.model_copy(update={"metrics": thin})


def _thin(curve: list[Point]) -> list[Point]:
    every = math.ceil(len(curve) / POINTS)
    kept = curve[::-1][:: max(every, 1)][::-1]
    return kept if not curve or kept[0] is curve[0] else [curve[0], *kept]


def _curves(run_id: str) -> dict[str, list[Point]]:
    """Return by metric every point of a run, ascending; null where it is NaN."""
    curves: dict[str, list[Point]] = {}
    for _, metric, step, date_ms, value in recorded.points([run_id]):
        curves.setdefault(metric, []).append((step, date_ms, _plain(value)))
    return {metric: sorted(curve, key=_order) for metric, curve in curves.items()}


def _order(point: Point) -> tuple[int, int, bool, float]:
    return (*point[:2], point[2] is None, point[2] or 0.0)


def _plain(value: float | None) -> float | None:
    """A number as MLflow keeps it and JSON can: infinity is the largest one, NaN is null."""
    if value is None or math.isnan(value):
        return None
    return max(-LARGEST, min(LARGEST, value))


def _dataset(given: Any) -> dict[str, Any]:
    keys = ("name", "digest", "source_type", "source", "schema", "profile")
    tags = {tag.key: tag.value for tag in given.tags}
    return {**{key: getattr(given.dataset, key) for key in keys}, "tags": tags}


def _model(model: Any, run_id: str, step: int | None) -> dict[str, Any]:
    own = [m for m in model.metrics or [] if m.run_id == run_id]
    points = [
        [m.key, m.step, m.timestamp, _plain(m.value), m.dataset_name, m.dataset_digest] for m in own
    ]
    return {
        "model_id": model.model_id,
        "name": model.name,
        "type": model.model_type or None,
        "status": str(model.status),
        "step": step,
        "params": dict(model.params),
        "tags": dict(model.tags),
        "metrics": sorted(points, key=json.dumps),
    }


def whole(models: Sequence[Any]) -> list[Any]:
    """The models that are stored to the end, and have files."""
    return [model for model in models if model.status == READY]


def missing(run: Any, models: Sequence[Any]) -> list[str]:
    """Places where a run must have files and has none.

    A model that is stored has its own; a finished run of ours that is below no other has at least
    a list of packages.
    """
    tags, places = run.data.tags, [each.artifact_location for each in whole(models)]
    if run.info.status == "FINISHED" and heartbeat.PROCESS in tags and PARENT not in tags:
        places.append(run.info.artifact_uri)
    return [place for place in places if not store.top_files(place)]


@contextmanager
def files(run: Any, models: Sequence[Any]) -> Iterator[list[tuple[str, Path]]]:
    """Copies of all files of a run for as long as the block lasts, by their names in an archive."""
    places = {"artifacts": run.info.artifact_uri}
    places |= {f"models/{each.model_id}": each.artifact_location for each in whole(models)}
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for below, location in places.items():
            copy = Path(folder) / below
            if store.top_files(location):
                copy = store.download(location, copy)
            prefix = f"runs/{run.info.run_id}/{below}"
            for path in filter(Path.is_file, copy.rglob("*")):
                found.append((f"{prefix}/{path.relative_to(copy).as_posix()}", path))
        yield sorted(found)
