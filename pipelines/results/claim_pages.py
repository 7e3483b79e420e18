"""A page a claim, in Markdown: the statement, the verdict and why, the curves, the command.

All of it comes from the claim's card and the bundles of its evidence; no database is needed. A
chart is Plotly's: a colour a setting, its mean over seeds and its seeds.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_run import page
from pipelines.measurement.grid import Curve, Measured, mean_curve, split_by
from pipelines.measurement.plan import MeasurementPlan
from pipelines.results import web_page
from pipelines.results.evidence.bundles import histories
from pipelines.results.evidence.check import count_other_code
from pipelines.results.evidence.recorded import RecordedRun
from pipelines.results.scoreboard import Entry
from pipelines.tracking import history
from pipelines.tracking.bundles.shape import Document

MOST_SETTINGS, MOST_POINTS = 10, 200  # in a chart, on a curve: more cannot be told apart
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # one a metric of a chart
COLOURS = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"),
    *("#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"),
)
STEP = "step"  # the axis of iterations: linear convergence is a line where only y is logarithmic
LEARNING_CURVES = (("train_loss", "val_loss"), ("train_error_pct", "val_error_pct"))

Array = NDArray[Any]


def charts(run: RecordedRun, plan: MeasurementPlan) -> Iterator[Mapping[str, Any]]:
    """Yield the charts that the claim names, then the learning curves of what it trained."""
    groups = _cell_groups(run.measured)
    trainings = [each for each in run.trainings if each.tags["kind"] == "training"]
    arms = _training_groups(trainings, plan)
    axis = plan.claim.inner or STEP
    wanted = [(groups, metrics, axis) for metrics in plan.claim.charts]
    wanted += [(arms, metrics, STEP) for metrics in LEARNING_CURVES]
    yield from (chart for each in wanted if (chart := draw(*each)))


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
        charts=[  # JSON that may stand in a page of HTML
            (chart, json.dumps(chart, separators=(",", ":")).replace("<", "\\u003c"))
            for chart in (charts(run, run.plan) if run and run.plan else ())
        ],
        figure=figure,
        card=web_page.card_html(entry.name),
    )


@dataclass(frozen=True)
class Group:
    """The runs that share a colour of a chart: they differ in their seed alone."""

    label: str
    runs: Sequence[tuple[Array, Mapping[str, Array]]]
    """One pair a seed: steps [k], and by metric values [k], NaN where a step has none."""

    def curves(self, metric: str) -> list[Curve]:
        """Return the curve of every seed, at the steps that have a value."""
        recorded = [(steps, values[metric]) for steps, values in self.runs if metric in values]
        return [(steps[~np.isnan(v)], v[~np.isnan(v)]) for steps, v in recorded]


def _cell_groups(measured: Sequence[Measured]) -> list[Group]:
    """Return the settings of a claim in which its cells differ, each with its seeds."""
    axes = history.differing_keys([m.point for m in measured])
    return [
        Group(" ".join(label), [(m.steps, m.curves) for m in cells])
        for label, cells in split_by(measured, axes)
    ]


def _training_groups(trainings: Iterable[Document], plan: MeasurementPlan) -> list[Group]:
    """Return the arms of a claim in its order, each by the parameters in which it differs."""
    arms: dict[str, list[Document]] = {name: [] for name in plan.arm_names.values()}
    for each in trainings:
        arms.setdefault(plan.arm_of(each.tags), []).append(each)
    return [group for name, documents in arms.items() for group in _split_arm(name, documents)]


def _split_arm(name: str, documents: Sequence[Document]) -> list[Group]:
    """Return the trainings of an arm, those that differ in their seed alone together."""
    params = [history.without_seed(d.params) for d in documents]
    axes = history.differing_keys(params)
    groups: dict[str, list[tuple[Array, Mapping[str, Array]]]] = {}
    for document, values in zip(documents, params, strict=True):
        words = [f"{key.rpartition('.')[2]}={values[key]}" for key in axes if key in values]
        words = [name, *words] if name else words
        curves = {k: v for k, v in histories(document).items() if len(v) > 1}
        groups.setdefault(" ".join(words), []).append(history.table(curves))
    return [Group(label, runs) for label, runs in groups.items()]


def draw(groups: Sequence[Group], metrics: Sequence[str], axis: str) -> dict[str, Any] | None:
    """Return a chart of these metrics; None where none of them is a curve."""
    shown = [m for m in metrics if any(_has_curve(group, m) for group in groups)]
    if not shown:
        return None
    drawable = [group for group in groups if any(_has_curve(group, m) for m in shown)]
    chosen = [drawable[i] for i in page.spread(len(drawable), MOST_SETTINGS)]
    one = len(chosen) == 1
    keys = [] if one or len(shown) == 1 else [_key(m, DASHES[i]) for i, m in enumerate(shown)]
    traces: list[dict[str, Any]] = []
    for number, group in enumerate(chosen):
        for index, metric in enumerate(shown):
            colour = COLOURS[(index if one else number) % len(COLOURS)]
            label = metric if one else group.label
            line = {"color": colour, "dash": DASHES[index]}
            traces += _traces(group, metric, label, line, in_legend=one or index == 0)
    values = [y for trace in traces for y in trace["y"] if y is not None]
    shares = all(metric.endswith("_pct") for metric in shown)
    most_positive = 2 * sum(value > 0 for value in values) > len(values)
    logarithmic = not shares and most_positive and min(values) >= 0
    longest = max((steps for group in chosen for steps, _ in group.runs), key=len)
    steps = longest[longest > 0]  # 8, 16, 32, 64: only a logarithmic axis shows them all
    grow = len(steps) > 3 and steps[-1] - steps[-2] > 3 * (steps[1] - steps[0])
    geometric = bool(grow and steps[-1] >= 8 * steps[0])
    return {
        "traces": [*keys, *traces],
        "x": axis,
        "y": ", ".join(shown),
        "logarithmic": {
            "x": geometric and not (axis == STEP and logarithmic),
            "y": logarithmic,
        },
        "settings": len(chosen),
        "all_settings": len(drawable),
    }


def _traces(
    group: Group, metric: str, label: str, line: Mapping[str, str], in_legend: bool
) -> list[dict[str, Any]]:
    """Return the mean over seeds of one curve, and below it the seeds, lighter."""
    curves = group.curves(metric)
    if not curves:
        return []
    common = {"mode": "lines", "legendgroup": label, "name": label}
    steps, values, _ = mean_curve(curves)
    mean = _trace(steps, values) | common | {"line": {**line, "width": 2}, "metric": metric}
    traces = [mean | {"showlegend": in_legend}]
    if len(curves) > 1 and line["dash"] == DASHES[0]:
        parts = [_trace(*curve) for curve in curves]
        seeds = {k: [v for part in parts for v in (*part[k], None)] for k in ("x", "y")}
        light = {"line": {**line, "width": 1}, "opacity": 0.3, "hoverinfo": "skip"}
        traces.insert(0, seeds | common | light | {"showlegend": False})
    return traces


def _key(metric: str, dash: str) -> dict[str, Any]:
    """Return the entry of the legend that says how the lines of a metric are dashed."""
    line = {"color": "#888", "dash": dash}
    return {"x": [None], "y": [None], "mode": "lines", "line": line, "name": metric}


def _trace(steps: Array, values: Array) -> dict[str, Any]:
    """Return numbers as JSON can hold them, thinned and rounded to what can be seen."""
    steps, values = page.thin(steps, values, MOST_POINTS)
    rounded = [float(f"{v:.4g}") if np.isfinite(v) else None for v in values]
    return {"x": [int(step) for step in steps], "y": rounded}


def _has_curve(group: Group, metric: str) -> bool:
    return any(len(steps) > 1 for steps, _ in group.curves(metric))
