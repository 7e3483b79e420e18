"""`python -m pipelines show NAME`: a claim or a recipe, its evidence, its cost, its settings."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.cli import list_command, tables
from pipelines.data.integrity import is_at_hand
from pipelines.errors import LISTED_BY, unknown
from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import CARD, ClaimView
from pipelines.measurement.plan import stated_plan
from pipelines.measurement.quotation import SEPARATOR
from pipelines.measurement.verdict import UNDECIDED
from pipelines.recipes import catalog
from pipelines.recipes.recipe import FORMER
from pipelines.results.published import read_claims
from pipelines.results.reference_runs import list_places
from pipelines.runtime.plain_table import GAP, plain_table, wrap_prose

INDENT = "  "
EVIDENCE = ("verdict", "scale", "as printed", "measured", "took", "commit", "run")
SHOWN_APART = ("source", "reported", "decided by", "repeat it")
BELOW_VERDICT = tuple(key for key in CARD if key not in SHOWN_APART)
COMMAND = re.compile(r"\s*(Run: )?(python -m|--)")  # a command and its next line
ITEM = re.compile(r"\n(?=- |Expect|Run:|Cost|Verdict|\s+(?:python -m|--))")  # begins a line


def describe(name: str) -> dict[str, Any]:
    """Return the JSON document of `show NAME`. Raise UserError for a name that is not known."""
    if claim_catalog.is_claim(name):
        return _describe_claim(name)
    if name in catalog.RECIPES:
        return _describe_recipe(name)
    raise unknown("A claim or recipe", name, [*claim_catalog.names(), *catalog.RECIPES], LISTED_BY)


def _describe_claim(name: str) -> dict[str, Any]:
    claim, document = claim_catalog.load(name), read_claims().get(name)
    view = ClaimView(document) if document and "run_id" in document else None
    return {
        "name": name,
        "kind": "claim",
        "says": claim.says,
        "source": claim.source,
        "card": claim_catalog.card(name),
        "decided_by": [str(bound) for bound in claim.decided_by],
        "reported": dict(claim.reported),
        "printed_in": list_places(name),
        "quotations": [
            {"words": each.words, "place": each.place, "needs": dict(each.needs)}
            for each in claim.printed
        ],
        "price": claim.decision_price,
        "evidence": view
        and {key.replace(" ", "_"): view.text(key) for key in EVIDENCE}
        | {"floor": view.text("learned enough to judge"), "recorded_by": "project"},
        "result": document,
        "seeds": claim.seeds,
        "scales": {
            scale: _describe_scale(plan.data_sets, str(claim.costs.get(scale, "")), plan.params)
            for scale in claim.scales
            for plan in [stated_plan(name, scale, claim.seeds)]
        },
    }


def _describe_recipe(name: str) -> dict[str, Any]:
    scales = catalog.RECIPES[name]
    costs = list_command.order_scales(scales["cpu"].costs)
    return {
        "name": name,
        "kind": "recipe",
        "source": scales["cpu"].source,
        "reported": dict(scales["cpu"].reported),
        "printed_in": list_places(name),
        "scales": {
            scale: _describe_scale([recipe.data], costs.get(scale, ""), recipe.flat())
            for scale, recipe in scales.items()
        },
    }


def _describe_scale(data: Sequence[str], cost: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    at_hand = all(map(is_at_hand, data))
    now = {key: value for key, value in settings.items() if key not in FORMER}
    return {"cost": cost, "data": list(data), "data_at_hand": at_hand, "settings": now}


def show(document: Mapping[str, Any]) -> None:
    """Print the document of `show NAME`."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"[bold]{document['name']}[/]: a {document['kind']}, {document['source']}")
    if "card" in document:
        console.print("\n[bold]card[/]")
        for number, paragraph in enumerate(re.split(r"\n\s*\n", textwrap.dedent(document["card"]))):
            print("\n" * bool(number), end="")
            if paragraph.startswith("|"):
                _print_markdown_table(console, paragraph.splitlines())
            else:
                lines = paragraph.splitlines() if paragraph[0] == " " else ITEM.split(paragraph)
                print("\n".join(_fill(line, INDENT) for line in lines))
        quoted = []
        for each in document["quotations"]:
            open_ones = [setting for setting, stated in each["needs"].items() if not stated]
            quoted.append(f"{each['place']}: “{each['words']}”")
            if open_ones:
                quoted.append(f"  Not stated: {'; '.join(open_ones)}.")
        _print_lines(console, "quoted", quoted)
        _print_evidence(console, document)
    numbers, places = dict(document["reported"]), document["printed_in"]
    for place in places:
        numbers |= place["numbers"]
    lines = [f"{key} {value:.10g}" for key, value in numbers.items()]
    for place in places:
        runs = f" ({place['n']} runs)" if place["n"] else ""
        lines.append(f"{place['where']}: {place['citation']}{runs}")
    _print_lines(console, "reported", lines + [place["setting"] for place in places[:1]])
    costs = []
    for scale, about in document["scales"].items():
        here = "" if about["data_at_hand"] else ", which is not here"
        data = f"; data: {', '.join(about['data'])}{here}" if about["data"] else ""
        cost = about["cost"] or ("seconds" if scale == "smoke" else "not stated")
        costs.append(f"{scale}: {cost}{data}")
    _print_lines(console, "cost", costs)
    _print_settings(console, document["scales"])
    console.print(f"\nRun it: {list_command.PROG} run {document['name']}", soft_wrap=True)


