"""Runs side by side: learning curves, numbers with what is noise, and settings that differ."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from pipelines.errors import UserError, disk_error, short, unknown
from pipelines.results import frames
from pipelines.running import seed_statistics, seeds
from pipelines.tracking import history, mlflow_ui, store, tracked_run, ui_server
from pipelines.tracking.history import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_ID_LETTERS = 4  # letters of an id that name a run
MISSING = "-"
MAX_CHARTS = 12  # a comparison has so many charts of curves, and as many of numbers
MAX_VALUE_LETTERS = 40  # longer values are cut in the terminal
TRAININGS = ("training", seeds.KIND)  # kinds of runs that have learning curves
FIRST = ("val_error_pct", "test_error_pct", "best_val_error_pct", "val_loss", "test_loss")


def compare(names: Sequence[str], out: Path | None = None) -> dict[str, Any]:
    """Return where the runs of these names differ, in this order; `difference` is from the first.

    Their curves are drawn into the file `out`, where one is given.

    A name is an id here or where the run was measured, the beginning of one, or a run's name, of
    which the newest is taken. Metrics are the latest values; of a run over seeds they are means,
    with deviation and number beside them, and `interval` is the 95 % Welch interval of the
    difference: None where one of the two has no spread, as a single run has none.
    """
    rows = find_runs(names)
    if out:
        write_figure(draw(rows), out)
    differing = sorted(history.differing_keys([row.params for row in rows]))
    spreads = [seeds.spreads(row) for row in rows]
    return {
        "runs": [
            {"run_id": r.id, "name": r.name, "status": r.status, "source": r.tags.get("source")}
            for r in rows
        ],
        "page": _page(rows),
        "params": {key: [row.params.get(key) for row in rows] for key in differing},
        "equal_params": len(_keys(r.params for r in rows)) - len(differing),
        "metrics": {
            key: _compare_metric([metrics.get(key) for metrics in spreads])
            for key in sorted(_keys(spreads), key=lambda key: key not in FIRST)
        },
        **({"figure": str(out.resolve())} if out else {}),
    }


def find_runs(names: Sequence[str]) -> list[Row]:
    """Return the runs of these names, two or more."""
    if not 2 <= len(names) <= len(ascii_uppercase):
        raise UserError(
            f"A comparison takes 2 to {len(ascii_uppercase)} runs. Received: {len(names)}. Name "
            "them by their ids or names."
        )
    return [find_run(name) for name in names]


def _compare_metric(metrics: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return one number of every run, and how it differs from that of the first."""
    first, n = metrics[0], [metric and metric["n"] for metric in metrics]
    return {
        "values": [metric and metric["mean"] for metric in metrics],
        "sd": [metric and metric["sd"] for metric in metrics],
        "n": n if any(each and each > 1 for each in n) else [None for _ in n],
        "difference": [
            metric["mean"] - first["mean"] if metric and first else None for metric in metrics
        ],
        "interval": [
            seed_statistics.difference(first, metric) if i and metric and first else None
            for i, metric in enumerate(metrics)
        ],
    }


