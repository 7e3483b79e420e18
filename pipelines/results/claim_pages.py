"""A page a claim, in Markdown: the statement, the verdict and why, the curves, the command.

All of it comes from the claim's card and the bundles of its evidence; no database is needed.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.measurement import claim_catalog, documents
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.measurement.verdict import SMALLER_SCALE, Bound
from pipelines.results import _claim_charts, _templates, scoreboard
from pipelines.results.evidence import recorded
from pipelines.results.evidence.check import count_other_code
from pipelines.running.seed_statistics import format_spread
from pipelines.tracking.bundles.shape import Document

Chart = Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """What the evidence holds of a claim at its largest scale."""

    result: scoreboard.Result
    plan: MeasurementPlan
    values: Mapping[str, Sequence[float]]
    """By metric, one number a seed."""
    cells: Sequence[Measured]
    other_code: int
    """Cells that were measured by other code than today's."""
    trainings: Sequence[Document]

    @property
    def charts(self) -> Iterator[Chart]:
        """Yield the charts that the claim names, then the learning curves of what it trained."""
        groups = _claim_charts.cell_groups(self.cells)
        axis = self.plan.claim.inner or _claim_charts.STEP
        arms = _claim_charts.training_groups(self.trainings, self.plan.arm_names)
        wanted = [(groups, metrics, axis) for metrics in self.plan.claim.charts]
        wanted += [(arms, metrics, _claim_charts.STEP) for metrics in _claim_charts.LEARNING_CURVES]
        drawn = (_claim_charts.draw(*each) for each in wanted)
        yield from (chart for chart in drawn if chart)


def read(name: str) -> Measurement | None:
    """Return what the evidence holds of a claim, every byte of it checked; None without any."""
    evidence = recorded.read(name)
    run = evidence.deciding
    if run is None or run.plan is None:
        return None
    return Measurement(
        result=scoreboard.Result(run.row, run.plan.claim.judge(run.seed_values, run.plan.scale)),
        plan=run.plan,
        values=run.seed_values,
        cells=run.measured,
        other_code=count_other_code(run),
        trainings=[d for d in evidence.trainings_of(run) if d.tags["kind"] == "training"],
    )


def entry(name: str, measurement: Measurement | None) -> scoreboard.Entry:
    """Return the row of a claim on the scoreboard of the project."""
    return scoreboard.Entry(name, measurement.result if measurement else None)


def write_page(name: str, measurement: Measurement | None, figure: str) -> str:
    """Return the page of a claim; `figure` is an address, empty for no figure."""
    claim = claim_catalog.load(name)
    charts = list(measurement.charts) if measurement else []
    bounds: list[tuple[Bound, str, tuple[float, float] | None]] = []
    for bound, about in itertools.product(claim.decided_by, [measurement] if measurement else []):
        # nothing of a reported number where the scale is not the published one
        judged = about.result.verdict != SMALLER_SCALE
        judged &= about.plan.scale == "paper" or bound.metric not in claim.reported
        numbers = about.values.get(bound.metric, ()) if judged else ()
        verdict = bound.verdict(numbers) if numbers else ""
        bounds.append((bound, verdict, bound.deciding_interval(numbers)))
    return _templates.render(
        "claim_page.md",
        name=name,
        claim=claim,
        entry=entry(name, measurement),
        measurement=measurement,
        document=measurement.result.document() if measurement else {},
        bounds=bounds,
        command=documents.repeat_command(measurement.plan) if measurement else None,
        charts=[  # as JSON that can stand in a page of HTML
            (chart, json.dumps(chart, separators=(",", ":")).replace("<", "\\u003c"))
            for chart in charts
        ],
        figure=figure,
        spread=format_spread,
        card=_templates.card_html(name),
    )
