"""The check of the evidence: every verdict derived from the curves in the bundles.

It is compared with its row of RESULTS.md and with what the claim's run recorded, and cells with
their trainings. Others are measured anew, some of them. No database is needed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, documents, sweep, verdict
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan, stated_plan
from pipelines.recipes.catalog import SCALES
from pipelines.results import counts, scoreboard
from pipelines.results.evidence import bundles
from pipelines.results.evidence.derive import (
    TRAINED,
    Trained,
    draw,
    histories,
    is_measurable,
    recorded_cells,
)
from pipelines.results.published import read_rows
from pipelines.runtime.provenance import ROOT
from pipelines.tracking import history, store
from pipelines.tracking.bundles import file_format, importing
from pipelines.tracking.bundles.shape import Document

COMPARED = ("verdict", "as printed", "scale", "floor reached", "measured")  # columns of RESULTS.md
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Derived:
    """What the curves of a claim say at the largest scale that is complete."""

    claim: str
    seeds: int
    other_code: int
    """Cells that were measured by other code than today's."""
    values: dict[str, list[float]]
    """By metric, one number a seed."""
    cells: dict[str, str]
    """By column of RESULTS.md."""
    grades: list[str]
    """Of its quoted sentences."""


def check_evidence(
    results: Path = ROOT / "RESULTS.md", again: int = 0, seed: int = 0, minutes: float = 1
) -> dict[str, Any]:
    """Derive every verdict and compare it with RESULTS.md; what differs are the `problems`.

    So many cells are measured `again`, drawn by a seed among those that all in all take about so
    many minutes or less.
    """
    if not results.is_file():
        raise UserError(
            f"The evidence is compared with a RESULTS.md. Received: {results}, which is not there. "
            "Write it: python -m pipelines report --publish"
        )
    published, derived, pool = read_rows(results), [], []
    problems: list[str] = []
    for name in claim_catalog.names():
        bundled_runs = list(read_runs(name, trainings=True))
        claim = derive(name, bundled_runs) if bundled_runs else None
        derived += [claim] if claim else []
        cells = recorded_cells(name, cells_of(bundled_runs), trained_among(bundled_runs))
        problems += [problem for cell in cells for problem in cell.check()]
        disagreements = _find_problems(claim, published.get(name, {}), bundled_runs)
        problems += [f"{name}: {problem}" for problem in disagreements]
        pool += [[cell for cell in cells if again and is_measurable(cell, 60 * minutes / again)]]
    problems += find_other_counts(derived, results.parent)
    drawn = draw(pool, again, seed)
    problems += [problem for cell in drawn for problem in cell.measure_anew()]
    claims = [
        {"claim": d.claim, "seeds": d.seeds, "other_code": d.other_code, **d.cells} for d in derived
    ]
    anew = {"cells": [cell.title for cell in drawn], "draw": seed, "asked": again}
    return {"claims": claims, "problems": problems, "results": str(results), "again": anew}


def find_other_counts(derived: Sequence[Derived], folder: Path) -> Iterator[str]:
    """Yield which pages hold other numbers of verdicts and grades than the evidence."""
    by_name = {each.claim: each for each in derived}
    words = []
    for entry in map(scoreboard.Entry, claim_catalog.names()):
        found = by_name.get(entry.name)
        verdict = found.cells["verdict"] if found else entry.verdict
        grades = found.grades if found else [each["grade"] for each in entry.quotations]
        words.append((entry.document_of == counts.OURS, verdict, grades))
    counted = counts.of_words(words)
    for page in counts.PAGES:
        file = folder / page
        if file.is_file() and (text := file.read_text()) != counted.replace_block(text):
            yield f"{page}: its counts are not those of the evidence: {' '.join(counted.lines())}"


def read_runs(name: str, trainings: bool = False) -> Iterator[Document]:
    """Yield the claim's run and cells in all its bundles, every byte of which is checked.

    Its trainings, too, if they are wanted.
    """
    for file in bundles.files([name]):
        with file_format.open_archive(file, store.home(), importing.check_document) as archive:
            for row in archive.manifest.runs:
                wanted = row.claim == name and row.kind in ("setting", "claim")
                if wanted or (trainings and row.kind in TRAINED):
                    yield archive.run(row)


