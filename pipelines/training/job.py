"""A job: what a training needs besides its checkpoints, and the compiled network it makes of it.

Imports Keras at the top: import this module inside the functions that train.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

import keras_models
from pipelines.data import datasets, task_metrics
from pipelines.data.datasets import Splits
from pipelines.errors import UserError
from pipelines.recipes import checks, lr
from pipelines.recipes.recipe import Recipe
from pipelines.training import _device_data, devices, precision
from pipelines.training.evaluation import mean_metrics
from pipelines.training.optimizer import add_weight_decay, build_optimizer

PER_CALL = 50  # most steps in one call: signals and curves wait for its end


def plan(recipe: Recipe, examples: int) -> NDArray[np.float64]:
    """Return the learning rate of every optimizer step of the run; its length is their number.

    UserError when the batch exceeds the training examples or the schedule cannot be drawn.
    """
    return lr.table(
        recipe.schedule,
        recipe.learning_rate,
        checks.count_steps(recipe, examples),
        recipe.warmup,
        recipe.warmup_level,
        **recipe.schedule_args,
    )


@dataclass(frozen=True)
class TrainingJob:
    """Recipe, data, rates [steps] and devices of a training."""

    recipe: Recipe
    splits: Splits
    rates: NDArray[np.float64]
    place: devices.Place
    validate_every: int | None = None

    @property
    def device(self) -> str:
        """The devices that train, and whether they hold the pictures."""
        return f"{self.place}, pictures on it" if self.holds_pictures else str(self.place)

    @property
    def epoch(self) -> int:
        """Steps between two validations: an epoch, unless told fewer; at most those of the run.

        Where the test set is looked at, the steps from look to look.
        """
        if self.recipe.test_every:
            return min(len(self.rates), self.recipe.test_every)
        whole = min(len(self.rates), len(self.splits.train) // self.recipe.batch_size)
        return min(whole, self.validate_every or whole)

    @property
    def holds_pictures(self) -> bool:
        """Whether the device holds the pictures."""
        return isinstance(self.splits.train, _device_data.Places)

    def steps_per_execution(self, steps: int) -> int:
        """Return the steps of one call of Keras: a divisor of `steps`; 1 where it can do no more.

        As many as the recipe says, else PER_CALL on a GPU that holds the pictures, and one.
        Keras's calls of several steps fail on several devices of TensorFlow.
        """
        backend, whole = keras.backend.backend(), self.recipe.accumulate == 1
        can = self.place.alone and whole and backend in ("tensorflow", "jax")
        limit = self.recipe.steps_per_execution or (
            PER_CALL if self.holds_pictures and self.place.is_accelerator else 1
        )
        counts = range(min(limit, steps), 0, -1) if can else [1]
        return next(count for count in counts if steps % count == 0)

    def network(self) -> keras.Model:
        """Return the recipe's network at its start. UserError where its arguments are wrong."""
        recipe = self.recipe
        keras.utils.set_random_seed(recipe.seed)
        try:
            with precision.layers_in(recipe.precision):
                model = keras_models.build(
                    recipe.model,
                    input_shape=self.splits.input_shape,
                    classes=self.splits.classes,
                    **recipe.model_args,
                )
        except ValueError as error:
            raise UserError(str(error)) from error
        decay = recipe.weight_decay
        if decay and not add_weight_decay(model, decay, recipe.decay_all):
            raise UserError(
                "weight_decay acts on the kernels of convolutions and dense layers. Received: "
                f"weight_decay={recipe.weight_decay} for {recipe.model}, which has none. "
                "Set --weight-decay 0."
            )
        return model

    def model(self) -> keras.Model:
        """Return the network with its loss, optimizer and metrics, on its devices."""
        if self.recipe.ema and self.splits.task.of_model:
            raise UserError(
                f"No averages are kept where a network's distance is recorded. Received: ema="
                f"{self.recipe.ema} for {self.recipe.data}. Set --ema 0."
            )
        precision.set_matmul_precision(self.recipe.precision)
        with self.place.scope():
            model = _device_data.wrap(self.network(), self.splits)
            model.compile(
                optimizer=build_optimizer(self.recipe, self.rates),
                loss=self._loss(),
                weighted_metrics=mean_metrics(self.splits.task),
                jit_compile="auto",  # XLA on one GPU and on JAX
            )
            model.optimizer.build(model.trainable_variables)  # restoring needs its variables
        return model

    def _loss(self) -> task_metrics.Number:
        """Return the task's loss, of smoothed labels where the recipe says so."""
        share, task = self.recipe.label_smoothing, self.splits.task
        if not share:
            return task.numbers["loss"]
        if task.numbers["loss"] is not task_metrics.cross_entropy:
            raise UserError(
                f"Labels of classes are smoothed. Received: label_smoothing={share} for "
                f"{self.recipe.data}, which has none. Set --label-smoothing 0."
            )
        return functools.partial(task_metrics.smoothed_cross_entropy, share=share)


def prepare(recipe: Recipe, machines: Any = None, validate_every: int | None = None) -> TrainingJob:
    """Return the job of a recipe: its devices, data and rates. UserError where they do not suit.

    `machines` are the several that train (multi_machine.Machines); None: this one.
    """
    place = machines or devices.place(recipe.devices)  # before data, which start TensorFlow
    drawn = json.dumps(dict(recipe.data_args))
    home = datasets.data_home()
    splits = _splits(recipe.data, recipe.train_examples, drawn, recipe.validation, home)
    return build_job(recipe, splits, place, validate_every)


@functools.lru_cache(maxsize=1)
def _splits(
    name: str, train_examples: int | None, data_args: str, validation: bool, folder: Path
) -> Splits:
    """Return the data, read once for trainings of a process that follow one another on them."""
    return datasets.load(name, train_examples, json.loads(data_args), validation)


def build_job(
    recipe: Recipe, splits: Splits, place: devices.Place, validate_every: int | None = None
) -> TrainingJob:
    """Return the job of a recipe for data that have been read."""
    checks.check_even(recipe, place.replicas)
    rates = plan(recipe, len(splits.train))
    return TrainingJob(
        recipe, _device_data.place_pictures(recipe, splits, place), rates, place, validate_every
    )
