"""The scoreboard in HTML: results.html, which needs no other file, and a page of the site."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.verdict import format_spread

TEMPLATES = Path(__file__).with_name("templates")
VERDICTS = ("reproduced", "refuted", "inconclusive", "smaller scale", "not run")  # as sorted
FAILS = "as printed fails"


def render_page(
    entries: Sequence[Any],
    documents: Mapping[str, str],
    studies: Sequence[str],
    figures: Mapping[str, Path],
) -> str:
    """Return results.html: the entries of scoreboard.py, the studies' Markdown table, PNGs."""
    from markupsafe import Markup

    pictures = {key: _data_address(path) for key, path in figures.items()}
    table = Markup(_prose().render("\n".join(studies)))  # noqa: S704 - the renderer escapes
    return _render("results.html", entries, documents, pictures, {}, studies=table)


def render_board(
    entries: Sequence[Any],
    documents: Mapping[str, str],
    pictures: Mapping[str, str],
    pages: Mapping[str, str],
) -> str:
    """Return the scoreboard alone; `pictures` and `pages` are addresses by claim."""
    return _render("scoreboard.html", entries, documents, pictures, pages)


def _render(
    template: str,
    entries: Sequence[Any],
    documents: Mapping[str, str],
    pictures: Mapping[str, str],
    pages: Mapping[str, str],
    **more: Any,
) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FileSystemLoader(TEMPLATES),
    )
    prose = _prose()
    return environment.get_template(template).render(
        entries=sorted(entries, key=lambda entry: _order(entry, documents)),
        documents=documents,
        tiles=_tiles(entries),
        verdicts=VERDICTS,
        own=any(entry.yours for entry in entries),
        pictures=pictures,
        pages=pages,
        card=lambda name: Markup(prose.render(claim_catalog.card(name))),  # noqa: S704
        spread=format_spread,
        **more,
    )


def _prose() -> Any:
    import markdown_it

    return markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")


def _data_address(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _order(entry: Any, documents: Mapping[str, str]) -> tuple[int, int, str]:
    """Return where an entry stands: decided claims first, then by document, then by name."""
    return VERDICTS.index(entry.verdict), [*documents].index(entry.document_of), entry.name


def _tiles(entries: Sequence[Any]) -> list[tuple[str, str, int]]:
    """Return the label, the CSS class and the number of every tile."""
    counts = Counter(entry.verdict for entry in entries)
    failing = sum(entry.cells()["as printed"].startswith("fails") for entry in entries)
    own = sum(entry.yours is not None for entry in entries)
    tiles = [(verdict, verdict, counts[verdict]) for verdict in VERDICTS]
    tiles.append((FAILS, "fails", failing))
    return [*tiles, ("measured by you", "", own)] if own else tiles
