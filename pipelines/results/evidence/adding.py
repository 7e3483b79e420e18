"""The command `evidence add`: measurements become part of the project's evidence.

Cells that were measured here or arrived in a file are joined, seed by seed, into one run of their
claim, which a new bundle holds with the trainings that its cells follow from.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import LISTED_BY, UserError, unknown
from pipelines.measurement import cells, claim_catalog, sweep
from pipelines.measurement.claim import SEED_PREFIX
from pipelines.measurement.claim_run import json_document
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import ONLY_SEED, MeasurementPlan, stated_plan
from pipelines.results.evidence import bundles, derive
from pipelines.running.existing import DIVERGED
from pipelines.runtime import places
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, store
from pipelines.tracking.bundles import exporting
from pipelines.tracking.bundles.shape import Document


def add(words: Sequence[str]) -> dict[str, Any]:
    """Make measurements part of the evidence: of files that `export` wrote, or of claims run here.

    What the evidence has already is left out. Seeds that are complete from 0 on are joined into one
    run of the claim, with one verdict. Raise UserError for what is neither a file nor a claim, and
    where there is no checkout to write into.
    """
    places.require_checkout("evidence add")
    if not words:
        raise UserError(
            "What is added must be named: a file that `export` wrote, or a claim that was run "
            "here. Received: nothing. Name one."
        )
    names = {word for word in words if claim_catalog.is_claim(word)}
    for name in filter(claim_catalog.own_file, sorted(names)):
        raise UserError(
            f"The evidence is of the project's claims. Received: {name}, which is your own. Keep "
            f"its runs by: python -m pipelines export FILE.zip {name}"
        )
    paths = [word for word in words if word not in names]
    for word in paths:
        if not (Path(word).is_file() or word.endswith(".zip")):
            raise unknown("What is added", word, claim_catalog.names(), LISTED_BY)
    documents_of_files = [bundles.import_runs(Path(word)) for word in paths]
    ids = {i for each in documents_of_files for i in (*each["imported"], *each["present"])}
    every = [row for kind in history.RESULTS for row in history.rows_with_evidence(kind=kind)]
    wanted = names | {row.tags["claim"] for row in every if row.id in ids}
    bundles.import_missing(wanted)
    with store.lock("evidence", "Another process adds; waiting for it."):
        added = [_add_claim(name, None if name in names else ids) for name in sorted(wanted)]
    return {"added": [each for each in added if each]}


def _add_claim(name: str, run_ids: Collection[str] | None) -> dict[str, Any] | None:
    """Write the new cells of a claim into a bundle, as the runs that join them; None if none is.

    Only those of runs with these ids are taken, if any are given. What is written becomes the
    project's. Raise UserError for cells of an experiment that do not follow from its trainings.
    """
    joined: dict[str, history.Row] = {}
    trainings, origins = set[str](), bundles.origins()
    for scale in claim_catalog.load(name).scales:
        plan, found, new = _complete_cells(name, scale, run_ids, origins)
        if plan.seeds:
            trainings |= _check_cells(plan, new)
            joined[scale] = _join_cells(plan, found)
    project = history.rows_with_evidence(None, origin=store.PROJECT)
    shipped = {row.id for row in project if row.origin in origins}
    related = exporting.with_relatives({row.id for row in joined.values()} | trainings, _ended())
    chosen = sorted(related - shipped)
    if not chosen:
        return None
    file = bundles.FOLDER / f"{name}-{digest(chosen)[:8]}.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    exporting.write(file, chosen, files=True, models=False, change=exporting.as_evidence)
    for run_id in chosen:
        store.client().set_tag(run_id, store.OWNER, store.PROJECT)
    seeds = {scale: int(row.tags["seeds"]) for scale, row in joined.items()}
    return {"claim": name, "file": str(file), "runs": len(chosen), "seeds": seeds}


def _ended() -> list[history.Row]:
    """Return the runs of the store that have finished or diverged."""
    return [r for r in history.outlines() if r.status == "FINISHED" or DIVERGED in r.tags]


def _complete_cells(
    name: str, scale: str, run_ids: Collection[str] | None, origins: Collection[str]
) -> tuple[MeasurementPlan, dict[str, Measured], list[Measured]]:
    """Return the plan of the seeds of a claim that are complete from 0 on; their cells, the new.

    No seed is left out between two others, so that none can be chosen. The cells of the evidence
    come first, then those that were measured here, by today's code before others. `origins` are
    those of the runs of the evidence.
    """
    every = [
        r for kind in history.RESULTS for r in history.rows_with_evidence(kind=kind, claim=name)
    ]
    own = [r for r in every if not r.is_project and (run_ids is None or r.id in run_ids)]
    shipped = [r for r in every if r.is_project and r.origin in origins]
    last = [int(r.params.get(ONLY_SEED, 0)) + int(r.tags["seeds"]) for r in (*own, *shipped)]
    plan = stated_plan(name, scale, max(last, default=1))
    own.sort(key=lambda row: row.tags.get(cells.CELL_CODE) != plan.code)
    there = cells.collect(plan, shipped, waiting=False)
    found = cells.collect(plan, own) | there
    lacking = {cell.seed for key, cell in plan.cells_by_fingerprint.items() if key not in found}
    seeds = min(lacking, default=plan.seeds)
    complete = {key: m for key, m in found.items() if m.cell.seed < seeds}
    new = [m for key, m in complete.items() if key not in there]
    return stated_plan(name, scale, seeds), complete, new


def _check_cells(plan: MeasurementPlan, measured: Iterable[Measured]) -> set[str]:
    """Return the trainings that cells of an experiment follow from; UserError if they do not."""
    found, runs = set[str](), _ended() if plan.claim.trains else []

    def find_trainings(kind: str, fingerprint: str) -> Iterator[Document]:
        wanted = {"kind": kind, "fingerprint": fingerprint}.items()
        equal = [run.id for run in runs if wanted <= run.tags.items()]
        found.update(equal)
        for run in history.fetch_runs(equal):
            yield exporting.as_evidence(exporting.run_document(run, "evidence", []))

    recorded = [derive.RecordedCell(plan, m, find_trainings) for m in measured]
    problems = [problem for cell in recorded for problem in cell.check()]
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UserError(
            "A setting of trained networks must follow from its trainings, which are added with "
            f"it. Received: {problems[0]}{more}. Nothing of {plan.name} was added. Measure it "
            f"anew: python -m pipelines run {plan.name} --force"
        )
    return found


def _join_cells(plan: MeasurementPlan, measured: Mapping[str, Measured]) -> history.Row:
    """Return the run of a claim that joins cells, made now or before."""
    wanted = cells.pack(plan, [measured[key] for key in plan.cells_by_fingerprint])
    alike = {"claim": plan.name, "fingerprint": plan.fingerprint}
    for row in history.rows_with_evidence(kind="claim", **alike):
        if store.artifact(row.id, cells.TABLE) == wanted and _is_of_today(row, plan):
            return row
    return history.row(sweep.measure(plan, given=measured)["run_id"])


def _is_of_today(row: history.Row, plan: MeasurementPlan) -> bool:
    """Return whether a run has recorded the numbers that today's rules make of its cells."""
    values = sweep.values_of_cells(plan, row)
    recorded = json_document.seed_values(history.histories([row.id], SEED_PREFIX)[row.id])
    return values is not None and all(
        json_document.are_same(recorded.get(metric, []), numbers)
        for metric, numbers in values.items()
    )


def print_added(document: Mapping[str, Any]) -> None:
    """Print what is new in the evidence, and what to do next."""
    for each in document["added"]:
        joined = ", ".join(f"{n} seeds at {scale} scale" for scale, n in each["seeds"].items())
        print(f"{each['claim']}: {each['runs']} runs added, {joined}")
        print(f"  {each['file']}")
    if not document["added"]:
        print("Nothing was added: no seed that its claim states is complete and not there yet.")
    else:
        print("Next: python -m pipelines report --publish, and commit what it wrote.")
