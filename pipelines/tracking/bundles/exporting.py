"""Runs taken from one tracking store to another, in one file: `export` and `import`."""

import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import LISTED_BY, UserError, short, unknown
from pipelines.runtime import heartbeat, provenance
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import history, store
from pipelines.tracking.bundles import file_format
from pipelines.tracking.bundles.file_format import explain_failure
from pipelines.tracking.bundles.shape import (
    ENDED,
    IMPORTING,
    LEAVE_OUT,
    READY,
    VERSION,
    Document,
    Listed,
    Point,
    validate,
)
from pipelines.tracking.history import LARGEST_FLOAT
from pipelines.tracking.store import (
    ORIGIN,
    OWNER,
    PAPERS_ALONE,
    PARENT,
    PROJECT,
    REUSED,
    STANDING,
    STUDIED,
    read_links,
)

HERE = (STANDING, PAPERS_ALONE)  # tags that are about the other runs of this store
NAMED = ("claim", "recipe", "study")  # tags by which runs are chosen
DATASET = ("name", "digest", "source_type", "source", "schema", "profile")


def export_runs(
    file: Path,
    names: Sequence[str],
    filter: str | None,
    without_artifacts: bool = False,
    without_models: bool = False,
) -> dict[str, Any]:
    """Write the runs chosen, and those that belong to them, into one file; what it holds.

    Raise UserError if files of a run are missing, unless it is to be `without_artifacts`, of which
    none is written then, nor any model. Stored networks are large: all but them is written
    `without_models`.
    """
    if not file.name:
        raise UserError(
            f"An export is written to a file. Received: {file}. Name one, for example runs.zip."
        )
    files = not without_artifacts
    with explain_failure("give its runs", "Repeat the command."):
        run_ids, left_out = _choose(names, filter)
        if left_out:
            more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
            ids = f"{', '.join(left_out[:3])}{more}"
            print(f"Runs that have not ended are left out: {ids}.", file=sys.stderr)
        rows = write(file, run_ids, files=files, models=files and not without_models)
    runs = [each.model_dump(include={"run_id", "name", "kind"}) for each in rows]
    size = file.stat().st_size
    return {"file": str(file), "bytes": size, "runs": runs, "left_out": left_out}


def _choose(names: Sequence[str], condition: str | None) -> tuple[list[str], list[str]]:
    """Return the ids of the runs to export, and of those left out as they have not ended.

    The project's evidence is everywhere already: of it goes what is named by its id alone.
    """
    runs = history.outlines()
    ended = {run.id: run.status in ENDED and IMPORTING not in run.tags for run in runs}
    named = {r.id: {r.id, *(r.tags[key] for key in NAMED if key in r.tags)} for r in runs}
    all_names = set().union(*named.values())
    for name in names:
        if name not in all_names:
            raise unknown("What is exported", name, all_names - named.keys(), LISTED_BY)
    wanted = {i for i, own_names in named.items() if not names or own_names & set(names)}
    if condition is not None:
        try:
            wanted &= {run.info.run_id for run in history.search(condition)}
        except store.unavailable() as error:
            if store.is_away(error):
                raise
            raise UserError(
                f"--filter must be a filter of MLflow. Received: {condition!r}: "
                f"{short(error)} For example: --filter \"tags.kind = 'claim'\""
            ) from error
    evidence = {run.id for run in runs if run.is_project} - {*names}
    chosen = sorted((with_relatives(wanted, runs) & ended.keys()) - evidence)
    run_ids = [run_id for run_id in chosen if ended[run_id]]
    if not run_ids:
        words = [*names, *([f"--filter {condition!r}"] if condition else [])]
        raise UserError(
            f"There must be a run to export that has ended. Received: {' '.join(words) or 'none'}, "
            f"{len(chosen)} runs match. The project's evidence is in mlruns/evidence; a run of it "
            "is exported by its id. See them: python -m pipelines ui"
        )
    return run_ids, [run_id for run_id in chosen if not ended[run_id]]


