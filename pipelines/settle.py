"""Runs of processes that were killed: delivered from their journals, and closed."""

import sys

from pipelines import live, store
from pipelines.errors import UserError
from pipelines.tracking import BATCH, GONE, send


def settle_dead() -> list[str]:
    """Deliver and close the runs of processes that were killed; returns the run ids.

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
            except (UserError, store.unavailable()) as error:
                print(f"{left.path} cannot be delivered: {error}", file=sys.stderr)
                if getattr(error, "error_code", "") in GONE:
                    left.path.rename(left.path.with_suffix(".orphan"))
            else:
                settled.append(left.run_id)
    return settled


def _deliver(left: live.Leftover) -> None:
    """Send the numbers of a journal that MLflow lacks, then close its run."""
    there = {
        (key, point.value, point.step, point.timestamp)
        for key in {number[0] for number in left.numbers}
        for point in store.client().get_metric_history(left.run_id, key)
    }
    missing = [number for number in left.numbers if number not in there]
    for start in range(0, len(missing), BATCH):
        send(store.client(), left.run_id, missing[start : start + BATCH])
    store.client().set_terminated(left.run_id, left.status)
    left.path.unlink()
