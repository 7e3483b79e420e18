"""Studies side by side: what each found, how hard it was to find, what it cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import UserError
from tuning import catalog
from tuning.analysis import figures, tunability, tunability_report
from tuning.plan import PLAN, Plan
from tuning.storage import storage

COLUMNS = {  # of the table: metric, and its title
    "trials": "trials",
    "best_val_error_pct": "best val. error %",
    "gain_pct": "gain over its start",
    "test_error_pct": "test error %",
    "good_share": "share good",
    "good_rate_decades": "good rates, decades",
    "paper_rank": "rank of its start",
    "device_hours": "device-hours",
}


def compare(
    names: Sequence[str],
    where: str | None = None,
    out: Path | None = None,
    good_pct: float | None = None,
) -> dict[str, Any]:
    """Return the numbers of two studies or more, and their best-of-k curves, drawn into `out`.

    `good_pct`: the error up to which trials of all are good (None: each study's own limit).
    """
    if len(names) < 2:
        raise UserError(
            f"Studies are compared two or more at a time. Received: {list(names)}. Name another; "
            "python -m tuning list names them."
        )
    there = storage.resolve_url(where)
    documents = [catalog.describe(name, there) for name in names]
    measured = {name: _tunability_of(name, there, good_pct) for name in names}
    if out:
        _draw({name: found.curve for name, found in measured.items()}, out)
    return {
        "studies": [
            {key: document[key] for key in ("study", "recipe", "scale", "space", "sampler")}
            | {"metrics": document["metrics"] | _metrics_at(measured[document["study"]], good_pct)}
            for document in documents
        ],
        "best_of_k": {
            name: {
                "expected": found.curve.expected.tolist(),
                "low": found.curve.low.tolist(),
                "high": found.curve.high.tolist(),
            }
            for name, found in measured.items()
        },
        "figure": str(out) if out else None,
    }


def _tunability_of(name: str, where: str, good_pct: float | None) -> tunability.Tunability:
    study = catalog.load(name, where)
    plan, trials = Plan.of(study.user_attrs[PLAN]), study.get_trials(deepcopy=False)
    return tunability.measure(trials, chance_pct=plan.chance_pct, good_pct=good_pct)


def _metrics_at(found: tunability.Tunability, good_pct: float | None) -> dict[str, float]:
    """Return the numbers under a limit that is not the study's own."""
    return {} if good_pct is None else tunability_report.metrics(found)


def _draw(curves: dict[str, tunability.BestOfK], out: Path) -> None:
    try:
        figures.draw_best_of_k(curves).savefig(out, dpi=120)
    except (OSError, ValueError) as error:
        raise UserError(
            f"The figure needs a file it can write, .png or .pdf. Received: {out}: {error}. Name "
            "another with --out."
        ) from error


def print_comparison(document: dict[str, Any]) -> None:
    """Print the table: a row a number, a column a study."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", *(study["study"] for study in document["studies"]))
    for key in ("recipe", "space", "sampler"):
        table.add_row(key, *(study[key] for study in document["studies"]))
    for metric, title in COLUMNS.items():
        table.add_row(title, *(_cell(study["metrics"], metric) for study in document["studies"]))
    Console().print(table)


def _cell(metrics: dict[str, float], metric: str) -> str:
    """A number with its band, where it has one."""
    if metric not in metrics:
        return ""
    low, high = metrics.get(f"ci_low/{metric}"), metrics.get(f"ci_high/{metric}")
    band = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    return f"{metrics[metric]:.4g}{band}"
