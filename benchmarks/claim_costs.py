"""How long does a claim about trained networks take on this machine, at one of its scales?

Each network among its trainings is trained for some steps at a rate that changes nothing; the first
call, which traces, is left out. A picture that is only evaluated counts a third of one that is
trained on: forward without backward. Hours are of all seeds and of what searches train, each
training counted once. On a busy machine they are upper bounds.

    python -m benchmarks.claim_costs CLAIM [SCALE [STEPS]]      minutes; SCALE hours, STEPS 21
"""

import dataclasses
import sys

from benchmarks import side_by_side
from pipelines.cli.shell import run_command_safely
from pipelines.data import datasets
from pipelines.data.datasets import Splits
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog
from pipelines.recipes import checks
from pipelines.recipes.recipe import Recipe
from pipelines.tracking import tracked_run

FORWARD = 1 / 3  # share of a step's time


def main(name: str = "", scale: str = "hours", timed: str = "21") -> None:
    """Print and record what a training of every network takes, and all of the claim."""
    steps, trainings = int(timed), distinct_trainings(name, scale)
    side_by_side.print_title(f"{name} --scale {scale}: {len(trainings)} trainings")
    minutes: dict[str, float] = {}  # by network
    with tracked_run.track(
        f"claim_costs {name} {scale}", experiment="benchmarks", kind="benchmark"
    ) as run:
        for arm, recipe in trainings:
            network = short(recipe, steps).fingerprint
            if network not in minutes:
                minutes[network] = report_training(arm, recipe, steps, run)
        hours = sum(minutes[short(recipe, steps).fingerprint] for _, recipe in trainings) / 60
        run.log({"hours": hours})
    print(f"{'all':>24}  {hours:.1f} hours")


def distinct_trainings(name: str, scale: str) -> list[tuple[str, Recipe]]:
    """Return every training of a claim at that scale, over its seeds, once each, with its arm."""
    claim = claim_catalog.load(name)
    setting = claim_catalog.get_settings(name, scale)
    if claim.recipes is None:
        raise UserError(f"A claim must train networks. Received: {name}. Choose another.")
    every = [item for seed in range(claim.seeds) for item in claim.recipes(setting, seed).items()]
    return list({recipe.fingerprint: (arm, recipe) for arm, recipe in every}.values())


def short(recipe: Recipe, steps: int) -> Recipe:
    """Return a few steps of a training: the same of all that differ in nothing that costs time."""
    return recipe.override(steps=steps, learning_rate=1e-6, warmup=0.0, seed=0)


def report_training(arm: str, recipe: Recipe, steps: int, run: tracked_run.Run) -> float:
    """Print and log what a network's training takes; return its minutes."""
    splits = datasets.load(recipe.data, recipe.train_examples)
    few = dataclasses.replace(splits, val=splits.val.head(recipe.batch_size))
    rate = side_by_side.images_per_s(side_by_side.build_job(short(recipe, steps), few))
    minutes = equivalent_images(recipe, splits) / rate / 60
    print(f"{arm:>24}  {rate:.0f} images/s, {minutes:.1f} minutes", flush=True)
    run.log({f"{arm}_images_per_s": rate, f"{arm}_minutes": minutes})
    return minutes


def equivalent_images(recipe: Recipe, splits: Splits) -> float:
    """Return the images of a training's steps, and as such what its evaluations take."""
    from pipelines.training.train import FITTED

    trained = checks.count_steps(recipe, len(splits.train)) * recipe.batch_size
    epochs = max(1, trained / len(splits.train))
    evaluated = epochs * len(splits.val) + len(splits.test) + min(FITTED, len(splits.train))
    return trained + FORWARD * evaluated


if __name__ == "__main__":
    sys.exit(run_command_safely(lambda arguments: main(*arguments), sys.argv[1:]))
