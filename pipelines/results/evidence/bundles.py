"""The project's evidence: bundles of the runs behind RESULTS.md, which travel with the code.

Each holds runs of one claim, without stored networks. The project's own MLflow home imports them by
itself; there they have the tag `origin` = `project`, and count as nobody's own measurements.
"""

import itertools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import LISTED_BY, UserError, unknown
from pipelines.measurement import claim_catalog, documents, sweep
from pipelines.measurement.experiment import Experiment
from pipelines.measurement.plan import MeasurementPlan, stated_cells, stated_plan
from pipelines.results.evidence import derive
from pipelines.results.evidence.derive import DIVERGED
from pipelines.runtime.provenance import ROOT, digest
from pipelines.tracking import history, store
from pipelines.tracking.bundles import exporting, file_format, importing
from pipelines.tracking.bundles.shape import Document, Listed

FOLDER = ROOT / "mlruns" / "evidence"


def import_if_own(names: Collection[str] | None = None) -> int:
    """Import what this home lacks of the evidence, or of some claims'; return how many bundles.

    A store that MLFLOW_TRACKING_URI names holds what people put there: `import` brings a bundle.
    """
    return import_missing(names) if store.is_project_home() else 0


def import_runs(file: Path) -> dict[str, Any]:
    """Import the runs of a bundle, with the pages and charts of claims as this code writes them.

    What it holds of the project's evidence is taken from there, first.
    """
    given = {row.origin for row in rows_of(file)}
    import_if_own(
        {subject(f) for f in files() if not given.isdisjoint(r.origin for r in rows_of(f))}
    )
    document = importing.import_runs(file)
    _renew_pages(set(document["imported"]))
    return document


def _renew_pages(imported: Collection[str], **tags: str) -> None:
    """Write the pages and charts of claims and sweeps anew, of those with these ids and tags."""
    for kind in ("claim", "sweep"):
        for row in history.rows_with_evidence(None, kind=kind, **tags):
            if row.id in imported and row.tags.get("claim") in claim_catalog.names():
                documents.renew_page(row)


def import_missing(names: Collection[str] | None) -> int:
    """Import the bundles that this store lacks, all or of some claims; return how many."""
    missing = [file for file, present in bundle_states(names).items() if not present]
    if missing:
        print(f"Taking in the project's evidence, once (bundles: {len(missing)}).", file=sys.stderr)
    for file in missing:
        imported = importing.import_runs(file, as_project=True)["imported"]
        _renew_pages(set(imported), claim=subject(file))
    return len(missing)


def bundle_states(names: Collection[str] | None = None) -> dict[Path, bool]:
    """Return every bundle, and whether all its runs are in this store, whole."""
    rows = {file: rows_of(file) for file in files(names)}
    ids = [i for listed in rows.values() for row in listed for i in (row.run_id, row.origin)]
    whole = {i for i, each in exporting.find_present(ids).items() if not each.unfinished}
    return {
        file: all(not whole.isdisjoint((row.run_id, row.origin)) for row in listed)
        for file, listed in rows.items()
    }


def add(words: Sequence[str]) -> dict[str, Any]:
    """Make measurements part of the evidence: of files that `export` wrote, or of claims run here.

    What the evidence has already is left out. Seeds that are complete from 0 on are joined into one
    run of the claim, with one verdict. Raise UserError for what is neither a file nor a claim.
    """
    if not words:
        raise UserError(
            "What is added must be named: a file that `export` wrote, or a claim that was run "
            "here. Received: nothing. Name one."
        )
    names = {word for word in words if word in claim_catalog.names()}
    paths = [word for word in words if word not in names]
    for word in paths:
        if not (Path(word).is_file() or word.endswith(".zip")):
            raise unknown("What is added", word, claim_catalog.names(), LISTED_BY)
    documents_of_files = [import_runs(Path(word)) for word in paths]
    ids = {i for each in documents_of_files for i in (*each["imported"], *each["present"])}
    cells = history.rows_with_evidence(kind="setting")
    wanted = names | {row.tags["claim"] for row in cells if row.id in ids and "claim" in row.tags}
    import_missing(wanted)
    with store.lock("evidence", "Another process adds; waiting for it."):
        ended = [r for r in history.outlines() if r.status == "FINISHED" or DIVERGED in r.tags]
        added = [_add_claim(name, None if name in names else ids, ended) for name in sorted(wanted)]
    return {"added": [each for each in added if each]}


