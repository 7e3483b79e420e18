"""A claim as it is shown: rows of text, the table of its numbers, its quotations.

RESULTS.md, results.html, the site, the terminal and the note of a run show parts of them. A row is
added in `ROWS`, and stands on every card; a table names the rows that are its columns.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim import Claim
from pipelines.measurement.quotation import ACCUSED, WORDS
from pipelines.measurement.verdict import HOLDS
from pipelines.running.seed_statistics import format_mean, format_spread
from pipelines.runtime.durations import format_duration

DOCUMENTS = {  # keys: the letters that name a source
    "HM": "Hardt & Ma 2016, Identity Matters in Deep Learning",
    "R": "de Benito Delgado 2017, a review of it",
    "B": "Bartlett 2018, slides; Bartlett, Evans & Long; Bartlett, Helmbold & Long",
    "LY": "Li & Yuan 2017, Convergence Analysis of Two-layer Neural Networks",
    "ours": "what no document says",
    "yours": "claims of your own",
}
TEST_ERROR = re.compile(r"(?:(\w+)_)?test_error_pct")
METRIC, MEASURED, REPORTED, PROJECT = "metric", "measured: mean ± sd (n)", "reported", "the project"
OUTCOME, RULE, INTERVAL = "verdict", "must be", "interval, each end"


@dataclass(frozen=True)
class ClaimView:
    """A claim and its result, by the document of `report --json`."""

    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["claim"])

    @property
    def claim(self) -> Claim:
        return claim_catalog.load(self.name)

    @property
    def verdict(self) -> str:
        return str(self.document["verdict"])

    @property
    def document_of(self) -> str:
        """Return the letters of the first document that its source names; `ours` without one.

        A person's own claim is one of `yours`.
        """
        if claim_catalog.own_file(self.name):
            return "yours"
        words = re.findall(r"\w+", self.document["source"])
        return next((word for word in words if word in DOCUMENTS), "ours")

    @property
    def quotations(self) -> Sequence[Mapping[str, Any]]:
        """Return the sentences of the source, each with its grade, measured or not."""
        return list(self.document["quotations"])

    @property
    def accused(self) -> list[str]:
        """Return `the printed version has a slip`, a line a grade of those that do not hold."""
        grades = dict.fromkeys(each["grade"] for each in self.quotations)
        return [WORDS[grade] for grade in grades if grade in ACCUSED]

    @property
    def yours(self) -> Mapping[str, Any] | None:
        return self.document if self.document.get("recorded_by") == "you" else None

    @property
    def project(self) -> Mapping[str, Any] | None:
        return self.document.get("project") if self.yours else self.shown

    @property
    def shown(self) -> Mapping[str, Any] | None:
        return self.document if "run_id" in self.document else None

    @property
    def deciding_bound(self) -> Mapping[str, Any]:
        """Return the first bound that does not hold, else the first, of those measured."""
        bounds, metrics = self.document["bounds"], self.document["metrics"]
        measured = [each for each in bounds if each["metric"] in metrics] or bounds
        return next((b for b in measured if b["outcome"] not in ("", HOLDS)), measured[0])

    def text(self, key: str) -> str:
        """Return the text of a row; empty where nothing is to be said."""
        return ROWS[key](self)

    def rows(self, keys: Iterable[str] = ()) -> list[tuple[str, str]]:
        """Return title and text of these rows, else of all of a card, without empty ones."""
        return [(key, text) for key in keys or CARD if (text := self.text(key))]

    def numbers(self, every: bool = True) -> list[dict[str, str]]:
        """Return a row a number, by column, without empty columns.

        Those that decide come first, then those that are reported or shown, and all others where
        `every` one is asked for.
        """
        document, claim = self.document, self.claim
        others = [*claim.reported, *claim.shown, *(document["metrics"] if every else ())]
        bounds = {key: {} for key in others} | {b["metric"]: b for b in document["bounds"]}
        decisive = [b["metric"] for b in document["bounds"]]
        rows = [self._number(key, bounds[key]) for key in dict.fromkeys([*decisive, *others])]
        used = [column for column in rows[0] if any(row[column] for row in rows)]
        return [{column: row[column] for column in used} for row in rows]

    def _number(self, key: str, bound: Mapping[str, Any]) -> dict[str, str]:
        metric, reported = self.document["metrics"].get(key), self.document["reported"]
        student = [metric["ci_low"], metric["ci_high"]] if metric else None
        ends = bound["interval"] if bound else student  # a rule for every seed has none
        project = (self.project if self.yours else None) or {"metrics": {}}
        return {
            METRIC: key,
            OUTCOME: bound.get("outcome", "") or ("not judged" if bound and self.shown else ""),
            RULE: bound.get("rule", ""),
            MEASURED: format_spread(metric) if metric else "",
            INTERVAL: "{:.4g} to {:.4g}".format(*ends) if ends and None not in ends else "",
            REPORTED: f"{reported[key]:g}" if key in reported else "",
            PROJECT: format_spread(project["metrics"][key]) if key in project["metrics"] else "",
        }


def describe_metrics(view: ClaimView) -> str:
    """Return the metrics that decide a claim, then those reported and shown, as mean ± sd (n)."""
    numbers = (each for each in view.numbers(every=False) if each.get(MEASURED))
    return "; ".join(f"{each[METRIC]} {each[MEASURED]}" for each in numbers)


def describe_deciding(view: ClaimView) -> str:
    """Return `ratio 1.004 ± 0.0029 (n = 5), >= 1 for every seed`; unmeasured, the bound alone."""
    bound, metrics = view.deciding_bound, view.document["metrics"]
    measured = metrics.get(bound["metric"])
    return f"{bound['metric']} {f'{format_spread(measured)}, ' if measured else ''}{bound['rule']}"


def describe_bounds(view: ClaimView) -> str:
    """Return `advantage_pct >= 1: between 83.8 and 85.8; ...`, intervals where they decide."""
    return "; ".join(
        f"{bound['metric']} {bound['rule']}"
        + (": between {:.3g} and {:.3g}".format(*bound["interval"]) if bound["interval"] else "")
        for bound in view.document["bounds"]
    )


def describe_test_errors(view: ClaimView) -> str:
    """Return `identity 4.933 ± 1.2 %; plain 89.78 ± 0.38 %`, of the networks of a claim."""
    found = ((TEST_ERROR.fullmatch(key), m) for key, m in view.document["metrics"].items())
    return "; ".join(f"{a[1] or ''} {format_mean(m)} %".strip() for a, m in found if a)


def repeat_command(view: ClaimView) -> str:
    """Return the command that measures it again, or for the first time."""
    how = " --scale paper" * ("paper" in view.claim.scales)
    if view.shown:
        how = " --scale {scale} --seeds {seeds} --force".format(**view.document)
    return f"python -m pipelines run {view.name}{how}"


def _get(key: str) -> Callable[[ClaimView], str]:
    return lambda view: str(view.document.get(key, ""))


ROWS: dict[str, Callable[[ClaimView], str]] = {  # what can be shown, by title
    "claim": _get("claim"),
    "verdict": _get("verdict"),
    "scale": _get("scale"),
    "says": _get("says"),
    "as printed": _get("as_printed"),
    "deciding number": describe_deciding,
    "measured": describe_metrics,
    "source": _get("source"),
    "yours and the project's": _get("agreement"),
    "decided by": describe_bounds,
    "reported": lambda view: "; ".join(f"{k} {v:g}" for k, v in view.document["reported"].items()),
    "learned enough to judge": _get("floor"),
    "look": _get("look"),
    "test error: mean ± sd": describe_test_errors,
    "seeds": _get("seeds"),
    "took": lambda view: format_duration(view.document["wall_s"]) if view.shown else "",
    "a decision takes": lambda view: "" if view.shown else view.claim.decision_cost,
    "trained on": lambda view: " and ".join(view.document.get("devices", ())),
    "commit": _get("commit"),
    "bundle": _get("bundle"),
    "run": lambda view: view.document.get("run_id", "")[:8],
    "repeat it": repeat_command,
}
CARD = tuple([*ROWS][[*ROWS].index("source") :])  # those before stand at the head of a card
CODE = ("commit", "bundle", "run", "repeat it")  # shown as code


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table of Markdown; none without rows."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (head, *escaped)]
    return [lines[0], f"|{'---|' * len(head)}", *lines[1:]] if escaped else []


def group_by_document(views: Iterable[ClaimView]) -> list[tuple[str, list[ClaimView]]]:
    """Return claims by the title of their document, yours last; those not run at the end."""
    groups: dict[str, list[ClaimView]] = {letters: [] for letters in DOCUMENTS}
    for view in sorted(views, key=lambda view: view.shown is None):
        groups[view.document_of].append(view)
    return [(f"{key}: {DOCUMENTS[key]}", group) for key, group in groups.items() if group]
