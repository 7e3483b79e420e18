"""The goal of a study: how many trials or hours it takes, and whether it is there."""

from typing import Any

from tuning.analysis import trial_results
from tuning.plan import GOAL, Goal


def load(study: Any) -> Goal:
    """Return when the study is over."""
    return Goal(**study.user_attrs[GOAL])


def is_reached(study: Any) -> bool:
    """Return whether no trial of the study is to begin any more."""
    finished = trial_results.finished_trials(study.get_trials(deepcopy=False))
    errors = [trial_results.error_pct(trial) for trial in finished]
    return load(study).is_reached(errors, study.user_attrs.get("spent_s", 0.0))
