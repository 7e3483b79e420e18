"""The terminal's view of claims, trainings, sweeps and the scoreboard."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_run import page, settings_table
from pipelines.measurement.claim_view import INTERVAL, MEASURED, OUTCOME, RULE, ClaimView
from pipelines.measurement.quotation import SEPARATOR
from pipelines.measurement.verdict import AFFIRMED, DENIED, NOT_JUDGED, NOT_RUN
from pipelines.recipes import catalog
from pipelines.results import scoreboard
from pipelines.running import seeds
from pipelines.running.seed_statistics import format_mean
from pipelines.runtime.durations import format_duration
from pipelines.runtime.plain_table import plain_table, print_prose
from pipelines.tracking import history, mlflow_ui, ui_server

SEEDS = re.compile(r" \(n = \d+\)")  # at the end of a number
MAX_ROWS = 20  # more rows of a sweep are counted, not shown
COLOURS = {**dict.fromkeys(AFFIRMED, "green"), **dict.fromkeys(DENIED, "red")}
SERVED = "while `python -m pipelines ui` runs:"
FOUND = "Found finished with the same settings; --force repeats it."


def show_scoreboard(documents: Iterable[Mapping[str, Any]]) -> None:
    """Print the scoreboard: verdict and first number of each claim, the project's and yours."""
    from rich.console import Console
    from rich.text import Text

    table = plain_table("claim", "the project", "yours")
    for view in map(ClaimView, documents):
        yours = _describe_result(view.yours)
        if agreement := view.document.get("agreement"):
            yours += f", {agreement}"
        colour = COLOURS.get(view.verdict, "yellow")
        project = _describe_result(view.project) if view.shown else view.verdict
        table.add_row(view.name, Text(project, colour), Text(yours, colour))
    Console().print(table)


def _describe_result(document: Mapping[str, Any] | None) -> str:
    """Return `holds 0.2453`: the verdict, and the mean of the number that decides it first."""
    if document is None:
        return NOT_RUN
    number = document["metrics"].get(ClaimView(document).deciding_bound["metric"])
    return (
        f"{document['verdict']} {number['mean']:.4g}"
        if number
        else f"{document['verdict']}, not judged"
    )


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
    view = ClaimView(scoreboard.entry_of_run(document).document())
    _print_headline(document)
    if document["reused"]:
        print_prose(reason_not_measured(document))
    elif "other_code" in document:
        print("Some of its seeds were measured by other code than this.")
    print_numbers(view.numbers(every=False))
    for quoted in filter(None, document["as_printed"].split(SEPARATOR)):
        print_prose(quoted)
    if document["floor"]:
        print_prose(f"Learned enough to judge: {document['floor']}")
    if view.yours and view.project:
        verdict = f"{view.project['verdict']} at {view.project['scale']} scale"
        print_prose(f"The project: {verdict}. Yours: {view.document['agreement']}.")
    _print_location(document)


def print_numbers(numbers: Sequence[Mapping[str, str]]) -> None:
    """Print the numbers of a claim, but for what a terminal has no room for.

    The number of seeds stands beside a number only where it is another than most have.
    """
    from rich.console import Console

    shown = [column for column in numbers[0] if column not in (OUTCOME, INTERVAL)]
    columns = sorted(shown, key=RULE.__eq__)  # the rule, which may be folded, at the end
    heads = ["mean ± sd" if column == MEASURED else column for column in columns[1:]]
    counts = Counter(SEEDS.findall(" ".join(row.get(MEASURED, "") for row in numbers)))
    usual = max(counts, key=counts.__getitem__, default="")
    table = plain_table("", *heads, whole=len(columns) - (RULE in columns))
    for row in numbers:
        table.add_row(*(row[column].removesuffix(usual) for column in columns))
    Console(highlight=False).print(table)


def _print_headline(document: Mapping[str, Any]) -> None:
    """Print `gradient-formula: holds at cpu scale, 5 seeds, 26 s (HM Lemma 2.4)`."""
    verdict = document["verdict"]
    shown = "shown, not judged" if verdict == NOT_JUDGED else verdict
    seeds = "1 seed" if document["seeds"] == 1 else f"{document['seeds']} seeds"
    cost = f"{seeds}, {format_duration(document['wall_s'])}"
    _print_markup(
        f"[bold]{document['claim']}: [{COLOURS.get(verdict, 'yellow')}]{shown}[/][/] at "
        f"{document['scale']} scale, {cost} ({document['source']})"
    )
    print_prose(document["says"])


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
    count = f", {document['seeds']} seeds" if several else ""
    took = format_duration(metrics["wall_s"]["mean"]) + " each" * several
    _print_markup(
        f"[bold]{document['recipe']}: {', '.join(headline)}[/] "
        f"at {document['scale']} scale{count}, {took} (run {document['run_id'][:8]})"
    )
    if document["reused"]:
        print(FOUND)
    keys = sorted(metrics, key=lambda key: not key.startswith("test_"))
    rows = [
        {"": key, "mean ± sd" if several else "measured": format_mean(metrics[key])}
        | ({"reported": f"{reported[key]:g}" if key in reported else ""} if reported else {})
        for key in keys
    ]
    print_numbers(rows)
    found = seeds.trainings(history.row(document["run_id"])) if several else []
    if found:  # they may have been deleted since
        curves = f"{ui_server.address()}/{mlflow_ui.learning_curves(found)}"
        print(f"The learning curves of its seeds, mean and band, {SERVED}\n{curves}")
        print("Beside those of another run: python -m pipelines compare RUN RUN")
    print(f"Its page, {SERVED}\n{mlflow_ui.run_page(document['run_id'])}")


def show_sweep(document: Mapping[str, Any]) -> None:
    """Print a sweep, one row a setting."""
    from rich.console import Console

    _print_headline(document)
    if document["reused"]:
        print(FOUND)
    if not document["settings"]:
        print(f"{settings_table.FILE} is not here: the run was exported without it.")
        return
    lines = settings_table.summarize(document["settings"])
    console = Console(highlight=False)
    widths = [3 + max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = sum(total <= console.width + 3 for total in itertools.accumulate(widths))
    head, *body = (line[:shown] for line in lines)
    table = plain_table(*head, whole=shown)
    for row in body[:MAX_ROWS]:
        table.add_row(*row)
    console.print(table)
    inner = claim_catalog.load(document["claim"]).inner
    over = f"over {inner}" if inner else "of every setting"
    print(f"Shown is the worst value {over}; mean ± sd over seeds.")
    more = {"settings": len(body) - MAX_ROWS, "columns": len(widths) - shown}
    for what, count in more.items():
        if count > 0:
            print(f"More {what} in {settings_table.FILE} of the run: {count}.")
    _print_location(document)


def _print_location(document: Mapping[str, Any]) -> None:
    """Print where to see the curves of a claim, and its page."""
    run_id, name = document["run_id"], document["claim"]
    print(f"The curves and the page of the run, {SERVED}")
    table, metrics = settings_table.read(run_id), history.row(run_id).metrics
    for link in page.chart_links(name, run_id, table, metrics).values():
        print(f"{ui_server.address()}/{link}")
    print(mlflow_ui.run_page(run_id))


def _print_markup(text: str) -> None:
    """Print a sentence with rich's markup, broken between words where it goes to a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(text, soft_wrap=not console.is_terminal)
