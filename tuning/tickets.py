"""Tickets: trials that wait in Optuna's storage, as many as the goal asks for, and who takes them.

A worker begins no trial but one that waits, and every storage gives a waiting trial to one worker
only: that keeps their number exact among many workers and machines. A trial whose worker was killed
is tried again, once, with the same parameters; one that was told to stop, as often as that happens.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from pipelines import alive, history, settle, store
from pipelines.errors import UserError
from pipelines.recipes import digest
from tuning import outcomes, samplers, spaces
from tuning.leader import LOST_S
from tuning.plan import OBJECTIVE, Goal, Plan
from tuning.trial import KIND, NUMBER, account

WORKER = "worker"  # attribute of a trial: the process that trains it
AFTER = "after"  # of one that is tried again: the number of the trial that ended
RETRIES = "retries"  # how often a trial with these parameters was killed or failed before
REASON = "reason"  # why a trial failed; of the next try, why the last one did
NAMELESS_S = 60.0  # a trial that no worker has signed for so long lost its worker as it began
UNQUEUED_S = 10.0  # a trial that failed and was not queued again: its worker was killed in between
Ticket = tuple[dict[str, Any], dict[str, Any]]  # fixed parameters, attributes


def in_state(study: Any, name: str) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == name]


def finished(study: Any) -> int:
    """How many of the study's trials count."""
    return len(outcomes.finished(study.get_trials(deepcopy=False)))


def first(plan: Plan, goal: Goal) -> list[Ticket]:
    """What a study begins with: the published schedules, and of a grid all of its points.

    UserError where the goal has no room for a grid, or does not say how many trials it has.
    """
    known = spaces.published(plan.space, plan.base, lengths=plan.minimize_cost)
    found: list[Ticket] = [
        (each.params, {spaces.PUBLISHED: label}) for label, each in known.items()
    ]
    if plan.sampler == "grid":
        if goal.trials is None:
            raise UserError(
                "A grid has as many points as its study has trials. Received: no number of trials. "
                "Set --trials, or choose another --sampler."
            )
        most = goal.trials - len(found)
        found += [(params, {}) for params in spaces.grid(plan.space, plan.base, most)]
    return found


def fill(study: Any, plan: Plan, goal: Goal) -> None:
    """Queue what the goal still asks for, what a study begins with before all else.

    Only its leader does. A failed trial that none comes after is about to be queued again.
    """
    trials = study.get_trials(deepcopy=False)
    live = [trial for trial in trials if trial.state.name != "FAIL"] + _unqueued(trials)
    room = None if goal.trials is None else max(0, goal.trials - len(live))
    missing = [each for each in first(plan, goal) if not any(_is(trial, each) for trial in trials)]
    for params, attributes in missing[:room]:
        study.enqueue_trial(params, user_attrs=attributes)
    for _ in range((room or 0) - len(missing)):
        study.enqueue_trial({})


def _is(trial: Any, ticket: Ticket) -> bool:
    """Whether a trial is of that published schedule, or of that point of a grid."""
    params, attributes = ticket
    if attributes:
        return bool(trial.user_attrs.get(spaces.PUBLISHED) == attributes[spaces.PUBLISHED])
    return bool(trial.system_attrs.get("fixed_params") == params)


def take(study: Any, plan: Plan) -> Any:
    """Begin the first trial that waits, one that is tried again before all others; None if none.

    Its sampler has a seed of its own, of the recipe's seed and the trial's number: workers draw
    apart, and what was interrupted draws what it would have drawn.
    """
    import optuna

    taken, storage = optuna.trial.TrialState.RUNNING, study._storage
    for ticket in sorted(in_state(study, "WAITING"), key=lambda t: AFTER not in t.user_attrs):
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            if storage.set_trial_state_values(ticket._trial_id, state=taken):
                storage.set_trial_user_attr(ticket._trial_id, WORKER, alive.tags())
                seed = int(digest([plan.base.seed, ticket.number]), 16) % 2**31
                study.sampler = samplers.sampler(
                    plan.sampler, seed=seed, objectives=plan.objectives
                )
                return optuna.trial.Trial(study, ticket._trial_id)
    return None


