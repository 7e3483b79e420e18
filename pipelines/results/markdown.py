"""RESULTS.md: the counts, a row a claim, and the trained networks, all of it from results.json."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import ClaimView, group_by_document, markdown_table
from pipelines.results import counts

ERRORS = "test error: mean ± sd"
SHORT = ("claim", "seeds", ERRORS, "took", "trained on")  # columns of trained networks
TRAINED = (
    *(
        "claim",
        "scale",
        "seeds",
        ERRORS,
        "learned enough to judge",
        "verdict",
        "decided by",
        "look",
        "took",
    ),
    *("trained on", "commit", "bundle"),
)
HEAD = ("claim", "verdict", "measured, bound; or what it says", "source, scale")


def results(document: Mapping[str, Any], links: Mapping[str, str]) -> str:
    """Return RESULTS.md; `links` are the addresses of the claims' cards by name."""
    views = [ClaimView(each) for each in document["claims"]]
    lines = [
        "# Results",
        "",
        "Written by `python -m pipelines report`; do not edit by hand. Of the numbers that decide "
        "a claim the first is shown: mean ± sd (n seeds). All of them, quotations, limits, costs, "
        "commits: `results.json`, `python -m pipelines show NAME`, the site.",
        "",
        *counts.of_claims(views).lines(),
    ]
    for title, group in group_by_document(views):
        rows = [_row(view, links.get(view.name)) for view in group]
        lines += ["", f"## {title}", "", *markdown_table(HEAD, rows)]
    for title, table in tables(document, SHORT).items():
        lines += ["", f"## {title}", "", *table]
    return "\n".join(lines) + "\n"


def tables(document: Mapping[str, Any], columns: Sequence[str] = TRAINED) -> dict[str, list[str]]:
    """Return by title the tables below the claims, of those with rows."""
    found = {
        "Trained networks": trained_networks(document, columns),
        "Learning-rate studies": _studies(document),
    }
    return {title: lines for title, lines in found.items() if lines}


def _row(view: ClaimView, link: str | None) -> list[str]:
    name = f"[{view.name}]({link})" if view.shown and link else view.name
    where = view.text("source").partition(": ")[0]
    decided = view.text("deciding number") if view.shown else view.text("says")
    scale = view.text("scale")
    return [name, view.verdict, decided, f"{where}, {scale}" if scale else where]


def card_links() -> dict[str, str]:
    """Return by claim the file of its card below the root of the project."""
    modules = {name: claim_catalog.locate(name)[0] for name in claim_catalog.project_names()}
    return {name: f"{module.replace('.', '/')}.py" for name, module in modules.items()}


def _studies(document: Mapping[str, Any]) -> list[str]:
    """Return the tuning studies of a report as the lines of a Markdown table."""
    head = ("study", "recipe", "trials", "at the start: validation error", "best", "setting")
    rows = []
    for each in document.get("studies", ()):
        errors = (f"{each['metrics'][f'{k}_val_error_pct']:.2f} %" for k in ("baseline", "best"))
        trials = f"{each['metrics']['trials']:.0f}"
        rows.append([each["study"], each["recipe"], trials, *errors, f"`{each['best']}`"])
    return markdown_table(head, rows)


def trained_networks(document: Mapping[str, Any], columns: Sequence[str] = TRAINED) -> list[str]:
    """Return the claims of results.json that trained networks as the lines of a Markdown table."""
    every = sorted([*document["claims"], *document["unfinished"]], key=lambda each: each["claim"])
    views = [ClaimView(each) for each in every if "devices" in each]
    return markdown_table(columns, [[view.text(key) for key in columns] for view in views])
