"""A claim's charts in MLflow: the curves of its settings as metrics of its one run.

A metric is a curve at a setting, the mean over its seeds: `curve/ratio d 8 gamma 1`. Curves that
the claim compares, such as what is measured and its bound, share a chart.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from pipelines.measurement.grid import Array, Curve, Measured, mean_curve, split_by
from pipelines.measurement.plan import MeasurementPlan
from pipelines.tracking import history

CURVE = "curve/"  # begins the names of these metrics
MOST_CURVES, MOST_POINTS = 20, 100  # of a chart, of a curve: more cannot be told apart
UNTAKEN = re.compile(r"[^\w.\- ]+")  # of the characters of a metric's name


def curves(plan: MeasurementPlan, measured: Sequence[Measured]) -> dict[str, Curve]:
    """Return by metric the curves of the charts of a claim.

    Of many settings some are drawn, evenly chosen from the first to the last; of a long curve some
    points.
    """
    axes = history.differing_keys([m.point for m in measured])
    settings = split_by(measured, axes)
    return {
        name_metric(key, label): thin(*mean_curve(recorded)[:2])
        for keys in plan.claim.charts
        for place in spread(len(settings), max(1, MOST_CURVES // len(keys)))
        for label, cells in settings[place : place + 1]
        for key in keys
        if (recorded := [(m.steps, m.curves[key]) for m in cells if key in m.curves])
    }


def names(charts: Sequence[Sequence[str]], metrics: Iterable[str]) -> dict[str, list[str]]:
    """Return by title, `ratio vs bound`, the metrics of a run that the charts of its claim draw."""
    recorded = [metric for metric in metrics if metric.startswith(CURVE)]
    drawn = {
        " vs ".join(keys): [m for m in recorded if m.removeprefix(CURVE).partition(" ")[0] in keys]
        for keys in charts
    }
    return {title: chart for title, chart in drawn.items() if chart}


def name_metric(key: str, label: Sequence[str]) -> str:
    """Return `curve/ratio d 8 gamma 1`, of characters that MLflow takes."""
    words = [UNTAKEN.sub("_", part.replace("=", " ")) for part in label]
    return " ".join([f"{CURVE}{key}", *words])[:250]


def spread(length: int, most: int) -> list[int]:
    """Return at most so many places of a row, evenly spread from its first to its last."""
    return [round(place) for place in np.linspace(0, length - 1, min(length, most)).tolist()]


def thin(steps: Array, values: Array) -> Curve:
    """Return at most MOST_POINTS points of a curve, the first and the last among them."""
    places = spread(len(steps), MOST_POINTS)
    return steps[places], values[places]
