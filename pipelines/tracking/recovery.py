"""Runs of processes that were killed: delivered from their journals, and closed."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pipelines.errors import Unavailable, UserError, short
from pipelines.runtime import files, heartbeat
from pipelines.tracking import history, journals, store
from pipelines.tracking.outbox import PERMANENT_ERRORS, Waiting

UNDELIVERABLE = ".orphan"  # ends the name of a journal that MLflow will never take
DYING_S = 5.0  # time in which a killed process gives up all that it holds


def deliver_journals() -> list[str]:
    """Deliver and close the runs whose journals dead processes left; returns the run ids.

    What the store does not take now is left for the next command, and said so.
    """
    folder, uri = store.home() / "live", store.uri()
    if not journals.find_stale(folder, uri):
        return []
    closed: list[str] = []
    with files.lock(folder, "settle"):
        waiting = journals.find_stale(folder, uri)
        for number, path in enumerate(waiting):
            with journals.claim_stale(path, uri) as lines:
                try:
                    closed += [_deliver(path, lines)] if lines else []
                except (UserError, Unavailable, OSError, store.unavailable()) as error:
                    if getattr(error, "error_code", "") in PERMANENT_ERRORS:
                        _set_aside(path, short(error))
                        continue
                    count = len(waiting) - number
                    print(f"{count} runs wait for their store: {short(error)}", file=sys.stderr)
                    break
                except (TypeError, ValueError, AttributeError) as error:  # no line of ours
                    _set_aside(path, short(error))
    return closed


def _set_aside(path: Path, why: str) -> None:
    """Keep what MLflow will never take, as of a run that was deleted, out of the way."""
    path.rename(path.with_suffix(UNDELIVERABLE))
    print(f"{path.with_suffix(UNDELIVERABLE)} cannot be delivered whole: {why}", file=sys.stderr)


def recover() -> dict[str, str]:
    """Close every run that says RUNNING though its process is dead; return why, by run id.

    Journals first, for they hold numbers: a run that has one waits for it. A run of another machine
    is taken for dead after a long silence alone, and says RUNNING again if it was not.
    """
    closed = dict.fromkeys(deliver_journals(), "delivered from its journal")
    if store.is_unmade():
        return closed
    with store.lock("settle"):
        for run_id, why in dead_without_journal().items():
            mark_killed(run_id, why)
            journals.delete(store.home() / "live" / f"{run_id}.jsonl")  # left by a kill as it began
            closed[run_id] = why
    return closed


def dead_without_journal() -> dict[str, str]:
    """Return by id why runs that say RUNNING are dead, but for those that have a journal."""
    whys = {row.id: heartbeat.reason_dead(row.tags) for row in history.rows("RUNNING")}
    folder = store.home() / "live"
    return {
        run_id: why
        for run_id, why in whys.items()
        if why and not journals.has_header(folder / f"{run_id}.jsonl")
    }


@contextmanager
def one_at_a_time(name: str, waiting: str) -> Iterator[None]:
    """Let one process do what has that name; the others say that they wait.

    What a process that was killed has left is closed first, so that its run can go on.
    """
    with store.lock(name, waiting) as file:
        _wait_for_the_killed(file)
        recover()
        with suppress(OSError):  # a full disk
            os.write(file.fileno(), json.dumps(heartbeat.tags()).encode())
        try:
            yield
        finally:
            file.truncate(0)


def _wait_for_the_killed(file: IO[str]) -> None:
    """Return when the process that a lock's file still names, for it was killed, has ended.

    It gives up its locks before it is gone, and its runs are not closed as long as it is there.
    """
    file.seek(0)
    try:
        killed = json.loads(file.read() or "null")
    except ValueError:  # torn
        killed = None
    file.truncate(0)
    end = time.monotonic() + DYING_S
    while killed and not heartbeat.reason_dead(killed) and time.monotonic() < end:
        time.sleep(0.02)


def mark_killed(run_id: str, why: str) -> None:
    """Mark a run KILLED whose process is dead, and say why."""
    store.client().set_tag(run_id, heartbeat.SETTLED, why)
    store.client().set_terminated(run_id, "KILLED")


def _deliver(path: Path, lines: list[dict[str, Any]]) -> str:
    """Send what MLflow lacks of a journal and its files, then close its run; the run's id."""
    run_id, content = path.stem, journals.parse_content(lines)
    Waiting(content, journals.spool_of(path)).deliver(run_id)
    store.client().set_terminated(run_id, content.status)
    journals.delete(path)
    return run_id
