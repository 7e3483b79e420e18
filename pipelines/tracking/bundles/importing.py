"""Runs of an archive as runs of the tracking store: what `import` writes.

A run that is being imported has a tag that says so, and those of its process. An import that fails
or is told to stop marks such runs KILLED; `recover` marks those that a killed process left. All of
it can be written twice and is there once: an import that did not end is repeated.
"""

import contextlib
import math
import operator
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import short
from pipelines.runtime import heartbeat, signals
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import history, recovery, store
from pipelines.tracking.bundles import exporting, file_format
from pipelines.tracking.bundles.file_format import Archive, explain_failure
from pipelines.tracking.bundles.shape import IMPORTING, READY, Document, Listed, Model, refusal
from pipelines.tracking.outbox import MAX_METRICS, send_batch
from pipelines.tracking.store import NOTE, ORIGIN, OWNER, PARENT, REUSED, link_tags, read_links

ORIGIN_MODEL = "origin_model_id"
SHOWN_POINTS = 50  # on a curve of the evidence, which its bundle holds whole
FOUND_BY = ("kind", "fingerprint", OWNER)  # tags that make a run a result: they come last


def check_tags(document: Document) -> None:
    """Raise UserError for a result without its tags."""
    if lacking := history.find_lacking(document.status, document.tags, document.params):
        rule = f"A run of kind {document.tags['kind']} must have its tags."
        raise refusal(rule, f"run {document.run_id} without {lacking}")


def check_document(document: Document) -> None:
    """Raise UserError for names and values that MLflow would refuse, and results without tags."""
    from mlflow.utils import validation

    check_tags(document)
    try:
        validation._validate_experiment_name(document.experiment)
        for key, value in document.params.items():
            validation._validate_param(key, value)
        for key, value in document.tags.items():
            validation._validate_tag(key, value)
        for key in document.metrics:
            validation._validate_metric_name(key)
        validation._validate_dataset_inputs(_datasets(document))
        for model in document.models:
            validation._validate_logged_model_name(model.name)
            _model_metrics(model, "")
    except store.unavailable() as error:
        rule = "Every name and value must be one that MLflow takes."
        raise refusal(rule, short(error)) from error


def create_run(document: Document, places: Mapping[str, str]) -> Any:
    """Begin a run by MLflow's client, which gives it a new id; return MLflow's run.

    Its first tags say that it is being imported, by which process, and nothing that names others.
    """
    tags = {key: text for key, text in document.tags.items() if not _names_runs(key)}
    origin = {ORIGIN: document.tags.get(ORIGIN, document.run_id)}
    early = {**tags, **origin, **heartbeat.tags(), IMPORTING: "True"}
    early = _truncate_tags({key: text for key, text in early.items() if key not in FOUND_BY})
    place = places[document.experiment]
    return store.client().create_run(place, document.start_ms, early, document.name)


def _names_runs(tag: str) -> bool:
    return tag in (PARENT, NOTE) or tag.startswith(REUSED)


def _truncate_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as MLflow keeps them: a link may have become longer than its tag may be."""
    from mlflow.utils.validation import _validate_tag

    return {key: _validate_tag(key, value).value for key, value in tags.items()}


def complete(
    document: Document, run: Any, archive: Archive, ids: Mapping[str, str], begun: bool
) -> None:
    """Write all of a run, whose tags name others as they are called here; it is ended as it was.

    Tables of older versions name runs by their ids, which are others here. `begun`: an earlier
    import began it.
    """
    to, run_id = store.client(), run.info.run_id
    numbers = [
        (metric, history.number(value), step, date)
        for metric, curve in document.metrics.items()
        for step, date, value in curve
    ]
    tags = heartbeat.tags() if begun else {}
    send_batch(run_id, numbers, params=document.params, tags=tags)
    if document.datasets:
        to.log_inputs(run_id, _datasets(document))
    with tempfile.TemporaryDirectory() as folder:
        if archive.extract(document.run_id, "artifacts", Path(folder)):
            for table in Path(folder).glob("*.csv"):
                _rename(table, ids)
            _upload(folder, run.info.artifact_uri)
    _complete_models(document, run_id, archive)
    with store.lock("settle"):  # or `recover` might end it after us
        _end(document, run_id, {heartbeat.SETTLED} & run.data.tags.keys())


def _end(document: Document, run_id: str, settled: set[str]) -> None:
    """Give a run its status and exactly its tags; last goes the one that says it is not whole."""
    to = store.client()
    if document.end_ms:
        to.set_terminated(run_id, document.status, document.end_ms)
    else:
        to.update_run(run_id, document.status)
    changed = {k: v for k, v in document.tags.items() if _names_runs(k) or k in FOUND_BY}
    beats = {key: document.tags[key] for key in heartbeat.tags() if key in document.tags}
    send_batch(run_id, tags=_truncate_tags({**changed, **beats}))
    for key in [*sorted(heartbeat.tags().keys() - beats.keys()), *settled, IMPORTING]:
        to.delete_tag(run_id, key)


def _upload(folder: str, location: str) -> None:
    """Upload as MLflow's client does, which would remember where the run was in another store."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(location, tracking_uri=store.uri()).log_artifacts(folder)


