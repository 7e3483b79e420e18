"""What do Optuna and MLflow cost a trial of a study?

A study of one worker, and the same recipes trained with nothing around them, take turns in one
process; data are read once for each. What a study spends more is given as a share of a trial of 20
seconds. On a journal in a home of its own. The study's beginning and end (its report, its pictures
and two trainings that read the test set) are not a trial's and are given apart.

    python -m benchmarks.study_layer      about 4 minutes on 2 cores
"""

import contextlib
import time
from statistics import median
from typing import Any

from benchmarks.recording import temporary_database
from pipelines.data import datasets
from pipelines.errors import Diverged
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run
from tuning import catalog, study
from tuning.analysis import trial_results
from tuning.plan import Goal, Plan
from tuning.search import spaces
from tuning.storage import storage

TRIALS, ROUNDS, TRIAL_S = 8, 4, 20.0


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; {TRIALS} trials a round, {ROUNDS} rounds")
    with temporary_database():
        rounds = [measure(number) for number in range(ROUNDS + 1)][1:]  # the first loads all
    with tracked_run.tracked(
        "study_layer", experiment="benchmarks", kind="benchmark", params={"trials": TRIALS}
    ) as run:
        for key in rounds[0]:
            found = [each[key] for each in rounds]
            run.log({key: median(found)})
            print(f"{key:<24} {median(found):.3g} ({min(found):.3g} to {max(found):.3g})")


def measure(number: int) -> dict[str, float]:
    """Of one round: the layer's seconds and its share of a trial, and what is around the trials."""
    plan = Plan(recipe="mlp-digits", scale="cpu", sampler="tpe", changes={"seed": number})
    start = time.perf_counter()
    study.search(f"round-{number}", plan, Goal(TRIALS))
    whole = time.perf_counter() - start
    trials = catalog.load(f"round-{number}", storage.resolve_url()).trials
    wall = trials[-1].datetime_complete - trials[0].datetime_start
    studied = wall.total_seconds() / TRIALS
    bare = trained(plan, trials) / TRIALS
    return {
        "layer_s_per_trial": studied - bare,
        "layer_pct_of_20_s": 100 * (studied - bare) / TRIAL_S,
        "bare_s_per_trial": bare,
        "around_s_per_study": whole - wall.total_seconds(),
    }


def trained(plan: Plan, trials: list[Any]) -> float:
    """Seconds of training the trials' recipes with nothing around it."""
    backend.keras()
    from pipelines.training import devices, job, train

    splits = datasets.load(plan.base.data)
    start = time.perf_counter()
    for trial in trial_results.finished_trials(trials):
        recipe = spaces.recipe(plan.space, plan.base, trial)
        training_job = job.build_job(recipe, splits, devices.place(recipe))
        with contextlib.suppress(Diverged):
            train.train(training_job, lambda metrics, step: None, test=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
