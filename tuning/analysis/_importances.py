"""Which parameters matter, by fANOVA, and a list of trials as an Optuna study in memory."""

import copy
from collections.abc import Sequence
from typing import Any

from tuning.analysis import outcomes
from tuning.optuna_log import quiet
from tuning.plan import METRICS

LEAST = 10  # complete trials; a forest grown on fewer says nothing


def study_of(trials: Sequence[Any], objectives: int = 1) -> Any:
    """A study in memory of these trials, numbered as they are, the first `objectives` values each.

    Errors that are not finite are `outcomes.LOST`; what has not finished takes part as failed.
    """
    import optuna

    with quiet():
        study = optuna.create_study(study_name="trials", directions=["minimize"] * objectives)
        study.set_metric_names(METRICS[:objectives])
        study.add_trials(
            [_copied(trial, objectives) for trial in sorted(trials, key=lambda each: each.number)]
        )
    return study


def _copied(trial: Any, objectives: int) -> Any:
    import optuna

    if trial.state.name not in ("COMPLETE", "PRUNED"):
        return optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL)
    twin = copy.deepcopy(trial)
    twin.values = None
    if trial.values is not None:
        twin.values = [outcomes.bounded(trial.values[0]), *trial.values[1:objectives]]
    twin.intermediate_values = {
        step: outcomes.bounded(value) for step, value in trial.intermediate_values.items()
    }
    return twin


def obstacle(trials: Sequence[Any]) -> str:
    """Why fANOVA cannot be computed, as a clause; empty where it can."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if len(complete) < LEAST:
        return f"fANOVA needs {LEAST} complete trials, there are {len(complete)}"
    if len({outcomes.error(trial) for trial in complete}) == 1:
        return "every complete trial has the same error"
    if not shared(complete):
        return "no parameter that varies is in every complete trial"
    return ""


def shared(complete: Sequence[Any]) -> list[str]:
    """Parameters that vary and that all these trials have, each of one range, by name."""
    first = complete[0].distributions
    return sorted(
        name
        for name, distribution in first.items()
        if all(trial.distributions.get(name) == distribution for trial in complete)
        and len({trial.params[name] for trial in complete}) > 1
    )


def fanova(trials: Sequence[Any], seed: int = 0) -> dict[str, float]:
    """Share of the error's variance that each parameter explains alone, greatest first; sum 1.

    Hutter, Hoos & Leyton-Brown 2014, over the complete trials and the parameters that all of them
    have; {} where `obstacle` says why.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if obstacle(trials):
        return {}
    names = shared([trial for trial in trials if trial.state.name == "COMPLETE"])
    evaluator = FanovaImportanceEvaluator(seed=seed)
    shares = get_param_importances(study_of(trials), evaluator=evaluator, params=names)
    return {name: float(share) for name, share in shares.items()}
