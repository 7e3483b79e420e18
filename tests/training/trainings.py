"""Trainings that a test follows, stops at a step and goes on with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from pipelines.data import datasets
from pipelines.recipes import checks
from pipelines.recipes.recipe import Recipe
from pipelines.training.checkpoints import Saving

Curves = dict[str, dict[int, float]]  # by metric and step


class Killed(Exception):
    """Stands for a kill: training stops at once and nothing more is saved."""


class Log:
    """Keeps what is logged, each metric once a step; stops the training once at a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.curves: Curves = defaultdict(dict)
        self.stop_at = stop_at

    def __call__(self, metrics: Mapping[str, float], step: int) -> None:
        for key, value in metrics.items():
            assert step not in self.curves[key], key
            self.curves[key][step] = float(value)
        if step == self.stop_at and "batch_loss" in metrics:
            raise Killed


def trained(
    recipe: Recipe, log: Log | None = None, saving: Saving | None = None, test: bool = True
) -> Any:
    """Train, from the last checkpoint on."""
    from pipelines.training import devices
    from pipelines.training.job import build_job
    from pipelines.training.train import train

    checks.check(recipe)
    place = devices.place(recipe.devices)  # before data, which start TensorFlow
    splits = datasets.load(
        recipe.data, recipe.train_examples, recipe.data_args, validation=recipe.validation
    )
    job = build_job(recipe, splits, place)
    return train(job, log or Log(), saving, saving.latest() if saving else None, test=test)


def trained_in_parts(recipe: Recipe, saving: Saving, stops: Iterable[int]) -> tuple[Any, Curves]:
    """Train, killed at these steps, each time from the last checkpoint on; curves of all parts."""
    curves: Curves = defaultdict(dict)
    for stop_at in (*stops, None):
        log = Log(stop_at)
        with suppress(Killed):
            done = trained(recipe, log, saving)
            assert stop_at is None
        for key, curve in log.curves.items():
            curves[key] |= curve
    return done, curves


def equal(one: Any, other: Any) -> bool:
    """Whether two trained networks have the same weights, bit for bit."""
    return all(map(np.array_equal, one.model.get_weights(), other.model.get_weights()))


def untimed(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers without those that differ from run to run."""
    return {k: v for k, v in numbers.items() if k not in ("wall_s", "images_per_s")}
