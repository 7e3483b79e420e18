"""One recipe, its data, its network and its training, as one tracked run. Read this first.

recipe -> existing: Reuse | Resume | Start -> job: data, network, rates, devices -> train -> page
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.data import datasets
from pipelines.errors import Diverged, Pruned, Unavailable, UserError
from pipelines.recipes import catalog, checks, lr
from pipelines.recipes.recipe import Recipe
from pipelines.running import training_page
from pipelines.running.existing import (
    TRAINING,
    Result,
    Resume,
    Reuse,
    Start,
    checkpoint_folder,
    existing,
    find_finished,
    identity,
    report_stop,
)
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.runtime import backend
from pipelines.tracking import recovery, store, tracked_run
from pipelines.training.checkpoints import Saving

EXPERIMENT = "trained networks"


@dataclass(frozen=True)
class TrainingObserver:
    """The numbers of a training that a search sees; the test set stays unread."""

    report: Callable[[Mapping[str, float], int], None]
    """Gets every number that is logged, with its step; may raise Pruned."""
    lost: Mapping[str, float]
    """The numbers of a training whose loss diverges, which is a result here."""
    validate_every: int | None = None
    """Steps between two validations; None: an epoch."""


def run(
    recipe: Recipe,
    run_options: RunOptions = DEFAULT,
    *,
    parent: tracked_run.Run | tracked_run.Parent | None = None,
    kind: str = TRAINING,
    watch: TrainingObserver | None = None,
    title: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Result:
    """Train as the recipe says and record it; a finished run of the same recipe is used again.

    A run that was interrupted goes on from its last checkpoint, as the same run. What is
    watched leaves the test set unread, as searches must.
    """
    if watch:
        checks.check_searchable(recipe)
    waiting = f"Another process trains the same {recipe.name}; waiting for it."
    with recovery.one_at_a_time(f"{kind}-{recipe.fingerprint}", waiting):
        found = existing(recipe, kind, parent, run_options)
        if run_options.machines:
            run_options.machines.share(found)
        if isinstance(found, Reuse):
            Saving(checkpoint_folder(found.result.run_id)).discard()  # a kill came before that
            return found.result
        checks.check_here(recipe)
        backend.keras()
        from pipelines.training.job import prepare

        job = prepare(recipe, run_options.machines, watch.validate_every if watch else None)
        if isinstance(found, Resume):
            print(found, file=sys.stderr)
        said = catalog.title(recipe)
        about = {"recipe": recipe.name, "source": recipe.source, store.TITLE: said}
        about["device"] = job.device
        with tracked_run.track(
            title or f"{said}, seed {recipe.seed}",
            experiment=EXPERIMENT,
            kind=kind,
            params=recipe.flat(),
            tags={**identity(recipe.fingerprint), **about, **(tags or {})},
            parent=parent,
            resume=found.run_id,
            system_metrics=run_options.system_metrics,
        ) as tracked:
            metrics = _train(job, found, tracked, run_options, watch)
            tracked.tag(store.RESULT, training_page.describe_errors(metrics))
            example = _example(job, watch) if "wall_s" in metrics else None  # not what diverged
            tracked.tag(store.NOTE, training_page.write(recipe, metrics, tracked.id, example))
        Saving(checkpoint_folder(tracked.id)).discard()
        return Result(tracked.id, metrics)


def check_trainable(recipe: Recipe, run_options: RunOptions = DEFAULT) -> None:
    """Raise what `check_here` raises, unless a finished run has the numbers."""
    try:
        checks.check_here(recipe)
    except (UserError, Unavailable):
        if run_options.force or not find_finished(TRAINING, recipe.fingerprint):
            raise


def _train(
    job: Any,
    found: Resume | Start,
    tracked: tracked_run.Run,
    run_options: RunOptions,
    watch: TrainingObserver | None,
) -> dict[str, float]:
    """Train into a tracked run, from its latest checkpoint on; return the final numbers."""
    from pipelines.training.train import serving_example, serving_model, train

    def log(metrics: Mapping[str, float], step: int) -> None:
        tracked.log_new(metrics, step)
        if watch:
            watch.report(metrics, step)

    recipe, splits = job.recipe, job.splits
    tracked.dataset(recipe.data, splits.digest, datasets.get(recipe.data).describe(splits))
    tracked.figure(lr.figure(job.rates), "learning_rate.png")
    folder = checkpoint_folder(tracked.id)
    saving = Saving(folder, run_options.checkpoint_every, run_options.until)
    try:
        with tracked_run.system_metrics(tracked), report_stop(tracked):
            trained = train(
                job,
                log,
                saving,
                found.checkpoint,
                test=watch is None,
                machines=run_options.machines,
            )
    except Diverged as error:
        if watch is None:
            raise
        tracked.log(watch.lost, error.step)
        return dict(watch.lost)
    except Pruned:
        saving.discard()  # it never goes on
        raise
    _, examples = _example(job, watch)
    stored = serving_model(trained.model, splits.train)
    tracked.model(stored, serving_example(examples))
    return trained.metrics


def _example(job: Any, watch: TrainingObserver | None) -> training_page.Example:
    """Return the part whose first example is stored: of the test set, which searches leave unread.

    Photographs that are tested in ten crops are shown as in training.
    """
    splits = job.splits
    is_read = watch is None and not splits.test.ten_crops
    return ("test", splits.test) if is_read else ("training", splits.train)