def trainings(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return by the name of a run the trainings behind it; empty unless all runs have some."""
    found = {}
    for row in rows:
        below = seeds.trainings(row) if row.tags.get("kind") in TRAININGS else []
        if not below:
            return {}
        found[row.name if row.name not in found else f"{row.name} ({row.id[:8]})"] = below
    return found


def _page(rows: Sequence[Row]) -> str:
    """Return the address of the learning curves, grouped by setting, else of charts of the runs."""
    if found := trainings(rows):
        flat = {each.id: each for each in itertools.chain(*found.values())}
        return f"{ui_server.address()}/{mlflow_ui.learning_curves([*flat.values()])}"
    return mlflow_ui.comparison_page([row.id for row in rows], _charts(rows))


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


def find_run(name: str, own: bool = False) -> Row:
    """Return the run of that id or beginning of an id, else the newest of that name or title.

    `own`: none of the project's evidence.
    """
    rows = [row for row in history.find_named(name) if not (own and row.is_project)]
    matches = [r for r in rows if r.id.startswith(name) or r.origin.startswith(name)]
    if len(name) < MIN_ID_LETTERS:
        matches = []
    if len(matches) > 1:
        raise UserError(
            f"The beginning of an id must be of one run. Received: {name}, of {len(matches)}. Give "
            "more letters."
        )
    titled = [row for row in rows if row.tags.get(store.TITLE) == name]
    over_seeds = [row for row in titled if row.tags.get("kind") == seeds.KIND]
    same_name = [row for row in rows if row.name == name]
    for row in (*matches, *same_name, *over_seeds, *titled):
        return row
    every = (row for row in history.outlines() if not (own and row.is_project))
    names = {row.name for row in every if row.tags.get("kind") != "setting"}
    shown_by = f"python -m pipelines ui (of an id, {MIN_ID_LETTERS} letters or more are enough)"
    raise unknown("A run", name, names, shown_by)


def draw(rows: Sequence[Row]) -> "Figure":
    """Return the learning curves of runs: of each the mean over its seeds, in a band of them all.

    Raise UserError where one of them is no training.
    """
    found = trainings(rows)
    if not found:
        raise UserError(
            "A picture of a comparison is of trainings, or of runs of a recipe over seeds. "
            f"Received: {', '.join(row.name for row in rows)}. Open the link of `compare` instead."
        )
    return frames.draw_bands(
        {
            name: frames.curves_of(frames.table_of(below), frames.COMPARED)
            for name, below in found.items()
        }
    )


def write_figure(picture: Any, out: Path) -> None:
    """Write a figure of matplotlib into a file, of the kind that its name says.

    Raise UserError for another kind, and UserError or Unavailable where it cannot be written.
    """
    known = sorted(picture.canvas.get_supported_filetypes())
    if out.suffix.removeprefix(".").lower() not in known:
        raise unknown("The ending of a picture's name", out.suffix or out.name, known)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        picture.savefig(out, dpi=120)
    except (OSError, RuntimeError) as error:  # as where LaTeX is not installed
        kind = disk_error(error) if isinstance(error, OSError) else UserError
        raise kind(
            f"The picture needs a file that can be written. Received: {short(error)}. Name "
            "another with --out."
        ) from error


def print_comparison(document: Mapping[str, Any]) -> None:
    """Print the runs, the numbers and their differences, the settings that differ, and a link."""
    from rich.console import Console

    from pipelines.runtime.plain_table import plain_table

    console, letters = Console(highlight=False), ascii_uppercase[: len(document["runs"])]
    for letter, run in zip(letters, document["runs"], strict=True):
        state = "" if run["status"] == "FINISHED" else f", {run['status']}"
        console.print(f"{letter}  {run['name']} ({run['run_id'][:8]}{state})", soft_wrap=True)
    spread = any(sd for metric in document["metrics"].values() for sd in metric["sd"])
    head = ["mean ± sd" if spread else "", *letters]
    numbers = [
        [key, *(_cell(metric, i) for i in range(len(letters)))]
        for key, metric in document["metrics"].items()
    ]
    differences = plain_table("", "difference", "95 % interval", "")
    for key in (key for key in FIRST if key in document["metrics"]):
        for i, letter in [*enumerate(letters)][1:]:
            if row := _describe_difference(document["metrics"][key], i):
                differences.add_row(f"{key}, {letter} - A", *row)
    params = [[key, *map(_shorten, values)] for key, values in document["params"].items()]
    tables = [*_tables(head, numbers, console.width), differences]
    for table in (*tables, *_tables(["", *letters], params, console.width)):
        if table.row_count:
            console.print()
            console.print(table)
    equal = document["equal_params"]
    said = f"{equal} other parameters are equal" if document["params"] else "No parameters differ"
    print(f"{said}.\n\nTheir curves, while `python -m pipelines ui` runs:\n{document['page']}")
    if "figure" in document:
        print(f"Their curves as a picture: {document['figure']}")


def _tables(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Iterator[Any]:
    """Yield tables of at most that width, each with the first column and some of the others."""
    from pipelines.runtime.plain_table import GAP, plain_table

    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        shown = [*parts[-1], column]
        if len(shown) > 2 and sum(widths[each] + GAP for each in shown) - GAP > room:
            parts.append([0])
        parts[-1].append(column)
    for part in parts:
        table = plain_table(*(head[each] for each in part), whole=len(part))
        for row in rows:
            table.add_row(*(row[each] for each in part))
        yield table


def _shorten(value: str | None) -> str:
    if value is None:
        return MISSING
    return value if len(value) <= MAX_VALUE_LETTERS else f"{value[:MAX_VALUE_LETTERS]}..."


def _describe_difference(metric: Mapping[str, Any], i: int) -> tuple[str, str, str] | None:
    """Return the difference of a run from the first, its interval, and whether it is noise."""
    difference, interval = metric["difference"][i], metric["interval"][i]
    if difference is None:
        return None
    if interval is None:
        return f"{difference:+.3g}", "one seed: none", "not known"
    low, high = interval
    is_noise = low <= 0 <= high
    numbers = seed_statistics.format_difference(difference, low, high)
    return *numbers, "within noise" if is_noise else "more than noise"


def _cell(metric: Mapping[str, Any], i: int) -> str:
    """Return `7.1 ± 0.2`, the mean and the deviation over seeds, or the value alone."""
    if metric["values"][i] is None:
        return MISSING
    return seed_statistics.format_mean({"mean": metric["values"][i], "sd": metric["sd"][i]})
