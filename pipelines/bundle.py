"""Runs taken from one tracking store to another, in one file: `export` and `import`."""

import gc
import math
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import bulk, bundle_format, bundle_in, bundle_out, claim, history, schema, store, ui
from pipelines.bundle_shape import ENDED, IMPORTING, VERSION, Document, Listed
from pipelines.errors import Unavailable, UserError, unknown
from pipelines.runtime import locks, provenance
from pipelines.runtime.progress import progress_bar
from pipelines.store import NOTE, ORIGIN, OWNER, PARENT, PROJECT

NAMED = ("claim", "recipe", "study")  # tags by which runs are chosen
REUSED = "reused."  # begins the tag that names a run by its id
LINK = re.compile(r"#/experiments/(\d+)(/[^\s)]*)")
WORD = re.compile("%[0-9A-Fa-f]{2}|[0-9a-f]+")  # of a link: a quoted character, or maybe an id


def export_runs(
    file: Path,
    names: Sequence[str],
    filter: str | None,
    without_artifacts: bool = False,
    without_models: bool = False,
) -> dict[str, Any]:
    """Write the runs chosen, and those that belong to them, into one file; what it holds.

    UserError where files of a run are missing, unless it is to be `without_artifacts`, of which
    none is written then, nor any model. Stored networks are large: all but them is written
    `without_models`.
    """
    files = not without_artifacts
    with _sentence("give its runs", "Repeat the command."):
        run_ids, left_out = _chosen(names, filter)
        if left_out:
            more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
            ids = f"{', '.join(left_out[:3])}{more}"
            print(f"Runs that have not ended are left out: {ids}.", file=sys.stderr)
        rows = write(file, run_ids, files=files, models=files and not without_models)
    runs = [each.model_dump(include={"run_id", "name", "kind"}) for each in rows]
    size = file.stat().st_size
    return {"file": str(file), "bytes": size, "runs": runs, "left_out": left_out}


def _chosen(names: Sequence[str], condition: str | None) -> tuple[list[str], list[str]]:
    """Ids of the runs to export, and of those that are left out as they have not ended.

    The project's evidence is everywhere already: of it goes what is named by its id alone.
    """
    every = list(history.search())
    ended = {r.info.run_id: r.info.status in ENDED and IMPORTING not in r.data.tags for r in every}
    named = {
        r.info.run_id: {r.info.run_id} | {r.data.tags[k] for k in NAMED if k in r.data.tags}
        for r in every
    }
    found = _named(names, named) if names else set(named)
    if condition is not None:
        found &= _filtered(condition)
    evidence = {r.info.run_id for r in every if r.data.tags.get(OWNER) == PROJECT} - {*names}
    chosen = sorted((with_relatives(found, every) & ended.keys()) - evidence)
    run_ids = [run_id for run_id in chosen if ended[run_id]]
    if not run_ids:
        given = [*names, *([f"--filter {condition!r}"] if condition else [])]
        raise UserError(
            f"There must be a run to export that has ended. Received: {' '.join(given) or 'none'}, "
            f"{len(chosen)} runs match. The project's evidence is in mlruns/evidence; a run of it "
            "is exported by its id. See them: python -m pipelines ui"
        )
    return run_ids, [run_id for run_id in chosen if not ended[run_id]]


def _named(names: Sequence[str], named: Mapping[str, set[str]]) -> set[str]:
    """Runs that have one of the names; UserError for a name that none has."""
    known = set().union(*named.values())
    for name in names:
        if name not in known:
            raise unknown("What is exported", name, known - named.keys())
    return {run_id for run_id, own in named.items() if own & set(names)}


def _filtered(condition: str) -> set[str]:
    try:
        return {run.info.run_id for run in history.search(condition)}
    except store.unavailable() as error:
        if store.is_away(error):
            raise
        raise UserError(
            f"--filter must be a filter of MLflow. Received: {condition!r}: "
            f"{str(error).splitlines()[0]} For example: --filter \"tags.kind = 'claim'\""
        ) from error


def with_relatives(found: Collection[str], every: Iterable[Any]) -> set[str]:
    """Return runs with all that are below them, that they reuse or searched, of MLflow's runs."""
    links: dict[str, list[str]] = {}
    tags_of = {run.info.run_id: run.data.tags for run in every}
    studies = {tags["study"]: i for i, tags in tags_of.items() if tags.get("kind") == "study"}
    for run_id, tags in tags_of.items():
        links.setdefault(tags.get(PARENT, ""), []).append(run_id)
        reused = [key.removeprefix(REUSED) for key in tags if key.startswith(REUSED)]
        searched = [tags.get("study", ""), *tags.get("studies", "").split()]  # of a claim's cell
        links.setdefault(run_id, []).extend(reused + [studies[s] for s in searched if s in studies])
    seen, todo = set(found), list(found)
    while todo:
        new = set(links.get(todo.pop(), ())) - seen
        seen |= new
        todo += new
    return seen


def write(
    file: Path,
    run_ids: Sequence[str],
    *,
    files: bool,
    models: bool,
    change: Callable[[Document], Document] = lambda document: document,
) -> list[Listed]:
    """Write runs into a file, with their files and models or not; the lines of its manifest.

    `change` says what becomes of the document of each.
    """
    waiting = "Another export is going on; waiting for it."
    with (
        locks.locked(store.home() / "live", "export", waiting),
        bundle_format.written(file) as archive,
    ):
        return _write(archive, run_ids, files=files, models=models, change=change)


