"""HTML: results.html, which needs no other file, the scoreboard of the site, cards of claims."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.measurement import claim_catalog, claim_view
from pipelines.measurement.claim_view import DOCUMENTS, ClaimView
from pipelines.measurement.quotation import ACCUSED, WORDS
from pipelines.measurement.verdict import VERDICTS
from pipelines.results import counts, markdown
from pipelines.tracking import mlflow_ui

TEMPLATES = Path(__file__).with_name("templates")
LABELLED = re.compile(r"\n(?=(?:Cost|Expect|Measured|Source|Verdict)[^:\n]{0,20}: )")
SUMMARY = re.compile(r"\A.+\n\n")
COMMANDS = re.compile(r"^Run: (.+(?:\n {5}.+)*)$", re.MULTILINE)  # those after the first, set in


def render_page(document: Mapping[str, Any], figures: Mapping[str, Path]) -> str:
    """Return results.html of the document of a report and its figures."""
    pictures = {
        key: f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
        for key, path in figures.items()
    }
    tables = {
        title: _html_of("\n".join(lines)) for title, lines in markdown.tables(document).items()
    }
    views = [ClaimView(each) for each in document["claims"]]
    return render_board(views, pictures, template="results.html", tables=tables)


def render_board(
    views: Sequence[ClaimView],
    pictures: Mapping[str, str],
    pages: Mapping[str, str] | None = None,
    template: str = "scoreboard.html",
    **more: Any,
) -> str:
    """Return the scoreboard, decided claims first; `pictures` and `pages` are addresses by claim.

    Without pages the cards stand in it, and your runs have links.
    """
    words, places = [*VERDICTS], [*DOCUMENTS]
    views = sorted(
        views, key=lambda v: (words.index(v.verdict), places.index(v.document_of), v.name)
    )
    return render(
        template,
        views=views,
        documents=DOCUMENTS,
        tiles=tiles(views),
        verdicts=words,
        grades={WORDS[grade]: grade for grade in ACCUSED},
        own=any(view.yours for view in views),
        pictures=pictures,
        pages=pages or {},
        card=card_html,
        run_page=mlflow_ui.run_page,
        **more,
    )


def render(template: str, **values: Any) -> str:
    """Return a template of this folder with its values filled in, escaped as HTML."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FileSystemLoader(TEMPLATES),
    )
    return environment.get_template(template).render(values, code=claim_view.CODE)


def card_html(name: str) -> Any:
    """Return the card of a claim as HTML: a paragraph a label, its commands as a block of code.

    The line that begins it is left out: what the claim says stands above the card.
    """
    labelled = SUMMARY.sub("", LABELLED.sub("\n\n", claim_catalog.card(name)))

    def code_block(commands: re.Match[str]) -> str:
        lines = commands[1].replace("\n     ", "\n")
        return f"\nRun:\n\n```\n{lines}\n```\n"

    return _html_of(COMMANDS.sub(code_block, labelled))


def _html_of(text: str) -> Any:
    import markdown_it
    from markupsafe import Markup

    prose = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    return Markup(prose.render(text))  # noqa: S704 - the renderer escapes


def tiles(views: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the label and the number of every tile: verdicts, grades of quoted sentences."""
    counted = counts.of_claims(views)
    grades = {WORDS[grade]: counted.grades[grade] for grade in ACCUSED}
    yours = {"measured by you": sum(view.yours is not None for view in views)}
    numbers = {**counted.verdicts, **grades, **yours}
    return [(label, number) for label, number in numbers.items() if number]
