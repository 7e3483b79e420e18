"""Trainers of several machines, which TF_CONFIG names: what `Trainer` does on one.

Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

import sys
from dataclasses import dataclass
from typing import Any

import keras

from pipelines.data.splits import Part, Photographs, Split
from pipelines.errors import UserError
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.tf_config import Role
from pipelines.training import devices, input_pipeline
from pipelines.training.callbacks import Curves, Saver
from pipelines.training.checkpoints import Checkpoint
from pipelines.training.devices import Place
from pipelines.training.distributed import multi_worker, parameter_server
from pipelines.training.job import Job
from pipelines.training.optimizer import MomentumSGD
from pipelines.training.train import Trainer, callbacks_of

UNSHARED = (keras.layers.BatchNormalization, keras.layers.Dropout)  # they keep states a device


@dataclass(frozen=True, kw_only=True)
class Machines(Place):
    """All GPUs of several machines, or a CPU of each, which share every batch."""

    role: Role
    shares_wishes = True

    def __str__(self) -> str:
        how = "asynchronous" if self.role.asynchronous else "synchronous"
        return f"{super().__str__()}, {self.role.workers} machines, {how}"

    @property
    def alone(self) -> bool:
        """Whether one device of one machine trains."""
        return False

    @property
    def part(self) -> Part:
        """This machine's part of every batch."""
        return self.role.rank, self.role.workers

    def scope(self) -> Any:
        """Return what a network is built in; of asynchronous training, the chief's own one."""
        return Place.scope(Place(1, self.kind)) if self.role.asynchronous else super().scope()


class SynchronousTrainer(Trainer):
    """Every step is one step of all machines on the whole batch."""

    keeps_means = False

    def __init__(self, role: Role) -> None:
        self.role = role

    def place(self, recipe: Recipe) -> Machines:
        """Return all devices of all machines, once they have met."""
        if recipe.devices is not None:
            raise UserError(
                "On several machines every GPU trains. Received: devices="
                f"{recipe.devices} with TF_CONFIG. Leave --devices out; hide GPUs with "
                "CUDA_VISIBLE_DEVICES."
            )
        if recipe.ema:
            raise UserError(
                "Averages of the weights are kept on one machine. Received: ema="
                f"{recipe.ema} with TF_CONFIG. Set --ema 0, or unset TF_CONFIG."
            )
        if recipe.test_every:
            raise UserError(
                "The test set is looked at while training on one machine. Received: test_every="
                f"{recipe.test_every} with TF_CONFIG. Set --test-every None, or unset TF_CONFIG."
            )
        strategy = self._strategy()
        recipe.check_even(strategy.num_replicas_in_sync)
        count, kind = strategy.num_replicas_in_sync, devices.gpu_kind()
        return Machines(count, kind, strategy, role=self.role)

    def _strategy(self) -> Any:
        return multi_worker.strategy(self.role)

    def announce(self, place: Place, work: bool) -> None:
        """Let every machine know, before it builds anything, whether the chief has found work.

        Ends this process with success where there is none, unless it is the chief.
        """
        if not multi_worker.broadcast(work, place.strategy) and not self.role.chief:
            print("The chief has found this run finished.", file=sys.stderr)
            raise SystemExit(0)

    def dismiss(self, recipe: Recipe) -> None:
        """Let the other machines go: nothing is to be trained."""
        self.announce(self.place(recipe), work=False)

    def agree(self, checkpoint: Checkpoint | None, place: Place) -> Checkpoint | None:
        """Return the chief's checkpoint, on every machine."""
        chosen: Checkpoint | None = multi_worker.broadcast(checkpoint, place.strategy)
        return chosen

    def fit(self, job: Job, model: keras.Model, curves: Curves, saver: Saver) -> None:
        """Train to the end of the run. MachineLost when a machine leaves."""
        pieces, start, stop = job.recipe.accumulate, curves.step, len(job.rates)
        multi_worker.fit(
            model,
            job.place.strategy,
            input_pipeline.train(job.recipe, job.splits.train, start, stop, job.place.part),
            start=start * pieces,
            stop=stop * pieces,
            epoch=job.epoch * pieces,
            callbacks=callbacks_of(job, curves, saver),
            validate=self._validation(job, model),
            wishes=saver.wishes,
        )

    def evaluate(
        self, job: Job, model: keras.Model, split: Split | Photographs, steps: int | None = None
    ) -> dict[str, float]:
        """Return Keras's means over a split, of which each machine reads a part of every batch."""
        return dict(self._evaluation(job, model, split)())

    def _validation(self, job: Job, model: keras.Model) -> multi_worker.Evaluation:
        """Return what evaluates the validation part; it says nothing where there is none."""
        has_validation, val = job.splits.has_validation, job.splits.val
        return self._evaluation(job, model, val) if has_validation else dict

    def _evaluation(
        self, job: Job, model: keras.Model, split: Split | Photographs
    ) -> multi_worker.Evaluation:
        place = job.place
        batches = input_pipeline.evaluation(job.recipe, split, place.replicas, place.part)
        return multi_worker.evaluation(model, place.strategy, batches, int(batches.cardinality()))