def _print_markdown_table(console: Any, lines: Sequence[str]) -> None:
    """Print a table of Markdown: its head, a line of dashes and its rows."""
    head, _, *rows = ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines)
    _print_table(console, head, rows, apart=True)


def _print_table(
    console: Any, head: Sequence[str], rows: Sequence[Sequence[str]], apart: bool = False
) -> None:
    """Print a table; each row as a line or a block, where a column would be narrower than a word.

    `apart`: with an empty line after each row.
    """
    words = [
        max(len(word) for cell in column for word in cell.split() or [""])
        for column in zip(head, *rows, strict=True)
    ]
    if sum(words) + GAP * len(words) > console.width:
        for first, *others in rows:
            named = [f"{title}: {cell}" for title, cell in zip(head[1:], others, strict=True)]
            line = f"{INDENT}{first}  {'; '.join(named)}"
            if len(line) < console.width:
                print(line)
                continue
            print(_fill(first, INDENT))
            for each in named:
                print(wrap_prose(each, 2 * INDENT, 3 * INDENT))
        return
    table = plain_table(*head, whole=0)
    for column, width in zip(table.columns, words, strict=True):
        column.min_width = width
    for row in rows:
        table.add_row(*row, end_section=apart)
    console.print(table)


def _print_evidence(console: Any, document: Mapping[str, Any]) -> None:
    """Print the verdict that is published of a claim, what was measured, and by whom."""
    evidence, price = document["evidence"], document["price"]
    bounds = "; ".join(document["decided_by"])
    if evidence is None:
        lines = [
            "The project has no verdict yet.",
            f"Decided by: {bounds}, over {document['seeds']} seeds.",
        ]
        if price:
            lines = [f"Not decidable here: it takes {price}.", f"What must hold: {bounds}."]
        _print_lines(console, "evidence", lines)
        return
    view = ClaimView(document["result"])
    said = f"{view.verdict.capitalize()} at {evidence['scale']} scale, measured by the project."
    takes = [f"A decision takes {price}."] * (view.verdict in UNDECIDED)
    quoted = [f"{each}." for each in evidence["as_printed"].split(SEPARATOR) if each]
    rows = [f"{title.capitalize()}: {text}" for title, text in view.rows(BELOW_VERDICT)]
    _print_lines(console, "evidence", [said, *takes, *quoted, *rows])
    print()
    tables.print_numbers(view.numbers(every=False))


def _print_settings(console: Any, scales: Mapping[str, Any]) -> None:
    """Print a table of the settings that scales differ in, then those that they share."""
    rows, shared = [], []
    for key in dict.fromkeys(key for about in scales.values() for key in about["settings"]):
        typed = [str(about["settings"].get(key, "")) for about in scales.values()]
        values = ["None" if v == "null" else re.sub(r",(?=\S)", ", ", v) for v in typed]
        option = key.rpartition(".")[2].replace("_", "-")
        if len(set(values)) == 1:
            shared.append(f"{option} {values[0]}")
        else:
            rows.append([option, *values])
    if rows:
        console.print("\n[bold]settings[/] by scale")
        _print_table(console, ["", *scales], rows)
    _print_lines(console, "settings of every scale", ["; ".join(shared)] if shared else [])


def _print_lines(console: Any, title: str, lines: Sequence[str]) -> None:
    """Print lines below a title, set in; nothing where there are none."""
    if lines:
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            indent = INDENT * (2 if line.startswith(" ") else 1)
            print(_fill(line.strip(), indent))


def _fill(text: str, indent: str) -> str:
    """Return the text in lines of the terminal; a command as it is, so that it can be pasted."""
    return indent + text if COMMAND.match(text) else wrap_prose(" ".join(text.split()), indent)
