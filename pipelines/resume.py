"""Training runs that were interrupted: which one goes on, and from where."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipelines.errors import Diverged, Pruned, UserError
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import code_digest
from pipelines.tracking import history, store
from pipelines.tracking.store import PARENT
from pipelines.tracking.tracked_run import FAILURE, Parent, Run
from pipelines.training.checkpoints import Saving

TRAINING = "training"
RUN_AS = "run_as"  # tag of a training that a person started by name: name and scale
PARTED = ("diverged", "pruned")  # tags of runs that ended of themselves


def checkpoint_folder(run_id: str) -> Path:
    """Return the folder of a run's checkpoints: beside the database of the machine that trains."""
    return store.home() / "checkpoints" / run_id


def find_interrupted(kind: str, recipe: Recipe, parent: Run | Parent | None = None) -> str | None:
    """Return the id of the newest run with these settings, if it was interrupted.

    A training goes on below whatever parent asks for it; a trial is its study's. Without a
    checkpoint it begins again, as the same run, unless the code has changed.
    """
    below = {PARENT: parent.id} if parent and kind != TRAINING else {}
    same = history.rows(None, kind=kind, fingerprint=recipe.fingerprint, **below)
    if not same or not _is_interrupted(same[0]):
        return None
    row, step = same[0], last_checkpoint_step(same[0].id)
    changed = row.tags.get("code") != code_digest.training()
    if step == 0 and (changed or row.status == "FAILED"):
        return None
    aside = " The code has changed since: it may not end as it would have." if changed else ""
    print(f"Going on with run {row.id}, stopped after step {step}.{aside}", file=sys.stderr)
    return row.id


def find_diverged(kind: str, **tags: str) -> Diverged | None:
    """Return how the newest run with these tags diverged, if it did."""
    same = history.rows(None, kind=kind, **tags)
    if not same or PARTED[0] not in same[0].tags:
        return None
    said = same[0].tags.get(FAILURE, "").removeprefix("Diverged: ")
    return Diverged(said, int(same[0].tags[PARTED[0]]))


def last_checkpoint_step(run_id: str) -> int:
    """Return the step of a run's latest checkpoint; 0 without one."""
    found = Saving(checkpoint_folder(run_id)).latest()
    return found.step if found else 0


def refuse_changed(recipe: Recipe, run_as: str) -> None:
    """Raise UserError if a run of that name and seed was interrupted with other settings."""
    rows = history.rows(None, kind=TRAINING, run_as=run_as)
    same = [row for row in rows if row.params.get("seed") == str(recipe.seed)]
    if not same or not _is_interrupted(same[0]) or not (step := last_checkpoint_step(same[0].id)):
        return
    old, new = same[0].params, recipe.flat()
    differing = [
        f"{key}: {old.get(key, 'none')} there, {new.get(key, 'none')} here"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differing:
        raise UserError(
            "A run that was interrupted goes on with its own settings. Received: run "
            f"{same[0].id} of {run_as}, stopped after step {step}, has {'; '.join(differing)}. "
            "Repeat its command to go on with it, or set --new-run to start another."
        )


def _is_interrupted(row: history.Row) -> bool:
    return row.status in ("KILLED", "FAILED") and not any(tag in row.tags for tag in PARTED)


@contextmanager
def report_stop(run: Run) -> Iterator[None]:
    """Say of a run that ends early where it stopped: it can go on, or it diverged or was pruned."""
    try:
        yield
    except (Diverged, Pruned) as error:
        run.tag(type(error).__name__.lower(), str(error.step))
        raise
    except (KeyboardInterrupt, SystemExit):
        step = last_checkpoint_step(run.id)
        with suppress(BrokenPipeError):  # who read what a worker says has ended too
            goes_on = f"saved after step {step}; the same command goes on."
            print(f"{run.name}: {goes_on}", file=sys.stderr)
        raise
