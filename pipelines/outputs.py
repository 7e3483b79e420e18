"""What the steps of a pipeline gave: kept in its run in MLflow, and found again.

The run is that of the scheduled attempt whose command the pipeline is, else one of its own. A tag
`step.NAME` says how a step ended, `steps/NAME.json` is its output, `step_s/NAME` its seconds.
"""

import functools
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipelines import (
    attempted,
    data,
    history,
    linked,
    provenance,
    quiet,
    settle,
    store,
    tracking,
)
from pipelines.history import Row
from pipelines.recipes import digest
from pipelines.sending import send, send_fact, send_files

KIND = "pipeline"  # of a run of its own
PACKAGES = ("theory", "keras_models", "pipelines", "tuning")
STEP, DONE = "step.", "done "


class Record(Protocol):
    """What can be written into a run."""

    @property
    def id(self) -> str: ...
    def tag(self, key: str, value: str) -> None: ...
    def text(self, text: str, path: str) -> None: ...
    def log(self, metrics: Mapping[str, float]) -> None: ...


@dataclass(frozen=True)
class Elsewhere:
    """A run that another process of ours writes and ends: what is added is sent at once."""

    id: str

    def tag(self, key: str, value: str) -> None:
        send_fact(self.id, "tags", {key: value})

    def text(self, text: str, path: str) -> None:
        with tempfile.TemporaryDirectory() as spool:
            place = Path(spool) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            send_files(self.id, Path(spool))

    def log(self, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        send(self.id, [(key, value, 0, now) for key, value in metrics.items()])


@dataclass(frozen=True)
class Output:
    """What a step gave in some run, and the fingerprint that it had there."""

    document: Any
    fingerprint: str
    run_id: str


def fingerprint(words: Sequence[str]) -> str:
    """What tells whether a step would do the same again: its command, code, packages, place."""
    place = [quiet.backend(), str(data.data_home())]
    return digest([list(words), _sources(), provenance.packages(), place])


@functools.cache
def _sources() -> str:
    """Digest of the project's code, all of it."""
    root = provenance.ROOT
    files = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return digest({str(path.relative_to(root)): path.read_text() for path in files})


@contextmanager
def opened(
    pipeline: str, options: Mapping[str, Any], title: str, anew: bool
) -> Iterator[tuple[Record, list[Row]]]:
    """The run into which a pipeline writes, and the broken ones that it goes on from.

    Those are the earlier attempts at its tick; of one that was typed, unless it is to begin `anew`,
    the runs with these options since the last that finished.
    """
    same = {"pipeline": pipeline, "options": digest(options)}
    if attempt := _attempt():
        own = {key: attempt.tags[key] for key in ("job", "tick")}
        earlier = [row for row in history.rows(None, **own, **same) if row.id != attempt.id]
        send_fact(attempt.id, "tags", same)
        yield Elsewhere(attempt.id), earlier
        return
    waiting = f"Another process runs the same {pipeline}; waiting for it."
    with settle.one_at_a_time(f"pipeline-{pipeline}-{same['options']}", waiting):
        rows = [] if anew else history.rows(None, kind=KIND, **same)
        broken = list(itertools.takewhile(lambda row: row.status != "FINISHED", rows))
        with (
            tracking.tracked(
                title, experiment=attempted.EXPERIMENT, kind=KIND, params=options, tags=same
            ) as run,
            _lent(run),
        ):
            yield run, broken


def _attempt() -> Row | None:
    """The run of the scheduled attempt whose command this process is."""
    found = linked.parent()
    row = history.row(found[0]) if found else None
    return row if row and row.tags.get("kind") == attempted.KIND else None


@contextmanager
def _lent(run: tracking.Run) -> Iterator[None]:
    """Make the runs of the commands that are started in the block children of this one."""
    before = os.environ.get(linked.PARENT_RUN)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "parent.json"
        linked.give(path, (run.id, run.experiment))
        os.environ[linked.PARENT_RUN] = str(path)
        try:
            yield
        finally:
            os.environ.pop(linked.PARENT_RUN)
            if before is not None:
                os.environ[linked.PARENT_RUN] = before


def of(pipeline: str, options: Mapping[str, Any]) -> list[Row]:
    """All runs of a pipeline with these options, newest first."""
    return history.rows(None, pipeline=pipeline, options=digest(options))


def latest(rows: Sequence[Row], names: Iterable[str]) -> dict[str, Output]:
    """By name, what steps gave in the newest of these runs in which they were done."""
    found = {}
    for name in names:
        done = (output for row in rows if (output := _kept(row, name)))
        if output := next(done, None):
            found[name] = output
    return found


def _kept(row: Row, name: str) -> Output | None:
    """What a step gave in a run; None where it was not done, or its output did not arrive."""
    said = row.tags.get(STEP + name, "")
    written = store.artifact(row.id, _file(name)) if said.startswith(DONE) else None
    if written is None:
        return None
    return Output(json.loads(written), said.split()[1], row.id)


def keep(run: Record, name: str, output: Any, done: str) -> None:
    """Write into a run that a step is done, with this fingerprint, and what it gave."""
    keep_document(run, name, output)
    run.tag(STEP + name, DONE + done)


def keep_document(run: Record, name: str, output: Any) -> None:
    """Write into a run what a step gave, done or not."""
    run.text(json.dumps(output, indent=2) + "\n", _file(name))


def _file(name: str) -> str:
    return f"steps/{name}.json"