def with_relatives(found: Collection[str], every: Iterable[history.Row]) -> set[str]:
    """Return runs with all that are below them, that they reuse or searched, of `every`."""
    links: dict[str, list[str]] = {}
    tags_of = {run.id: run.tags for run in every}
    newest_last = reversed(tags_of.items())
    studies = {tags["study"]: i for i, tags in newest_last if tags.get("kind") == "study"}
    for run_id, tags in tags_of.items():
        links.setdefault(tags.get(PARENT, ""), []).append(run_id)
        searched = [tags.get("study", ""), *read_links(tags, STUDIED)]
        links.setdefault(run_id, []).extend(read_links(tags, REUSED))
        links[run_id].extend(studies[s] for s in searched if s in studies)
    related, todo = set(found), list(found)
    while todo:
        new = set(links.get(todo.pop(), ())) - related
        related |= new
        todo += new
    return related


def write(
    file: Path,
    run_ids: Sequence[str],
    *,
    files: bool,
    models: bool,
    change: Callable[[Document], Document] = lambda document: document,
) -> list[Listed]:
    """Write runs into a file, with their files and models or not, then the manifest.

    `change` says what becomes of the document of each. Return the lines of the manifest.
    """
    experiments_here = store.client().search_experiments()
    names = {e.experiment_id: e.name.removesuffix(store.OURS) for e in experiments_here}
    stored, rows, experiments = models_by_run() if models else {}, [], {}
    with (
        store.lock("export", "Another export is going on; waiting for it."),
        file_format.create_archive(file) as archive,
        progress_bar("export", len(run_ids), "") as advance,
    ):
        for run in history.fetch_runs(run_ids):
            run_models = stored.get(run.info.run_id, [])
            if files and (places := missing_files(run, run_models)):
                raise UserError(
                    f"An export must have the files of its runs. Received: {run.info.run_name} "
                    f"({run.info.run_id}), which has none at {places[0]}. Put them back there, or "
                    "export the numbers alone with --without-artifacts."
                )
            experiments[run.info.experiment_id] = names[run.info.experiment_id]
            document = change(run_document(run, names[run.info.experiment_id], run_models))
            archive.json(f"runs/{run.info.run_id}.json", document.model_dump(by_alias=True))
            for name, path in copy_files(run, run_models) if files else ():
                archive.file(name, path)
            rows.append(Listed.of(document))
            advance(1, math.nan)
        manifest = {
            "version": VERSION,
            "commit": provenance.tags()["commit"],
            "packages": provenance.packages().split(),
            "experiments": experiments,
            "runs": [each.model_dump() for each in rows],
            "members": dict(archive.members),
        }
        archive.json(file_format.MANIFEST, manifest)
    return rows


WHOLE = ("claim", "setting", "sweep")  # kinds of runs whose curves are never thinned
POINTS = 400  # on a curve: a figure is not so many pixels wide


@dataclass(frozen=True)
class Present:
    """A run of this store, as an import must know it."""

    run_id: str
    unfinished: bool
    deleted: bool


def find_present(run_ids: Sequence[str]) -> dict[str, Present]:
    """Return runs of this store by id, and by the id that they had where they were measured.

    Those with the ids given, and all that were imported.
    """
    imported = history.search(f"tags.{ORIGIN} LIKE '%'", deleted=True)
    by_id, origins = {}, {}
    for run in itertools.chain(imported, history.fetch_runs(run_ids, deleted=True)):
        run_id, tags = run.info.run_id, run.data.tags
        by_id[run_id] = Present(run_id, IMPORTING in tags, run.info.lifecycle_stage == "deleted")
        origins[tags.get(ORIGIN, run_id)] = by_id[run_id]
    return origins | by_id


def models_by_run() -> dict[str, list[Any]]:
    """Return MLflow's logged models, oldest first, by the run that made them."""
    by_run: dict[str, list[Any]] = {}
    for model in history.logged_models():
        by_run.setdefault(str(model.source_run_id), []).append(model)
    return by_run


