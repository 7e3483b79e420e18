"""The terminal's view of claims, trainings, sweeps and the scoreboard."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipelines.measurement import claim_catalog, documents
from pipelines.measurement.quotation import ACCUSED, SEPARATOR
from pipelines.measurement.verdict import AFFIRMED, DENIED, NOT_RUN, SMALLER_SCALE
from pipelines.recipes import catalog
from pipelines.results import regressions, scoreboard
from pipelines.results.scoreboard import Entry, Result
from pipelines.running.seed_statistics import format_spread
from pipelines.runtime.durations import format_duration
from pipelines.runtime.plain_table import plain_table
from pipelines.tracking import history, mlflow_ui

MAX_ROWS = 20  # of a sweep
COLOURS = {**dict.fromkeys(AFFIRMED, "green"), **dict.fromkeys(DENIED, "red")}
SERVED = "while `python -m pipelines ui` runs:"
FOUND = "Found finished with the same settings; --force repeats it."


def show_scoreboard(entries: list[Entry]) -> None:
    """Print the scoreboard: what the project recorded of each claim, and you."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("claim", "decided first by", "recorded by the project", "yours"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        bounds, metrics = claim_catalog.load(entry.name).decided_by, entry.document()["metrics"]
        bound = next((bound for bound in bounds if bound.metric in metrics), bounds[0])
        project, yours = (_format_result(r, bound.metric) for r in (entry.project, entry.yours))
        if entry.yours and entry.project:
            rows = (entry.project.judged_row, entry.yours.judged_row)
            yours = f"{yours}\n{regressions.agreement(*rows)}"
        table.add_row(entry.name, f"{bound.metric}\n{bound.rule}", project, yours)
    Console().print(table)


def _format_result(result: Result | None, metric: str) -> str:
    """Return verdict, scale, the metric, quoted sentences that do not hold, and the cost."""
    if result is None:
        return f"[yellow]{NOT_RUN}[/]"
    verdict = f"[{COLOURS.get(result.verdict, 'yellow')}]{result.verdict}[/] at {result.scale}"
    metrics, wall_s = result.document()["metrics"], result.run.metrics["wall_s"]
    number = format_spread(metrics[metric]) if metric in metrics else "not judged"
    grades = (each["grade"] for each in result.judgement["quotations"])
    printed = [f"quoted: {grade}" for grade in dict.fromkeys(grades) if grade in ACCUSED]
    return "\n".join([verdict, number, *printed, format_duration(wall_s)])


def reason_not_measured(document: Mapping[str, Any]) -> str:
    """Return why a claim was not measured, whose run is shown, and what would measure it."""
    row = history.row(document["run_id"])
    if "other_code" not in document and not row.is_project:
        return FOUND
    day = datetime.fromtimestamp(row.start_ms / 1000, UTC).date()
    whose = "the project" if row.is_project else "you"
    code = ", by other code than this" if "other_code" in document else ""
    return (
        f"Measured by {whose} on {day} in {format_duration(row.metrics['wall_s'])} (commit "
        f"{row.tags['commit'][:8]}){code}: shown, not measured again. --force measures it here."
    )


def show_claim(document: Mapping[str, Any]) -> None:
    """Print the result of a claim: verdict, numbers that decide it, the project's, links."""
    entry = scoreboard.entry_of_run(document)
    _print_headline(document)
    if document["reused"]:
        print(reason_not_measured(document))
    elif "other_code" in document:
        print("Some of its seeds were measured by other code than this.")
    _print_table(_claim_table(entry, document))
    for quoted in filter(None, document["as_printed"].split(SEPARATOR)):
        _print_prose(f"Quoted, {quoted}")
    if document["floor"]:
        _print_prose(f"Floor of learning reached: {document['floor']}")
    if entry.yours and entry.project:
        rows = (entry.project.judged_row, entry.yours.judged_row)
        verdict = f"{entry.project.verdict} at {entry.project.scale} scale"
        _print_prose(f"The project: {verdict}. Yours: {regressions.agreement(*rows)}.")
    _print_location(document)


def _print_headline(document: Mapping[str, Any]) -> None:
    """Print `gradient-formula: holds at cpu scale, 5 seeds, 26 s (HM Lemma 2.4)`."""
    claim, verdict = claim_catalog.load(document["claim"]), document["verdict"]
    shown = "shown, not judged" if verdict == SMALLER_SCALE else verdict
    seeds = "1 seed" if document["seeds"] == 1 else f"{document['seeds']} seeds"
    cost = f"{seeds}, {format_duration(document['wall_s'])}"
    _print_prose(
        f"[bold]{document['claim']}: [{COLOURS.get(verdict, 'yellow')}]{shown}[/][/] at "
        f"{document['scale']} scale, {cost} ({claim.source})",
        markup=True,
    )
    _print_prose(claim.says)


