"""RESULTS.md: the counts, a row a claim, and the trained networks, all of it from results.json."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_run.json_document import JsonDocument
from pipelines.measurement.claim_view import ClaimView, group_by_document, markdown_table
from pipelines.measurement.plan import stated_plan
from pipelines.measurement.verdict import format_mean
from pipelines.results import counts
from pipelines.results.evidence import bundles
from pipelines.runtime.durations import format_duration

TRAINED = "Trained networks"
ERRORS = "test error: mean ± sd"
SHORT = ("trained networks", "scale", "seeds", ERRORS, "time")  # in RESULTS.md
TEST_ERROR = re.compile(r"(?:(\w+)_)?test_error_pct")
HEAD = (
    "claim",
    "verdict",
    "measured, bound; or what it says",
    "source, scale",
)


def results(document: Mapping[str, Any], links: Mapping[str, str]) -> str:
    """Return RESULTS.md; `links` are the addresses of the claims' cards by name."""
    views = [ClaimView(each) for each in document["claims"]]
    lines = [
        "# Results",
        "",
        "Written by `python -m pipelines report`; do not edit by hand. Of the numbers that decide "
        "a claim the first is shown: mean ± sd (n seeds). All of them, quotations, floors, costs, "
        "commits: `results.json`, `python -m pipelines show NAME`, the site.",
        "",
        *counts.of_claims(views).lines(),
    ]
    for title, group in group_by_document(views):
        rows = [_row(view, links[view.name]) for view in group]
        lines += ["", f"## {title}", "", *markdown_table(HEAD, rows)]
    for title, table in tables(document, SHORT).items():
        lines += ["", f"## {title}", "", *table]
    return "\n".join(lines) + "\n"


def tables(document: Mapping[str, Any], columns: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return by title the tables below the claims, of those with rows."""
    found = {
        TRAINED: trained_networks(document, columns),
        "Learning-rate studies": _studies(document),
    }
    return {title: lines for title, lines in found.items() if lines}


def _row(view: ClaimView, link: str) -> list[str]:
    name = f"[{view.name}]({link})" if view.shown else view.name
    where = view.text("source").partition(": ")[0]
    decided = view.text("decided first by") if view.shown else view.text("says")
    scale = view.text("scale")
    return [name, view.verdict, decided, f"{where}, {scale}" if scale else where]


def card_links() -> dict[str, str]:
    """Return by claim the file of its card below the root of the project."""
    modules = {name: claim_catalog.locate(name)[0] for name in claim_catalog.names()}
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


def trained_networks(document: Mapping[str, Any], columns: Sequence[str] = ()) -> list[str]:
    """Return the trained networks of results.json as the lines of a Markdown table.

    Of these columns, by default of all.
    """
    every = sorted([*document["claims"], *document["unfinished"]], key=lambda each: each["claim"])
    rows = [_trained_row(each) for each in every if "devices" in each]
    rows = [row for row in rows if columns != SHORT or row[ERRORS]]
    head = columns or (tuple(rows[0]) if rows else ())
    return markdown_table(head, [[row[key] for key in head] for row in rows])


def _trained_row(document: JsonDocument) -> dict[str, str]:
    """Return the cells of a claim's run, by column."""
    name, scale = document["claim"], document["scale"]
    decided = [
        f"{bound['metric']} {bound['rule']}"
        + (": between {:.3g} and {:.3g}".format(*bound["interval"]) if bound["interval"] else "")
        for bound in document["bounds"]
        if bound["metric"] in document["metrics"]
    ]
    on = f" on {' and '.join(document['devices'])}" * bool(document["devices"])
    files = bundles.files([name]) if document.get("recorded_by") != "you" else []
    tested = ((TEST_ERROR.fullmatch(key), each) for key, each in document["metrics"].items())
    return {
        "trained networks": name,
        "scale": scale,
        "arms": ", ".join(_arms(name, scale)),
        "seeds": str(document["seeds"]),
        ERRORS: "; ".join(f"{a[1] or ''} {format_mean(each)} %".strip() for a, each in tested if a),
        "floor reached": document["floor"],
        "verdict": document["verdict"],
        "decided by, with its interval": "; ".join(decided),
        "time": f"{format_duration(document['wall_s'])}{on}",
        "commit": document["commit"],
        "evidence": ", ".join(file.name for file in files),
    }


def _arms(name: str, scale: str) -> list[str]:
    """Return what a claim calls the networks that it compares, without those of searches."""
    plan = stated_plan(name, scale, 1)
    return [arm for arm in plan.arms(plan.cells[0]) if ", search " not in arm]
