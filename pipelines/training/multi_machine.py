"""A job on several machines: what `fit` and `evaluate` of Keras do on one.

Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from pipelines.errors import UserError
from pipelines.runtime import tf_config
from pipelines.training import devices, input_pipeline
from pipelines.training.distributed import multi_worker, parameter_server
from pipelines.training.distributed.parameter_server import random_batches

if TYPE_CHECKING:
    from pipelines.data.batches import Split
    from pipelines.data.streamed import Photographs
    from pipelines.recipes.recipe import Recipe
    from pipelines.training.checkpoints import Checkpoint
    from pipelines.training.job import Job


UNSHARED = (keras.layers.BatchNormalization, keras.layers.Dropout)  # they keep states a device


def serve(recipe: Recipe) -> bool:
    """Be a worker of asynchronous training to its end; False where this machine is none."""
    own = tf_config.role()
    if not own or own.chief or not own.asynchronous:
        return False
    tf_config.check_asynchronous(recipe.asynchronous, own)
    parameter_server.serve(own)
    return True


def begin(place: devices.Place, work: bool) -> None:
    """Let every machine know, before it builds anything, whether the chief has found work.

    Ends this process with success where there is none, unless it is the chief. Asynchronous
    workers take no part: they see the chief go.
    """
    if not place.role or place.role.asynchronous or multi_worker.broadcast(work, place.strategy):
        return
    if not place.role.chief:
        print("The chief has found this run finished.", file=sys.stderr)
        raise SystemExit(0)


def agreed(found: Checkpoint | None, strategy: Any) -> Checkpoint | None:
    """The chief's checkpoint, on every machine."""
    checkpoint: Checkpoint | None = multi_worker.broadcast(found, strategy)
    return checkpoint


def fit(
    job: Job,
    model: keras.Model,
    start: int,
    callbacks: Sequence[keras.callbacks.Callback],
    wishes: Callable[[], Mapping[str, float]],
) -> None:
    """Steps start + 1 to the end of the run, with the callbacks of Keras's `fit`.

    MachineLost when a machine leaves.
    """
    if job.place.role and job.place.role.asynchronous:
        _fit_asynchronously(job, model, start, callbacks, wishes)
        return
    pieces, stop = job.recipe.accumulate, len(job.rates)
    multi_worker.fit(
        model,
        job.place.strategy,
        input_pipeline.train(job.recipe, job.splits.train, start, stop, job.place.part),
        start=start * pieces,
        stop=stop * pieces,
        epoch=job.epoch * pieces,
        callbacks=callbacks,
        validate=evaluation(job, model, job.splits.val),
        wishes=wishes,
    )


def evaluation(job: Job, model: keras.Model, split: Split | Photographs) -> multi_worker.Evaluation:
    """A function that evaluates the model on a split, each machine on its part of every batch."""
    if job.place.role and job.place.role.asynchronous:
        local = input_pipeline.evaluation(job.recipe, split, 1)
        return lambda: model.evaluate(local, verbose=0, return_dict=True)
    batches = input_pipeline.evaluation(job.recipe, split, job.place.replicas, job.place.part)
    return multi_worker.evaluation(model, job.place.strategy, batches, int(batches.cardinality()))


def _fit_asynchronously(
    job: Job,
    model: keras.Model,
    start: int,
    callbacks: Sequence[keras.callbacks.Callback],
    wishes: Callable[[], Mapping[str, float]],
) -> None:
    recipe, strategy = job.recipe, job.place.strategy
    if recipe.accumulate > 1 or recipe.nesterov or recipe.label_smoothing:
        raise UserError(
            "Asynchronous training has plain momentum, whole batches and whole labels. Received: "
            f"accumulate={recipe.accumulate}, nesterov={recipe.nesterov}, label_smoothing="
            f"{recipe.label_smoothing}. Set --accumulate 1 --no-nesterov --label-smoothing 0."
        )
    if job.place.replicas > 1 and any(isinstance(layer, UNSHARED) for layer in model.layers):
        raise UserError(
            "Asynchronous workers of several GPUs share no normalization and no dropout. Received: "
            f"{recipe.model} on {job.place.replicas} GPUs a worker. Show each worker one GPU "
            "with CUDA_VISIBLE_DEVICES, or train synchronously."
        )
    parameter_server.fit(
        model,
        parameter_server.served(job.network, strategy),
        lambda replicas: random_batches(
            job.splits.train, recipe.batch_size // replicas, recipe.largest_shift
        ),
        strategy,
        task=job.splits.task,
        rates=job.rates,
        start=start,
        epoch=job.epoch,
        callbacks=callbacks,
        validate=evaluation(job, model, job.splits.val),
        wishes=wishes,
    )
