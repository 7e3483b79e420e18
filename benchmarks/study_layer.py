"""What do Optuna and MLflow cost a trial of a study?

A study of one worker, and the same recipes trained with nothing around them, take turns in one
process; data are read once for each. What a study spends more is given as a share of a trial of 20
seconds. On a journal in a home of its own. The study's beginning and end (its report, its pictures
and two trainings that read the test set) are not a trial's and are given apart.

    python -m benchmarks.study_layer      about 4 minutes on 2 cores
"""

import contextlib
import time
from typing import Any

from benchmarks import side_by_side
from pipelines.data import datasets
from pipelines.errors import Diverged
from pipelines.runtime import backend
from tuning import catalog, study
from tuning.analysis import trial_results
from tuning.plan import Goal, Plan
from tuning.storage import storage

TRIALS, ROUNDS, TRIAL_S = 8, 4, 20.0


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title(f"{TRIALS} trials a round")
    with side_by_side.temporary_database():
        rounds = [measure(number) for number in range(ROUNDS + 1)][1:]  # the first loads all
    numbers = {key: [each[key] for each in rounds] for key in rounds[0]}
    side_by_side.report("study_layer", numbers, trials=TRIALS)


def measure(number: int) -> dict[str, float]:
    """Return the layer's seconds, its share of a trial, and what is around the trials."""
    plan = Plan(recipe="mlp-digits", scale="cpu", sampler="tpe", changes={"seed": number})
    start = time.perf_counter()
    study.search(f"round-{number}", plan, Goal(TRIALS))
    whole = time.perf_counter() - start
    trials = catalog.load(f"round-{number}", storage.resolve_url()).trials
    wall = (trials[-1].datetime_complete - trials[0].datetime_start).total_seconds()
    bare = train_bare(plan, trials) / TRIALS
    layer = wall / TRIALS - bare
    return {
        "layer_s_per_trial": layer,
        "layer_pct_of_20_s": 100 * layer / TRIAL_S,
        "bare_s_per_trial": bare,
        "around_s_per_study": whole - wall,
    }


def train_bare(plan: Plan, trials: list[Any]) -> float:
    """Return the seconds of training the trials' recipes with nothing around it."""
    backend.keras()
    from pipelines.training.train import train

    splits = datasets.load(plan.base.data)
    start = time.perf_counter()
    for trial in trial_results.finished_trials(trials):
        with contextlib.suppress(Diverged):
            job = side_by_side.build_job(plan.recipe_of(trial), splits)
            train(job, lambda metrics, step: None, test=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
