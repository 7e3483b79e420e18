"""One trial: a recipe of the space, trained by the ordinary `run` as a child of the study's run."""

import contextlib
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from pipelines.errors import Pruned
from pipelines.recipes.recipe import Recipe
from pipelines.running import existing
from pipelines.running.run import TrainingObserver, run
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history, recovery, store, tracked_run
from tuning.analysis import trial_results
from tuning.analysis.outcome import SEED_KIND
from tuning.plan import OBJECTIVE, REPORTS, StudyPlan, count_steps
from tuning.search import spaces

TRAIN_ALWAYS = RunOptions(force=True)  # trials are counted: each is trained
LOST = {OBJECTIVE: trial_results.DIVERGED_PCT}
UNWATCHED = TrainingObserver(lambda metrics, step: None, LOST)
KIND = "trial"  # of its run; SEED_KIND of those below it if it has several seeds
NUMBER = "trial"  # tag of a trial's runs
REASON = "reason"  # attribute of a trial that was killed or failed: why, the last time
DIVERGED = "diverged"  # tag of a run and attribute of a trial: the step


def train_trial(study: Any, trial: Any, plan: StudyPlan, parent: tracked_run.Parent) -> list[float]:
    """Train one trial; return its objectives. Raise Pruned where the study's pruner ends it."""
    import optuna

    recipe = plan.recipe_of(trial)
    steps = count_steps(recipe)
    trial.set_user_attr("steps", steps)
    try:
        error = _train(study, trial, plan, recipe, parent)
    finally:
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # another ended it
            _write_attributes(trial, history.rows(None, **_run_tags(trial, parent)))
    return [error, float(steps * recipe.batch_size)] if plan.minimize_cost else [error]


def _train(
    study: Any, trial: Any, plan: StudyPlan, recipe: Recipe, parent: tracked_run.Parent
) -> float:
    """Return the error of one training, or the mean of as many as the plan has seeds.

    A trial may have been trained when its worker was killed, before the study knew of it.
    """
    if REASON in trial.user_attrs and (rows := history.rows(kind=KIND, **_run_tags(trial, parent))):
        return rows[0].metrics[OBJECTIVE]
    title = f"trial {trial.number} {recipe.schedule} {recipe.learning_rate:.3g}"
    tags = {NUMBER: str(trial.number)}
    # A pruner reads more validations than those at the ends of epochs.
    every = None if plan.pruner == "none" else max(1, count_steps(plan.base) // REPORTS)
    watch = TrainingObserver(_make_reporter(study, trial, plan), LOST, every)
    run_as: dict[str, Any] = {"title": title, "tags": tags, "parent": parent}
    if plan.seeds > 1:
        return _train_seeds(recipe, plan.seeds, watch, **run_as)
    return run(recipe, TRAIN_ALWAYS, kind=KIND, watch=watch, **run_as).metrics[OBJECTIVE]


def _train_seeds(
    recipe: Recipe,
    count: int,
    first: TrainingObserver,
    *,
    title: str,
    tags: Mapping[str, str],
    parent: tracked_run.Parent,
) -> float:
    """Return the mean error over seeds, in a run with one child a seed; a pruner reads the first.

    A run that was killed goes on, and the seeds that it has trained are kept.
    """
    recovery.recover()
    interrupted = existing.find_interrupted(KIND, recipe, parent)
    with tracked_run.track(
        title,
        experiment=parent.experiment,
        kind=KIND,
        params=recipe.flat(),
        tags={**existing.identity(recipe.fingerprint), **tags},
        parent=parent,
        resume=interrupted.run_id if interrupted else None,
    ) as tracked:
        recipes = [recipe.override(seed=recipe.seed + i) for i in range(count)]
        watches = [first, *[UNWATCHED] * (count - 1)]
        try:
            pairs = zip(recipes, watches, strict=True)
            error = mean(_train_seed(tracked, each, watch, tags) for each, watch in pairs)
        except Pruned as pruned:
            tracked.tag("pruned", str(pruned.step))
            raise
        if steps := _divergence_steps(history.rows(None, **{store.PARENT: tracked.id})):
            tracked.tag(DIVERGED, steps[0])
        tracked.log({OBJECTIVE: error})
    return error


def _train_seed(
    parent: tracked_run.Run, recipe: Recipe, watch: TrainingObserver, tags: Mapping[str, str]
) -> float:
    """Return the error of one seed, trained now or before this trial was interrupted."""
    wanted = existing.identity(recipe.fingerprint) | {store.PARENT: parent.id}
    if rows := history.rows(kind=SEED_KIND, **wanted):
        return rows[0].metrics[OBJECTIVE]
    title = f"seed {recipe.seed} {recipe.name}"
    how: dict[str, Any] = {"parent": parent, "kind": SEED_KIND, "title": title, "tags": tags}
    result = run(recipe, TRAIN_ALWAYS, watch=watch, **how)
    return result.metrics[OBJECTIVE]


def _make_reporter(study: Any, trial: Any, plan: StudyPlan) -> Any:
    """Return what reports validation errors to Optuna, and ends the trial if its pruner says so.

    Published schedules are never pruned: what is gained over them must be known. A trial that goes
    on from a checkpoint has reported some of it before.
    """
    known = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
    last, published = trial.user_attrs["steps"], spaces.PUBLISHED in trial.user_attrs

    def report(metrics: Mapping[str, float], step: int) -> None:
        if OBJECTIVE not in metrics or step in known or plan.minimize_cost:
            return
        known.add(step)
        trial.report(metrics[OBJECTIVE], step)
        if step < last and not published and trial.should_prune():
            raise Pruned(step)

    return report


def _run_tags(trial: Any, parent: tracked_run.Parent) -> dict[str, str]:
    """Return the tags of a trial's runs."""
    return {store.PARENT: parent.id, NUMBER: str(trial.number)}


def _write_attributes(trial: Any, rows: list[history.Row]) -> None:
    """Write into a trial what its runs say: which it is, what it cost, whether it diverged."""
    if not rows:
        return
    trial.set_user_attr("run_id", rows[0].id)
    rows += history.rows(None, **{store.PARENT: rows[0].id})
    costs = [  # seconds times devices; a run that was cut has none
        int(row.tags["device"].split()[0]) * row.metrics["wall_s"]
        for row in rows
        if "wall_s" in row.metrics
    ]
    if costs:
        trial.set_user_attr("device_s", sum(costs))
    if steps := _divergence_steps(rows):
        trial.set_user_attr(DIVERGED, int(steps[0]))


def _divergence_steps(rows: Sequence[history.Row]) -> list[str]:
    """Return the steps at which those runs diverged that did."""
    return [row.tags[DIVERGED] for row in rows if DIVERGED in row.tags]
