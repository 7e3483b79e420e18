"""The doctor's check of runs that say RUNNING: which go on, and which no process writes any more.

As in `reap`, a run is judged by the process that its tags name
(alive.py).
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from pipelines import alive, history, live, store
from pipelines.checkups import Finding
from pipelines.history import Row

ASIDE = "*.orphan"  # journals that settle.py has put aside


def running() -> Finding:
    """Runs that say RUNNING, journals that wait to be delivered, and those put aside."""
    folder = store.home() / "live"
    waiting = {path.stem for path in live.leftovers(folder, store.uri())}
    rows = [row for row in history.rows("RUNNING") if row.id not in waiting]
    ours = [row for row in rows if _told(row)]
    dead = {
        row.id
        for row in ours
        if alive.why_dead(row.tags) and not (folder / f"{row.id}.jsonl").exists()
    }
    living = [row.tags[alive.MACHINE] for row in ours if row.id not in dead]
    here = living.count(alive.machine())
    found = f"{here} runs are being written here, {len(living) - here} on other machines"
    trouble = [
        *_dead(waiting, dead),
        *_strange([row for row in rows if not _told(row)]),
        *_aside(folder),
    ]
    return Finding(
        "note" if trouble else "well",
        "; ".join([found, *(each.found for each in trouble)]),
        "; ".join(each.costs for each in trouble),
        "; ".join(each.mend for each in trouble),
    )


def _told(row: Row) -> bool:
    """Whether a run says which process writes it."""
    return alive.PROCESS in row.tags and alive.MACHINE in row.tags


def _dead(waiting: Collection[str], dead: Collection[str]) -> list[Finding]:
    """What `reap` settles."""
    if not waiting and not dead:
        return []
    found = f"of dead processes {len(waiting)} journals wait, {len(dead)} more runs say RUNNING"
    costs = "they are missing from tables and verdicts, their last numbers from their curves"
    return [Finding("note", found, costs, "python -m pipelines reap")]


def _strange(rows: Sequence[Row]) -> list[Finding]:
    """What `reap` leaves alone, for it may live."""
    if not rows:
        return []
    found = f"{len(rows)} runs name no process, made by something else: they may live or be dead"
    costs = "reap leaves them as they are; if they are dead, they say RUNNING for good"
    mend = (
        "if nothing writes them, delete them in the UI or end them by MLflow: "
        f"MlflowClient().set_terminated({rows[0].id!r}, 'KILLED')"
    )
    return [Finding("note", found, costs, mend)]


def _aside(folder: Path) -> list[Finding]:
    """What could be delivered to no run."""
    journals = list(folder.glob(ASIDE))
    if not journals:
        return []
    found = f"{len(journals)} journals are put aside, of runs that were deleted"
    costs = "what the store refused of them is in no run, and takes room"
    mend = f"look at {folder / ASIDE}, then delete them, with the folders of the same names"
    return [Finding("note", found, costs, mend)]
