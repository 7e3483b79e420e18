"""Pipelines: commands of ours, one after another, below one run that keeps what they answer.

A step is a command in a process of its own, which finds by itself what has finished: the same
pipeline, started again, goes on where it failed or was killed.
"""

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import Ended, Unavailable, UserError
from pipelines.measurement import claim_catalog
from pipelines.results import scoreboard
from pipelines.runtime import subcommands
from pipelines.runtime.durations import format_duration
from pipelines.scheduling import attempt
from pipelines.tracking import history, store, tracked_run

KIND = "pipeline"  # tag of its run
DONE = "done"  # state of a step
ALL, RECORDED = "all", "recorded"  # words for several claims
Answers = Mapping[str, Any]  # keys: the steps


@dataclass(frozen=True)
class Step:
    """A command by its words after `python -m pipelines`, which may need earlier answers."""

    name: str
    words: Callable[[Answers], Sequence[str]]
    describe: Callable[[Any], str] = lambda answer: "done"
    """Return in a few words what it answers."""


def verification(
    claims: Sequence[str], *options: str, report: Sequence[str], force: bool
) -> list[Step]:
    """Return the steps that measure these claims and look for regressions."""

    found = _measured_already()

    def measure(name: str) -> Step:
        forced = ("--force",) if force and name not in found else ()
        return Step(name, lambda _: ("run", name, *options, *forced), _describe_verdict)

    def watch(answers: Answers) -> Sequence[str]:
        return ("watch", *(answers[name]["run_id"] for name in claims))

    return [
        Step("data", lambda _: ("data", "check"), _describe_data),
        *map(measure, claims),
        Step("report", lambda _: report, lambda answer: answer["results"]),
        Step("watch", watch, lambda a: f"{a['compared']} results compared, none changed"),
    ]


def training(
    recipe: str,
    scale: str,
    *,
    data: str,
    overrides: Sequence[str],
    report: Sequence[str],
    force: bool,
) -> list[Step]:
    """Return the steps that make a trained recipe the champion if it is the best."""
    at = (recipe, "--scale", scale)
    forced = ("--force",) if force and recipe not in _measured_already() else ()
    return [
        Step("data", lambda _: ("data", "check", data), _describe_data),
        Step("train", lambda _: ("run", *at, *overrides, *forced), _describe_training),
        Step(
            "evaluate",
            lambda answers: ("evaluate", answers["train"]["run_id"]),
            lambda answer: f"{len(answer['metrics'])} numbers agree with what was recorded",
        ),
        Step("compare", lambda _: ("register", *at, "--dry-run"), _describe_comparison),
        Step(
            "register",
            lambda _: ("register", *at),
            lambda a: f"version {a['version']} {'is' if a['new'] else 'stays'} the champion",
        ),
        Step("report", lambda _: report, lambda answer: answer["results"]),
    ]


def claim_names(words: Sequence[str], scale: str) -> list[str]:
    """Return the claims that are named: by their names, all, or those recorded at that scale."""
    results = scoreboard.own_results()
    recorded = sorted(name for name, row in results.items() if row.tags["scale"] == scale)
    every = [name for name in claim_catalog.names() if scale in claim_catalog.load(name).scales]
    groups, claims = {ALL: every, RECORDED: recorded}, list[str]()
    for word in words:
        if word not in groups:
            claim_catalog.get_settings(word, scale)
        claims += groups.get(word, [word])
    if not claims:
        raise UserError(
            f"A verification needs claims. Received: {' '.join(words) or 'none'}, of which there "
            f"is none at scale {scale}. Name some with --claims, or set --scale."
        )
    return list(dict.fromkeys(claims))


def _measured_already() -> set[str]:
    """Return the claims and recipes that earlier attempts of this job, at this time, finished."""
    workflow = os.environ.get(attempt.WORKFLOW)
    attempts = history.rows(None, kind=attempt.KIND, workflow=workflow) if workflow else []
    below = (row for each in attempts for row in history.rows(**{store.PARENT: each.id}))
    return {row.tags.get("claim", row.name) for row in below}


