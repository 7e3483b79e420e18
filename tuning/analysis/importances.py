"""Which parameters matter, by fANOVA, and a list of trials as an Optuna study in memory."""

import copy
from collections.abc import Sequence
from typing import Any

from tuning.analysis import trial_results
from tuning.optuna_log import silence
from tuning.plan import OBJECTIVE_NAMES

SEED = 0  # the forest's
MIN_TRIALS = 10  # complete trials; a forest grown on fewer says nothing


def build_study(trials: Sequence[Any], objectives: int = 1) -> Any:
    """Return a study in memory of these trials, with the first `objectives` values of each.

    Errors that are not finite are DIVERGED_PCT; what has not finished takes part as failed.
    """
    import optuna

    study = optuna.create_study(study_name="trials", directions=["minimize"] * objectives)
    with silence():
        study.set_metric_names(OBJECTIVE_NAMES[:objectives])
    ordered = sorted(trials, key=lambda each: each.number)  # they are numbered as they were
    study.add_trials([_copy_trial(trial, objectives) for trial in ordered])
    return study


def _copy_trial(trial: Any, objectives: int) -> Any:
    import optuna

    if trial.state.name not in ("COMPLETE", "PRUNED"):
        return optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL)
    twin = copy.deepcopy(trial)
    twin.values = None
    if trial.values is not None:
        twin.values = [trial_results.clip_error(trial.values[0]), *trial.values[1:objectives]]
    twin.intermediate_values = {
        step: trial_results.clip_error(value) for step, value in trial.intermediate_values.items()
    }
    return twin


def reason_none(trials: Sequence[Any]) -> str:
    """Return why fANOVA cannot be computed, as a clause; empty where it can."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if len(complete) < MIN_TRIALS:
        return f"fANOVA needs {MIN_TRIALS} complete trials, there are {len(complete)}"
    if len({trial_results.error_pct(trial) for trial in complete}) == 1:
        return "every complete trial has the same error"
    if not shared_parameters(complete):
        return "no parameter that varies is in every complete trial"
    return ""


def shared_parameters(complete: Sequence[Any]) -> list[str]:
    """Return the parameters that vary and that all these trials have, each of one range."""
    first = complete[0].distributions
    return sorted(
        name
        for name, distribution in first.items()
        if all(trial.distributions.get(name) == distribution for trial in complete)
        and len({trial.params[name] for trial in complete}) > 1
    )


def fanova(trials: Sequence[Any]) -> dict[str, float]:
    """Return the share of the error's variance that each parameter explains alone; sum 1.

    Greatest first; Hutter, Hoos & Leyton-Brown 2014, over the complete trials and the parameters
    that all of them have; {} where `reason_none` says why.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if reason_none(trials):
        return {}
    names = shared_parameters([trial for trial in trials if trial.state.name == "COMPLETE"])
    evaluator = FanovaImportanceEvaluator(seed=SEED)
    shares = get_param_importances(build_study(trials), evaluator=evaluator, params=names)
    return {name: float(share) for name, share in shares.items()}