def _claim_table(entry: Entry, document: Mapping[str, Any]) -> list[list[str]]:
    """Return the numbers that decide a claim, or are reported or shown: a row each, head first."""
    claim = claim_catalog.load(entry.name)
    rules = {bound.metric: bound.rule for bound in claim.decided_by}
    project = entry.project.document()["metrics"] if entry.yours and entry.project else {}
    columns: dict[str, Callable[[str], str]] = {
        "": str,
        "measured": lambda key: _format_metric(document["metrics"], key),
        "must be": lambda key: rules.get(key, ""),
        "reported": lambda key: f"{claim.reported[key]:g}" if key in claim.reported else "",
        "the project": lambda key: _format_metric(project, key),
    }
    keys = dict.fromkeys([*rules, *claim.reported, *claim.shown])
    rows = [[cell(key) for cell in columns.values()] for key in keys]
    return [[*columns], *rows]


def _format_metric(metrics: Mapping[str, Any], key: str) -> str:
    return format_spread(metrics[key]) if key in metrics else ""


def show_training(document: Mapping[str, Any]) -> None:
    """Print the errors of a recipe beside what its source reports, all numbers, a link."""
    metrics = document["metrics"]
    reported = catalog.get_recipe(document["recipe"], document["scale"]).reported

    number, unit = ("error", " %") if "test_error_pct" in metrics else ("loss", "")
    headline = []
    for part, name in {"test": "test", "val": "validation"}.items():
        key = f"{part}_error_pct" if unit else f"{part}_loss"
        if key not in metrics:  # all examples were trained on
            continue
        printed = f" (reported {reported[key]:g}{unit})" if key in reported else ""
        headline.append(f"{name} {number} {metrics[key]['mean']:.4g}{unit}{printed}")
    several = document["seeds"] > 1
    seeds = f", {document['seeds']} seeds" if several else ""
    took = format_duration(metrics["wall_s"]["mean"]) + " each" * several
    _print_prose(
        f"[bold]{document['recipe']}: {', '.join(headline)}[/] "
        f"at {document['scale']} scale{seeds}, {took}",
        markup=True,
    )
    if document["reused"]:
        print(FOUND)
    keys = sorted(metrics, key=lambda key: not key.startswith("test_"))
    rows = [
        [key, f"{m['mean']:,.6g}{spread}", f"{reported[key]:g}" if key in reported else ""]
        for key in keys
        for m in [metrics[key]]
        for spread in ["" if m["sd"] is None else f" ± {m['sd']:.2g} (n = {m['n']})"]
    ]
    _print_table([["", "measured", "reported"], *rows])
    print(f"Its curves and its model, {SERVED}\n{mlflow_ui.run_page(document['run_id'])}")


def show_sweep(document: Mapping[str, Any]) -> None:
    """Print a sweep, one row a setting."""
    from rich.console import Console
    from rich.table import Table

    _print_headline(document)
    if document["reused"]:
        print(FOUND)
    if not document["settings"]:
        print(f"{documents.CSV} is not here: the run was exported without it.")
        return
    head, *body = documents.summary_table(document["settings"])
    inner = claim_catalog.load(document["claim"]).inner
    over = f"over {inner}" if inner else "of every setting"
    table = Table(*head, caption=f"worst value {over}; mean ± sd over seeds")
    for row in body[:MAX_ROWS]:
        table.add_row(*row)
    Console().print(table)
    if len(body) > MAX_ROWS:
        print(f"{len(body) - MAX_ROWS} more settings are in {documents.CSV}.")
    _print_location(document)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table, head first, without columns that are empty."""
    from rich.console import Console

    used = [n for n, cells in enumerate(zip(*rows[1:], strict=True)) if any(cells)]
    table = plain_table(*(rows[0][number] for number in used))
    for row in rows[1:]:
        table.add_row(*(row[number] for number in used))
    Console(highlight=False).print(table)


def _print_location(document: Mapping[str, Any]) -> None:
    """Print where to see the curves of a claim, and its page."""
    run_id, name = document["run_id"], document["claim"]
    print(f"The curves and the page of the run, {SERVED}")
    cells, metrics = documents.read_table(run_id), history.row(run_id).metrics
    for link in documents.chart_links(name, run_id, cells, metrics).values():
        print(f"{mlflow_ui.address()}/{link}")
    print(mlflow_ui.run_page(run_id))


def _print_prose(text: str, markup: bool = False) -> None:
    """Print a sentence, broken between words where it goes to a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(text, markup=markup, soft_wrap=not console.is_terminal)
