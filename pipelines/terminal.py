"""What a person sees in the terminal of claims, sweeps and the scoreboard."""

from collections.abc import Mapping
from typing import Any

from pipelines import claim, tables, ui
from pipelines.report import Entry
from pipelines.verdict import spread

ROWS = 20  # of a sweep


def scoreboard(found: list[Entry]) -> None:
    """The scoreboard in the terminal: of each claim the first metric that decides it."""
    from rich.console import Console
    from rich.table import Table

    table = Table("claim", "verdict", "measured: mean ± sd (n), and its bound", "cost")
    for entry in found:
        table.add_row(entry.name, _judgement(entry), *_measurement(entry))
    Console().print(table)


def _judgement(entry: Entry) -> str:
    """Return the verdict, at which scale, and whether the statement fails as it is printed."""
    colours = {"reproduced": "green", "refuted": "red"}
    verdict = f"[{colours.get(entry.verdict, 'yellow')}]{entry.verdict}[/]"
    if entry.run is None:
        return verdict
    scale, printed = str(entry.run.tags["scale"]), str(entry.document()["as_printed"])
    return f"{verdict}\n{scale}" + "; as printed: fails" * printed.startswith("fails")


def _measurement(entry: Entry) -> tuple[str, str]:
    """Return the first metric that decides the claim with its bound, and what measuring cost."""
    if entry.run is None:
        return "", ""
    document = entry.document()
    bounds = [b for b in claim.load(entry.name).decided_by if b.metric in document["metrics"]]
    shown = [f"{b.metric} {spread(document['metrics'][b.metric])}\n{b.rule}" for b in bounds[:1]]
    return "".join(shown) or "not judged", f"{document['wall_s']:.0f} s"


def sweep(document: Mapping[str, Any]) -> None:
    """A sweep in the terminal: one row a setting."""
    from rich.console import Console
    from rich.table import Table

    head, *body = tables.summary(document["settings"])
    inner = claim.load(document["claim"]).inner
    over = f"over {inner}" if inner else "of every setting"
    table = Table(*head, caption=f"worst value {over}; mean ± sd over seeds")
    for row in body[:ROWS]:
        table.add_row(*row)
    Console().print(table)
    if len(body) > ROWS:
        print(f"{len(body) - ROWS} more settings are in {tables.CSV}.")
    if document["reused"]:
        print("Found finished with the same settings; --force repeats it.")
    print(f"{document['claim']}: {document['verdict']}")
    place(document)


def place(document: Mapping[str, Any]) -> None:
    """Where to see the run of a claim."""
    run_id, charts = document["run_id"], claim.load(document["claim"]).charts
    print(f"Figure and curves: python -m pipelines ui, run {run_id}")
    print(f"Its settings in one chart: {ui.address()}/{ui.children_chart(run_id, charts)}")
