"""What the project has published: the scoreboard and the tables of RESULTS.md, read back."""

import itertools
import re
from pathlib import Path

from pipelines.runtime.provenance import ROOT


def read_table(title: str) -> list[str]:
    """Return the lines of the table below a title of RESULTS.md; none without it."""
    file = ROOT / "RESULTS.md"
    text = file.read_text() if file.is_file() else ""
    _, _, below = text.partition(f"\n## {title}\n\n")
    return list(itertools.takewhile(lambda line: line.startswith("|"), below.splitlines()))


def read_rows(file: Path = ROOT / "RESULTS.md") -> dict[str, dict[str, str]]:
    """Return by claim the row of the scoreboard in a RESULTS.md, by column, without its links.

    Without that file nothing is published.
    """
    rows: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in file.read_text().splitlines() if file.is_file() else ():
        if not line.startswith("|"):
            head = []  # the end of a table
        if not line.startswith("| "):
            continue
        words = re.sub(r"\[([\w-]+)\]\((?:#|http)[^)]*\)", r"\1", line[2:].removesuffix(" |"))
        cells = [cell.replace("\\|", "|") for cell in re.split(r" \| ", words)]
        if cells[0] == "claim":
            head = cells
        elif len(cells) == len(head):
            rows[cells[0]] = dict(zip(head, cells, strict=True))
    return rows
