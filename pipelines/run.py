"""One recipe, its data, its network and its training, as one tracked run. Read this first.

Recipe -> datasets.load -> Splits -> train(log=run.log) -> mlruns/ -> scoreboard
"""

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import resume, training_page
from pipelines.data import datasets
from pipelines.data.splits import Splits
from pipelines.errors import Diverged, Pruned, Unavailable, UserError
from pipelines.recipes import lr
from pipelines.recipes.recipe import Recipe
from pipelines.run_options import DEFAULT, RunOptions
from pipelines.runtime import backend
from pipelines.tracking import recovery, store, tracked_run
from pipelines.training.checkpoints import Saving

EXPERIMENT = "trained networks"
PER_STEP = ("batch_loss", "learning_rate")  # curves of a run, not results of it


@dataclass(frozen=True)
class Result:
    """The final numbers of a training run, and whether an earlier run already had them."""

    run_id: str
    metrics: dict[str, float]
    reused: bool = False


@dataclass(frozen=True)
class TrainingObserver:
    """What a search sees of a training, whose test set stays unread."""

    report: Callable[[Mapping[str, float], int], None]
    """Gets every number that is logged, with its step; may raise Pruned."""
    lost: Mapping[str, float]
    """What stands for the numbers of a training whose loss diverges, which is a result here."""
    validate_every: int | None = None
    """Steps between two validations; None: an epoch."""


def run(
    recipe: Recipe,
    run_options: RunOptions = DEFAULT,
    *,
    parent: tracked_run.Run | tracked_run.Parent | None = None,
    kind: str = "training",
    watch: TrainingObserver | None = None,
    title: str | None = None,
    arm: str = "",
    tags: Mapping[str, str] | None = None,
) -> Result:
    """Train as the recipe says and record it; a finished run of the same recipe is used again.

    A run that was interrupted goes on from its last checkpoint, as the same run. What is
    watched leaves the test set unread, as searches must. `arm` is what a claim calls it.
    """
    if watch:
        recipe.check_searchable()
    identity = resume.identity(recipe.fingerprint)
    waiting = f"Another process trains the same {recipe.name}; waiting for it."
    with recovery.one_at_a_time(f"{kind}-{recipe.fingerprint}", waiting):
        if done := [] if run_options.force else resume.find_finished(kind, recipe.fingerprint):
            if run_options.trainer:
                run_options.trainer.dismiss(recipe)
            Saving(resume.checkpoint_folder(done[0].id)).discard()  # a kill came before that
            return Result(done[0].id, select_final(done[0].metrics), reused=True)
        if run_options.until < math.inf and (before := resume.find_diverged(kind, **identity)):
            raise before  # in an earlier slice: a later one has other things to do
        recipe.check_here()
        interrupted = None if run_options.new_run else resume.find_interrupted(kind, recipe, parent)
        backend.keras()
        from pipelines.training.train import Trainer

        trainer = run_options.trainer or Trainer()
        alone = f"{recipe.name} seed {recipe.seed}"
        job = prepare(recipe, trainer, watch.validate_every if watch else None)
        with tracked_run.track(
            title or (f"{arm} seed {recipe.seed} {recipe.name}".lstrip() if parent else alone),
            experiment=parent.experiment if parent else EXPERIMENT,  # the UI nests within one
            kind=kind,
            params=recipe.flat(),
            tags={
                **identity,
                "recipe": recipe.name,
                "source": recipe.source,
                **({store.ARM: arm} if arm else {}),
                **(tags or {}),
            },
            parent=parent,
            resume=interrupted,
            system_metrics=run_options.system_metrics,
        ) as tracked:
            metrics = _train_and_record(job, trainer, tracked, run_options, watch)
            tracked.tag(store.RESULT, training_page.describe_errors(metrics))
            tracked.tag(store.NOTE, training_page.write(recipe, metrics, tracked.id))
            result = Result(tracked.id, metrics)
        Saving(resume.checkpoint_folder(result.run_id)).discard()
        return result


def check_trainable(recipe: Recipe, run_options: RunOptions = DEFAULT) -> None:
    """Raise what `check_here` raises, unless a finished run has the numbers."""
    try:
        recipe.check_here()
    except (UserError, Unavailable):
        if run_options.force or not resume.find_finished("training", recipe.fingerprint):
            raise


def prepare(recipe: Recipe, trainer: Any, validate_every: int | None = None) -> Any:
    """Return the recipe with its devices, data and rates: the job that `train` takes."""
    from pipelines.training.job import build_job

    place = trainer.place(recipe)  # before data, which start TensorFlow
    trainer.announce(place, work=True)
    drawn = json.dumps(dict(recipe.data_args))
    home = datasets.data_home()
    splits = _splits(recipe.data, recipe.train_examples, drawn, recipe.validation, home)
    return build_job(recipe, splits, place, validate_every)


@functools.lru_cache(maxsize=1)
def _splits(
    name: str, train_examples: int | None, data_args: str, validation: bool, folder: Path
) -> Splits:
    """Return the data, read once for trainings of a process that follow one another on them."""
    return datasets.load(name, train_examples, json.loads(data_args), validation)


def _train_and_record(
    job: Any,
    trainer: Any,
    tracked: tracked_run.Run,
    run_options: RunOptions,
    watch: TrainingObserver | None,
) -> dict[str, float]:
    """Train into a tracked run, from its latest checkpoint on; return the final numbers."""
    from pipelines.training.train import serving_model, train

    def log(metrics: Mapping[str, float], step: int) -> None:
        tracked.log_new(metrics, step)
        if watch:
            watch.report(metrics, step)

    recipe, splits = job.recipe, job.splits
    tracked.dataset(recipe.data, splits.digest, len(splits.train), splits.source)
    tracked.figure(lr.figure(job.rates), "learning_rate.png")
    tracked.tag("device", job.device)
    saving = Saving(
        resume.checkpoint_folder(tracked.id), run_options.checkpoint_every, run_options.until
    )
    try:
        with tracked_run.system_metrics(tracked), resume.report_stop(tracked):
            trained = train(job, log, saving, test=watch is None, trainer=trainer)
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


def select_final(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the final numbers among a run's metrics: no per-step curves, no system metrics."""
    return {k: v for k, v in metrics.items() if "/" not in k and k not in PER_STEP}
