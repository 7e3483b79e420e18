"""Commands that examine results: `evaluate`, `watch` and `evidence check`."""

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from pipelines.cli.shell import exit_with_error, print_answer
from pipelines.errors import LISTED_BY, MOST, UserError, check_counts, check_minutes, unknown
from pipelines.measurement import claim_catalog
from pipelines.recipes import catalog
from pipelines.results import regressions
from pipelines.results.evaluation import evaluate, print_evaluation
from pipelines.results.evidence.check import check_evidence
from pipelines.runtime import notify
from pipelines.runtime.plain_table import print_prose
from pipelines.tracking import history
from pipelines.tracking.history import Row


def _find_result(run_id: str, names: Collection[str]) -> Row:
    """Return the finished result of a claim or recipe with that id."""
    row = history.find(run_id)
    if row is None or history.is_deleted(row.id):
        raise unknown("A claim or recipe", run_id, names, LISTED_BY)
    kind = row.tags.get("kind", "run")
    lacking = history.find_lacking(row.status, row.tags, row.params)
    if kind not in regressions.KINDS or row.status != "FINISHED" or lacking:
        state = f"without {lacking}" if lacking else f"that is {row.status}"
        raise UserError(
            "A run that is watched must be a finished one of a claim, or of a recipe with --seeds. "
            f"Received: {row.name} ({row.id}), a {kind} {state}. Name such a run."
        )
    return row


def watch_command(words: Collection[str] = (), json: bool = False, target: str = "") -> None:
    """Compare results with earlier ones; after a regression notify `target` and exit with code 3.

    Without words all results are compared; the id of a run stands for that one alone. Raise
    UserError for what is neither the name of a claim or recipe nor a finished result.
    """
    known = {*claim_catalog.names(), *catalog.RECIPES}
    names = [word for word in words if word in known]
    runs = [_find_result(word, known) for word in words if word not in known]
    if target:
        notify.check(target)
    document = regressions.compare_newest(names if words else None, runs=runs)
    print_answer(document, json, regressions.print_regressions)
    if document["changes"]:
        summary = regressions.change_summary(document)
        if target:
            notify.send(target, {"watch": document, "said": summary})
        exit_with_error(f"A result has changed: {summary}", regressions.REGRESSION)


def evaluate_command(name: str, json: bool) -> None:
    """Measure a stored network anew; exit code 1, and a sentence, if a number has changed."""
    document = evaluate(name)
    print_answer(document, json, print_evaluation)
    differing = [
        f"{key} {each['measured']:.6g} now, {each['recorded']:.6g} recorded"
        for key, each in document["metrics"].items()
        if not each["agrees"]
    ]
    if differing:
        exit_with_error(
            "A stored network must still give its recorded numbers. Received: "
            f"{'; '.join(differing)}, of run {document['run_id']}. Look at what has changed since: "
            "data, packages, device."
        )


def evidence_check_command(
    again: int | None, draw: int | None, max_minutes: float | None, json: bool
) -> None:
    """Print the derived verdicts; SystemExit with code 1 if one differs from what is published."""
    check_minutes(max_minutes)
    if again is not None:
        check_counts(MOST, again=again)
    if draw is not None and (again is None or draw < 0):
        raise UserError(
            "A draw is a whole number >= 0, of cells that are measured --again. Received: --draw "
            f"{draw}. Write, for example, --again 3 --draw {abs(draw)}."
        )
    seed = secrets.randbelow(10**6) if draw is None else draw
    document = check_evidence(again=again or 0, seed=seed, minutes=max_minutes or 1)
    print_answer(document, json, _print_evidence_check)
    if document["problems"]:
        raise SystemExit(1)


def _print_evidence_check(document: Mapping[str, Any]) -> None:
    for each in document["claims"]:
        other = f", {each['other_code']} by other code" if each["other_code"] else ""
        print(f"{each['claim']:<35} {each['verdict']:<18} n = {each['seeds']}{other}")
    if document["again"]["asked"] and not document["again"]["cells"]:
        print("Nothing was measured anew: no cell is stated to take so little. Set --max-minutes.")
    for cell in document["again"]["cells"]:
        print(f"Measured anew (--draw {document['again']['draw']}): {cell}")
    for problem in document["problems"]:
        print_prose(problem)
    print(
        f"{len(document['claims'])} verdicts derived from their curves, "
        f"{len(document['problems'])} differences."
    )
