"""Open a study to work on it: make it, find it or start it over, and set its goal."""

import dataclasses
from typing import Any

from pipelines.data import datasets, integrity
from pipelines.errors import Unavailable, UserError
from pipelines.recipes import checks
from pipelines.recipes.catalog import get_recipe
from pipelines.runtime import heartbeat
from pipelines.tracking import store
from tuning import catalog
from tuning.analysis import goals
from tuning.execution import trial_queue
from tuning.optuna_log import silence
from tuning.plan import GOAL, OBJECTIVE_NAMES, PLAN, PROXIES, Goal, StudyPlan
from tuning.search import samplers
from tuning.storage import copies, leader, storage

DEFAULT_TRIALS = 20  # where a new study is given neither trials nor hours
# parts of a plan's identity that differ where another part does
DIGESTS = ("fingerprint", "ranges")


def open_study(name: str, plan: StudyPlan | None, asked: Goal, where: str, force: bool) -> Any:
    """Return the Optuna study, new or old; without a plan it must be there.

    Call it under the study's lock. Raise UserError where an old one has another plan, and before
    there is a new one for what no trial of it could be trained with.
    """
    store.client()  # makes the folder
    if not force:
        copies.restore(name, where)
    if plan is None:
        return catalog.load(name, where)
    if force or copies.load_if_there(name, storage.connect(where)) is None:
        _check_data(name, plan)
        checks.check_here(plan.base)
        trial_queue.initial_trials(plan, _with_default(asked))  # a grid that does not fit
        samplers.check_installed(plan.sampler)
        _delete_idle(name, where)
    study = _create(name, plan, where)
    old, new = study.user_attrs[PLAN], plan.identity
    keys = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if keys:
        differences = [
            f"{key}: {old.get(key)} there, {new.get(key)} here"
            for key in sorted(keys - set(DIGESTS) or keys)
        ]
        raise UserError(
            f"A study searches one space around one recipe. Received: study {name} has "
            f"{'; '.join(differences)}. Take another study name, or --force to start it over."
        )
    return study


def _check_data(name: str, plan: StudyPlan) -> None:
    """Raise UserError where the data of a recipe are not there for which another may stand."""
    data = plan.base.data
    if plan.proxy or plan.recipe not in PROXIES or integrity.is_at_hand(data):
        return
    proxy, *_ = PROXIES[plan.recipe]
    stands_in = get_recipe(proxy).data
    raise UserError(
        f"A study of {plan.recipe} needs {data}. Received: none in {datasets.data_home()}. Let "
        f"{proxy} stand in for it, whose data anyone can download: python -m pipelines data "
        f"prepare {stands_in}, then python -m tuning run {name} --recipe {plan.recipe} --proxy "
        f"{proxy}. For the original, see: python -m pipelines data prepare {data}"
    )


def _create(name: str, plan: StudyPlan, where: str) -> Any:
    """Return the study of that name, which is made where there is none."""
    import optuna

    study = optuna.create_study(
        study_name=name,
        storage=storage.connect(where),
        directions=["minimize"] * plan.objectives,
        load_if_exists=True,
    )
    if PLAN not in study.user_attrs:  # it is new, or a kill cut its beginning short
        with silence():
            study.set_metric_names(OBJECTIVE_NAMES[: plan.objectives])
        study.set_user_attr(PLAN, plan.identity)
    return study


def _delete_idle(name: str, where: str) -> None:
    """Delete the study, if it is there. Raise Unavailable while a process is at work on it."""
    study = copies.load_if_there(name, storage.connect(where))
    if study is None:
        return
    workers_tags = (t.user_attrs.get(trial_queue.WORKER) for t in trial_queue.running_trials(study))
    for process in filter(None, (leader.living_leader(study), *workers_tags)):
        if heartbeat.reason_dead(process, heartbeat.STUDY_LOST_S) is None:
            pid, host = (process[key].split()[0] for key in (heartbeat.PROCESS, heartbeat.MACHINE))
            raise Unavailable(
                f"A study that is at work cannot be started over. Received: {name}, on which "
                f"process {pid} on {host} is at work. End that first, or take another study name."
            )
    copies.delete_if_there(name, storage.connect(where))


def set_goal(study: Any, asked: Goal) -> bool:
    """Keep the goal that is asked for; return whether anything is left to do.

    What is not asked for stays as it was; a grid has as many trials as it has points. Raise
    UserError for fewer trials than the study is on its way to, and where a grid would change.
    """
    plan, before = StudyPlan.from_study(study), Goal(**study.user_attrs.get(GOAL, {}))
    asked = _without_rest(plan, asked) if asked.trials else asked
    if asked.trials and before.trials and asked.trials != before.trials:
        if asked.trials < before.trials and goals.is_reached(study):
            return False
        _check_trials(study, before.trials, asked.trials)
    given = {key: value for key, value in dataclasses.asdict(asked).items() if value is not None}
    goal = _without_rest(plan, _with_default(dataclasses.replace(before, **given)))
    study.set_user_attr(GOAL, dataclasses.asdict(goal))
    return not goals.is_reached(study)


def _with_default(asked: Goal) -> Goal:
    """Return the goal of a new study."""
    endless = asked.trials is None and asked.hours is None
    return dataclasses.replace(asked, trials=DEFAULT_TRIALS) if endless else asked


def _without_rest(plan: StudyPlan, goal: Goal) -> Goal:
    """Return the goal with no more trials than a grid has points, if the study is one."""
    if plan.sampler != "grid":
        return goal
    return dataclasses.replace(goal, trials=len(trial_queue.initial_trials(plan, goal)))


def _check_trials(study: Any, before: int, asked: int) -> None:
    """Raise UserError where a study cannot have another number of trials."""
    name = study.study_name
    if study.user_attrs[PLAN]["sampler"] == "grid":
        raise UserError(
            f"The points of a grid are fixed as its study begins. Received: {asked} trials for "
            f"study {name}, a grid for {before} trials. Take another study name."
        )
    if asked < before:
        raise UserError(
            f"A study's goal is raised, not lowered. Received: {asked} trials for study {name}, "
            f"which is on its way to {before}. Leave --trials out, or raise it."
        )
