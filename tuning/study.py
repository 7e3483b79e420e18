"""Studies: Optuna chooses, the ordinary `run` trains, MLflow holds the study and its trials.

A study is in Optuna's storage, its run and those of its trials in MLflow. One process leads it: it
queues the trials, writes the study's run and sums it up. Any number of others, here or on other
machines, try trials beside it. Started again, a study goes on; where its storage lacks it, it is
copied from its finished run in MLflow.
"""

import contextlib
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.errors import Unavailable, UserError, without_password
from pipelines.recipes import checks
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import history, recovery, tracked_run
from tuning import catalog
from tuning.analysis import goals, summary, trial_results
from tuning.catalog import EXPERIMENT, describe
from tuning.execution import open_study, trial_queue, workers
from tuning.plan import TRIAL_ERROR, Goal, StudyPlan
from tuning.storage import copies, leader, storage

SAVE_S = 10.0  # between two times that a study's hours are counted


def search(
    name: str,
    plan: StudyPlan | None,
    goal: Goal,
    *,
    where: str | None = None,
    worker_count: int = 1,
    force: bool = False,
) -> dict[str, Any]:
    """Bring the study to its goal with so many workers, and return its document.

    Without a plan it must be there. A study that was interrupted goes on, in the same MLflow run,
    and tries the trials that were cut short again as they were. `force` starts over. A study that
    another process leads is helped to its goal first, and then led to this one. `where` is the
    address of its storage (None: OPTUNA_STORAGE, else a journal beside the runs).
    """
    where, helped = storage.resolve_url(where), False
    with storage.translate_errors(where):
        while True:
            with catalog.lock_study(name):
                study = open_study.open_study(name, plan, goal, where, force and not helped)
                leads = leader.take_lead(study, several=not where.startswith(storage.JOURNAL))
            if leads:
                with leader.lead(study):
                    reused = _lead(study, goal, where, worker_count)
                return describe(name, where) | {"reused": reused and not helped}
            print(f"Another process leads study {name}; helping it.", file=sys.stderr)
            _bring_to_goal(study, where, worker_count)
            while leader.living_leader(study):
                time.sleep(workers.POLL_S)
            helped = True


def _lead(study: Any, goal: Goal, where: str, worker_count: int) -> bool:
    """Bring the study to its goal and sum it up; return True where it is there already.

    Raise Unavailable where another process has taken the lead: that one sums the study up.
    """
    plan, name = StudyPlan.to_continue(study), study.study_name
    row = catalog.find_run(study)
    has_work = open_study.set_goal(study, goal)
    if row and row.status == "FINISHED" and not has_work:
        return True
    if row and history.is_deleted(row.id):
        raise UserError(
            f"A study's run must be there to go on with. Received: study {name}, whose run "
            f"{row.id} was deleted. Restore it: mlflow runs restore --run-id {row.id}; or use "
            "--force to start the study over."
        )
    checks.check_here(plan.base)
    if row and row.status == "RUNNING":
        recovery.mark_killed(row.id, "its process has ended")  # the lead is ours
    trial_queue.requeue_lost(study)
    goal = goals.load(study)
    trial_queue.fill(study, plan, goal)
    print(f"{name}: {trial_queue.describe(plan, goal)}", file=sys.stderr)
    if copies.STUDY_KEY not in study.user_attrs:
        study.set_user_attr(copies.STUDY_KEY, secrets.token_hex(8))
    tags = {"study": name, "recipe": plan.recipe, "scale": plan.scale, "space": plan.space}
    key = study.user_attrs[copies.STUDY_KEY]
    tags |= {"storage": without_password(where), copies.STUDY_KEY: key}
    hidden = ("changes", "fingerprint")  # they are among the recipe's own
    with tracked_run.track(
        name,
        experiment=EXPERIMENT,
        kind="study",
        params=plan.base.flat() | {k: v for k, v in plan.identity.items() if k not in hidden},
        tags=tags | ({"proxy": plan.proxy} if plan.proxy else {}),
        resume=row.id if row else None,
    ) as tracked:
        study.set_user_attr(copies.RUN, tracked.id)
        with (
            progress_bar(name, goal.trials or 0, "trials/s") as advance,
            _count_hours(study) as save_hours,
        ):
            record = _make_recorder(study, plan, tracked, advance, save_hours)
            _bring_to_goal(study, where, worker_count, record)
            while trial_queue.running_trials(study):  # trials at work elsewhere
                record()
                time.sleep(workers.POLL_S)
            record()
        if not leader.is_leader(study):
            raise Unavailable(
                f"One process leads a study. Received: {name}, whose lead another one took while "
                "this one gave no sign of life. See what has become of it: python -m tuning show "
                f"{name}"
            )
        summary.write(study, plan, tracked)
    return False


def _bring_to_goal(
    study: Any, where: str, worker_count: int, after: Callable[[], None] = lambda: None
) -> None:
    """Have workers bring the study to its goal; `after` is called now and then."""
    if worker_count == 1:
        join(study.study_name, where, after)
    else:
        workers.run_workers(study, where, worker_count, after)


def help_leader(name: str, where: str) -> None:
    """Be one more worker of a study that a process leads; raise Unavailable where none does."""
    with storage.translate_errors(where):
        if not leader.living_leader(catalog.load(name, where)):
            raise Unavailable(
                f"A worker helps a study that a process leads. Received: {name}, which none does. "
                f"Lead it: python -m tuning resume {name}"
            )
    join(name, where)


def join(name: str, where: str, after: Callable[[], None] = lambda: None) -> None:
    """Be one of a study's workers until its goal is reached, or none leads it."""
    with storage.translate_errors(where):
        study = catalog.load(name, where)
        parent = tracked_run.Parent(catalog.wait_for_run(study).id, EXPERIMENT)
        workers.work(study, StudyPlan.to_continue(study), parent, after)


@contextmanager
def _count_hours(study: Any) -> Iterator[Callable[[], None]]:
    """Add the time that the block lasts to the study's, now and then and at its end; yield how."""
    before, began = study.user_attrs.get("spent_s", 0.0), time.time()

    def save() -> None:
        if leader.is_leader(study):
            study.set_user_attr("spent_s", before + time.time() - began)

    try:
        with leader.beat_regularly(save, SAVE_S):
            save()  # so that no trial begins where no time is left
            yield save
    finally:
        with contextlib.suppress(Exception):  # the storage may be what has failed
            save()


def _make_recorder(
    study: Any,
    plan: StudyPlan,
    tracked: tracked_run.Run,
    advance: Callable[[int, float], Any],
    save_hours: Callable[[], None],
) -> Callable[[], None]:
    """Return what the leader does between trials.

    It logs the error of every trial that has ended, counts the hours, lets the trials of dead
    workers wait again and replaces those that failed.
    """
    known, suspects, began = set[int](), set[int](), time.time()
    earlier = len(trial_results.finished_trials(study.get_trials(deepcopy=False)))

    def record() -> None:
        nonlocal suspects
        suspects = trial_queue.requeue_lost(study, suspects)
        trial_queue.fill(study, plan, goals.load(study))
        ended = trial_results.finished_trials(study.get_trials(deepcopy=False))
        new = [trial for trial in ended if trial.number not in known]
        if new:
            save_hours()
        for trial in new:
            known.add(trial.number)
            when = int(1000 * trial.datetime_complete.timestamp())  # a point is kept once
            tracked.log({TRIAL_ERROR: trial_results.error_pct(trial)}, trial.number, when)
            tried = len(known) - earlier
            advance(1, tried / (time.time() - began) if tried > 0 else math.nan)

    return record
