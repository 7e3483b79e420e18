"""Recorded runs as pandas tables, and the learning curves of trainings drawn from one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.errors import UserError
from pipelines.measurement.grid import Measured, cell_title
from pipelines.tracking import history, store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COMPARED = ("val_error_pct", "train_error_pct", "val_loss", "train_loss")  # the first two
DRAWN = ("batch_loss", "val_error_pct", "val_loss")  # the first two that a training has


def table_of(rows: Iterable[history.Row]) -> "pd.DataFrame":
    """Return runs as a table: params and metrics as numbers where they are some."""
    import pandas as pd

    records = [
        {"run_id": row.id, "name": row.name, "status": row.status}
        | {"start_time": pd.Timestamp(row.start_ms, unit="ms", tz="UTC")}
        | {f"params.{key}": _parse(value) for key, value in row.params.items()}
        | {f"metrics.{key}": value for key, value in row.metrics.items()}
        | {f"tags.{k}": v for k, v in row.tags.items() if k == store.PARENT or "mlflow." not in k}
        for row in rows
    ]
    return pd.DataFrame(records, columns=None if records else ["run_id", "name", "status"])


def curves_of(table: "pd.DataFrame", metrics: str | Sequence[str] | None = None) -> "pd.DataFrame":
    """Return curves of the runs of a table, one point a row, with the params that differ."""
    import pandas as pd

    params = [column for column in table if str(column).startswith("params.")]
    differing = [c for c in params if c == "params.seed" or table[c].nunique(dropna=False) > 1]
    about = table[["run_id", "name", *differing]].rename(columns=lambda c: c.split("params.")[-1])
    recorded = history.points(list(table["run_id"]))
    points = pd.DataFrame(recorded, columns=["run_id", "metric", "step", "time", "value"])
    wanted = [metrics] if isinstance(metrics, str) else metrics
    kept = ~points["metric"].str.contains("/") if wanted is None else points.metric.isin(wanted)
    points = points[kept].drop_duplicates(["run_id", "metric", "step"], keep="last")
    points = points.sort_values(["metric", "step"]).drop(columns="time")
    return about.merge(points, on="run_id").reset_index(drop=True)


def curves_of_cells(
    measured: Sequence[Measured], metrics: str | Sequence[str] | None = None
) -> "pd.DataFrame":
    """Return curves of cells, one point a row, with the settings that differ."""
    import pandas as pd

    wanted = [metrics] if isinstance(metrics, str) else metrics
    axes = history.differing_keys([m.point for m in measured])
    parts = [
        pd.DataFrame(
            {"name": cell_title(m.cell, dict.fromkeys(axes, (0, 1)))}
            | {key: m.point[key] for key in axes}
            | {"seed": m.cell.seed, "metric": metric, "step": m.steps, "value": values}
        )
        for m in measured
        for metric, values in m.curves.items()
        if wanted is None or metric in wanted
    ]
    columns = ["name", *axes, "seed", "metric", "step", "value"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _parse(text: str) -> Any:
    """Return a parameter as the number, truth or None that it is; lists stay text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, list | dict) else value


def draw_curves(table: "pd.DataFrame") -> "Figure":
    """Return the learning curves of trainings, each in a colour."""
    from matplotlib.figure import Figure

    recorded = set(table["metric"])
    shown = [metric for metric in DRAWN if metric in recorded][:2]
    if not shown:
        raise UserError(
            f"A figure needs learning curves. Received: none of {', '.join(DRAWN)}. Draw another "
            "number from the table: .curves()"
        )
    picture = Figure(figsize=(10, 4), layout="constrained")
    for axes, metric in zip(picture.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for name, curve in table[table["metric"] == metric].groupby("name"):
            axes.plot(curve["step"], curve["value"], label=name)
        axes.set(xlabel="step", ylabel=metric)
        axes.legend(fontsize=8)
    return picture


def draw_bands(tables: "Mapping[str, pd.DataFrame]") -> "Figure":
    """Return learning curves of several settings, each the mean of its seeds.

    `tables` are the curves of a setting's seeds by its name. The band of a mean goes from the least
    to the largest of the seeds, at the steps that all of them have.
    """
    from matplotlib.figure import Figure

    recorded = [set(table["metric"]) for table in tables.values()]
    shown = [metric for metric in COMPARED if all(metric in each for each in recorded)][:2]
    if not shown:
        raise UserError(
            "A picture needs learning curves that all runs have. Received: none of "
            f"{', '.join(COMPARED)}. Compare trainings of one kind."
        )
    picture = Figure(figsize=(10, 4.5), layout="constrained")
    for axes, metric in zip(picture.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for name, table in tables.items():
            points = table[table["metric"] == metric]
            seeds = points.pivot_table(index="step", columns="run_id", values="value").dropna()
            axes.plot(seeds.index, seeds.mean(axis=1), label=name)
            if seeds.shape[1] > 1:
                axes.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), alpha=0.2)
        axes.set(xlabel="step", ylabel=metric, yscale="log" if "loss" in metric else "linear")
    lines, names = axes.get_legend_handles_labels()
    about = "means over seeds, in bands from the least to the largest"
    picture.legend(lines, names, loc="outside lower center", title=about, fontsize=9)
    return picture
