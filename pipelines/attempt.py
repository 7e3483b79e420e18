"""The supervisor of an attempt at a scheduled job: `python -m pipelines.attempt`.

Its order is one line of JSON on standard input; without one it does nothing. The command is started
at once; while it begins, MLflow is imported and the run is opened that its runs are children of.
Whoever knows of a tick beforehand may start this process seconds before: it is ready by then.
However the command ends, that run, the table of ticks and who is to be told say how. `... bury`
does so for an attempt whose supervisor was killed.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipelines import attempted
from pipelines.attempted import FAILED, KILLED, LOG, PARENT, RAN, Order, Outcome, beside
from pipelines.linked import PARENT_RUN, give
from pipelines.supervised import ATTEMPT, Command, end_members

if TYPE_CHECKING:
    from pipelines.tracking import Run

BEAT_S = 60.0  # between two signs of life in the table of ticks
PATIENCE_S, REST_S = 600.0, 5.0  # for a table of ticks that is locked, full or away
UNKNOWN = Outcome(KILLED, "nobody knows how it ended")
HURRY_S = 0.1  # an order that comes later leaves time to get ready


@dataclass
class Record:
    """What became of an attempt, and what MLflow has of it."""

    run_id: str | None = None
    over: bool = False
    """Whether the command has ended, and the outcome is its."""
    outcome: Outcome = UNKNOWN
    watch: dict[str, Any] | None = None
    log_kept: bool = False
    """In MLflow, or in the run's journal."""


def supervise(order: Order, ready: threading.Thread) -> bool:
    """Run the command of an attempt to its end, and say everywhere how it ended.

    `ready` may be importing what that needs. False where the table of ticks does not take it.
    """
    environment = {PARENT_RUN: str(order.place(PARENT)), ATTEMPT: order.folder}
    command = Command(order.job["words"], environment)
    told = Outcome(KILLED, "its supervisor was told to end")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: command.end(told, number))
    if order.job.get("timeout_s"):
        command.limit(order.job["timeout_s"])
    os.environ.pop(PARENT_RUN, None)  # our own run is nobody's child
    os.environ[ATTEMPT] = order.folder
    with _beating(order):
        if ready.ident:
            ready.join()
        record = _recorded(order, command)
        finished = _finish(order, record)
    attempted.tell(order, record.outcome, record.run_id, record.watch)
    if finished and record.log_kept:
        shutil.rmtree(order.folder, ignore_errors=True)
    return finished


@contextmanager
def _beating(order: Order) -> Iterator[None]:
    """Give signs of life in the table of ticks for as long as the block lasts."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            from pipelines import ticks

            with contextlib.suppress(Exception):  # the next one will do
                ticks.beat(order.storage, order.id)

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _recorded(order: Order, command: Command) -> Record:
    """Wait for the command within a tracked run; without one where the store does not take it."""
    from pipelines import tracking
    from pipelines.errors import Ended, Unavailable

    record, log = Record(), order.place(LOG)
    try:
        with tracking.tracked(
            f"{order.name} {datetime.fromisoformat(order.tick):%Y-%m-%d %H:%M:%S}",
            experiment=attempted.EXPERIMENT,
            kind=attempted.KIND,
            params={"command": order.command},
            tags={**order.tags, "command": order.command, "mlflow.source.name": order.command},
        ) as run:
            record.run_id = run.id
            _name_parent(order, (run.id, run.experiment))
            record.outcome, record.over = command.wait(log), True
            _conclude(run, order, record)
    except (Ended, SystemExit):  # recorded
        pass
    except Unavailable as error:  # what was not taken is kept in a journal
        print(f"This attempt is not all in its store: {error}", file=sys.stderr)
    except Exception as error:
        record.log_kept = False
        print(f"This attempt is not recorded: {type(error).__name__}: {error}", file=sys.stderr)
    if not order.place(PARENT).exists():
        _name_parent(order, None)
    if not record.over:
        record.outcome = command.wait(log)
        with beside("What the command left was not settled"):
            _settle(order, record.outcome)
    return record


def _name_parent(order: Order, run: tuple[str, str] | None) -> None:
    try:
        give(order.place(PARENT), run)
    except OSError as error:
        print(f"The command's runs will have no parent: {error}", file=sys.stderr)


def _conclude(run: "Run", order: Order, record: Record) -> None:
    """Write into the run how its command ended, and leave its block accordingly."""
    from pipelines.errors import Ended

    with beside("What the command left was not settled"):
        _settle(order, record.outcome)
    with beside("The results were not compared with earlier ones"):
        _watch(run.id, record)
    outcome = record.outcome
    tags = {attempted.STATE: outcome.state, "exit_code": str(outcome.code)}
    if outcome.why:
        tags[attempted.FAILURE] = outcome.why[:1000]
    run.outbox.tell("tags", tags)
    with beside("The page of this attempt was not written"):
        from pipelines import store

        run.tag(store.NOTE, attempted.note(order, outcome, run.id, record.watch))
    sys.stderr.flush()
    run.outbox.file(LOG, lambda place: shutil.copyfile(order.place(LOG), place))
    record.log_kept = True
    if outcome.state == FAILED:
        raise Ended(outcome.why, outcome.code or 1)
    if outcome.state == KILLED:
        raise SystemExit(outcome.why)


def _settle(order: Order, outcome: Outcome) -> None:
    """After a command that did not end well: end what it left behind, and close its runs."""
    from pipelines import settle

    if outcome.state != RAN:
        end_members(order.folder)
        settle.reap()


def _watch(run_id: str, record: Record) -> None:
    """Compare what was measured with what was before; a regression is a failure."""
    from pipelines import watch

    if record.outcome.state == RAN:
        record.watch = watch.examine(below=run_id)
        if record.watch["changes"]:
            why = f"A result has changed: {watch.said(record.watch)}"
            record.outcome = Outcome(FAILED, why, watch.REGRESSION)


def _finish(order: Order, record: Record) -> bool:
    """Write the end into the table of ticks, for as long as it may take; whether it was taken."""
    from pipelines import ticks

    outcome, end = record.outcome, time.monotonic() + PATIENCE_S
    result: dict[str, Any] = {"why": outcome.why, "code": outcome.code, "run_id": record.run_id}
    while True:
        try:
            ticks.finish(order.storage, order.id, state=outcome.state, **result)
            return True
        except Exception as error:
            print(f"The table of ticks does not take the end: {error}", file=sys.stderr)
            if time.monotonic() > end:
                return False
            time.sleep(REST_S)


def _ready() -> None:
    """Import what recording needs, and connect to its store, while nothing else is to be done."""
    with contextlib.suppress(Exception):  # what fails is said when it is needed
        from pipelines import provenance, settle, store, ticks, tracking, watch  # noqa: F401

        store.client()
        provenance.tags()
        provenance.packages()


def main(words: list[str]) -> int:
    """Read the order and follow it; the exit code says whether it could be followed."""
    if words == ["bury"]:
        from pipelines.shell import guarded

        return guarded(lambda _: attempted.bury(Order(**json.load(sys.stdin))), [])
    ready = threading.Thread(target=_ready, daemon=True)
    if not select.select([sys.stdin], [], [], HURRY_S)[0]:
        ready.start()
    line = sys.stdin.readline()
    if not line.endswith("\n"):  # who was to give it has ended, or has thought better of it
        shutil.rmtree(os.environ.get(ATTEMPT, ""), ignore_errors=True)
        os._exit(0)  # whatever is being imported
    return 0 if supervise(Order(**json.loads(line)), ready) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
