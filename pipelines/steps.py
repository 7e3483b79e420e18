"""Pipelines: commands of ours, one after another, as the steps of one run.

A step is a command in a process of its own. Its JSON document is the step's output, which the words
of later steps may name. What failed or was killed goes on: a step that is done, with the same
command, code and packages, is not repeated (outputs.py).
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines import outputs, store, studied, tracking
from pipelines.errors import Ended, Unavailable, UserError, unknown
from pipelines.outputs import STEP, Output, Record

Say = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """A command of ours by its words after `python -m`.

    `{train[run_id]}` in a word is what the output of the step train has there.
    """

    name: str
    words: tuple[str, ...]
    says: Callable[[Any], str] = lambda output: "done"
    """What a person is told of its output."""

    def resolved(self, documents: Mapping[str, Any]) -> tuple[str, ...]:
        """Its words with what earlier steps gave. UserError where that lacks something."""
        try:
            return tuple(word.format(**documents) for word in self.words)
        except (LookupError, TypeError) as error:
            raise UserError(
                f"A step needs the outputs that it names. Received: {self.name}, which finds no "
                f"{error} in {', '.join(documents) or 'any'}. Repeat the pipeline without --from."
            ) from error


@dataclass(frozen=True)
class Pipeline:
    """Steps in their order; the options are what tells it from others of its name."""

    name: str
    title: str
    options: Mapping[str, Any]
    steps: tuple[Step, ...]

    def before(self, start: str | None) -> list[str]:
        """The names of the steps before that one. UserError for a step that it does not have."""
        names = [step.name for step in self.steps]
        if start is None:
            return []
        if start not in names:
            raise unknown(f"A step of {self.name}", start, names)
        return names[: names.index(start)]


def carry_out(
    pipeline: Pipeline, start: str | None = None, anew: bool = False, say: Say = print
) -> dict[str, Any]:
    """Do the steps that are not done, and give the pipeline's JSON document.

    `start` is the first that is done in any case, with the latest outputs of those before it; with
    `anew` nothing that was typed earlier is gone on from. Raises Ended, with the document, where a
    step fails.
    """
    given = _given(pipeline, start)
    with outputs.opened(
        pipeline.name, pipeline.options, pipeline.title, anew or start is not None
    ) as (run, earlier):
        names = [step.name for step in pipeline.steps]
        course = _Course(pipeline, run, say, outputs.latest(earlier, names), given)
        try:
            for number in range(len(pipeline.steps)):
                course.take(number)
        finally:
            if isinstance(run, tracking.Run):  # the page of an attempt is not ours
                run.tag(store.NOTE, course.note())
    return course.document("FINISHED")


def _given(pipeline: Pipeline, start: str | None) -> dict[str, Output]:
    """The latest outputs of the steps before `start`; UserError names those that lack."""
    names = pipeline.before(start)
    found = outputs.latest(outputs.of(pipeline.name, pipeline.options), names) if names else {}
    if lacking := [name for name in names if name not in found]:
        raise UserError(
            "Every step before the first must have been done once. Received: --from "
            f"{start}, and no run of {pipeline.title} with these options has done "
            f"{', '.join(lacking)}. Begin with --from {lacking[0]}, or leave --from out."
        )
    return found


@dataclass
class _Course:
    """A pipeline under way: what its steps have given so far."""

    pipeline: Pipeline
    run: Record
    say: Say
    done: Mapping[str, Output]
    """In the runs that it goes on from."""
    given: Mapping[str, Output]
    """Of steps that are left out."""
    documents: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take(self, number: int) -> None:
        """Do a step, unless it is done."""
        step = self.pipeline.steps[number]
        place = f"[{number + 1}/{len(self.pipeline.steps)}] {step.name}"
        words = step.resolved(self.documents)
        before, mark = self.done.get(step.name), outputs.fingerprint(words)
        if before and before.fingerprint != mark:
            before = None
        if before := self.given.get(step.name, before):
            self._ended(step, "skipped", before.document)
            outputs.keep(self.run, step.name, before.document, before.fingerprint)
            self.say(f"{place}: done before, in run {before.run_id[:8]}")
            return
        self.say(f"{place} ...")
        began = time.perf_counter()
        try:
            output = self._done(step, words, began)
        except (Ended, KeyboardInterrupt, SystemExit) as error:
            how = "failed" if isinstance(error, Ended) else "stopped"
            self.say(f"{place}: {how}, {time.perf_counter() - began:.0f} s")
            raise
        outputs.keep(self.run, step.name, output, mark)
        self.say(f"{place}: {step.says(output)}, {time.perf_counter() - began:.0f} s")

    def _done(self, step: Step, words: tuple[str, ...], began: float) -> Any:
        """What a step gives; one that fails is recorded, with what it printed."""
        try:
            output = _answer(words)
        except Ended as error:
            self._ended(step, "failed", error.document, time.perf_counter() - began)
            self.run.tag(STEP + step.name, f"failed: {error}"[:1000])
            if error.document is not None:
                outputs.keep_document(self.run, step.name, error.document)
            raise Ended(f"{step.name}: {error}", error.code, self.document("FAILED")) from error
        except (KeyboardInterrupt, SystemExit):
            self.run.tag(STEP + step.name, "stopped")
            raise
        self._ended(step, "done", output, time.perf_counter() - began)
        return output

    def _ended(self, step: Step, state: str, output: Any, wall_s: float = 0.0) -> None:
        self.documents[step.name] = output
        self.rows.append({"name": step.name, "state": state, "wall_s": wall_s, "output": output})
        if state != "skipped":
            self.run.log({f"step_s/{step.name}": wall_s})

    def document(self, status: str) -> dict[str, Any]:
        """The JSON document: every step that was come to, and what it gave."""
        return {
            "pipeline": self.pipeline.name,
            "run_id": self.run.id,
            "status": status,
            "steps": self.rows,
        }

    def note(self) -> str:
        """Markdown for the page of the run: what became of every step."""
        came = {row["name"]: row for row in self.rows}
        lines = ["| step | state | seconds | command |", "|---|---|---|---|"]
        for step in self.pipeline.steps:
            row = came.get(step.name, {"state": "not done", "wall_s": 0.0})
            words = " ".join(step.words).replace("|", "\\|")
            lines.append(f"| {step.name} | {row['state']} | {row['wall_s']:.0f} | `{words}` |")
        return "\n".join(lines)


def _answer(words: tuple[str, ...]) -> Any:
    """The output of a command; one that is killed has failed, and may do better another time."""
    try:
        return studied.answer(*words)
    except Unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        raise Ended(str(error), 1) from error
