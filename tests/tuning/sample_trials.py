"""Trials of studies in memory, on functions that are known."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

CHANCE = 90.0  # percent: the error of guessing one of ten classes
START = datetime(2026, 1, 1)
RATES = FloatDistribution(1e-6, 1e3, log=True)


def trials(rows: list[dict[str, Any]]) -> list[FrozenTrial]:
    """Trials of a study in memory; `at` is the minute at which one ended, by default its number."""
    study = optuna.create_study(directions=["minimize"] * len(rows[0].get("values", [0])))
    for number, row in enumerate(rows):
        told = {"state": TrialState.COMPLETE, "user_attrs": {}} | row
        rate, at = told.pop("rate", 0.1), told.pop("at", number)
        trial = create_trial(
            params={"learning_rate": rate}, distributions={"learning_rate": RATES}, **told
        )
        trial.datetime_start, trial.datetime_complete = START, START + timedelta(minutes=at)
        study.add_trial(trial)
    return study.trials


def errors_of(*values: float, **first: object) -> list[FrozenTrial]:
    rows = [{"values": [value]} for value in values]
    return trials([rows[0] | first, *rows[1:]])


def valley(slope: float, x: np.ndarray, centre: float = -1.0) -> np.ndarray:
    """20 % at the centre, and `slope` points a squared decade more."""
    return 20 + slope * (x - centre) ** 2


def at_rates(x: np.ndarray, errors: np.ndarray) -> list[FrozenTrial]:
    pairs = zip(x, errors, strict=True)
    return trials([{"rate": float(10**r), "values": [float(min(e, 100))]} for r, e in pairs])


def random_trials(objective: Callable[[optuna.Trial], float], count: int = 40) -> list[FrozenTrial]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=count)
    return study.trials