def _add_claim(
    name: str, run_ids: Collection[str] | None, runs: Sequence[history.Row]
) -> dict[str, Any] | None:
    """Write the new cells of a claim into a bundle, with the runs that join them; None if none is.

    Only cells with these ids are taken, if any are given; `runs` are all of the store that are
    finished or diverged. What is written becomes the project's. Raise UserError for cells of an
    experiment that do not follow from its trainings.
    """
    listed = rows([name])
    here = exporting.find_present([i for row in listed for i in (row.run_id, row.origin)])
    ids = {}  # a server gives its own
    for row in listed:
        present = here.get(row.run_id) or here.get(row.origin)
        ids[row] = present.run_id if present else row.run_id
    shipped = {str(row.fingerprint): ids[row] for row in ids if row.kind == "setting"}
    new = _new_cells(name, run_ids, shipped)
    trainings = _check_cells(name, [row.id for row in new.values()], runs)
    measured = shipped | {fingerprint: row.id for fingerprint, row in new.items()}
    joined = {
        scale: run
        for scale in claim_catalog.load(name).scales
        if (run := _join_cells(name, scale, measured))
    }
    cells = exporting.with_relatives([*trainings, *(row.id for row in new.values())], runs)
    chosen = sorted((cells | {row.id for row in joined.values()}) - {*ids.values()})
    if not chosen:
        return None
    file = FOLDER / f"{name}-{digest(chosen)[:8]}.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    exporting.write(file, chosen, files=True, models=False, change=exporting.as_evidence)
    for run_id in chosen:
        store.client().set_tag(run_id, store.OWNER, store.PROJECT)
    seeds = {scale: int(row.tags["seeds"]) for scale, row in joined.items()}
    return {"claim": name, "file": str(file), "cells": len(new), "seeds": seeds}


def _check_cells(name: str, cells: Sequence[str], runs: Sequence[history.Row]) -> set[str]:
    """Return the trainings that cells of an experiment follow from; UserError if they do not."""
    if not isinstance(claim_catalog.load(name), Experiment):
        return set()
    found = set[str]()

    def find_trainings(kind: str, fingerprint: str) -> Iterator[Document]:
        wanted = {"kind": kind, "fingerprint": fingerprint}.items()
        equal = [run.id for run in runs if wanted <= run.tags.items()]
        found.update(equal)
        yield from _documents(equal)

    recorded = derive.recorded_cells(name, _documents(cells), find_trainings)
    problems = [problem for cell in recorded for problem in cell.check()]
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UserError(
            "A setting of trained networks must follow from its trainings, which are added with "
            f"it. Received: {problems[0]}{more}. Nothing of {name} was added. Measure it anew: "
            f"python -m pipelines run {name} --force"
        )
    return found


def _documents(run_ids: Sequence[str]) -> Iterator[Document]:
    for run in exporting.fetch_runs(run_ids):
        yield exporting.as_evidence(exporting.run_document(run, "evidence", []))


def _new_cells(
    name: str, run_ids: Collection[str] | None, shipped: Collection[str]
) -> dict[str, history.Row]:
    """Return by fingerprint the finished cells with settings that a claim states, not yet shipped.

    Of two measurements of a cell that by today's code is taken, else the newer one.
    """
    rows = history.rows(kind="setting", claim=name)
    stated = stated_cells(name, {int(row.params["seed"]) for row in rows})
    wanted = stated.keys() - set(shipped)
    new = [
        r
        for r in rows
        if r.tags["fingerprint"] in wanted and (run_ids is None or r.id in run_ids)
        if stated[r.tags["fingerprint"]][1].seed == int(r.params["seed"])
    ]
    new.sort(key=lambda r: (r.tags["code"] == stated[r.tags["fingerprint"]][0].code, r.start_ms))
    return {row.tags["fingerprint"]: row for row in new}