def _write(
    archive: bundle_format.Writer,
    run_ids: Sequence[str],
    *,
    files: bool,
    models: bool,
    change: Callable[[Document], Document],
) -> list[Listed]:
    """Write one run after another, then the manifest; return its lines."""
    names = {e.experiment_id: e.name for e in store.client().search_experiments()}
    stored, rows, experiments = bundle_out.models() if models else {}, [], {}
    with progress_bar("export", len(run_ids), "") as advance:
        for run in bundle_out.by_id(run_ids):
            made = stored.get(run.info.run_id, [])
            if files and (gone := bundle_out.missing(run, made)):
                raise UserError(
                    f"An export must have the files of its runs. Received: {run.info.run_name} "
                    f"({run.info.run_id}), which has none at {gone[0]}. Put them back there, or "
                    "export the numbers alone with --without-artifacts."
                )
            experiments[run.info.experiment_id] = names[run.info.experiment_id]
            document = change(bundle_out.document(run, names[run.info.experiment_id], made))
            archive.json(f"runs/{run.info.run_id}.json", document.model_dump(by_alias=True))
            if files:
                with bundle_out.files(run, made) as copies:
                    for name, path in copies:
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
    archive.json(bundle_format.MANIFEST, manifest)
    return rows


def import_runs(file: Path) -> dict[str, Any]:
    """Take in the runs of a file, none twice; ids are those of this store."""
    store.client()
    gc.freeze()  # MLflow is large: every later collection would look through it
    with (
        bundle_format.open_archive(file, store.home(), bundle_in.check) as archive,
        locks.locked(
            store.home() / "live", "import", "Another import is going on; waiting for it."
        ),
        _sentence("take the runs", "Repeat the import: it goes on where it ended."),
    ):
        rows = sorted(archive.manifest.runs, key=operator.attrgetter("experiment", "run_id"))
        there = bundle_out.present([i for each in rows for i in (each.run_id, each.origin)])
        known = {each: there.get(each.run_id) or there.get(each.origin) for each in rows}
        present = [p for p in known.values() if p and (p.deleted or not p.unfinished)]
        done = {p.run_id for p in present}
        ids = {run_id: p.run_id for run_id, p in there.items()}
        ids |= {each.run_id: p.run_id for each, p in known.items() if p}
        todo = [each for each in rows if ids.get(each.run_id) not in done]
        if todo:
            _take(archive, todo, ids)
            _give_charts(todo, ids)
            bulk.analyze()
    _say_deleted([p.run_id for p in present if p.deleted])
    imported = [ids[each.run_id] for each in todo]
    return {"file": str(file), "imported": imported, "present": [p.run_id for p in present]}


def _give_charts(rows: Iterable[Listed], ids: Mapping[str, str]) -> None:
    """Make the charts to which the pages of claims lead: they are kept in the experiment."""
    for each in rows:
        if each.kind in ("claim", "sweep") and each.claim in claim.names():
            ui.children_chart(ids[each.run_id], claim.load(each.claim).charts)


def _say_deleted(run_ids: Sequence[str]) -> None:
    if run_ids:
        print(
            f"{len(run_ids)} of the runs are here, deleted. To have them back: "
            f"mlflow runs restore --run-id {run_ids[0]}",
            file=sys.stderr,
        )


def _take(archive: bundle_format.Archive, todo: Sequence[Listed], ids: dict[str, str]) -> None:
    """Write the runs `todo`; `ids`, by the ids of the archive those of this store, is filled."""
    names = archive.manifest.experiments
    places = {name: store.experiment(store.uri(), name) for name in names.values()}
    experiments = {there: places[name] for there, name in names.items()}
    fresh, database = [each for each in todo if each.run_id not in ids], schema.sql_store()
    for each in fresh:
        new = each.run_id if database else bundle_in.create(archive.run(each), places)
        ids[each.run_id] = new

    def documents(rows: Iterable[Listed]) -> Iterator[Document]:
        return (_readdressed(archive.run(each), ids, experiments) for each in rows)

    with progress_bar("import", len(todo), "") as advance:
        rest, bare = todo, set[str]()
        if database is not None:
            for whole in bundle_in.insert(database, documents(fresh), places, archive):
                bare |= whole
                advance(len(whole), math.nan)
            rest = [each for each in todo if each.run_id not in bare]
        for each, document in zip(rest, documents(rest), strict=True):
            if database is None or each not in fresh:
                bundle_in.fill(document, ids[each.run_id])
            bundle_in.complete(document, ids[each.run_id], archive)
            advance(1, math.nan)


def _readdressed(
    document: Document, ids: Mapping[str, str], experiments: Mapping[str, str]
) -> Document:
    """Return a run whose tags name runs and experiments as this store does, and its first id."""
    tags = {ORIGIN: document.run_id}
    for key, value in document.tags.items():
        if key.startswith(REUSED):
            other = key.removeprefix(REUSED)
            tags[f"{REUSED}{ids.get(other, other)}"] = value
        elif key == PARENT:
            tags[key] = ids.get(value, value)
        elif key == NOTE:
            tags[key] = LINK.sub(lambda found: _relinked(found, ids, experiments), value)
        else:
            tags[key] = value
    return document.model_copy(update={"tags": tags})


def _relinked(link: re.Match[str], ids: Mapping[str, str], experiments: Mapping[str, str]) -> str:
    """A link of the UI to an experiment, with the runs that it names."""
    place, rest = link.groups()
    there = WORD.sub(lambda word: ids.get(word[0], word[0]), rest)
    return f"#/experiments/{experiments.get(place, place)}{there}"


@contextmanager
def _sentence(what: str, mend: str) -> Iterator[None]:
    """Unavailable, one sentence, for a store that fails meanwhile."""
    try:
        yield
    except (OSError, store.unavailable()) as error:
        said = " ".join(str(error).split())[:500]
        raise Unavailable(f"The tracking store must {what}. Received: {said}. {mend}") from error
