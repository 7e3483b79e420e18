"""A study opened to work on it: made, found or started over, with its goal."""

import dataclasses
from typing import Any

from pipelines import alive, store
from pipelines.errors import UserError
from tuning import catalogue, leader, storage, tickets, travel
from tuning.plan import GOAL, Goal, Plan

DIGESTS = ("fingerprint", "ranges")  # of an identity: they differ where something else does


def opened(name: str, plan: Plan | None, where: str, force: bool) -> Any:
    """The Optuna study, new or old; without a plan it must be there.

    Call it under the study's lock. UserError where an old one has another plan.
    """
    catalogue.check_name(name)
    store.client()  # makes the folder
    if force and plan:
        _delete(name, where)
    else:
        travel.restore(name, where)
    if plan is None:
        return catalogue.load(name, where)
    study = _made(name, plan, where)
    _compare(name, study.user_attrs[travel.PLAN], plan.identity)
    return study


def _made(name: str, plan: Plan, where: str) -> Any:
    """The study of that name, which is made where there is none."""
    import optuna

    there = storage.connect(where)
    try:
        study = optuna.create_study(
            study_name=name, storage=there, directions=["minimize"] * plan.objectives
        )
        study.set_user_attr(travel.PLAN, plan.identity)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=there)
        if storage.one_machine(where) and travel.PLAN not in study.user_attrs:
            study.set_user_attr(travel.PLAN, plan.identity)  # a kill cut its beginning short
        study = catalogue.load(name, where)
    return study


def _delete(name: str, where: str) -> None:
    """Delete the study, if it is there. UserError while a process leads it."""
    import optuna

    there = storage.connect(where)
    if name not in optuna.get_all_study_names(there):
        return
    held = leader.living(optuna.load_study(study_name=name, storage=there))
    if held:
        raise UserError(
            f"A study that is at work cannot be started over. Received: {name}, which process "
            f"{_process(held)} leads. End that first, or take another study name."
        )
    optuna.delete_study(study_name=name, storage=there)


def _process(tags: Any) -> str:
    return f"{tags[alive.PROCESS].split()[0]} on {tags[alive.MACHINE].split()[0]}"


def _compare(name: str, held: dict[str, Any], asked: dict[str, Any]) -> None:
    keys = {key for key in held.keys() | asked.keys() if held.get(key) != asked.get(key)}
    named = sorted(keys - set(DIGESTS) or keys)
    differing = [f"{key}: {held.get(key)} there, {asked.get(key)} here" for key in named]
    if differing:
        raise UserError(
            f"A study searches one space around one recipe. Received: study {name} has "
            f"{'; '.join(differing)}. Take another study name, or --force to start it over."
        )


def check_machine(study: Any, where: str) -> None:
    """UserError where an SQLite study is at work on another machine."""
    if not storage.one_machine(where):
        return
    here = alive.machine().partition(" ")[0]
    at_work = [t.user_attrs.get(tickets.WORKER, {}) for t in tickets.in_state(study, "RUNNING")]
    for tags in (leader.living(study) or {}, *at_work):
        host = tags.get(alive.MACHINE, here).partition(" ")[0]
        if host != here and alive.why_dead(tags, leader.LOST_S) is None:
            raise UserError(
                f"An SQLite storage is for one machine. Received: study {study.study_name} in "
                f"{storage.shown(where)}, at work on {host}. Give every machine the same --storage "
                "postgresql://... or grpc://..., which python -m tuning proxy serves."
            )


def aim(study: Any, asked: Goal) -> bool:
    """Keep the goal that is asked for; whether anything is left to do.

    A number of trials or of hours takes the place of the old one. UserError for fewer trials than
    the study already is on its way to.
    """
    held = Goal(**study.user_attrs.get(GOAL, {}))
    count = asked.trials
    if count is not None and held.trials is not None and count < held.trials:
        if tickets.finished(study) >= count:
            return False
        raise UserError(
            f"A study's goal is raised, not lowered. Received: {count} trials for study "
            f"{study.study_name}, which is on its way to {held.trials}. Leave --trials out, or "
            "raise it."
        )
    anew = asked.trials is not None or asked.hours is not None
    goal = dataclasses.replace(asked if anew else held, patience=asked.patience or held.patience)
    study.set_user_attr(GOAL, dataclasses.asdict(goal))
    return True
