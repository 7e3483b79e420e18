"""Counts of the verdicts of claims and of the grades of quotations, made in one place.

RESULTS.md, README.md, docs/found.md, the site and the scoreboard show these numbers. Where a text
holds them between `START` and `END`, `report --publish` writes them anew.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.measurement.quotation import GRADES
from pipelines.measurement.verdict import VERDICTS

START, END = "<!-- counts -->", "<!-- end of counts -->"
BLOCK = re.compile(f"{START}.*?{END}", re.DOTALL)
PAGES = ("README.md", "docs/found.md")  # that hold the numbers
OURS = "ours"  # the source of claims that no document makes


@dataclass(frozen=True)
class Counts:
    """Numbers of claims by verdict, and of quotations by grade; all words, some with 0."""

    theirs: Mapping[str, int]
    """Verdicts of the documents' claims, counted."""
    ours: Mapping[str, int]
    grades: Mapping[str, int]

    @property
    def verdicts(self) -> dict[str, int]:
        """Return numbers of all claims by verdict."""
        return {word: number + self.ours[word] for word, number in self.theirs.items()}

    def lines(self) -> list[str]:
        """Return three lines of Markdown."""
        return [
            f"{sum(self.theirs.values())} claims of the documents: {_enumerate(self.theirs)}.  ",
            f"{sum(self.ours.values())} claims of ours beside them: {_enumerate(self.ours)}.  ",
            f"{sum(self.grades.values())} quotations: {_enumerate(self.grades)}.",
        ]

    def replace_block(self, text: str) -> str:
        """Return a text with these numbers between the two comments, where it has them."""
        return BLOCK.sub("\n".join([START, *self.lines(), END]), text)


def of_claims(claims: Iterable[Any]) -> Counts:
    """Return the numbers of claims, as views."""
    every = list(claims)
    theirs, ours = (
        [each.verdict for each in every if (each.document_of == OURS) == side]
        for side in (False, True)
    )
    grades = [quotation["grade"] for each in every for quotation in each.quotations]
    return Counts(_count(VERDICTS, theirs), _count(VERDICTS, ours), _count(GRADES, grades))


def _count(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    numbers = Counter(found)
    return {word: numbers[word] for word in words}


def _enumerate(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} `{word}`" for word, number in numbers.items() if number)
