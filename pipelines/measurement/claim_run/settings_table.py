"""settings.csv of a claim's or a sweep's run: one row a cell."""

import contextlib
import csv
import io
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from pipelines.measurement.claim import Claim
from pipelines.measurement.grid import ASSUMPTION, Measured
from pipelines.running.seed_statistics import format_mean, standard_deviation
from pipelines.tracking import history, store

FILE = "settings.csv"
WORST_PREFIX = "worst_"  # begins the columns of the bounded metrics

Rows = Sequence[Mapping[str, Any]]


def rows(claim: Claim, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return a row a cell: settings, seed, share of steps in the premise, worst and last values."""
    inner, bounds = claim.inner, claim.curve_bounds(measured)
    return [
        {
            **{key: value for key, value in m.cell.params.items() if key != inner},
            ASSUMPTION: float(m.holds.mean()),
            **{  # NaN where no value is judged
                f"{WORST_PREFIX}{b.metric}": b.worst(judged) if len(judged) else math.nan
                for b in bounds
                for judged in [m.curves[b.metric][m.holds]]
            },
            **{f"last_{key}": float(values[-1]) for key, values in m.curves.items()},
            "points": len(m.steps),
        }
        for m in measured
    ]


def write(table: Rows) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    columns = dict.fromkeys(key for row in table for key in row)  # some cells lack some
    writer = csv.DictWriter(text, columns, restval="nan")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def read(run_id: str) -> list[dict[str, Any]]:
    """Return the rows of a run's table, with numbers as such."""
    return parse((store.artifact(run_id, FILE) or b"").decode())


def parse(text: str) -> list[dict[str, Any]]:
    """Return the rows of a table as CSV, with numbers as such."""
    found = csv.DictReader(io.StringIO(text, newline=""))
    return [{key: _parse_number(value) for key, value in row.items()} for row in found]


def _parse_number(text: str) -> str | float:
    """Return a number, where the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def summarize(table: Rows) -> list[list[str]]:
    """Return a table, head first: one row a setting, of every bounded metric its worst, over seeds.

    The columns are the settings in which the rows differ, the share of steps where the premise
    holds, and the metrics as mean ± sd.
    """
    axes = differing_settings(table)
    worst = [key for key in table[0] if key.startswith(WORST_PREFIX)]
    points: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in table:
        points.setdefault(tuple(str(cell[key]) for key in axes), []).append(cell)
    summary = [[*axes, "premise", *(key.removeprefix(WORST_PREFIX) for key in worst)]]
    for point, cells in points.items():
        holds = f"{mean(float(cell[ASSUMPTION]) for cell in cells):.0%}"
        spreads = [_format_spread([float(cell[key]) for cell in cells]) for key in worst]
        summary.append([*point, holds, *spreads])
    return summary


def _format_spread(values: Sequence[float]) -> str:
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "not judged"
    return format_mean({"mean": mean(values), "sd": standard_deviation(values)})


def differing_settings(table: Rows) -> list[str]:
    """Return the settings in which the rows of a table differ, other than the seed."""
    columns = list(table[0]) if table else ["seed"]
    settings = columns[: columns.index("seed")]
    return history.differing_keys([{key: row[key] for key in settings} for row in table])
