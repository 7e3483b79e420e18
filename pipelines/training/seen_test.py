"""The test set looked at while training, as the public code that HM's footnote 5 names does.

That code evaluates checkpoint after checkpoint, each on 5,000 test pictures in turn, and reports
the best of all. A number that is chosen so is no estimate for new pictures: its name says "seen".
"""

from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from pipelines.data.datasets import AnySplit

SEEN = "seen_test"
HALF = "half_seen_test"
LAST = 5  # evaluations, whose mean is reported

Evaluate = Callable[[AnySplit], Mapping[str, float]]  # -> {"seen_test_loss": ..., ...}


class SeenTest:
    """Evaluates both halves of a test set, and keeps what it has seen.

    `looks` has for each evaluation its `step`, the number that is `watched` over the whole set, and
    the same over the half whose turn it was: the first, the second, the first, ... It is all that a
    resumed run needs.
    """

    def __init__(self, test: AnySplit, watched: str, evaluate: Evaluate) -> None:
        cut = len(test) // 2
        self.halves = (test.head(cut), test.tail(len(test) - cut))
        self.watched, self.evaluate = watched, evaluate
        self.looks: list[dict[str, float]] = []

    def look(self, step: int) -> dict[str, float]:
        """Return the numbers of the network over the whole test set, and over the half in turn."""
        parts = [self.evaluate(half) for half in self.halves]
        sizes = [len(half) for half in self.halves]
        whole = {
            key: sum(n * part[key] for n, part in zip(sizes, parts, strict=True)) / sum(sizes)
            for key in parts[0]
        }
        half = parts[len(self.looks) % 2][f"{SEEN}_{self.watched}"]
        self.looks.append({"step": float(step), SEEN: whole[f"{SEEN}_{self.watched}"], HALF: half})
        return {**whole, f"{HALF}_{self.watched}": half}

    def summarize(self) -> dict[str, float]:
        """Return the least number over the whole set and over halves, with their steps.

        And the mean of the last LAST evaluations of the whole set.
        """
        if not self.looks:
            return {}
        last = [look[SEEN] for look in self.looks[-LAST:]]
        numbers: dict[str, Any] = {f"last_{LAST}_{SEEN}_{self.watched}": mean(last)}
        for kind in (SEEN, HALF):
            best = min(self.looks, key=lambda look: look[kind])
            numbers |= {f"best_{kind}_{self.watched}": best[kind]}
            numbers |= {f"best_{kind}_step": best["step"]}
        return numbers