def run_pipeline(
    name: str,
    title: str,
    steps: Sequence[Step],
    *,
    params: Mapping[str, Any],
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the steps and return the JSON document; raise Ended, with the document, if one fails."""
    rows: list[dict[str, Any]] = []
    with (
        tracked_run.track(
            title,
            experiment=attempt.EXPERIMENT,
            kind=KIND,
            params=params,
            tags={"pipeline": name},
        ) as run,
        # the steps' runs are children of this one, unless a scheduled attempt is their parent
        contextlib.nullcontext()
        if tracked_run.inherited_parent()
        else tracked_run.parent_of_commands(run),
    ):
        document = {"pipeline": name, "run_id": run.id, "status": "FAILED", "steps": rows}
        try:
            for number, step in enumerate(steps, 1):
                say(f"[{number}/{len(steps)}] {step.name} ...")
                try:
                    _run_step(step, rows, run)
                except Ended as error:
                    raise Ended(f"{step.name}: {error}", error.code, document) from error
                finally:
                    row = rows[-1]
                    result = step.describe(row["output"]) if row["state"] == DONE else row["state"]
                    took = format_duration(row["wall_s"])
                    say(f"[{number}/{len(steps)}] {step.name}: {result}, {took}")
        finally:
            run.tag(store.NOTE, _note(steps, rows))
    return document | {"status": "FINISHED"}


def _run_step(step: Step, rows: list[dict[str, Any]], run: tracked_run.Run) -> None:
    """Run a step's command and add its row; record in the run what it answered and how long."""
    words = step.words({row["name"]: row["output"] for row in rows})
    row: dict[str, Any] = {"name": step.name, "state": "stopped", "wall_s": 0.0, "output": None}
    rows.append(row)
    began = time.perf_counter()
    try:
        row |= {"output": subcommands.run_json("pipelines", *words), "state": DONE}
    except Ended as error:
        row |= {"output": error.document, "state": "failed"}
        raise
    except Unavailable as error:  # it was killed
        print(f"error: {error}", file=sys.stderr)
        row["state"] = "failed"
        raise Ended(str(error), error.code) from error
    finally:
        row["wall_s"] = time.perf_counter() - began
        run.log({f"step_s/{step.name}": row["wall_s"]})
        if row["output"] is not None:
            run.text(json.dumps(row["output"], indent=2) + "\n", f"steps/{step.name}.json")


def _note(steps: Sequence[Step], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown for the page of the run: the state of every step."""
    answers = {row["name"]: row["output"] for row in rows}
    lines = ["| step | state | seconds | command |", "|---|---|---|---|"]
    for step, row in zip(steps, rows, strict=False):
        words = shlex.join(step.words(answers)).replace("|", "\\|")
        lines.append(f"| {step.name} | {row['state']} | {row['wall_s']:.0f} | `{words}` |")
    lines += [f"| {step.name} | not done | 0 | |" for step in steps[len(rows) :]]
    return "\n".join(lines)


def _describe_data(answer: Any) -> str:
    names = [row["name"] for row in answer.get("data", [answer]) if row["prepared"]]
    return f"{', '.join(names) or 'none'} can be read"


def _describe_verdict(answer: Any) -> str:
    return f"{answer['verdict']}{' (found finished)' if answer['reused'] else ''}"


def _describe_training(answer: Any) -> str:
    numbers = [f"{k} {v['mean']:.4g}" for k, v in answer["metrics"].items() if k.startswith("val_")]
    return f"{', '.join(numbers)}{' (found finished)' if answer['reused'] else ''}"


def _describe_comparison(answer: Any) -> str:
    now = answer["champion_now"]
    if now is None:
        return "there is no champion yet"
    return f"{'better' if answer['new'] else 'no better'} than version {now['version']}"