def run_document(run: Any, experiment: str, models: Sequence[Any]) -> Document:
    """Return everything of a run but its files. Raise UserError for what no import would take."""
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
        "tags": {key: text for key, text in data.tags.items() if key not in HERE},
        "metrics": _curves(info.run_id),
        "datasets": sorted(
            (
                {key: getattr(each.dataset, key) for key in DATASET}
                | {"tags": {tag.key: tag.value for tag in each.tags}}
                for each in run.inputs.dataset_inputs
            ),
            key=json.dumps,
        ),
        "models": [_model(m, info.run_id, steps.get(m.model_id)) for m in models],
    }
    return validate(Document, document, f"run {info.run_id}", LEAVE_OUT)


def as_evidence(document: Document) -> Document:
    """Return a run as the project's, with at most some POINTS of every curve of a training.

    Verdicts come from the curves of cells, so that they are never thinned. The first and the last
    point of a curve are kept.
    """
    tags, curves = document.tags | {OWNER: PROJECT}, document.metrics
    if tags.get("kind") not in WHOLE:
        curves = {metric: thin(curve, POINTS) for metric, curve in curves.items()}
    return document.model_copy(update={"metrics": curves, "tags": tags})


def thin(curve: list[Point], most: int) -> list[Point]:
    """Return at most one point more than so many of a curve, the first and the last among them."""
    interval = math.ceil(len(curve) / most)
    kept = curve[::-1][:: max(interval, 1)][::-1]
    return kept if not curve or kept[0] is curve[0] else [curve[0], *kept]


def _curves(run_id: str) -> dict[str, list[Point]]:
    """Return by metric every point of a run, ascending; null where it is NaN."""
    curves: dict[str, list[Point]] = {}
    for _, metric, step, date_ms, value in history.points([run_id]):
        curves.setdefault(metric, []).append((step, date_ms, _finite_or_null(value)))
    return {
        metric: sorted(curve, key=lambda point: (*point[:2], point[2] is None, point[2] or 0.0))
        for metric, curve in curves.items()
    }


def _finite_or_null(value: float | None) -> float | None:
    """Return a number as MLflow and JSON can keep it: infinity is the largest one, NaN null."""
    if value is None or math.isnan(value):
        return None
    return max(-LARGEST_FLOAT, min(LARGEST_FLOAT, value))


def _model(model: Any, run_id: str, step: int | None) -> dict[str, Any]:
    run_metrics = [m for m in model.metrics or [] if m.run_id == run_id]
    points = [
        [m.key, m.step, m.timestamp, _finite_or_null(m.value), m.dataset_name, m.dataset_digest]
        for m in run_metrics
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


def whole_models(models: Sequence[Any]) -> list[Any]:
    """Return the models that are stored to the end, and have files."""
    return [model for model in models if model.status == READY]


def missing_files(run: Any, models: Sequence[Any]) -> list[str]:
    """Return the places where a run must have files and has none.

    A model that is stored has its own; a finished run of ours that is below no other has at least
    a list of packages.
    """
    tags, places = run.data.tags, [each.artifact_location for each in whole_models(models)]
    if run.info.status == "FINISHED" and heartbeat.PROCESS in tags and PARENT not in tags:
        places.append(run.info.artifact_uri)
    return [place for place in places if not store.top_files(place)]


def copy_files(run: Any, models: Sequence[Any]) -> Iterator[tuple[str, Path]]:
    """Yield copies of all files of a run by their names in an archive; delete them at the end."""
    places = {"artifacts": run.info.artifact_uri}
    places |= {f"models/{each.model_id}": each.artifact_location for each in whole_models(models)}
    with tempfile.TemporaryDirectory() as folder:
        copies = []
        for below, location in places.items():
            copy = Path(folder) / below
            if store.top_files(location):
                copy = store.download(location, copy)
            prefix = f"runs/{run.info.run_id}/{below}"
            for path in filter(Path.is_file, copy.rglob("*")):
                copies.append((f"{prefix}/{path.relative_to(copy).as_posix()}", path))
        yield from sorted(copies)
