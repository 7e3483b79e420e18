"""Training: a recipe and its data in, a trained Keras model and its numbers out.

Knows no tracking: what is worth keeping goes through the `log(metrics, step)` function it is given.
Imports Keras at the top: import this module inside the functions that train.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import keras

from pipelines.data.batches import Pictures, Split
from pipelines.data.streamed import Photographs
from pipelines.errors import Diverged, Pruned
from pipelines.runtime import signals
from pipelines.runtime.progress import progress_bar
from pipelines.training import _device_data, callbacks, input_pipeline
from pipelines.training.callbacks import Curves, Log, named
from pipelines.training.checkpoints import Saving
from pipelines.training.job import Job

FITTED = 10_000  # training examples, the first, on which the trained network is evaluated


@dataclass(frozen=True)
class Trained:
    """A trained model with its final numbers and the devices that made it."""

    model: keras.Model
    metrics: dict[str, float]
    device: str


def train(job: Job, log: Log, saving: Saving | None = None, *, test: bool = True) -> Trained:
    """Train for `len(rates)` steps; `log(metrics, step)` receives the curves as they grow.

    Goes on from the latest checkpoint of `saving`, to the same end as without the interruption.
    Metrics are means over the whole split, of the numbers of its task: `*_loss` (without the
    weight-decay term) and, in classification, `*_error_pct`. The test set is read once, at the end,
    and not at all when `test` is False; with it the training set again, as it is, by the trained
    network (`final_train_*`), where the curve `train_*` is a mean over an epoch of augmented
    examples while the weights moved. Raises Diverged when the loss stops being finite.
    """
    keras.backend.clear_session()
    model, rates, task = job.model(), job.rates, job.splits.task
    with progress_bar(job.recipe.name, len(rates), "images/s") as advance:
        curves = Curves(
            rates,
            epoch=job.epoch,
            images=job.recipe.batch_size,
            pieces=job.recipe.accumulate,
            watched=task.watched,
            log=log,
            advance=advance,
            of_model=task.of_model,
        )
        try:
            _run(job, model, curves, saving)
        except (Diverged, Pruned) as error:
            known = {key: value for key, value in curves.best.items() if math.isfinite(value)}
            log({**known, "wall_s": curves.wall_s}, error.step)
            raise
    final = {
        **curves.best,
        "images_per_s": curves.images_per_s,
        "parameters": float(sum(math.prod(v.shape) for v in model.trainable_variables)),
    }
    if job.recipe.ema:
        model.optimizer.put_averages(model.trainable_variables)
    if test:
        final |= named("test", _evaluate(job, model, job.splits.test))
        fitted = named("train", _evaluate(job, model, job.splits.train.beginning(FITTED)))
        final |= {f"final_{key}": value for key, value in fitted.items()}
    final["wall_s"] = curves.wall_s
    log(final, len(rates))
    return Trained(_device_data.bare(model), curves.last | final, job.device)


@input_pipeline.sentences()
def _run(job: Job, model: keras.Model, curves: Curves, saving: Saving | None) -> None:
    """Bring the network from its last checkpoint, or its start, to the end."""
    several = job.place.role
    with signals.held() as held:
        saver = callbacks.Saver(curves, saving, held, job.place)
        averages = [callbacks.Averages()] if job.recipe.ema else []
        found = saving.latest() if saving else None
        if several and not several.asynchronous:
            found = cluster().agreed(found, job.place.strategy)
        if found:
            with job.place.scope():
                callbacks.restore(model, found.arrays, *callbacks.LASTING)
            curves.resume(found.note, means=not several)
        if found and not several:
            _device_data.set_steps(model, job.per_call(job.epoch))  # before anything is compiled
            _evaluate(job, model, job.splits.val, steps=1)  # makes the running means
            saver.resume(found)
        if several:
            cluster().fit(job, model, curves.step, [*averages, curves, saver], saver.wishes)
        else:
            _fit(job, model, curves, [*averages, curves, saver])


def cluster() -> Any:
    """The module that trains on several machines, which needs TensorFlow."""
    from pipelines.training import multi_machine

    return multi_machine


def _fit(
    job: Job, model: keras.Model, curves: Curves, callbacks: list[keras.callbacks.Callback]
) -> None:
    """To the end of an epoch that was begun before, then whole epochs, then what is left."""
    epoch, start, stop = job.epoch, curves.step, len(job.rates)
    whole = {-(-start // epoch) * epoch, stop // epoch * epoch}
    cuts = sorted({start, stop} | {step for step in whole if start < step < stop})
    validation = input_pipeline.evaluation(job.recipe, job.splits.val, job.place.replicas)
    for begin, end in itertools.pairwise(cuts):
        steps = min(epoch, end - begin)
        curves.per_call = job.per_call(steps)
        _device_data.set_steps(model, curves.per_call)
        model.fit(
            input_pipeline.train(job.recipe, job.splits.train, begin, end),
            epochs=(end - begin) // steps,
            steps_per_epoch=steps * job.recipe.accumulate,
            validation_data=validation,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )


@input_pipeline.sentences()
def _evaluate(
    job: Job, model: keras.Model, split: Split | Photographs, steps: int | None = None
) -> dict[str, float]:
    """Keras's means over a split, or its first batches."""
    if job.place.role:
        several: dict[str, float] = cluster().evaluation(job, model, split)()
        return several
    stream = input_pipeline.evaluation(job.recipe, split, job.place.replicas)
    logs: dict[str, float] = model.evaluate(stream, steps=steps, verbose=0, return_dict=True)
    return logs


def serving_model(model: keras.Model, split: Split | Photographs) -> keras.Model:
    """The network without its optimizer; for pictures, pixels 0..255 in and logits out."""
    uncompiled = keras.Model(model.input, model.output, name=model.name)
    if not isinstance(split, Pictures | Photographs):
        return uncompiled
    pixels = keras.Input(split.shape)
    scale, offset = 1 / (255 * split.std), -split.mean / split.std
    standard = keras.layers.Rescaling(scale.tolist(), offset.tolist())(pixels)
    return keras.Model(pixels, uncompiled(standard))
