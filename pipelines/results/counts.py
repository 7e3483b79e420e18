"""How many claims have each verdict, and quoted sentences each grade: counted in one place.

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


@dataclass(frozen=True)
class Counts:
    """Numbers of claims by verdict, and of quoted sentences by grade; all words, some with 0."""

    verdicts: Mapping[str, int]
    grades: Mapping[str, int]

    def lines(self) -> list[str]:
        """Return two lines of Markdown."""
        return [
            f"{sum(self.verdicts.values())} claims: {_enumerate(self.verdicts)}.  ",
            f"{sum(self.grades.values())} quoted sentences: {_enumerate(self.grades)}.",
        ]

    def replace_block(self, text: str) -> str:
        """Return a text with these numbers between the two comments, where it has them."""
        return BLOCK.sub("\n".join([START, *self.lines(), END]), text)


def of_words(verdicts: Iterable[str], grades: Iterable[str]) -> Counts:
    """Return the numbers of verdicts and of grades."""
    return Counts(_count(VERDICTS, verdicts), _count(GRADES, grades))


def of_entries(entries: Iterable[Any]) -> Counts:
    """Return the numbers of the scoreboard's entries."""
    board = list(entries)
    grades = (each["grade"] for entry in board for each in entry.quotations)
    return of_words((entry.verdict for entry in board), grades)


def _count(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    numbers = Counter(found)
    return {word: numbers[word] for word in words}


def _enumerate(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} `{word}`" for word, number in numbers.items() if number)
