"""A page a claim, in Markdown: the statement, the verdict and why, the curves, the command.

All of it comes from the claim's card and the bundles of its evidence; no database is needed.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.plan import MeasurementPlan
from pipelines.results import _claim_charts, web_page
from pipelines.results.evidence.check import count_other_code
from pipelines.results.evidence.recorded import RecordedRun
from pipelines.results.scoreboard import Entry


def charts(run: RecordedRun, plan: MeasurementPlan) -> Iterator[Mapping[str, Any]]:
    """Yield the charts that the claim names, then the learning curves of what it trained."""
    groups = _claim_charts.cell_groups(run.measured)
    trainings = [each for each in run.trainings if each.tags["kind"] == "training"]
    arms = _claim_charts.training_groups(trainings, plan)
    axis = plan.claim.inner or _claim_charts.STEP
    wanted = [(groups, metrics, axis) for metrics in plan.claim.charts]
    wanted += [(arms, metrics, _claim_charts.STEP) for metrics in _claim_charts.LEARNING_CURVES]
    yield from (chart for each in wanted if (chart := _claim_charts.draw(*each)))


def write_page(entry: Entry, figure: str) -> str:
    """Return the page of a claim; `figure` is an address, empty for no figure."""
    run = entry.project.recorded if entry.project else None
    return web_page.render(
        "claim_page.md",
        name=entry.name,
        claim=claim_catalog.load(entry.name),
        view=entry.view,
        other_code=count_other_code(run) if run else 0,
        cells=len(run.measured) if run else 0,
        charts=[  # as JSON that can stand in a page of HTML
            (chart, json.dumps(chart, separators=(",", ":")).replace("<", "\\u003c"))
            for chart in (charts(run, run.plan) if run and run.plan else ())
        ],
        figure=figure,
        card=web_page.card_html(entry.name),
    )
