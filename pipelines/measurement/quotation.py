"""Quotations: what a source says, as it stands in the copy that was read, and its grade.

A sentence is accused only as it is quoted, with its footnotes, where the source states every
setting that it depends on and no reasonable reading saves it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from pipelines.measurement.verdict import BROKEN, HOLDS, INCONCLUSIVE, Bound

SLIP = "slip"
STEP = "constant or step of a proof"
FAILS = "fails"
NOT_TESTED = "not tested"
GRADES = {  # gravest first
    FAILS: "a statement of its own is false: every setting that it needs is stated, and no "
    "reasonable reading makes it true",
    STEP: "a constant or a step of a proof, or of a remark, is not right as it stands; what it "
    "serves to show holds",
    SLIP: "a slip of the copy that was read, or of print: a factor, an exponent, a premise or a "
    "row that the context gives",
    NOT_TESTED: "a setting that it needs is not stated, another network was measured, or the "
    "interval straddles it",
    HOLDS: "it is true as it stands",
}
WORDS = {  # a grade in a sentence
    FAILS: "the printed version fails",
    STEP: "a printed constant or step of a proof does not hold",
    SLIP: "the printed version has a slip",
    NOT_TESTED: "not tested",
    HOLDS: "holds as printed",
}
ACCUSED = (FAILS, STEP, SLIP)
SENTENCE, FORMULA, NUMBER = FORMS = ("sentence", "formula", "number")
SEPARATOR = " · "  # between quotations in one line


@dataclass(frozen=True)
class Grade:
    """The judgement of a quotation: one of GRADES, and why."""

    grade: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{WORDS[self.grade]}: {self.reason}" if self.reason else WORDS[self.grade]


@dataclass(frozen=True, kw_only=True)
class Quotation:
    """A sentence or two of a source, and what is measured of them."""

    words: str
    """The words as they stand in the copy; a formula or a number as printed, in our letters."""
    form: str = SENTENCE
    """`sentence`, `formula` or `number`."""
    place: str
    """The document, and where in it: `HM section 3`."""
    needs: Mapping[str, bool] = field(default_factory=dict)
    """Settings that the sentence depends on, and whether the source states them."""
    bounds: tuple[Bound, ...] = ()
    """The bounds that hold if the sentence does; none where it cannot be tested here."""
    broken: str = NOT_TESTED
    """The grade where a bound is broken; an accusation is refused unless all of `needs` is stated.

    `fails` needs `needs`, too: what the sentence depends on must have been asked.
    """
    note: str = ""
    """Why it has its grade, or which reading was measured."""

    def __post_init__(self) -> None:
        if self.broken not in GRADES or self.broken == HOLDS:
            raise ValueError(
                f"A quotation that is not true has a grade of {[*GRADES][:-1]}. Received: "
                f"broken={self.broken!r} at {self.place}."
            )
        if self.broken in ACCUSED and self.unstated:
            raise ValueError(
                "A sentence is accused only where its source states every setting that it needs. "
                f"Received: {', '.join(self.unstated)} not stated at {self.place}. Set "
                f"broken={NOT_TESTED!r}."
            )
        if self.broken == FAILS and not self.needs:
            raise ValueError(
                "A sentence fails only where all that it needs is stated. Received: no needs at "
                f"{self.place}. Say what it needs, and that the source states it."
            )
        if self.form not in FORMS:
            raise ValueError(f"A quotation is one of {FORMS}. Received: form={self.form!r}.")

    @property
    def unstated(self) -> list[str]:
        """Return the settings that it needs and its source does not state."""
        return [setting for setting, stated in self.needs.items() if not stated]

    def judge(self, values: Mapping[str, Sequence[float]]) -> Grade:
        """Return its grade by measured numbers, one a seed of each metric."""
        if not self.bounds:
            return Grade(NOT_TESTED, self.note)
        missing = [bound for bound in self.bounds if bound.metric not in values]
        tested = [bound for bound in self.bounds if bound.metric in values]
        outcomes = {bound: bound.verdict(values[bound.metric]) for bound in tested}
        contradictions = [b for b, outcome in outcomes.items() if outcome == BROKEN]
        if contradictions:
            if self.broken == NOT_TESTED:  # it accuses nobody
                numbers = [
                    f"here {b.metric} is {mean(values[b.metric]):.4g}" for b in contradictions
                ]
            else:
                numbers = [_contradiction(b, values[b.metric]) for b in contradictions]
            return Grade(self.broken, "; ".join(filter(None, (*numbers, self.note))))
        if missing:
            return Grade(NOT_TESTED)
        if INCONCLUSIVE in outcomes.values():
            return Grade(NOT_TESTED, "the interval straddles what is printed")
        return Grade(HOLDS, self.note)

    def document(self, grade: Grade) -> dict[str, Any]:
        """Return it as JSON, with its grade."""
        return {
            "words": self.words,
            "form": self.form,
            "place": self.place,
            "grade": grade.grade,
            "reason": grade.reason,
            "needs": dict(self.needs),
            "decided_by": [str(bound) for bound in self.bounds],
        }


def _contradiction(bound: Bound, values: Sequence[float]) -> str:
    """Return the number that contradicts a bound: `ratio 1.2, not <= 1`.

    The mean, or the worst seed where the bound is for every seed and the mean satisfies it.
    """
    shown = mean(values)
    if bound.every and bound.at_least <= shown <= bound.at_most:
        shown = bound.worst(np.array(values))
    return f"{bound.metric} {shown:.4g}, not {bound.rule}"
