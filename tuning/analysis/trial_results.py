"""Results of a study's trials: which are finished, their errors, their cost, the front.

Takes Optuna's FrozenTrial and whatever has its attributes; imports no Optuna.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tuning.search import spaces

DIVERGED_PCT = 100.0  # percent: the error of a trial whose loss diverged


def finished_trials(trials: Sequence[Any]) -> list[Any]:
    """Return complete trials and pruned ones that reported an error, as they finished."""
    ended = [
        trial
        for trial in trials
        if trial.state.name == "COMPLETE"
        or (trial.state.name == "PRUNED" and trial.intermediate_values)
    ]
    return sorted(ended, key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))


def error_pct(trial: Any) -> float:
    """Return the validation error of a finished trial, percent; DIVERGED_PCT if not finite.

    Of a pruned trial the last that it reported: an upper estimate, for training would have gone on.
    """
    if trial.state.name == "COMPLETE":
        return clip_error(trial.values[0])
    return clip_error(trial.intermediate_values[max(trial.intermediate_values)])


def clip_error(error_pct: float) -> float:
    """Return an error as a number of percent that can be ranked and drawn."""
    return min(float(error_pct), DIVERGED_PCT) if math.isfinite(error_pct) else DIVERGED_PCT


def peak_rate(trial: Any) -> float:
    """Return the peak learning rate; NaN where the space has none."""
    return float(trial.params.get("learning_rate", math.nan))


def is_sampled(trial: Any) -> bool:
    """Return whether the sampler chose it; published schedules are enqueued."""
    return spaces.PUBLISHED not in trial.user_attrs


def has_diverged(trial: Any) -> bool:
    return "diverged" in trial.user_attrs


def best_trial(trials: Sequence[Any]) -> Any:
    """Return the complete trial of least error, the earliest of equals; None without one."""
    complete = [trial for trial in finished_trials(trials) if trial.state.name == "COMPLETE"]
    return min(complete, key=error_pct, default=None)


def paper_trial(trials: Sequence[Any]) -> Any:
    """Return the finished trial of the recipe's own schedule; None where there is none."""
    papers = (
        t for t in finished_trials(trials) if t.user_attrs.get(spaces.PUBLISHED) == spaces.PAPER
    )
    return next(papers, None)


def total_device_s(trials: Sequence[Any]) -> float:
    """Return the seconds of training times devices, where known; NaN where no trial says."""
    known = [trial.user_attrs["device_s"] for trial in trials if "device_s" in trial.user_attrs]
    return float(sum(known)) if known else math.nan


def pareto_front(trials: Sequence[Any]) -> list[Any]:
    """Return the trials that no other beats in error and cost at once, least error first.

    Of studies that minimize [error, images]; a training that diverged is no offer.
    """
    offers = [
        trial
        for trial in finished_trials(trials)
        if trial.state.name == "COMPLETE" and len(trial.values) == 2 and not has_diverged(trial)
    ]
    front: list[Any] = []
    for trial in sorted(offers, key=lambda trial: (error_pct(trial), trial.values[1])):
        if not front or trial.values[1] < front[-1].values[1]:
            front.append(trial)
    return front


def describe_ranges(trials: Sequence[Any]) -> dict[str, str]:
    """Return the range of each parameter, as `0.01 to 1 (log)`, those of every trial first."""
    done = finished_trials(trials)
    ranges = {name: each for trial in done for name, each in trial.distributions.items()}
    shares = {name: sum(name in trial.params for trial in done) for name in ranges}
    return {
        name: _describe_range(ranges[name])
        + ("" if shares[name] == len(done) else f", in {shares[name]} of {len(done)} trials")
        for name in sorted(ranges, key=lambda name: (-shares[name], name))
    }


def _describe_range(distribution: Any) -> str:
    if hasattr(distribution, "choices"):
        return " | ".join(str(choice) for choice in distribution.choices)
    scale = " (log)" if distribution.log else ""
    return f"{distribution.low:.3g} to {distribution.high:.3g}{scale}"
