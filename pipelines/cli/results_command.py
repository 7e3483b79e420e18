"""Commands that look at results: `evaluate`, `watch` and `evidence check`."""

import sys
from collections.abc import Iterable

from pipelines.cli.shell import print_json
from pipelines.errors import UserError, unknown
from pipelines.measurement import claim_catalog
from pipelines.recipes import catalog
from pipelines.results import notify
from pipelines.results.evaluation import evaluate, print_evaluation
from pipelines.results.evidence_check import check_evidence
from pipelines.results.regressions import (
    KINDS,
    REGRESSION,
    change_summary,
    compare_newest,
    print_regressions,
)
from pipelines.tracking import history
from pipelines.tracking.history import Row


def _find_result(run_id: str, known: Iterable[str]) -> Row:
    """The finished result of a claim or recipe with that id."""
    row = history.find(run_id)
    if row is None:
        raise unknown("A claim or recipe", run_id, known)
    kind = row.tags.get("kind", "run")
    if kind not in KINDS or row.status != "FINISHED":
        raise UserError(
            "A run that is watched must be a finished one of a claim, or of a recipe with --seeds. "
            f"Received: {row.name} ({row.id}), a {kind} that is {row.status}. Name such a run."
        )
    return row


def watch_command(names: Iterable[str] = (), json: bool = False, target: str = "") -> None:
    """The command: compare, print, tell `target` of a regression and end with exit code 3.

    None named: all results. The id of a run stands for that one alone. UserError for what is
    neither the name of a claim or recipe nor a finished result.
    """
    words, known = list(names), {*claim_catalog.names(), *catalog.RECIPES}
    runs = [_find_result(word, known) for word in words if word not in known]
    if target:
        notify.check(target)
    document = compare_newest([w for w in words if w in known] if words else None, runs=runs)
    if json:
        print_json(document)
    else:
        print_regressions(document)
    if document["changes"]:
        if target:
            notify.send(target, {"watch": document, "said": change_summary(document)})
        print(f"error: A result has changed: {change_summary(document)}", file=sys.stderr)
        raise SystemExit(REGRESSION)


def evaluate_command(name: str, json: bool) -> None:
    """`evaluate RUN`: exit code 1, and a sentence, where a number is no longer what it was."""
    document = evaluate(name)
    if json:
        print_json(document)
    else:
        print_evaluation(document)
    differing = {key: each for key, each in document["metrics"].items() if not each["agrees"]}
    if differing:
        said = "; ".join(
            f"{key} {each['measured']:.6g} now, {each['recorded']:.6g} recorded"
            for key, each in differing.items()
        )
        print(
            f"error: A stored network must still give its recorded numbers. Received: {said}, of "
            f"run {document['run_id']}. Look at what has changed since: data, packages, device.",
            file=sys.stderr,
        )
        raise SystemExit(1)


def evidence_check_command(json: bool) -> None:
    """Print what was derived; SystemExit with code 1 where it differs from what is published."""
    document = check_evidence()
    if json:
        print_json(document)
    else:
        for each in document["claims"]:
            other = f", {each['other_code']} settings by other code" if each["other_code"] else ""
            print(f"{each['claim']:<36} {each['verdict']:<14} n = {each['seeds']}{other}")
        for problem in document["problems"]:
            print(problem)
        print(
            f"{len(document['claims'])} verdicts derived from their curves, "
            f"{len(document['problems'])} differences from RESULTS.md."
        )
    if document["problems"]:
        raise SystemExit(1)