def complete_seeds(name: str, scale: str, fingerprints: Collection[str]) -> int:
    """Return how many seeds, from 0 on, are complete with the cells of these fingerprints.

    None is left out between two others, so that no seed can be chosen.
    """
    for seed in itertools.count():
        plan = stated_plan(name, scale, 1, first_seed=seed)
        if not {plan.cell_fingerprint(cell) for cell in plan.cells} <= set(fingerprints):
            break
    return seed


def _join_cells(name: str, scale: str, run_ids: Mapping[str, str]) -> history.Row | None:
    """Return the run of a claim that joins cells, made now or before; None without a whole seed."""
    seeds = complete_seeds(name, scale, run_ids)
    if not seeds:
        return None
    plan = stated_plan(name, scale, seeds)
    cells = {plan.cell_fingerprint(c): run_ids[plan.cell_fingerprint(c)] for c in plan.cells}
    for row in history.rows_with_evidence(kind="claim", claim=name, fingerprint=plan.fingerprint):
        if set(documents.cell_ids(row.id)) == {*cells.values()} and _is_of_today(row, plan):
            return row
    document = sweep.measure(stated_plan(name, scale, seeds, given_cells=cells))
    return history.row(document["run_id"])


def _is_of_today(row: history.Row, plan: MeasurementPlan) -> bool:
    """Return whether a run has recorded the numbers that today's rules make of its cells."""
    values = sweep.values_of_cells(plan, row)
    recorded = history.histories([row.id])[row.id]
    return values is not None and documents.has_recorded(recorded, values)


def list_bundles() -> dict[str, Any]:
    """Return every bundle: its claim, what it holds, its size, and whether it is in this store."""
    kinds = {file: [row.kind for row in rows_of(file)] for file in files()}
    return {
        "evidence": [
            {"file": file.name, "claim": subject(file), "cells": kinds[file].count("setting")}
            | {"runs": len(kinds[file]), "bytes": file.stat().st_size, "here": present}
            for file, present in bundle_states().items()
        ]
    }


def print_bundles(document: Mapping[str, Any]) -> None:
    """Print the bundles and their size in all."""
    for row in document["evidence"]:
        here = "" if row["here"] else "  not in this store"
        print(f"{row['file']:<55} {row['runs']:>5} runs {row['bytes']:>10,} bytes{here}")
    size = sum(row["bytes"] for row in document["evidence"])
    print(f"{len(document['evidence'])} bundles, {size:,} bytes: {FOLDER}")


def print_added(document: Mapping[str, Any]) -> None:
    """Print what is new in the evidence, and what to do next."""
    for each in document["added"]:
        joined = ", ".join(f"{n} seeds at {scale} scale" for scale, n in each["seeds"].items())
        print(f"{each['claim']}: {each['cells']} cells added, {joined or 'no seed complete yet'}")
        print(f"  {each['file']}")
    if not document["added"]:
        print("Nothing was added: no cell has settings that its claim states and is not there yet.")
    else:
        print("Next: python -m pipelines report --publish, and commit what it wrote.")


def files(names: Collection[str] | None = None) -> list[Path]:
    """Return the files of the evidence: all, or those about the claims named."""
    return [f for f in sorted(FOLDER.glob("*.zip")) if names is None or subject(f) in names]


def subject(file: Path) -> str:
    """Return the claim that a bundle is about: `two-phases` of two-phases-3f2a9c01.zip."""
    return file.stem.rpartition("-")[0]


def rows(names: Collection[str] | None = None) -> list[Listed]:
    """Return what the manifests say of every run, of all claims or of those named."""
    return [row for file in files(names) for row in rows_of(file)]


def rows_of(file: Path) -> list[Listed]:
    """Return what the manifest of a bundle says of its runs."""
    return file_format.read_manifest(file).runs


def origins() -> set[str]:
    """Return the ids that the runs of the evidence had where they were measured."""
    return {row.origin for row in rows()}
