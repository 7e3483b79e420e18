"""The terminal's view of claims, trainings, sweeps and the scoreboard."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipelines.measurement import claim_catalog, documents
from pipelines.measurement.verdict import Bound, format_spread
from pipelines.results import regressions, scoreboard
from pipelines.results.scoreboard import Entry, Result
from pipelines.tracking import history, mlflow_ui

MAX_ROWS = 20  # of a sweep
FOUND = "Found finished with the same settings; --force repeats it."


def show_scoreboard(entries: list[Entry]) -> None:
    """Print the scoreboard: what the project recorded of each claim, and you."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("claim", "decided first by", "recorded by the project", "yours"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        bound = _first_bound(entry)
        project, yours = (_format_result(r, bound.metric) for r in (entry.project, entry.yours))
        if entry.yours and entry.project:
            rows = (entry.project.judged_row, entry.yours.judged_row)
            yours = f"{yours}\n{regressions.agreement(*rows)}"
        table.add_row(entry.name, f"{bound.metric}\n{bound.rule}", project, yours)
    Console().print(table)


def _first_bound(entry: Entry) -> Bound:
    """Return the first bound of a claim whose metric was measured, else its first."""
    bounds = claim_catalog.load(entry.name).decided_by
    metrics = entry.document()["metrics"]
    return next((bound for bound in bounds if bound.metric in metrics), bounds[0])


def _format_result(result: Result | None, metric: str) -> str:
    """Return verdict, scale, the metric, whether the statement fails as printed, and the cost."""
    if result is None:
        return "[yellow]not run[/]"
    colours = {"reproduced": "green", "refuted": "red"}
    verdict = f"[{colours.get(result.verdict, 'yellow')}]{result.verdict}[/] at {result.scale}"
    metrics, wall_s = result.document()["metrics"], result.run.metrics["wall_s"]
    number = format_spread(metrics[metric]) if metric in metrics else "not judged"
    printed = ["as printed: fails"] * result.judgement["as_printed"].startswith("fails")
    return "\n".join([verdict, number, *printed, f"{wall_s:.0f} s"])


def reason_not_measured(document: Mapping[str, Any]) -> str:
    """Return why a claim was not measured, whose run is shown, and what would measure it."""
    row = history.row(document["run_id"])
    if "other_code" not in document and not row.is_project:
        return FOUND
    day = datetime.fromtimestamp(row.start_ms / 1000, UTC).date()
    whose = "the project" if row.is_project else "you"
    code = ", by other code than this" if "other_code" in document else ""
    return (
        f"Measured by {whose} on {day} in {row.metrics['wall_s']:.0f} s (commit "
        f"{row.tags['commit'][:8]}){code}: shown, not measured again. --force measures it here."
    )


def show_report(document: Mapping[str, Any]) -> None:
    """Print the scoreboard, and the files to which it was written."""
    show_scoreboard(scoreboard.entries())
    print(f"Written: {', '.join(document[key] for key in ('results', 'page') if key in document)}")


def show_claim(document: Mapping[str, Any]) -> None:
    """Print the result of a claim beside the project's, and where to see its run."""
    if document["reused"]:
        print(reason_not_measured(document))
    show_scoreboard([scoreboard.entry_of_run(document)])
    _show_location(document)


def show_training(document: Mapping[str, Any]) -> None:
    """Print the numbers of a recipe, a line a metric."""
    if document["reused"]:
        print(FOUND)
    for key, value in document["metrics"].items():
        sd = "" if value["sd"] is None else f" ± {value['sd']:.3g} (n = {value['n']})"
        print(f"{key:>24}  {value['mean']:.6g}{sd}")
    print(f"Curves and model: python -m pipelines ui, run {document['run_id']}")


def show_sweep(document: Mapping[str, Any]) -> None:
    """Print a sweep, one row a setting."""
    from rich.console import Console
    from rich.table import Table

    head, *body = documents.summary_table(document["settings"])
    inner = claim_catalog.load(document["claim"]).inner
    over = f"over {inner}" if inner else "of every setting"
    table = Table(*head, caption=f"worst value {over}; mean ± sd over seeds")
    for row in body[:MAX_ROWS]:
        table.add_row(*row)
    Console().print(table)
    if len(body) > MAX_ROWS:
        print(f"{len(body) - MAX_ROWS} more settings are in {documents.CSV}.")
    if document["reused"]:
        print(FOUND)
    print(f"{document['claim']}: {document['verdict']}")
    _show_location(document)


def _show_location(document: Mapping[str, Any]) -> None:
    """Print where to see the run of a claim."""
    run_id, charts = document["run_id"], claim_catalog.load(document["claim"]).charts
    print(f"Figure and curves: python -m pipelines ui, run {run_id}")
    print(
        "Its settings in one chart: "
        f"{mlflow_ui.address()}/{mlflow_ui.children_chart(run_id, charts)}"
    )
