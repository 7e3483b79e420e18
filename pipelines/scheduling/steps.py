"""Pipelines: commands of ours, one after another, as the steps of a workflow of DBOS.

A step is a command in a process of its own. Its JSON document is the step's output, to which the
words of later steps may refer. A pipeline that failed or was killed is continued: the outputs of
the finished steps, with the same options, code and packages, are taken from the database.
"""

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.data import datasets
from pipelines.errors import Ended, Unavailable
from pipelines.runtime import backend, provenance, subcommands
from pipelines.runtime.durations import format_duration
from pipelines.runtime.provenance import digest
from pipelines.scheduling import attempt
from pipelines.tracking import recovery, store, tracked_run

Say = Callable[[str], None]
KIND = "pipeline"  # of its run
APPLICATION = "near-identity-pipelines"  # of its workflows
PACKAGES = ("theory", "keras_models", "pipelines", "tuning")


@dataclass(frozen=True)
class Step:
    """A command of ours by its words after `python -m`.

    `{train[run_id]}` in a word stands for that value in the output of the step train.
    """

    name: str
    words: tuple[str, ...]
    describe: Callable[[Any], str] = lambda output: "done"
    """Return in a few words what its output says."""


@dataclass(frozen=True)
class Pipeline:
    """Steps in their order; its options distinguish it from others of its name."""

    name: str
    title: str
    options: Mapping[str, Any]
    steps: tuple[Step, ...]

    @property
    def key(self) -> str:
        """Return what pipelines share that continue one another: options, code, packages, place.

        As the command of a scheduled job it continues the attempts at its own tick alone.
        """
        place = [backend.name(), str(datasets.data_home()), os.environ.get(attempt.TICK)]
        return digest([self.name, dict(self.options), _code_digest(), provenance.packages(), place])


@functools.cache
def _code_digest() -> str:
    """Return the digest of all of the project's code."""
    root = provenance.ROOT
    files = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return digest({str(path.relative_to(root)): path.read_text() for path in files})


def run_pipeline(pipeline: Pipeline, anew: bool = False, say: Say = print) -> dict[str, Any]:
    """Run the steps that are not done and return the pipeline's JSON document.

    `anew` repeats finished steps too, but for those of an earlier attempt at the same tick. Raise
    Ended, with the document, if a step fails.
    """
    from dbos import DBOS, SetWorkflowID

    from pipelines.scheduling import engine

    waiting = f"Another process runs the same {pipeline.name}; waiting for it."
    key = f"{pipeline.name}-{pipeline.key}"
    with recovery.one_at_a_time(key, waiting), engine.serve_workflows(APPLICATION):
        done: dict[str, Any] = {}  # by step, of the last workflow with that key, if it has failed
        if not anew or attempt.TICK in os.environ:
            last = DBOS.list_workflows(workflow_id_prefix=f"{key}-", sort_desc=True, limit=1)
            done = {
                step["function_name"]: step["output"]
                for workflow in last
                if workflow.status != "SUCCESS"
                for step in DBOS.list_workflow_steps(workflow.workflow_id)
                if step["error"] is None and not isinstance(step["output"], str)  # unreadable
            }
        with (
            tracked_run.track(
                pipeline.title,
                experiment=attempt.EXPERIMENT,
                kind=KIND,
                params=pipeline.options,
                tags={"pipeline": pipeline.name},
            ) as run,
            # the steps' runs are children of this one, unless a scheduled attempt is their parent
            contextlib.nullcontext()
            if tracked_run.inherited_parent()
            else tracked_run.parent_of_commands(run),
        ):
            execution = _Execution(pipeline, run, say, done)

            @DBOS.workflow(name="pipeline")  # DBOS does not repeat it: its command continues it
            def run_all() -> None:
                for number in range(len(pipeline.steps)):
                    execution.run_step(number)

            try:
                with SetWorkflowID(f"{key}-{time.time_ns()}"):
                    run_all()
            finally:
                run.tag(store.NOTE, execution.note())
    return execution.document("FINISHED")


@dataclass
class _Execution:
    """A pipeline that is being run."""

    pipeline: Pipeline
    run: tracked_run.Run
    say: Say
    done: Mapping[str, Any]
    """Outputs of the steps that an earlier workflow has finished."""
    outputs: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run_step(self, number: int) -> None:
        """Run a step, unless it is done."""
        from dbos import DBOS

        step, began = self.pipeline.steps[number], time.perf_counter()
        place = f"[{number + 1}/{len(self.pipeline.steps)}] {step.name}"
        if step.name in self.done:
            output = DBOS.run_step({"name": step.name}, lambda: self.done[step.name])
            self._record(step, "skipped", output, 0.0)
            self.say(f"{place}: done before")
            return
        self.say(f"{place} ...")
        try:
            output = DBOS.run_step({"name": step.name}, self._run_command, step)
        except Ended as error:
            wall_s = time.perf_counter() - began
            self.say(f"{place}: failed, {format_duration(wall_s)}")
            self._record(step, "failed", error.document, wall_s)
            message = f"{step.name}: {error}"
            raise Ended(message, error.code, self.document("FAILED")) from error
        except (KeyboardInterrupt, SystemExit):
            self.say(f"{place}: stopped, {format_duration(time.perf_counter() - began)}")
            raise
        wall_s = time.perf_counter() - began
        self._record(step, "done", output, wall_s)
        self.say(f"{place}: {step.describe(output)}, {format_duration(wall_s)}")

    def _run_command(self, step: Step) -> Any:
        """Return the JSON document of a step's command; Ended also if it is killed."""
        try:
            return subcommands.run_json(*(word.format(**self.outputs) for word in step.words))
        except Unavailable as error:
            print(f"error: {error}", file=sys.stderr)
            raise Ended(str(error), 1) from error

    def _record(self, step: Step, state: str, output: Any, wall_s: float) -> None:
        """Record in the run how a step ended, and its output."""
        self.outputs[step.name] = output
        self.rows.append({"name": step.name, "state": state, "wall_s": wall_s, "output": output})
        if output is not None:
            self.run.text(json.dumps(output, indent=2) + "\n", f"steps/{step.name}.json")
        if state != "skipped":
            self.run.log({f"step_s/{step.name}": wall_s})

    def document(self, status: str) -> dict[str, Any]:
        """Return the JSON document: every step that was begun, and its output."""
        return {
            "pipeline": self.pipeline.name,
            "run_id": self.run.id,
            "status": status,
            "steps": self.rows,
        }

    def note(self) -> str:
        """Return Markdown for the page of the run: the state of every step."""
        row_by_step = {row["name"]: row for row in self.rows}
        lines = ["| step | state | seconds | command |", "|---|---|---|---|"]
        for step in self.pipeline.steps:
            row = row_by_step.get(step.name, {"state": "not done", "wall_s": 0.0})
            words = " ".join(step.words).replace("|", "\\|")
            lines.append(f"| {step.name} | {row['state']} | {row['wall_s']:.0f} | `{words}` |")
        return "\n".join(lines)