class AsynchronousTrainer(SynchronousTrainer):
    """Parameter servers hold the weights, which workers change without waiting for one another.

    The workers take no part in what the chief decides: they see it go.
    """

    def _strategy(self) -> Any:
        return parameter_server.strategy(self.role)

    def announce(self, place: Place, work: bool) -> None:
        """Do nothing: the workers, who have seen the chief come, see it go."""

    def agree(self, checkpoint: Checkpoint | None, place: Place) -> Checkpoint | None:
        """Return the chief's checkpoint."""
        return checkpoint

    def fit(self, job: Job, model: keras.Model, curves: Curves, saver: Saver) -> None:
        """Train to the end of the run. MachineLost when a parameter server leaves."""
        recipe, strategy = job.recipe, job.place.strategy
        plain = not (recipe.nesterov or recipe.rate_in_velocity)
        if recipe.accumulate > 1 or not plain or recipe.label_smoothing:
            raise UserError(
                "Asynchronous training has plain momentum, whole batches and whole labels. "
                f"Received: accumulate={recipe.accumulate}, nesterov={recipe.nesterov}, "
                f"rate_in_velocity={recipe.rate_in_velocity}, "
                f"label_smoothing={recipe.label_smoothing}. Set --accumulate 1 --no-nesterov "
                "--no-rate-in-velocity --label-smoothing 0."
            )
        if type(model.optimizer) is not MomentumSGD:
            raise UserError(
                "Parameter servers step by momentum alone (parameter_server.py). Received: "
                f"{type(model.optimizer).__name__}. Train synchronously, without --asynchronous."
            )
        if job.place.replicas > 1 and any(isinstance(layer, UNSHARED) for layer in model.layers):
            raise UserError(
                "Asynchronous workers of several GPUs share no normalization and no dropout. "
                f"Received: {recipe.model} on {job.place.replicas} GPUs a worker. Show each worker "
                "one GPU with CUDA_VISIBLE_DEVICES, or train synchronously."
            )
        parameter_server.fit(
            model,
            parameter_server.build_served(job.network, strategy),
            lambda replicas: parameter_server.random_batches(
                job.splits.train, recipe.batch_size // replicas, recipe.largest_shift
            ),
            strategy,
            task=job.splits.task,
            rates=job.rates,
            start=curves.step,
            epoch=job.epoch,
            callbacks=callbacks_of(job, curves, saver),
            validate=self._validation(job, model),
            wishes=saver.wishes,
        )

    def _evaluation(
        self, job: Job, model: keras.Model, split: Split | Photographs
    ) -> multi_worker.Evaluation:
        batches = input_pipeline.evaluation(job.recipe, split, 1)
        return lambda: model.evaluate(batches, verbose=0, return_dict=True)


def trainer(role: Role) -> Trainer:
    """Return the trainer of a cluster in which this process has that role."""
    return (AsynchronousTrainer if role.asynchronous else SynchronousTrainer)(role)


def serve(role: Role) -> bool:
    """Be a worker of asynchronous training to its end; False where this machine is none."""
    if role.chief or not role.asynchronous:
        return False
    parameter_server.serve(role)
    return True