def _datasets(document: Document) -> list[Any]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return [
        DatasetInput(
            Dataset(**given.model_dump(by_alias=True, exclude={"tags"})),
            [InputTag(key, value) for key, value in given.tags.items()],
        )
        for given in document.datasets
    ]


def _complete_models(document: Document, run_id: str, archive: Archive) -> None:
    """Make the models of a run, which get new ids, or go on with those that a kill left."""
    if not document.models:
        return
    from mlflow.entities import LoggedModelOutput

    run = store.client().get_run(run_id)
    models = store.client().search_logged_models(
        [run.info.experiment_id], f"source_run_id = '{run_id}'"
    )
    ids_by_origin = {model.tags.get(ORIGIN_MODEL): model.model_id for model in models}
    logged = {output.model_id for output in run.outputs.model_outputs}
    for model in document.models:
        origin = model.tags.get(ORIGIN_MODEL, model.model_id)
        model_id = ids_by_origin.get(origin) or _create_model(model, run, origin)
        with tempfile.TemporaryDirectory() as folder:
            below = f"models/{model.model_id}"
            if archive.extract(document.run_id, below, Path(folder)):
                new = {document.run_id: run_id, model.model_id: model_id}
                _rename(Path(folder) / "MLmodel", new)
                _upload(folder, store.client().get_logged_model(model_id).artifact_location)
        metrics = _model_metrics(model, model_id)
        for start in range(0, len(metrics), MAX_METRICS):
            store.client().log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])
        state = READY if model.status == READY else "FAILED"  # half stored
        store.client().finalize_logged_model(model_id, state)
        if model.step is not None and model_id not in logged:  # the link comes last
            output = LoggedModelOutput(model_id, model.step)
            store.client().log_outputs(run_id, [output])


def _create_model(model: Model, run: Any, origin: str) -> str:
    created = store.client().create_logged_model(
        run.info.experiment_id,
        name=model.name,
        source_run_id=run.info.run_id,
        tags={**model.tags, ORIGIN_MODEL: origin},
        params=model.params,
        model_type=model.type,
    )
    return str(created.model_id)


def _rename(path: Path, ids: Mapping[str, str]) -> None:
    """Let a file name runs and models as they are called here."""
    if path.is_file():
        content = path.read_bytes()
        for old, new in ids.items():
            content = content.replace(old.encode(), new.encode())
        path.write_bytes(content)


def _model_metrics(model: Model, model_id: str) -> list[Any]:
    from mlflow.entities import Metric

    return [
        Metric(key, history.number(value), date, step, model_id, name, digest)
        for key, step, date, value, name, digest in model.metrics
    ]


LINK = re.compile(r"(?:#/experiments/(\d+)|get-artifact\?)([^\s)]*)")
WORD = re.compile("%[0-9A-Fa-f]{2}|[0-9a-f]+")  # in a link: a quoted character, or maybe an id


