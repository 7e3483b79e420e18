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
from pipelines.measurement import claim_catalog, documents
from pipelines.measurement.verdict import UNDECIDED
from pipelines.results import counts, scoreboard
from pipelines.results.evidence import recorded
from pipelines.results.evidence.derive import draw, is_measurable
from pipelines.results.evidence.recorded import RecordedRun
from pipelines.results.published import read_rows
from pipelines.running import seed_statistics
from pipelines.runtime.provenance import ROOT

COMPARED = ("verdict", "as printed", "scale", "floor reached", "measured")  # columns of RESULTS.md
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Derived:
    """What the curves of a claim say at the largest scale that is complete."""

    claim: str
    seeds: int
    other_code: int
    """Cells that were measured by other code than today's, on any backend."""
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
        evidence = recorded.read(name)
        for run in evidence.by_scale.values():
            problems += [f"{name}: {problem}" for problem in _check_run(run)]
            problems += [problem for cell in evidence.cells(run) for problem in cell.check()]
        deciding = evidence.deciding
        claim = _derive(deciding) if deciding else None
        derived += [claim] if claim else []
        row = published.get(name, {})
        problems += [f"{name}: {problem}" for problem in _compare_row(claim, row)]
        cells = evidence.cells(deciding) if deciding else []
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


def _check_run(run: RecordedRun) -> Iterator[str]:
    """Yield what a run of a claim has recorded that its cells do not say."""
    if run.plan is None:
        return
    measured, whole = run.measured, len(run.plan.cells)
    if len(measured) < whole:
        yield f"run {run.row.id} holds {len(measured)} of {whole} settings"
        return
    if (
        run.csv.splitlines()
        != documents.format_table(documents.table_rows(run.plan, measured)).splitlines()
    ):
        yield f"run {run.row.id} has another {documents.CSV} than its cells say"
    found = run.seed_values
    for metric, numbers in run.derived_values.items():
        if not documents.are_same(found.get(metric, []), numbers):
            yield f"run {run.row.id} has recorded another {metric} than its cells say"


def _derive(run: RecordedRun) -> Derived | None:
    """Return the verdict that the cells of a run give; None where it lacks some."""
    plan = run.plan
    if plan is None or len(run.measured) < len(plan.cells):
        return None
    values = run.derived_values
    judgement = plan.claim.judge(values, plan.scale)
    spreads = seed_statistics.metric_spreads(seed_statistics.summarize(values), plan.seeds)
    columns = {
        "verdict": judgement["verdict"],
        "as printed": judgement["as_printed"],
        "scale": plan.scale,
        "floor reached": judgement["floor"],
        "measured": scoreboard.describe_metrics(plan.claim, spreads),
    }
    grades = [each["grade"] for each in judgement["quotations"]]
    return Derived(plan.name, plan.seeds, count_other_code(run), columns, grades)


def count_other_code(run: RecordedRun) -> int:
    """Return how many cells of a run were measured by other code than today's, on any backend."""
    plan = run.plan
    return sum(m.code not in plan.codes for m in run.measured) if plan else 0


def _compare_row(derived: Derived | None, row: Mapping[str, str]) -> Iterator[str]:
    """Yield in what the evidence of a claim and its row of RESULTS.md disagree."""
    if derived is None:
        if row.get("verdict") not in UNDECIDED:
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
