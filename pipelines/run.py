"""The spine: one recipe, its data, its network, its training, as one tracked run. Read this first.

Recipe -> data.load -> Splits -> train(log=run.log) -> mlruns/ -> report
"""

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import unfinished
from pipelines.data import datasets
from pipelines.data.splits import Splits
from pipelines.errors import Diverged, Pruned, Unavailable, UserError, check_counts
from pipelines.habits import USUAL, Habits
from pipelines.recipes import lr
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, code_digest, provenance, tf_config
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, mlflow_ui, recovery, store, tracked_run
from pipelines.training.checkpoints import Saving
from pipelines.verdict import spread, spreads, summary

EXPERIMENT = "trained networks"
PER_STEP = ("batch_loss", "learning_rate")  # curves of a run, not results of it


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
            Saving(unfinished.folder(done[0].id)).discard()  # a kill may have come before that
            return Result(done[0].id, _final(done[0].metrics), reused=True)
        if habits.until < math.inf and (before := unfinished.diverged(kind, **same)):
            raise before  # in an earlier slice: a later one has other things to do
        recipe.check_here()
        resume = None if habits.new_run else unfinished.find(kind, recipe, parent)
        job = _job(recipe, watch.validate_every if watch else None)
        with tracked_run.tracked(
            title or f"{recipe.name} seed {recipe.seed}",
            experiment=parent.experiment if parent else EXPERIMENT,  # the UI nests within one
            kind=kind,
            params=recipe.flat(),
            tags={**same, "recipe": recipe.name, "source": recipe.source, **(tags or {})},
            parent=parent,
            resume=resume,
        ) as tracked:
            result = Result(tracked.id, _recorded(job, tracked, habits, watch))
        Saving(unfinished.folder(result.run_id)).discard()
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
    saving = Saving(unfinished.folder(tracked.id), habits.checkpoint_every, habits.until)
    try:
        with tracked_run.system_metrics(tracked), unfinished.explained(tracked):
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


def repeat(
    recipe: Recipe, seeds: int | None = None, habits: Habits = USUAL, run_as: str | None = None
) -> dict[str, Any]:
    """The JSON document of a recipe run once, or with seeds 0, 1, ... under one parent run.

    `run_as` is how a person named it: what was interrupted under that name is not lost unnoticed.
    """
    tags = {unfinished.RUN_AS: run_as} if run_as else {}
    all_of_them = [recipe] if seeds is None else [recipe.override(seed=s) for s in range(seeds)]
    for each in all_of_them if run_as and not habits.new_run else []:
        unfinished.refuse_changed(each, str(run_as))
    if seeds is None:
        return _document(recipe, run(recipe, habits, tags=tags), 1)
    check_counts(seeds=seeds)
    fingerprint = digest([each.fingerprint for each in all_of_them])
    waiting = f"Another process trains {recipe.name} with the same {seeds} seeds; waiting for it."
    with recovery.one_at_a_time(f"seeds-{fingerprint}", waiting):
        return _document(recipe, _over_seeds(all_of_them, fingerprint, habits, tags), seeds)


def _over_seeds(
    recipes: Sequence[Recipe], fingerprint: str, habits: Habits, tags: Mapping[str, str]
) -> Result:
    """The run above the trainings of one recipe with several seeds, finished before or now."""
    recipe, seeds = recipes[0], len(recipes)
    same = {"fingerprint": fingerprint, "code": code_digest.training()}
    rows = history.rows(None, kind="seeds", **same)
    done = [row for row in rows if row.status == "FINISHED"]
    if done and not habits.force:
        return Result(done[0].id, done[0].metrics, reused=True)
    for each in recipes:
        check_trainable(each, habits)
    broken = rows and rows[0].status in ("KILLED", "FAILED") and not habits.new_run
    with tracked_run.tracked(
        f"{recipe.name} {seeds} seeds",
        experiment=EXPERIMENT,
        kind="seeds",
        params=recipe.flat() | {"seeds": seeds},
        tags={**same, "recipe": recipe.name, "source": recipe.source},
        resume=rows[0].id if broken else None,
    ) as parent:
        results: list[Result] = []
        for each in recipes:
            results.append(run(each, habits, parent=parent, tags=tags))
            if not results[-1].reused:
                habits.pause(len(results), seeds, "seeds")
        stats = summary({key: [r.metrics[key] for r in results] for key in results[0].metrics})
        parent.log(stats)
        parent.tag(store.NOTE, _note(recipe, spreads(stats, seeds), parent.id))
    return Result(parent.id, stats)


def _note(recipe: Recipe, metrics: Mapping[str, Mapping[str, Any]], run_id: str) -> str:
    """Markdown for the page of the run over seeds: reported and measured, and how to repeat it."""
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    lines = [
        f"**{recipe.name}** ({recipe.source})",
        *([f"Reported: {'; '.join(reported)}"] if reported else []),
        f"Repeat: `python -m {provenance.tags()['mlflow.source.name']} --force`",
        f"[The curves of its seeds in one chart]({mlflow_ui.children_chart(run_id)})",
        "\n".join(f"- `{key}` {spread(metric)}" for key, metric in metrics.items()),
    ]
    return "\n\n".join(lines)


def _document(recipe: Recipe, result: Result, seeds: int) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint,
        "seeds": seeds,
        "metrics": spreads(result.metrics, seeds),
        "run_id": result.run_id,
        "reused": result.reused,
    }
