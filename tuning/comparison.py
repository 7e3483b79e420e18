"""Studies side by side: what each found, how hard it was to find, what it cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import UserError
from pipelines.results.comparison import write_figure
from tuning import catalog
from tuning.analysis import figures, tunability, tunability_report
from tuning.plan import StudyPlan
from tuning.storage import storage

TITLES = {  # keys: metrics
    "trials": "trials",
    "best_val_error_pct": "best val. error %",
    "gain_pct": "gain over its start",
    "test_error_pct": "test error %",
    "good_share": "share good",
    "good_rate_decades": "good rates, decades",
    "paper_rank": "rank of its start",
    "device_hours": "cost",
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
    url = storage.resolve_url(where)
    documents = [catalog.describe(name, url) for name in names]
    measured = {}
    for name in names:
        study = catalog.load(name, url)
        chance_pct = StudyPlan.from_study(study).chance_pct
        trials = study.get_trials(deepcopy=False)
        measured[name] = tunability.measure(trials, chance_pct=chance_pct, good_pct=good_pct)
    curves = {name: each.curve for name, each in measured.items()}
    if out:
        write_figure(figures.draw_best_of_k(curves), out)
    if good_pct is not None:  # the numbers under a limit that is not the study's own
        for document in documents:
            document["metrics"] |= tunability_report.metrics(measured[document["study"]])
    keys = ("study", "recipe", "scale", "space", "sampler", "metrics")
    return {
        "studies": [{key: document[key] for key in keys} for document in documents],
        "best_of_k": {
            name: {key: array.tolist() for key, array in vars(curve).items()}
            for name, curve in curves.items()
        },
        **({"figure": str(out.resolve())} if out else {}),
    }


def print_comparison(document: dict[str, Any]) -> None:
    """Print the table, a row a number and a column a study, and where the picture is."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", *(study["study"] for study in document["studies"]))
    for key in ("recipe", "space", "sampler"):
        table.add_row(key, *(study[key] for study in document["studies"]))
    for metric, title in TITLES.items():
        table.add_row(title, *(_cell(study["metrics"], metric) for study in document["studies"]))
    Console().print(table)
    if "figure" in document:
        print(f"Their best of k trials as a picture: {document['figure']}")


def _cell(metrics: dict[str, float], metric: str) -> str:
    """Return a number with its band, where it has one."""
    if metric not in metrics:
        return ""
    if metric == "device_hours":
        return tunability_report.device_time(metrics[metric])
    low, high = metrics.get(f"ci_low/{metric}"), metrics.get(f"ci_high/{metric}")
    band = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    return f"{metrics[metric]:.4g}{band}"
