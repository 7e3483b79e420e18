"""An attempt at a scheduled job: its order, its outcome, what is said of it, and its burial.

Imports the standard library only, until it is over: nothing comes between a tick and its command.
"""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXPERIMENT, KIND = "scheduled runs", "scheduled"  # of its run
LOG, PARENT = "log.txt", "parent.json"  # in its folder
RAN, FAILED, KILLED = "ran", "failed", "killed"
FAILURE, STATE = "failure", "state"  # tags of its run
MOST = 40  # runs named on its page
UNTOLD = "not_notified"  # tag: why nobody was told


@dataclass(frozen=True)
class Order:
    """What is to be done: a row of the table of ticks, its job, and the attempt's own folder."""

    id: int
    storage: str
    job: dict[str, Any]
    tick: str
    """Date and time, with its zone, as ISO 8601 has it."""
    attempt: int
    folder: str
    state: str = KILLED
    """Of an attempt that is buried: its state in the table of ticks."""
    why: str = ""
    """And why."""

    @property
    def name(self) -> str:
        return str(self.job["name"])

    @property
    def command(self) -> str:
        """`pipelines run gradient-formula`: what a person types after `python -m`."""
        return shlex.join(self.job["words"])

    @property
    def tags(self) -> dict[str, str]:
        """By which the run of this attempt is found."""
        return {"job": self.name, "tick": self.tick, "attempt": str(self.attempt)}

    def place(self, name: str) -> Path:
        """A file of the attempt."""
        return Path(self.folder) / name


@dataclass(frozen=True)
class Outcome:
    """How a command ended: `ran`, `failed` or `killed`, why not well, and its exit code."""

    state: str
    why: str = ""
    code: int | None = None


@contextmanager
def beside(what: str) -> Iterator[None]:
    """Say what fails beside the command itself: how that ended is recorded all the same."""
    try:
        yield
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)


def note(order: Order, outcome: Outcome, run_id: str, watch: Mapping[str, Any] | None) -> str:
    """Markdown for the page of its run: how it ended, and links to the runs of its command."""
    from pipelines import history, store
    from pipelines import watch as watching

    below = history.rows(None, **{store.PARENT: run_id})
    why = f": {outcome.why}" if outcome.why else ""
    lines = [
        f"**{order.name}** of {order.tick}, attempt {order.attempt}: **{outcome.state}**{why}",
        "",
        f"`python -m {order.command}`",
        "",
    ]
    if below:
        lines += ["| run | kind | status | verdict |", "|---|---|---|---|"]
        lines += [_line(row) for row in reversed(below[:MOST])]
    more = len(below) - MOST
    lines += ["", f"and {more} earlier runs"] if more > 0 else []
    if watch and watch["compared"]:
        lines += ["", f"Beside earlier results: {watching.said(watch)}."]
    return "\n".join(lines)


def _line(row: Any) -> str:
    """A row of the table: an address within the UI, which an import readdresses."""
    from pipelines import store

    experiment = store.client().get_run(row.id).info.experiment_id
    name = row.name.replace("|", "\\|")
    cells = [f"[{name}](#/experiments/{experiment}/runs/{row.id})", row.tags.get("kind", "")]
    return f"| {' | '.join([*cells, row.status, row.tags.get('verdict', '')])} |"


def tell(
    order: Order, outcome: Outcome, run_id: str | None, watch: Mapping[str, Any] | None = None
) -> None:
    """Tell who is to be told of what did not go well; where that fails, a tag of the run says so.

    The document names the job, its tick, the attempt, how it ended and where its page is.
    """
    target = order.job.get("notify")
    if not target or outcome.state == RAN:
        return
    from pipelines import notify, sending, ui

    document = {
        **order.tags,
        "attempt": order.attempt,
        "state": outcome.state,
        "why": outcome.why,
        "exit_code": outcome.code,
        "command": f"python -m {order.command}",
        "run_id": run_id,
        "page": ui.run_page(run_id) if run_id else None,
        "watch": watch,
    }
    said = notify.tell(target, document)
    if said and run_id:
        with beside("That is not in the run either"):
            sending.send_fact(run_id, "tags", {UNTOLD: said})


def bury(order: Order) -> None:
    """Close the run of an attempt whose supervisor was killed, with its log, and tell of it.

    A run that had ended before is made KILLED only where the table of ticks says so of the attempt.
    """
    from pipelines import history, settle, store
    from pipelines.linked import given

    outcome = Outcome(order.state, order.why or "its supervisor was killed")
    run_id = given(order.place(PARENT))
    try:
        store.client()
        settle.reap()
        made = history.rows(None, kind=KIND, **order.tags)
        run_id = run_id or (made[0].id if made else None)
        if run_id:
            _close(order, outcome, history.row(run_id))
    finally:
        tell(order, outcome, run_id)
    if run_id:
        shutil.rmtree(order.folder, ignore_errors=True)


def _close(order: Order, outcome: Outcome, row: Any) -> None:
    """Bring the log into a run, and its status to what became of the attempt."""
    from pipelines import sending, settle, store

    if outcome.state == KILLED:
        tags = {FAILURE: outcome.why[:1000], STATE: KILLED}
        page = {store.NOTE: note(order, outcome, row.id, None)}
        sending.send_fact(row.id, "tags", tags | page)
        settle.close(row.id, outcome.why)
    if order.place(LOG).exists():
        with tempfile.TemporaryDirectory() as spool:
            shutil.copy(order.place(LOG), spool)
            sending.send_files(row.id, Path(spool))
