"""How long does a claim about trained networks take on this machine, at one of its scales?

Each network among its trainings is trained for some steps at a rate that changes nothing; the first
call, which traces, is left out. A picture that is only evaluated counts a third of one that is
trained on: forward without backward. Hours are of all seeds and of what searches train, each
training counted once. On a busy machine they are upper bounds.

    python -m benchmarks.claim_costs CLAIM [SCALE [STEPS]]      minutes; SCALE hours, STEPS 21
"""

import dataclasses
import sys
import time
from collections.abc import Mapping
from typing import Any

from pipelines.data import datasets
from pipelines.data.splits import Splits
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run

FORWARD = 1 / 3  # of a step's time


def main(name: str = "", scale: str = "hours", timed: str = "21") -> None:
    """Print and record what a training of every network takes, and all of the claim."""
    steps = int(timed)
    trainings, tags = distinct_trainings(name, scale), provenance.tags()
    print(
        f"{name} --scale {scale}: {len(trainings)} trainings; {tags['cpu']}, {tags['cores']} cores"
    )
    minutes: dict[str, float] = {}  # by network
    with tracked_run.tracked(
        f"claim_costs {name} {scale}", experiment="benchmarks", kind="benchmark"
    ) as run:
        for arm, recipe in trainings:
            network = short(recipe, steps).fingerprint
            if network not in minutes:
                minutes[network] = report(arm, recipe, steps, run)
        hours = sum(minutes[short(recipe, steps).fingerprint] for _, recipe in trainings) / 60
        run.log({"hours": hours})
    print(f"{'all':>24}  {hours:.1f} hours")


def distinct_trainings(name: str, scale: str) -> list[tuple[str, Recipe]]:
    """Return every training of a claim at that scale, over its seeds, once each, with its arm."""
    found = claim_catalog.load(name)
    setting = claim_catalog.get_settings(found, name, scale)
    if found.recipes is None:
        raise UserError(f"A claim must train networks. Received: {name}. Choose another.")
    every = [item for seed in range(found.seeds) for item in found.recipes(setting, seed).items()]
    return list({recipe.fingerprint: (arm, recipe) for arm, recipe in every}.values())


def short(recipe: Recipe, steps: int) -> Recipe:
    """Return a few steps of a training: the same of all that differ in nothing that costs time."""
    return recipe.override(steps=steps, learning_rate=1e-6, warmup=0.0, seed=0)


def report(arm: str, recipe: Recipe, steps: int, run: tracked_run.Run) -> float:
    """Print and log what a network's training takes; its minutes."""
    splits = datasets.load(recipe.data, recipe.train_examples)
    seconds = seconds_per_step(short(recipe, steps), splits)
    minutes, rate = seconds * equivalent_steps(recipe, splits) / 60, recipe.batch_size / seconds
    print(
        f"{arm:>24}  {seconds:.3f} s a step, {rate:.0f} images/s, {minutes:.1f} minutes", flush=True
    )
    run.log({f"{arm}_images_per_s": rate, f"{arm}_minutes": minutes})
    return minutes


def equivalent_steps(recipe: Recipe, splits: Splits) -> float:
    """Return the steps of a training, and as such what its evaluations take."""
    from pipelines.training.train import FITTED

    steps = recipe.steps_over(len(splits.train))
    epochs = steps * recipe.batch_size / len(splits.train)
    evaluated = max(1, epochs) * len(splits.val) + len(splits.test) + min(FITTED, len(splits.train))
    return steps + FORWARD * evaluated / recipe.batch_size


def seconds_per_step(recipe: Recipe, splits: Splits) -> float:
    """Return the mean seconds of a training step by the clock, the first left out."""
    backend.keras()
    from pipelines.training import devices
    from pipelines.training.job import build_job
    from pipelines.training.train import train

    few = dataclasses.replace(splits, val=splits.val.beginning(recipe.batch_size))
    ends: list[float] = []

    def log(metrics: Mapping[str, Any], step: int) -> None:
        if "batch_loss" in metrics:
            ends.append(time.perf_counter())

    train(build_job(recipe, few, devices.place(recipe)), log, test=False)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
