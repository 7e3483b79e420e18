"""One trial: a recipe of the space, trained by the ordinary `run` as a child of the study's run."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import mean
from typing import Any

from pipelines import resume
from pipelines.errors import Pruned
from pipelines.recipes.recipe import Recipe
from pipelines.run import RunOptions, TrainingObserver, run
from pipelines.runtime import code_digest
from pipelines.tracking import history, recovery, store, tracked_run
from tuning.analysis import trial_results
from tuning.plan import OBJECTIVE, REPORTS, Plan, count_steps
from tuning.search import spaces

TRAIN_ALWAYS = RunOptions(force=True)  # trials are counted: each is trained
UNWATCHED = TrainingObserver(lambda metrics, step: None, {OBJECTIVE: trial_results.DIVERGED_PCT})
KIND, SEED_KIND = (
    "trial",
    "trial seed",
)  # of its run, and of those below it where it has several seeds
NUMBER = "trial"  # tag of a trial's runs
REASON = "reason"  # attribute of a trial that was killed or failed: why, the last time
DIVERGED = "diverged"  # tag of a run and attribute of a trial: the step


def train_trial(study: Any, trial: Any, plan: Plan, parent: tracked_run.Parent) -> list[float]:
    """Train one trial; its objectives. Raises Pruned where the study's pruner ends it."""
    recipe = plan.tried(trial)
    steps = count_steps(recipe)
    trial.set_user_attr("steps", steps)
    with _record_cost(trial, parent):
        error = _train(study, trial, plan, recipe, parent)
    return [error, float(steps * recipe.batch_size)] if plan.minimize_cost else [error]


def _train(study: Any, trial: Any, plan: Plan, recipe: Recipe, parent: tracked_run.Parent) -> float:
    """Return the error of one training, or the mean of as many as the plan has seeds.

    A trial may have been trained when its worker was killed, and not have been told.
    """
    tried = REASON in trial.user_attrs
    done = history.rows(kind=KIND, **_run_tags(trial, parent)) if tried else []
    if done:
        return done[0].metrics[OBJECTIVE]
    title = f"trial {trial.number} {recipe.schedule} {recipe.learning_rate:.3g}"
    tags = {NUMBER: str(trial.number)}
    first = dataclasses.replace(
        UNWATCHED,
        report=_make_reporter(study, trial, plan),
        validate_every=_steps_between_reports(plan),
    )
    if plan.seeds > 1:
        each = [recipe.override(seed=recipe.seed + i) for i in range(plan.seeds)]
        with _open_parent_run(title, tags, recipe, parent) as own:
            return _train_seeds(own, each, first, tags)
    found = run(recipe, TRAIN_ALWAYS, parent=parent, kind=KIND, watch=first, title=title, tags=tags)
    return found.metrics[OBJECTIVE]


@contextmanager
def _open_parent_run(
    title: str, tags: Mapping[str, str], recipe: Recipe, parent: tracked_run.Parent
) -> Iterator[tracked_run.Run]:
    """The run of a trial of several seeds, which are its children; one that was killed goes on."""
    recovery.recover()
    with tracked_run.tracked(
        title,
        experiment=parent.experiment,
        kind=KIND,
        params=recipe.flat(),
        tags={"fingerprint": recipe.fingerprint, "code": code_digest.training(), **tags},
        parent=parent,
        resume=resume.find_interrupted(KIND, recipe, parent),
    ) as own:
        try:
            yield own
        except Pruned as error:
            own.tag("pruned", str(error.step))
            raise


def _train_seeds(
    own: tracked_run.Run,
    recipes: Sequence[Recipe],
    first: TrainingObserver,
    tags: Mapping[str, str],
) -> float:
    """Mean error of the recipes, one a seed; a pruner reads the first. What is done is kept."""
    watches = [first, *[UNWATCHED] * (len(recipes) - 1)]
    pairs = zip(recipes, watches, strict=True)
    error = mean(_train_seed(own, recipe, watch, tags) for recipe, watch in pairs)
    steps = _divergence_steps(history.rows(None, **{store.PARENT: own.id}))
    if steps:
        own.tag(DIVERGED, steps[0])
    own.log({OBJECTIVE: error})
    return error


def _train_seed(
    own: tracked_run.Run, recipe: Recipe, watch: TrainingObserver, tags: Mapping[str, str]
) -> float:
    """The error of one seed, trained now or before this trial was interrupted."""
    same = {
        "fingerprint": recipe.fingerprint,
        "code": code_digest.training(),
        store.PARENT: own.id,
    }
    done = history.rows(kind=SEED_KIND, **same)
    if done:
        return done[0].metrics[OBJECTIVE]
    return run(recipe, TRAIN_ALWAYS, parent=own, kind=SEED_KIND, watch=watch, tags=tags).metrics[
        OBJECTIVE
    ]


def _steps_between_reports(plan: Plan) -> int | None:
    """Steps between two validations: an epoch, or fewer where a pruner reads them."""
    return max(1, plan.steps // REPORTS) if plan.pruner != "none" else None


def _make_reporter(study: Any, trial: Any, plan: Plan) -> Any:
    """For Watch: tells Optuna the validation error, and ends the trial where the pruner says so.

    Published schedules are never pruned: what is gained over them must be known. A trial that goes
    on from a checkpoint has told some of it before.
    """
    known = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
    last, whole = trial.user_attrs["steps"], spaces.PUBLISHED in trial.user_attrs

    def report(metrics: Mapping[str, float], step: int) -> None:
        if OBJECTIVE not in metrics or step in known or plan.minimize_cost:
            return
        known.add(step)
        trial.report(metrics[OBJECTIVE], step)
        if step < last and not whole and trial.should_prune():
            raise Pruned(step)

    return report


@contextmanager
def _record_cost(trial: Any, parent: tracked_run.Parent) -> Iterator[None]:
    """Write down of a trial that has ended which run it is, what it cost, whether it diverged."""
    import optuna

    try:
        yield
    finally:
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # another ended it
            _write_attributes(trial, history.rows(None, **_run_tags(trial, parent)))


def _run_tags(trial: Any, parent: tracked_run.Parent) -> dict[str, str]:
    """Return the tags of a trial's runs."""
    return {store.PARENT: parent.id, NUMBER: str(trial.number)}


def _write_attributes(trial: Any, rows: list[history.Row]) -> None:
    """Write into a trial what its runs say: which it is, what it cost, whether it diverged."""
    if not rows:
        return
    trial.set_user_attr("run_id", rows[0].id)
    rows += history.rows(None, **{store.PARENT: rows[0].id})
    costs = [_device_s(row) for row in rows if "wall_s" in row.metrics]  # one that was cut has none
    if costs:
        trial.set_user_attr("device_s", sum(costs))
    steps = _divergence_steps(rows)
    if steps:
        trial.set_user_attr(DIVERGED, int(steps[0]))


def _divergence_steps(rows: Sequence[history.Row]) -> list[str]:
    """The steps at which those runs diverged that did."""
    return [row.tags[DIVERGED] for row in rows if DIVERGED in row.tags]


def _device_s(row: history.Row) -> float:
    """Seconds of training times the devices it took."""
    return int(row.tags["device"].split()[0]) * row.metrics["wall_s"]
