"""The trials that wait in Optuna's storage, as many as the goal asks for, and who takes them.

A worker begins no trial but one that waits, and every storage gives a waiting trial to one worker
only: that keeps their number exact among many workers and machines. A trial whose worker was
killed waits again, with what it has drawn and reported; so does one that failed, once.
"""

import contextlib
import time
from collections.abc import Collection
from typing import Any

from pipelines.errors import UserError
from pipelines.runtime import heartbeat
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, recovery, store
from tuning.analysis import outcome
from tuning.execution.trial import NUMBER, REASON
from tuning.plan import Goal, StudyPlan
from tuning.search import samplers, spaces

WORKER = "worker"  # attribute of a trial: the process that trains it
FAILURES = "failures"  # how often it was killed or failed; it is tried twice
FEW = 10  # trials that a sampler chooses, too few for a search
UNSIGNED_S = 60.0  # a trial that no worker has signed for so long lost its worker as it began
QueuedTrial = tuple[dict[str, Any], dict[str, Any]]  # fixed parameters, attributes


def running_trials(study: Any) -> list[Any]:
    """Return the trials that a worker has begun and not ended."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]


def initial_trials(plan: StudyPlan, goal: Goal) -> list[QueuedTrial]:
    """Return what a study begins with: the published schedules, and of a grid all of its points.

    Raise UserError where the goal has no room for a grid, or does not say how many trials it has.
    """
    known = spaces.published_schedules(plan.space, plan.base, lengths=plan.minimize_cost)
    trials: list[QueuedTrial] = [
        (each.params, {spaces.PUBLISHED: label}) for label, each in known.items()
    ]
    if plan.sampler == "grid":
        if goal.trials is None:
            raise UserError(
                "A grid has as many points as its study has trials. Received: no number of trials. "
                "Set --trials, or choose another --sampler."
            )
        most = goal.trials - len(trials)
        trials += [(params, {}) for params in spaces.grid(plan.space, plan.base, most)]
    return trials


def describe(plan: StudyPlan, goal: Goal) -> str:
    """Return in words how many trials are published schedules, and how many the sampler chooses."""
    published = len(spaces.published_schedules(plan.space, plan.base, lengths=plan.minimize_cost))
    first = f"{outcome.describe_first(published, plan.start)} first"
    if goal.trials is None:
        return f"{first}, then as many as {plan.sampler} chooses in {goal.hours:g} hours."
    rest = max(0, goal.trials - published)
    words = f"{goal.trials} trials: {first}, then {rest} that {plan.sampler} chooses."
    if plan.sampler != "grid" and rest < FEW:
        more = max(published, samplers.STARTUP_TRIALS) + FEW  # beside those drawn at random
        words += f" That is {'few' if rest else 'none'} for a search; --trials {more} has room."
    return words


def fill(study: Any, plan: StudyPlan, goal: Goal) -> None:
    """Queue what the goal still asks for, what a study begins with before all else.

    Only its leader does.
    """
    trials = study.get_trials(deepcopy=False)
    live = [trial for trial in trials if trial.state.name != "FAIL"]
    room = None if goal.trials is None else max(0, goal.trials - len(live))
    if room == 0:
        return
    published = {trial.user_attrs.get(spaces.PUBLISHED) for trial in trials}
    fixed = [trial.system_attrs.get("fixed_params") for trial in trials]
    missing = [
        (params, attributes)
        for params, attributes in initial_trials(plan, goal)
        if (attributes[spaces.PUBLISHED] not in published if attributes else params not in fixed)
    ]
    for params, attributes in missing[:room]:
        study.enqueue_trial(params, user_attrs=attributes)
    for _ in range((room or 0) - len(missing)):
        study.enqueue_trial({})


def start_next(study: Any, plan: StudyPlan) -> Any:
    """Begin the first trial that waits; return None if none does.

    Its sampler has a seed of its own, of the recipe's seed and the trial's number: workers draw
    apart, and what was interrupted draws what it would have drawn.
    """
    import optuna

    trial_id = study._pop_waiting_trial_id()  # `ask` would make one where none waits
    if trial_id is None:
        return None
    trial = optuna.trial.Trial(study, trial_id)
    trial.set_user_attr(WORKER, heartbeat.tags())
    seed = int(digest([plan.base.seed, trial.number]), 16) % 2**31
    study.sampler = samplers.make_sampler(plan.sampler, seed)  # asked at the first parameter
    return trial


def requeue(study: Any, trial: Any, reason: str, failed: bool = True) -> None:
    """Let a running trial wait again, as it is; one that has failed before ends instead.

    Only its worker does, or, where that is dead, the study's leader.
    """
    import optuna

    state = optuna.trial.TrialState
    failures = trial.user_attrs.get(FAILURES, 0) + failed
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # another ended it
        for key, value in ((REASON, reason), (FAILURES, failures), (WORKER, None)):
            study._storage.set_trial_user_attr(trial._trial_id, key, value)
        study._storage.set_trial_state_values(
            trial._trial_id, state=state.WAITING if failures < 2 else state.FAIL
        )


def requeue_lost(study: Any, suspects: Collection[int] | None = None) -> set[int]:
    """Let the trials wait again whose workers are dead, and close their runs; for the leader.

    Where there are `suspects`, only those: return the numbers of all that seem lost, which the
    next look confirms, for a worker may be about to sign a trial or to put it back itself. Without,
    as a leader begins, the study as a whole was killed: that is no failure of the trial.
    """
    lost = []
    for trial in running_trials(study):
        if worker := trial.user_attrs.get(WORKER):
            reason = heartbeat.reason_dead(worker, heartbeat.STUDY_LOST_S)
        else:
            is_late = time.time() - trial.datetime_start.timestamp() > UNSIGNED_S
            reason = "its worker ended as it began" if is_late else None
        lost += [(trial, reason)] if reason else []
    for trial, reason in lost:
        if suspects is None or trial.number in suspects:
            recovery.deliver_journals()
            tags = {store.PARENT: study.user_attrs.get("run_id", ""), NUMBER: str(trial.number)}
            for row in history.rows("RUNNING", **tags):  # the trial's next try goes on with it
                recovery.mark_killed(row.id, reason)
            requeue(study, trial, reason, failed=suspects is not None)
    return {trial.number for trial, _ in lost}
