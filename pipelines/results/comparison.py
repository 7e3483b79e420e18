"""Runs side by side: the parameters and the metrics in which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.errors import UserError, unknown
from pipelines.tracking import history, mlflow_ui, tracked_run
from pipelines.tracking.history import Row

MIN_ID_LETTERS = 4  # letters of an id that name a run
MISSING = "-"
MAX_CHARTS = 12  # a comparison has so many charts of curves, and as many of numbers
MAX_VALUE_LETTERS = 40  # longer values are cut in the terminal


def compare(names: Sequence[str]) -> dict[str, Any]:
    """Return where the runs of these names differ, in this order; `difference` is from the first.

    A name is an id here or where the run was measured, the beginning of one, or a run's name, of
    which the newest is taken. Metrics are the latest values; of those over seeds the deviation and
    number stand beside the mean.
    """
    if len(names) < 2:
        raise UserError(
            f"A comparison needs at least two runs. Received: {len(names)}. Name two or more, by "
            "their ids or names."
        )
    recorded = history.outlines()
    rows = [find_run(name, recorded) for name in names]
    differing = sorted(history.differing_keys([row.params for row in rows]))
    return {
        "runs": [
            {"run_id": r.id, "name": r.name, "status": r.status, "source": r.tags.get("source")}
            for r in rows
        ],
        "page": mlflow_ui.comparison_page([row.id for row in rows], _charts(rows)),
        "params": {key: [row.params.get(key) for row in rows] for key in differing},
        "equal_params": len(_keys(r.params for r in rows)) - len(differing),
        "metrics": {
            key: {
                "values": values,
                "sd": [row.metrics.get(f"sd/{key}") for row in rows],
                "n": [row.metrics.get(f"n/{key}") for row in rows],
                "difference": [None if None in (v, values[0]) else v - values[0] for v in values],  # type: ignore[operator]
            }
            for key in _keys(r.metrics for r in rows)
            if "/" not in key
            for values in [[row.metrics.get(key) for row in rows]]
        },
    }


def _charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return charts of the curves that runs share, then of the numbers that they share."""
    shared = [m for m in _keys(r.metrics for r in rows) if sum(m in r.metrics for r in rows) > 1]
    histories = history.histories([row.id for row in rows]).values()
    curves = {m for m in shared if any(len(each.get(m, ())) > 1 for each in histories)}
    names = [*mlflow_ui.LEARNING, *sorted(curves - {*mlflow_ui.LEARNING})]
    lines = [m for m in names if m in curves and not m.startswith(tracked_run.SYSTEM)]
    bars = [m for m in shared if m not in curves and "/" not in m]
    return [
        *map(mlflow_ui.learning_chart, lines[:MAX_CHARTS]),
        *map(mlflow_ui.bar_chart, bars[:MAX_CHARTS]),
    ]


def _keys(mappings: Any) -> list[str]:
    return sorted(set[str]().union(*mappings))


def find_run(name: str, rows: Sequence[Row]) -> Row:
    """Return the run of that id or beginning of an id, else the newest of that name, of outlines.

    The newest come first.
    """
    matches = [r for r in rows if r.id.startswith(name) or r.origin.startswith(name)]
    if len(name) < MIN_ID_LETTERS:
        matches = []
    if len(matches) > 1:
        raise UserError(
            f"The beginning of an id must be of one run. Received: {name}, of {len(matches)}. Give "
            "more letters."
        )
    for row in matches or [row for row in rows if row.name == name]:
        return history.row(row.id)
    names = {row.name for row in rows if row.tags.get("kind") != "setting"}
    shown_by = f"python -m pipelines ui (of an id, {MIN_ID_LETTERS} letters or more are enough)"
    raise unknown("A run", name, names, shown_by)


def print_comparison(document: Mapping[str, Any]) -> None:
    """Print the comparison, a column a run."""
    from rich.console import Console
    from rich.table import Table

    runs = [f"{run['name']}\n{run['run_id'][:8]}" for run in document["runs"]]
    params = Table("parameter", *runs, caption=f"{document['equal_params']} others are equal")
    for key, values in document["params"].items():
        whole = [MISSING if value is None else value for value in values]
        n = MAX_VALUE_LETTERS
        params.add_row(key, *(each if len(each) <= n else f"{each[:n]}..." for each in whole))
    metrics = Table("metric", *runs)
    for key, metric in document["metrics"].items():
        metrics.add_row(key, *(_cell(metric, i) for i in range(len(runs))))
    for table in (params, metrics):
        Console().print(table if table.row_count else f"No {table.columns[0].header}s differ.")
    print(f"In the UI: {document['page']}")


def _cell(metric: Mapping[str, Any], i: int) -> str:
    """Return `7.1 ± 0.2 (n = 5)  +0.72`: the value, and its difference from the first run's."""
    value, sd, n, difference = (metric[k][i] for k in ("values", "sd", "n", "difference"))
    if value is None:
        return MISSING
    number = f" (n = {n:.0f})" if n else ""
    spread = f" ± {sd:.2g}{number}" if sd else ""
    return f"{value:.4g}{spread}" + (f"  {difference:+.3g}" if i and difference else "")