class Watchman:
    """Finds the trials of dead workers; remembers since when it has seen what."""

    def __init__(self, study: Any) -> None:
        self.study = study
        self.nameless: dict[int, float] = {}
        self.unqueued: dict[int, float] = {}

    def settle(self) -> None:
        """End the trials whose workers are dead: those without a result are queued again."""
        for trial in in_state(self.study, "RUNNING"):
            why = self._why_dead(trial)
            if why:
                _settle_run(self.study, trial, why)
                fail(self.study, trial, why)

    def _why_dead(self, trial: Any) -> str | None:
        if WORKER in trial.user_attrs:
            return alive.why_dead(trial.user_attrs[WORKER], LOST_S)
        nameless = _seen_for(trial, self.nameless) > NAMELESS_S
        return "its worker ended as it began" if nameless else None

    def recover(self) -> None:
        """Queue again what a worker that was killed in between did not; for the leader."""
        for trial in _unqueued(self.study.get_trials(deepcopy=False)):
            if _seen_for(trial, self.unqueued) > UNQUEUED_S:
                _again(self.study, trial, trial.user_attrs.get(REASON, "its worker was killed"))


def _seen_for(trial: Any, since: dict[int, float]) -> float:
    """Seconds since it was first asked about that trial."""
    return time.monotonic() - since.setdefault(trial.number, time.monotonic())


def _unqueued(trials: Sequence[Any]) -> list[Any]:
    """The failed trials that none comes after."""
    followed = {trial.user_attrs.get(AFTER) for trial in trials}
    return [t for t in trials if t.state.name == "FAIL" and t.number not in followed]


def _settle_run(study: Any, trial: Any, why: str) -> None:
    """Close the run of a dead worker's trial, which its next try goes on with."""
    settle.settle_dead()
    worker = trial.user_attrs.get(WORKER, {}).get(alive.PROCESS)
    for row in history.rows("RUNNING", **_below(study, trial)):
        if row.tags.get(alive.PROCESS) == worker:
            settle.close(row.id, why)


def _below(study: Any, trial: Any) -> dict[str, str]:
    """The tags of a trial's runs."""
    return {store.PARENT: study.user_attrs.get("run_id", ""), NUMBER: str(trial.number)}


def fail(study: Any, trial: Any, reason: str, stopped: bool = False) -> None:
    """End a running trial and queue it again; one that failed before is replaced by a new one.

    One whose run had ended, as its worker was killed before it said so, counts as it came out. Of
    several workers that find the same dead trial one alone queues it. `stopped` trials were told
    to end, which is no failure.
    """
    import optuna

    with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
        if values := _result(study, trial):
            study.tell(trial.number, values)
            return
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        _again(study, study.get_trials(deepcopy=False)[trial.number], reason, stopped)


def _result(study: Any, trial: Any) -> list[float] | None:
    """The objectives of a trial whose run has finished, which is noted in it; None of any other."""
    import optuna

    rows = history.rows(kind=KIND, **_below(study, trial))
    if not rows:
        return None
    row = rows[0]
    account(optuna.trial.Trial(study, trial._trial_id), rows)
    if len(study.directions) == 1:
        return [row.metrics[OBJECTIVE]]
    return [
        row.metrics[OBJECTIVE],
        float(trial.user_attrs["steps"] * int(row.params["batch_size"])),
    ]


def _again(study: Any, trial: Any, reason: str, stopped: bool = False) -> None:
    """Queue a trial with the same parameters and what it has reported, or a fresh one."""
    import optuna

    retries = trial.user_attrs.get(RETRIES, 0) + (not stopped)
    after = {AFTER: trial.number, REASON: f"trial {trial.number}: {reason}"}
    if retries > 1:
        study.enqueue_trial({}, user_attrs=after)
        return
    label = trial.user_attrs.get(spaces.PUBLISHED)
    kept = {} if label is None else {spaces.PUBLISHED: label}
    params = trial.system_attrs.get("fixed_params", {}) | trial.params
    study.add_trial(
        optuna.trial.create_trial(
            state=optuna.trial.TrialState.WAITING,
            system_attrs={"fixed_params": params},
            user_attrs={**kept, **after, RETRIES: retries},
            intermediate_values=trial.intermediate_values,
        )
    )
