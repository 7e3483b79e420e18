"""The spine: one recipe, its data, its network, its training, as one tracked run. Read this first.

Recipe -> data.load -> Splits -> train(log=run.log) -> mlruns/ -> report
"""

import functools
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import resume
from pipelines.data import datasets
from pipelines.data.splits import Splits
from pipelines.errors import Diverged, Paused, Pruned, Unavailable, UserError
from pipelines.recipes import lr
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, code_digest, tf_config
from pipelines.tracking import history, recovery, tracked_run
from pipelines.training.checkpoints import Saving

EXPERIMENT = "trained networks"
PER_STEP = ("batch_loss", "learning_rate")  # curves of a run, not results of it


@dataclass(frozen=True)
class Habits:
    """What is done about earlier runs, how often a run is saved, when it pauses."""

    force: bool = False
    """Train again what has finished."""
    new_run: bool = False
    """Start anew what was interrupted."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: about a minute."""
    until: float = math.inf
    """The moment of time.monotonic() from which on what is done is saved and Paused is raised."""

    def pause(self, done: int, whole: int, what: str) -> None:
        """Raise Paused between two of `whole` things where the time is over."""
        if done < whole and time.monotonic() >= self.until:
            raise Paused(f"{done} of {whole} {what}")


USUAL = Habits()


@dataclass(frozen=True)
class Result:
    """The final numbers of a training run, and whether an earlier run already had them."""

    run_id: str
    metrics: dict[str, float]
    reused: bool = False


@dataclass(frozen=True)
class Watch:
    """What a search sees of a training, whose test set stays unread."""

    report: Callable[[Mapping[str, float], int], None]
    """Gets every number that is logged, with its step; may raise Pruned."""
    lost: Mapping[str, float]
    """What stands for the numbers of a training whose loss diverges, which is a result here."""
    validate_every: int | None = None
    """Steps between two validations; None: an epoch."""


def run(
    recipe: Recipe,
    habits: Habits = USUAL,
    *,
    parent: tracked_run.Run | tracked_run.Parent | None = None,
    kind: str = "training",
    watch: Watch | None = None,
    title: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Result:
    """Train as the recipe says and record it; a finished run of the same recipe is used again.

    A run that was interrupted goes on from its last checkpoint, as the same run. What is
    watched leaves the test set unread, as searches must.
    """
    same = {"fingerprint": recipe.fingerprint, "code": code_digest.training()}
    waiting = f"Another process trains the same {recipe.name}; waiting for it."
    with recovery.one_at_a_time(f"{kind}-{recipe.fingerprint}", waiting):
        done = [] if habits.force else history.rows(kind=kind, **same)
        if done:
            _dismiss_others(recipe)
            Saving(resume.folder(done[0].id)).discard()  # a kill may have come before that
            return Result(done[0].id, _final(done[0].metrics), reused=True)
        if habits.until < math.inf and (before := resume.diverged(kind, **same)):
            raise before  # in an earlier slice: a later one has other things to do
        recipe.check_here()
        interrupted = None if habits.new_run else resume.find(kind, recipe, parent)
        job = _job(recipe, watch.validate_every if watch else None)
        with tracked_run.tracked(
            title or f"{recipe.name} seed {recipe.seed}",
            experiment=parent.experiment if parent else EXPERIMENT,  # the UI nests within one
            kind=kind,
            params=recipe.flat(),
            tags={**same, "recipe": recipe.name, "source": recipe.source, **(tags or {})},
            parent=parent,
            resume=interrupted,
        ) as tracked:
            result = Result(tracked.id, _recorded(job, tracked, habits, watch))
        Saving(resume.folder(result.run_id)).discard()
        return result


def check_trainable(recipe: Recipe, habits: Habits = USUAL) -> None:
    """Raise what `check_here` raises, unless a finished run has the numbers."""
    try:
        recipe.check_here()
    except (UserError, Unavailable):
        same = {"fingerprint": recipe.fingerprint, "code": code_digest.training()}
        if habits.force or not history.rows(kind="training", **same):
            raise


def _job(recipe: Recipe, validate_every: int | None = None) -> Any:
    """The recipe with its devices, data and rates: what `train` takes."""
    backend.keras()
    from pipelines.training import devices, train
    from pipelines.training.job import assembled

    place = devices.place(recipe)  # before data, which start TensorFlow
    if place.role:
        train.cluster().begin(place, work=True)
    drawn = json.dumps(dict(recipe.data_args))
    splits = _splits(recipe.data, recipe.train_examples, drawn, datasets.data_home())
    return assembled(recipe, splits, place, validate_every)


@functools.lru_cache(maxsize=1)
def _splits(name: str, train_examples: int | None, data_args: str, folder: Path) -> Splits:
    """The data, read once for the trainings of a process that follow one another on them."""
    return datasets.load(name, train_examples, json.loads(data_args))


def follow(recipe: Recipe) -> None:
    """Train as one of several machines that is not their chief: nothing is recorded here."""
    backend.keras()
    from pipelines.training import multi_machine
    from pipelines.training.train import train

    if not multi_machine.serve(recipe):
        train(_job(recipe), log=lambda metrics, step: None)


def _dismiss_others(recipe: Recipe) -> None:
    """Let the machines of TF_CONFIG, if there are any, go: nothing is to be trained."""
    if tf_config.role():
        backend.keras()
        from pipelines.training import devices, multi_machine

        multi_machine.begin(devices.place(recipe), work=False)


def _recorded(
    job: Any, tracked: tracked_run.Run, habits: Habits, watch: Watch | None
) -> dict[str, float]:
    """Train into a tracked run, from its latest checkpoint on; the final numbers."""
    from pipelines.training.train import serving_model, train

    def log(metrics: Mapping[str, float], step: int) -> None:
        tracked.log_new(metrics, step)
        if watch:
            watch.report(metrics, step)

    recipe, splits = job.recipe, job.splits
    tracked.dataset(recipe.data, splits.digest, len(splits.train), splits.source)
    tracked.figure(lr.figure(job.rates), "learning_rate.png")
    tracked.tag("device", job.device)
    saving = Saving(resume.folder(tracked.id), habits.checkpoint_every, habits.until)
    try:
        with tracked_run.system_metrics(tracked), resume.explained(tracked):
            trained = train(job, log, saving, test=watch is None)
    except Diverged as error:
        if watch is None:
            raise
        tracked.log(watch.lost, error.step)
        return dict(watch.lost)
    except Pruned:
        saving.discard()  # it never goes on
        raise
    tracked.model(serving_model(trained.model, splits.train))
    return trained.metrics


def _final(metrics: Mapping[str, float]) -> dict[str, float]:
    """The final numbers among a run's metrics: no per-step curves, no system metrics."""
    return {k: v for k, v in metrics.items() if "/" not in k and k not in PER_STEP}
