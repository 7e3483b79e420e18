"""Templates filled: results.html, which needs no other file, and pages of the site."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.quotation import ACCUSED
from pipelines.measurement.verdict import VERDICTS
from pipelines.results import counts
from pipelines.running.seed_statistics import format_spread

TEMPLATES = Path(__file__).with_name("templates")
DOCUMENTS = {  # by the letters that name a source
    "HM": "Hardt & Ma 2016, Identity Matters in Deep Learning",
    "R": "de Benito Delgado 2017, a review of it",
    "B": "Bartlett 2018, slides; Bartlett, Evans & Long; Bartlett, Helmbold & Long",
    "LY": "Li & Yuan 2017, Convergence Analysis of Two-layer Neural Networks",
    "ours": "what no document says",
}
QUOTED = "quoted: "  # begins the labels of grades
LABELLED = re.compile(r"\n(?=(?:Cost|Expect|Measured|Source|Verdict)[^:\n]{0,20}: )")
COMMANDS = re.compile(r"^Run: (.+(?:\n {5}.+)*)$", re.MULTILINE)  # those after the first, set in


def render_page(
    entries: Sequence[Any],
    tables: Mapping[str, Sequence[str]],
    figures: Mapping[str, Path],
) -> str:
    """Return results.html: the entries of scoreboard.py, Markdown tables by title, PNGs."""
    pictures = {
        key: f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
        for key, path in figures.items()
    }
    board = _board(entries, pictures, pages={})
    html = {title: _html_of("\n".join(lines)) for title, lines in tables.items()}
    return render("results.html", **board, tables=html)


def render_board(
    entries: Sequence[Any],
    pictures: Mapping[str, str],
    pages: Mapping[str, str],
) -> str:
    """Return the scoreboard alone; `pictures` and `pages` are addresses by claim."""
    return render("scoreboard.html", **_board(entries, pictures, pages))


def _board(
    entries: Sequence[Any],
    pictures: Mapping[str, str],
    pages: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the template of the scoreboard shows, decided claims first."""
    places, words = [*DOCUMENTS], [*VERDICTS]
    return {
        "entries": sorted(
            entries, key=lambda e: (words.index(e.verdict), places.index(e.document_of), e.name)
        ),
        "documents": DOCUMENTS,
        "tiles": tiles(entries),
        "verdicts": words,
        "quoted": QUOTED,
        "accused": ACCUSED,
        "own": any(entry.yours for entry in entries),
        "pictures": pictures,
        "pages": pages,
        "card": card_html,
        "spread": format_spread,
    }


def render(template: str, **values: Any) -> str:
    """Return a template of this folder with its values filled in, escaped as HTML."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FileSystemLoader(TEMPLATES),
    )
    return environment.get_template(template).render(values)


def card_html(name: str) -> Any:
    """Return the card of a claim as HTML: labels begin lines, its commands are a block of code."""
    labelled = LABELLED.sub("\\\\\n", claim_catalog.card(name))

    def code_block(commands: re.Match[str]) -> str:
        lines = commands[1].removesuffix("\\").replace("\n     ", "\n")
        return f"\nRun:\n\n```\n{lines}\n```\n"

    return _html_of(COMMANDS.sub(code_block, labelled))


def _html_of(markdown: str) -> Any:
    import markdown_it
    from markupsafe import Markup

    prose = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    return Markup(prose.render(markdown))  # noqa: S704 - the renderer escapes


def tiles(entries: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the label and the number of every tile: verdicts, grades of quoted sentences."""
    counted = counts.of_entries(entries)
    grades = {f"{QUOTED}{grade}": counted.grades[grade] for grade in ACCUSED}
    yours = {"measured by you": sum(entry.yours is not None for entry in entries)}
    numbers = {**counted.verdicts, **grades, **yours}
    return [(label, number) for label, number in numbers.items() if number]
