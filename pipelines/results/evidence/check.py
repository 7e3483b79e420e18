"""The check of the evidence: every verdict derived from the curves in the bundles.

It is compared with results.json and with what the claim's run recorded, and cells with their
trainings. Others are measured anew, some of them. No database is needed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, verdict
from pipelines.measurement.claim_run import json_document, settings_table
from pipelines.measurement.claim_run.json_document import JsonDocument
from pipelines.measurement.claim_view import ClaimView
from pipelines.results import counts, markdown, published
from pipelines.results.evidence import recorded
from pipelines.results.evidence.derive import cells_of, draw, is_measurable
from pipelines.results.evidence.recorded import RecordedRun

SHOWN = (
    "verdict",
    "as printed",
    "scale",
    "learned enough to judge",
    "measured",
)  # compared for every claim
COMPARED = ("verdict", "as_printed", "scale", "floor", "seeds", "quotations", "bounds")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def check_evidence(
    results: Path = published.RESULTS, again: int = 0, seed: int = 0, minutes: float = 1
) -> dict[str, Any]:
    """Derive every verdict and compare it with results.json; what differs are the `problems`.

    So many cells are measured `again`, drawn by a seed among those that all in all take about so
    many minutes or less.
    """
    if not results.is_file():
        raise UserError(
            f"The evidence is compared with a results.json. Received: {results}, which is not "
            "there. Write it: python -m pipelines report --publish"
        )
    stated = {each["claim"]: each for each in published.read(results)["claims"]}
    derived, pool = dict[str, JsonDocument](), []
    claims: list[dict[str, Any]] = []
    problems: list[str] = []
    for name in claim_catalog.project_names():
        evidence = recorded.read(name)
        for run in evidence.by_scale.values():
            problems += [f"{name}: {problem}" for problem in _check_run(run)]
            problems += [problem for cell in cells_of(run) for problem in cell.check()]
        deciding = evidence.deciding
        if deciding and deciding.is_whole:
            document = json_document.derived_document(deciding.row, deciding.derived_values)
            derived[name] = document
            about = {"claim": name, "seeds": document["seeds"]}
            about |= {"other_code": count_other_code(deciding)}
            claims.append(about | {key: ClaimView(document).text(key) for key in SHOWN})
        compared = _compare(derived.get(name), stated.get(name))
        problems += [f"{name}: {problem}" for problem in compared]
        cells = cells_of(deciding) if deciding else []
        pool += [[cell for cell in cells if again and is_measurable(cell, 60 * minutes / again)]]
    problems += _find_outdated(derived, results)
    drawn = draw(pool, again, seed)
    problems += [problem for cell in drawn for problem in cell.measure_anew()]
    anew = {"cells": [cell.title for cell in drawn], "draw": seed, "asked": again}
    return {"claims": claims, "problems": problems, "results": str(results), "again": anew}


def _find_outdated(derived: Mapping[str, JsonDocument], results: Path) -> Iterator[str]:
    """Yield which pages say something else than the evidence: RESULTS.md, and those with counts."""
    page = results.with_name("RESULTS.md")
    document = published.read(results)
    if page.is_file() and page.read_text() != markdown.results(document, markdown.card_links()):
        yield "RESULTS.md: it is not what results.json says: python -m pipelines report --publish"
    names = claim_catalog.project_names()
    views = [ClaimView(derived.get(n) or json_document.stated_document(n)) for n in names]
    counted = counts.of_claims(views)
    for name in counts.PAGES:
        file = results.parent / name
        if file.is_file() and (text := file.read_text()) != counted.replace_block(text):
            yield f"{name}: its counts are not those of the evidence: {' '.join(counted.lines())}"


def _check_run(run: RecordedRun) -> Iterator[str]:
    """Yield what a run of a claim has recorded that its cells do not say."""
    if run.plan is None:
        return
    measured = run.measured
    if not run.is_whole:
        yield f"run {run.row.id} holds {len(measured)} of {len(run.plan.cells)} settings"
        return
    table = settings_table.write(settings_table.rows(run.plan.claim, measured))
    if run.csv.splitlines() != table.splitlines():
        yield f"run {run.row.id} has another {settings_table.FILE} than its cells say"
    found = run.seed_values
    for metric, numbers in run.derived_values.items():
        if not json_document.are_same(found.get(metric, []), numbers):
            yield f"run {run.row.id} has recorded another {metric} than its cells say"


def count_other_code(run: RecordedRun) -> int:
    """Return how many cells of a run were measured by other code than today's, on any backend."""
    others = run.plan.other_codes(m.code for m in run.measured) if run.plan else ()
    return sum(m.code in others for m in run.measured)


def _compare(derived: JsonDocument | None, stated: JsonDocument | None) -> Iterator[str]:
    """Yield in what the evidence of a claim and its document in results.json disagree."""
    if stated is None:
        yield "results.json has nothing of it: python -m pipelines report --publish"
    elif derived is None:
        if stated["verdict"] not in verdict.UNDECIDED:
            yield f"results.json says {stated['verdict']}, and no evidence says so"
    else:
        said, found = ({k: d.get(k) for k in COMPARED} | d["metrics"] for d in (stated, derived))
        for key in dict.fromkeys([*found, *said]):
            both = (to_jsonable_python(d.get(key), inf_nan_mode="null") for d in (said, found))
            texts = [json.dumps(each, ensure_ascii=False) for each in both]
            numbers = ([float(number) for number in NUMBER.findall(text)] for text in texts)
            words = [NUMBER.split(text) for text in texts]
            if words[0] != words[1] or not json_document.are_same(*numbers):
                yield f"{key}: results.json says {texts[0]}, its curves {texts[1]}"
