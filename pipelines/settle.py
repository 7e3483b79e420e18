"""Runs of processes that were killed: delivered from their journals, and closed."""

import sys

from pipelines import alive, history, live, store
from pipelines.errors import UserError
from pipelines.outbox import BATCH, GONE, send, send_files, send_tags


def settle_dead() -> list[str]:
    """Deliver and close the runs whose journals dead processes left; returns the run ids.

    A run the store does not take now is left for the next command, and said so.
    """
    folder = store.home() / "live"
    if not live.leftovers(folder, store.uri()):
        return []
    settled = []
    with live.locked(folder, "settle"):
        for left in live.leftovers(folder, store.uri()):
            try:
                _deliver(left)
            except (UserError, OSError, store.unavailable()) as error:
                print(f"{left.path} cannot be delivered: {error}", file=sys.stderr)
                if getattr(error, "error_code", "") in GONE:
                    left.path.rename(left.path.with_suffix(".orphan"))
            else:
                settled.append(left.run_id)
    return settled


def reap() -> dict[str, str]:
    """Settle every run that says RUNNING though its process is dead; by run id, why it is.

    Journals first, for they hold numbers. A run of another machine is taken for dead after a long
    silence alone, and says RUNNING again if it was not.
    """
    settled = dict.fromkeys(settle_dead(), "delivered from its journal")
    with live.locked(store.home() / "live", "settle"):
        for row in history.rows("RUNNING"):
            why = alive.why_dead(row.tags)
            if why:
                store.client().set_tag(row.id, alive.SETTLED, why)
                store.client().set_terminated(row.id, "KILLED")
                settled[row.id] = why
    return settled


def _deliver(left: live.Leftover) -> None:
    """Send the numbers of a journal that MLflow lacks, its tags and files, then close its run."""
    there = {
        (key, point.value, point.step, point.timestamp)
        for key in {number[0] for number in left.numbers}
        for point in store.client().get_metric_history(left.run_id, key)
    }
    missing = [number for number in left.numbers if number not in there]
    for start in range(0, len(missing), BATCH):
        send(left.run_id, missing[start : start + BATCH])
    send_tags(left.run_id, left.tags)
    send_files(left.run_id, left.spool)
    store.client().set_terminated(left.run_id, left.status)
    live.discard(left.path)
