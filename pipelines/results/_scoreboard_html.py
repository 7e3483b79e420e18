"""The scoreboard as one page of HTML that needs no other file: its pictures are in it."""

import base64
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.verdict import format_spread

RESULTS = {"recorded by the project": "project", "yours": "yours"}  # columns, fields of an entry
TEMPLATE = Path(__file__).with_name("scoreboard.html")


def render(
    groups: Sequence[tuple[str, Sequence[Any]]],
    columns: Sequence[str],
    studies: Sequence[str],
    pictures: Mapping[str, Path],
) -> str:
    """Return the page: the entries of scoreboard.py by group, the studies' Markdown table, PNGs."""
    import jinja2
    import markdown_it
    from markupsafe import Markup

    encoded = {key: base64.b64encode(path.read_bytes()).decode() for key, path in pictures.items()}
    prose = markdown_it.MarkdownIt("commonmark", {"html": False}).enable("table")
    entries = [entry for _, group in groups for entry in group]
    measured = sorted((e for e in entries if e.shown), key=lambda e: str(e.name))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE.read_text()).render(
        groups=groups,
        columns=columns,
        results=RESULTS,
        counts=_count_verdicts([entry.project for entry in entries]),
        own_counts=_count_verdicts([entry.yours for entry in entries]),
        studies=Markup(prose.render("\n".join(studies))),  # noqa: S704 - the renderer escapes
        measured=measured,
        cards={e.name: Markup(prose.render(claim_catalog.card(e.name))) for e in measured},  # noqa: S704
        pictures=encoded,
        spread=format_spread,
    )


def _count_verdicts(results: Collection[Any]) -> str:
    """Return `17 reproduced, 12 not run`."""
    counted = Counter(str(result.verdict) if result else "not run" for result in results)
    return ", ".join(f"{number} {verdict}" for verdict, number in counted.most_common())
