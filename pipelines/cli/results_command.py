"""Commands that examine results: `evaluate`, `watch` and `evidence`."""

import math
import secrets
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from pipelines.cli.parsing import Json, add_command, call, command, new_app
from pipelines.cli.shell import exit_with_error, print_answer
from pipelines.errors import LISTED_BY, MOST, UserError, check_counts, check_minutes, unknown
from pipelines.measurement import claim_catalog
from pipelines.recipes import catalog
from pipelines.results import regressions
from pipelines.results.evaluation import evaluate, print_evaluation
from pipelines.results.evidence import adding, bundles, queue
from pipelines.results.evidence.check import check_evidence
from pipelines.runtime import notify, places
from pipelines.runtime.plain_table import print_prose
from pipelines.runtime.progress import say_begin
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


evidence_app = new_app(
    "python -m pipelines evidence",
    """List, import, check or add to the recorded runs behind RESULTS.md.

    They are bundles of runs, in mlruns/evidence.""",
)
Claims = Annotated[str, Parameter(help="Claims (default: all).")]
Minutes = Annotated[float | None, Parameter(help="Begin nothing after so long (None: to the end).")]


@command(evidence_app, "list")
def list_evidence(*, json: Json = False) -> None:
    """List the bundles, and which of them are in the database."""
    _say_begin(json)
    print_answer(bundles.list_bundles(), json, bundles.print_bundles)


@command(evidence_app, "import")
def import_evidence(*, json: Json = False) -> None:
    """Import the bundles that the database lacks."""
    _say_begin(json)
    bundles.import_missing(None)
    print_answer(bundles.list_bundles(), json, bundles.print_bundles)


@command(evidence_app, "add")
def add_evidence(
    *what: Annotated[str, Parameter(help="Files of `export`, or claims that were run here.")],
    json: Json = False,
) -> None:
    """Add runs to the bundles, joined with what they hold."""
    _say_begin(json)
    print_answer(adding.add(what), json, adding.print_added)


@command(evidence_app, "check")
def check_bundles(
    *,
    again: Annotated[int | None, Parameter(help="Measure so many cells anew, too.")] = None,
    draw: Annotated[int | None, Parameter(help="Seed by which these are drawn.")] = None,
    max_minutes: Annotated[
        float | None, Parameter(help="Draw them among those that take this long for all (None: 1).")
    ] = None,
    json: Json = False,
) -> None:
    """Derive every verdict anew from its curves, and compare it with results.json.

    Cells are compared with their trainings. Exit code 1 where one differs.
    """
    check_minutes(max_minutes)
    if again is not None:
        check_counts(MOST, again=again)
    if draw is not None and (again is None or draw < 0):
        raise UserError(
            "A draw is a whole number >= 0, of cells that are measured --again. Received: --draw "
            f"{draw}. Write, for example, --again 3 --draw {abs(draw)}."
        )
    _say_begin(json)
    seed = secrets.randbelow(10**6) if draw is None else draw
    document = check_evidence(again=again or 0, seed=seed, minutes=max_minutes or 1)
    print_answer(document, json, _print_evidence_check)
    if document["problems"]:
        raise SystemExit(1)


@command(evidence_app, "plan")
def plan_evidence(*claims: Claims, json: Json = False) -> None:
    """List the verdicts that are lacking, the cheapest first.

    With the seeds and trainings that each lacks.
    """
    _say_begin(json)
    bundles.import_if_own()
    lacking = [decision.document() for decision in queue.plan_decisions(claims)]
    print_answer({"lacking": lacking}, json, queue.print_plan)


@command(evidence_app, "work")
def work_evidence(*claims: Claims, max_minutes: Minutes = None, json: Json = False) -> None:
    """Measure and add the verdicts that are lacking, at the lowest priority.

    The same command goes on.
    """
    from pipelines.errors import check_minutes

    check_minutes(max_minutes)
    places.require_checkout("evidence work")
    _say_begin(json)
    bundles.import_if_own()
    print_answer(queue.work(claims, max_minutes or math.inf), json, queue.print_work)


add_command(evidence_app, list_evidence)  # what `evidence` alone does


def _say_begin(json: bool) -> None:
    say_begin(f"Reading the evidence in {bundles.FOLDER}.", json)


def evidence_command(words: list[str]) -> None:
    """Run one of the commands about the evidence."""
    call(evidence_app, words)


def _print_evidence_check(document: Mapping[str, Any]) -> None:
    for each in document["claims"]:
        other = f", {each['other_code']} by other code" if each["other_code"] else ""
        print(f"{each['claim']:<35} {each['verdict']:<24} n = {each['seeds']}{other}")
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
