"""The part of a training that exists already: a finished run, an interrupted one, or nothing.

`existing` answers that once, and `run` acts on it. The rest is what other commands ask about
earlier trainings, and how a run that ends early says where it stopped.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import Diverged, Pruned, UserError
from pipelines.recipes.recipe import Recipe
from pipelines.running import code_digest
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history, store
from pipelines.tracking.store import PARENT
from pipelines.tracking.tracked_run import BEGUN_WITH_CODE, FAILURE, Parent, Run
from pipelines.training.checkpoints import Checkpoint, Saving

TRAINING = "training"
PER_STEP = ("batch_loss", "learning_rate")  # curves of a run, not results of it
PARTED = DIVERGED, PRUNED = ("diverged", "pruned")  # tags of runs that ended of themselves


@dataclass(frozen=True)
class Result:
    """The final numbers of a training run, and whether an earlier run already had them."""

    run_id: str
    metrics: dict[str, float]
    reused: bool = False


@dataclass(frozen=True)
class Reuse:
    """A finished run has the numbers."""

    result: Result


@dataclass(frozen=True)
class Resume:
    """An interrupted run goes on from its last checkpoint; without one it begins again."""

    run_id: str
    checkpoint: Checkpoint | None
    code_changed: bool

    def __str__(self) -> str:
        step = self.checkpoint.step if self.checkpoint else 0
        aside = " The code has changed since: it may not end as it would have."
        return f"Going on with run {self.run_id}, stopped after step {step}." + (
            aside if self.code_changed else ""
        )


@dataclass(frozen=True)
class Start:
    """Nothing is there that could be used."""

    run_id: None = None
    checkpoint: None = None


def existing(
    recipe: Recipe, kind: str, parent: Run | Parent | None, run_options: RunOptions
) -> Reuse | Resume | Start:
    """Return what an earlier run of the recipe leaves to do.

    Raise Diverged, in a training by slices, where an earlier slice has diverged: a later one has
    other things to do.
    """
    if done := [] if run_options.force else find_finished(kind, recipe.fingerprint):
        return Reuse(Result(done[0].id, select_final(done[0].metrics), reused=True))
    if run_options.until < math.inf and (
        diverged := find_diverged(kind, **identity(recipe.fingerprint))
    ):
        raise diverged
    interrupted = None if run_options.new_run else find_interrupted(kind, recipe, parent)
    return interrupted or Start()


def checkpoint_folder(run_id: str) -> Path:
    """Return the folder of a run's checkpoints: beside the database of the machine that trains."""
    return store.home() / "checkpoints" / run_id


def identity(fingerprint: str) -> dict[str, str]:
    """Return the tags by which a run of these settings and of today's training code is found."""
    return {"fingerprint": fingerprint, "code": code_digest.training()}


def select_final(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the final numbers among a run's metrics: no per-step curves, no system metrics."""
    return {k: v for k, v in metrics.items() if "/" not in k and k not in PER_STEP}


def find_finished(kind: str, fingerprint: str) -> list[history.Row]:
    """Return the finished runs of these settings that today's code trained from start to end."""
    rows = history.rows(kind=kind, **identity(fingerprint))
    return [row for row in rows if BEGUN_WITH_CODE not in row.tags]


def find_interrupted(
    kind: str, recipe: Recipe, parent: Run | Parent | None = None
) -> Resume | None:
    """Return how the newest run with these settings goes on, if it was interrupted.

    A training goes on below whatever parent asks for it; a trial is its study's. Where the code has
    changed since, a training that a person asked for goes on from its checkpoint; any other is
    left, for a new one to begin.
    """
    below = {PARENT: parent.id} if parent and kind != TRAINING else {}
    newest = _newest(kind, fingerprint=recipe.fingerprint, **below)
    if not newest or not _is_interrupted(newest):
        return None
    checkpoint = Saving(checkpoint_folder(newest.id)).latest()
    changed = newest.tags.get("code") != code_digest.training()
    if changed and (parent or not checkpoint):
        return None
    if not checkpoint and newest.status == "FAILED":
        return None
    return Resume(newest.id, checkpoint, changed)


def find_diverged(kind: str, **tags: str) -> Diverged | None:
    """Return how the newest run with these tags diverged, if it did."""
    newest = _newest(kind, **tags)
    if not newest or DIVERGED not in newest.tags:
        return None
    message = newest.tags.get(FAILURE, "").removeprefix("Diverged: ")
    return Diverged(message, int(newest.tags[DIVERGED]))


def _newest(kind: str, **tags: str) -> history.Row | None:
    """Return the newest run of a kind with these tags, in whatever state it is."""
    return next(iter(history.rows(None, kind=kind, **tags)), None)


def last_checkpoint_step(run_id: str) -> int:
    """Return the step of a run's latest checkpoint; 0 without one."""
    checkpoint = Saving(checkpoint_folder(run_id)).latest()
    return checkpoint.step if checkpoint else 0


def refuse_changed(recipe: Recipe, run_as: str) -> None:
    """Raise UserError if a run of that name and seed was interrupted with other settings."""
    rows = history.rows(None, kind=TRAINING, run_as=run_as)
    newest = next((row for row in rows if row.params.get("seed") == str(recipe.seed)), None)
    if not newest or not _is_interrupted(newest):
        return
    if not (step := last_checkpoint_step(newest.id)):
        return
    old, new = newest.params, recipe.flat()
    differing = [
        f"{key}: {old.get(key, 'none')} there, {new.get(key, 'none')} here"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differing:
        raise UserError(
            "A run that was interrupted goes on with its own settings. Received: run "
            f"{newest.id} of {run_as}, stopped after step {step}, has {'; '.join(differing)}. "
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