def derive(name: str, bundled_runs: Sequence[Document]) -> Derived | None:
    """Return the verdict that the curves of cells give, at the largest scale with a whole seed."""
    cells = {d.tags["fingerprint"]: d for d in cells_of(bundled_runs)}
    for scale in sorted(claim_catalog.load(name).scales, key=SCALES.index, reverse=True):
        seeds = bundles.complete_seeds(name, scale, cells.keys())
        if seeds >= claim_catalog.load(name).seeds:
            return _derive_from(stated_plan(name, scale, seeds), cells)
    return None


def trained_among(runs: Sequence[Document]) -> Trained:
    """Return what finds trainings among some runs."""
    return lambda *wanted: [
        run for run in runs if (run.tags["kind"], run.tags.get("fingerprint")) == wanted
    ]


def cells_of(bundled_runs: Sequence[Document]) -> list[Document]:
    """Return the cells among runs."""
    return [each for each in bundled_runs if each.tags["kind"] == "setting"]


def measured_cells(plan: MeasurementPlan, cells: Mapping[str, Document]) -> list[Measured]:
    """Return the cells of a plan with their curves, from documents by fingerprint."""
    documents_of_plan = ((cell, cells[plan.cell_fingerprint(cell)]) for cell in plan.cells)
    return [
        Measured(cell, *history.table(histories(document)), document.run_id)
        for cell, document in documents_of_plan
    ]


def _derive_from(plan: MeasurementPlan, cells: Mapping[str, Document]) -> Derived:
    measured = measured_cells(plan, cells)
    values = sweep.values_by_metric(sweep.metrics_by_seed(plan, measured))
    judgement = plan.claim.judge(values, plan.scale)
    spreads = verdict.metric_spreads(verdict.summarize(values), plan.seeds)
    columns = {
        "verdict": judgement["verdict"],
        "as printed": judgement["as_printed"],
        "scale": plan.scale,
        "floor reached": judgement["floor"],
        "measured": scoreboard.describe_metrics(plan.claim, spreads),
    }
    grades = [each["grade"] for each in judgement["quotations"]]
    return Derived(plan.name, plan.seeds, count_other_code(plan, cells), values, columns, grades)


def count_other_code(plan: MeasurementPlan, cells: Mapping[str, Document]) -> int:
    """Return how many cells of a plan were measured by other code than today's, on any backend."""
    codes = [cells[plan.cell_fingerprint(cell)].tags["code"] for cell in plan.cells]
    return sum(code not in plan.codes for code in codes)


def _find_problems(
    derived: Derived | None, row: Mapping[str, str], bundled_runs: Sequence[Document]
) -> Iterator[str]:
    """Yield in what the bundles of a claim and its row of RESULTS.md disagree."""
    prints = [d.tags["fingerprint"] for d in cells_of(bundled_runs)]
    if len(prints) > len(set(prints)):
        yield f"{len(prints) - len(set(prints))} settings are in the evidence twice"
    if derived is None:
        if row.get("verdict") not in verdict.UNDECIDED:
            yield (
                f"RESULTS.md says {row['verdict']}, and no evidence says so"
                if row
                else "RESULTS.md has no row of it: python -m pipelines report --publish"
            )
        return
    for column in COMPARED:
        published = row.get(column, "nothing")
        texts = (published, derived.cells[column])
        numbers = ([float(number) for number in NUMBER.findall(text)] for text in texts)
        words = {tuple(NUMBER.split(text)) for text in texts}
        if len(words) > 1 or not documents.are_same(*numbers):
            yield f"{column}: RESULTS.md says {published!r}, its curves {derived.cells[column]!r}"
    recorded = [histories(d) for d in bundled_runs if d.tags["kind"] == "claim"]
    if not any(documents.has_recorded(run, derived.values) for run in recorded):
        yield "no run of the claim has recorded what its cells' curves say"