def import_runs(
    file: Path,
    renew: Callable[[Document, Archive, str], Mapping[str, str]] = lambda *_: {},
    as_project: bool = False,
    present: dict[str, exporting.Present] | None = None,
) -> dict[str, Any]:
    """Import the runs of a file, without duplicates; return their ids here, which this store gives.

    `renew` gets each with its new id, once all are here, and returns the tags in which it is to
    differ. Only the project's own evidence, `as_project`, says of its runs that they are the
    project's; of their curves some points are imported, to be looked at. `present` is what
    `find_present` gave; what is imported is added to it.
    """
    store.client()
    with (
        file_format.open_archive(file, store.home(), check_document) as archive,
        store.lock("import", "Another import is going on; waiting for it."),
        explain_failure("take the runs", "Repeat the import: it goes on where it ended."),
    ):
        rows = sorted(archive.manifest.runs, key=operator.attrgetter("experiment", "run_id"))
        if present is None:
            ids = [i for each in rows for i in (each.run_id, each.origin)]
            present = exporting.find_present(ids)
        found = {each: present.get(each.run_id) or present.get(each.origin) for each in rows}
        there = [p for p in found.values() if p and (p.deleted or not p.unfinished)]
        todo = [each for each, p in found.items() if p not in there]
        ids_here = {run_id: p.run_id for run_id, p in present.items()}
        ids_here |= {each.run_id: p.run_id for each, p in found.items() if p}
        if todo:
            try:
                _write_runs(archive, todo, ids_here, as_project)
                for each in todo:
                    run_id = ids_here[each.run_id]
                    if tags := renew(archive.run(each), archive, run_id):
                        with signals.defer():
                            send_batch(run_id, tags=_truncate_tags(tags))
            except BaseException:
                with signals.defer(), contextlib.suppress(store.unavailable()):
                    begun = {*exporting.find_present([*ids_here.values()]).values()}
                    for run_id in [p.run_id for p in begun if p.unfinished and not p.deleted]:
                        with contextlib.suppress(store.unavailable()):  # a lock passes
                            recovery.mark_killed(run_id, "its import was stopped")
                raise
    if deleted := [p.run_id for p in there if p.deleted]:
        print(
            f"{len(deleted)} of the runs are here, deleted. To have them back: "
            f"mlflow runs restore --run-id {deleted[0]}",
            file=sys.stderr,
        )
    imported = [ids_here[each.run_id] for each in todo]
    for each in todo:
        whole = exporting.Present(ids_here[each.run_id], unfinished=False, deleted=False)
        present |= {each.run_id: whole, each.origin: whole}
    return {"file": str(file), "imported": imported, "present": [p.run_id for p in there]}


def _write_runs(
    archive: file_format.Archive, todo: Sequence[Listed], ids: dict[str, str], as_project: bool
) -> None:
    """Write the runs `todo`; `ids`, by the ids of the archive those of this store, is filled.

    A signal waits for the run that is being written: MLflow's session, cut off in a write, would
    keep the database locked for as long as the stop is handled.
    """
    names = archive.manifest.experiments
    places = {name: store.experiment(store.uri(), name) for name in names.values()}
    experiments = {there: places[name] for there, name in names.items()}
    runs: dict[str, Any] = {}
    for each in (each for each in todo if each.run_id not in ids):
        with signals.defer():
            runs[each.run_id] = create_run(archive.run(each), places)
            ids[each.run_id] = runs[each.run_id].info.run_id
    with progress_bar("import", len(todo), "") as advance:
        for each in todo:
            document = _readdress(archive.run(each), ids, experiments)
            if as_project:
                thin = {k: exporting.thin(v, SHOWN_POINTS) for k, v in document.metrics.items()}
                document = document.model_copy(update={"metrics": thin})
            else:
                document.tags.pop(OWNER, None)
            begun = each.run_id not in runs
            run = store.client().get_run(ids[each.run_id]) if begun else runs[each.run_id]
            with signals.defer():
                complete(document, run, archive, ids, begun)
            advance(1, math.nan)


def _readdress(
    document: Document, ids: Mapping[str, str], experiments: Mapping[str, str]
) -> Document:
    """Return a run whose tags name runs and experiments as this store does, and its first id."""

    def readdress(link: re.Match[str]) -> str:  # a link to the UI
        place, rest = link.groups()
        path = WORD.sub(lambda word: ids.get(word[0], word[0]), rest)
        start = f"#/experiments/{experiments.get(place, place)}" if place else "get-artifact?"
        return f"{start}{path}"

    tags = {ORIGIN: document.run_id}
    for key, value in document.tags.items():
        if key == PARENT:
            tags[key] = ids.get(value, value)
        elif key == NOTE:
            tags[key] = LINK.sub(readdress, value)
        elif not key.startswith(REUSED):
            tags[key] = value
    reused = [ids.get(other, other) for other in read_links(document.tags, REUSED)]
    return document.model_copy(update={"tags": tags | link_tags(REUSED, reused)})
