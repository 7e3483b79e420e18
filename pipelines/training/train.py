"""Training: a recipe and its data in, a trained Keras model and its numbers out.

Knows no tracking: what is worth keeping goes through the `log(metrics, step)` function it is given.
Imports Keras at the top: import this module inside the functions that train.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from pipelines.data.datasets import AnySplit
from pipelines.data.splits import Pictures, Split
from pipelines.errors import Diverged, Pruned
from pipelines.runtime import signals
from pipelines.runtime.progress import progress_bar
from pipelines.training import _device_data, devices, input_pipeline
from pipelines.training._device_data import set_steps
from pipelines.training.callbacks import (
    LASTING,
    Averages,
    Checkpointer,
    Log,
    MetricsLogger,
    restore,
)
from pipelines.training.checkpoints import Checkpoint, Saving
from pipelines.training.evaluation import rename_means, tester
from pipelines.training.job import TrainingJob
from pipelines.training.seen_test import SEEN, SeenTest

PROBABILITIES = "probabilities"  # the layer of a stored network that makes them of logits
FITTED = 10_000  # training examples, the first, on which the trained network is evaluated


@dataclass(frozen=True)
class Trained:
    """A trained model with its final numbers and the devices that made it."""

    model: keras.Model
    metrics: dict[str, float]
    device: str


class KerasLoop:
    """Keras's own loops on the devices of one machine; `multi_machine` has those of several."""

    def fit(
        self,
        job: TrainingJob,
        model: keras.Model,
        logger: MetricsLogger,
        checkpointer: Checkpointer,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Train to the end of an epoch that was begun, then whole epochs, then what is left."""
        epoch, start, stop = job.epoch, logger.step, len(job.rates)
        if checkpoint and start % epoch:
            self._restore_means(job, model)
            checkpointer.resume(checkpoint)
        whole = {-(-start // epoch) * epoch, stop // epoch * epoch}
        cuts = sorted({start, stop} | {step for step in whole if start < step < stop})
        validation = None
        if job.splits.has_validation:
            validation = input_pipeline.evaluation(job.recipe, job.splits.val, job.place.replicas)
        for begin, end in itertools.pairwise(cuts):
            steps = min(epoch, end - begin)
            logger.steps_per_execution = job.steps_per_execution(steps)
            set_steps(model, logger.steps_per_execution)
            model.fit(
                input_pipeline.train(job.recipe, job.splits.train, begin, end),
                epochs=(end - begin) // steps,
                steps_per_epoch=steps * job.recipe.accumulate,
                validation_data=validation,
                callbacks=callbacks_of(job, logger, checkpointer),
                shuffle=False,
                verbose=0,
            )

    def evaluate(
        self, job: TrainingJob, model: keras.Model, split: AnySplit, name: str
    ) -> dict[str, float]:
        """Return the means of the task's numbers over a split of that name."""
        stream = input_pipeline.evaluation(job.recipe, split, job.place.replicas)
        return rename_means(name, model.evaluate(stream, verbose=0, return_dict=True))

    def _restore_means(self, job: TrainingJob, model: keras.Model) -> None:
        """Let Keras make the running means of an epoch, which one that was interrupted restores."""
        set_steps(model, job.steps_per_execution(job.epoch))  # before anything is compiled
        splits = job.splits
        any_examples = splits.val if splits.has_validation else splits.train.head(1)
        stream = input_pipeline.evaluation(job.recipe, any_examples, job.place.replicas)
        model.evaluate(stream, steps=1, verbose=0)


def callbacks_of(
    job: TrainingJob, logger: MetricsLogger, checkpointer: Checkpointer
) -> list[keras.callbacks.Callback]:
    """Return the callbacks of a training, in their order."""
    return [*([Averages()] if job.recipe.ema else []), logger, checkpointer]


def train(
    job: TrainingJob,
    log: Log,
    saving: Saving | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    test: bool = True,
    machines: Any = None,
) -> Trained:
    """Train for `len(rates)` steps; `log(metrics, step)` receives the curves as they grow.

    Goes on from the checkpoint, to the same end as without the interruption. `machines` trains
    where there are several. Metrics are means over the whole split, of the numbers of its task:
    `*_loss` (without the weight-decay term) and, in classification, `*_error_pct`. The test set is
    read once, at the end, and not at all when `test` is False; with it the training set again, as
    it is, by the trained network (`final_train_*`), where the curve `train_*` is a mean over an
    epoch of augmented examples while the weights moved. Without validation examples there are no
    `val_*`. Where the recipe looks at the test set while training, the curves `seen_test_*` and the
    best of them are logged, too. Raises Diverged when the loss stops being finite.
    """
    keras.backend.clear_session()
    loop = machines or KerasLoop()
    model, rates = job.model(), job.rates
    with progress_bar(job.recipe.name, len(rates), "images/s") as advance:
        seen = _seen_test(job, model, loop) if job.recipe.test_every else None
        logger = MetricsLogger(job, log, advance, seen)
        try:
            layers = _device_data.unwrap(model).layers
            with devices.act_on_whole_batches(layers, job.place):
                _run(job, model, logger, saving, checkpoint=checkpoint, loop=loop)
        except (Diverged, Pruned) as error:
            best = logger.best | logger.seen_numbers
            finite = {key: value for key, value in best.items() if math.isfinite(value)}
            log({**finite, "wall_s": logger.wall_s}, error.step)
            raise
    final = {
        **logger.best,
        **logger.seen_numbers,
        "images_per_s": logger.images_per_s,
        "parameters": float(sum(math.prod(v.shape) for v in model.trainable_variables)),
    }
    if job.recipe.ema:
        model.optimizer.put_averages(model.trainable_variables)
    if test:
        final |= _evaluate(job, model, loop)
    final["wall_s"] = logger.wall_s
    log(final, len(rates))
    return Trained(_device_data.unwrap(model), logger.last | final, job.device)


@input_pipeline.unwrap_errors()
def _run(
    job: TrainingJob,
    model: keras.Model,
    logger: MetricsLogger,
    saving: Saving | None,
    *,
    checkpoint: Checkpoint | None,
    loop: KerasLoop,
) -> None:
    """Bring the network from its last checkpoint, or its start, to the end."""
    with signals.defer() as interrupts:
        checkpointer = Checkpointer(logger, saving, interrupts, job.place)
        if checkpoint:
            with job.place.scope():
                restore(model, checkpoint.arrays, *LASTING)
            logger.resume(checkpoint.note)
        loop.fit(job, model, logger, checkpointer, checkpoint)


def _seen_test(job: TrainingJob, model: keras.Model, loop: KerasLoop) -> SeenTest:
    """Return what looks at the test set of a job while its network trains.

    Averages of the weights are looked at where they are kept, as in validation.
    """
    averages = Averages() if job.recipe.ema else None
    if averages:
        averages.set_model(model)
    with job.place.scope():
        network = tester(model, job.splits.test, job.splits.task)

    def evaluate(half: AnySplit) -> dict[str, float]:
        if averages:
            averages.on_test_begin()
        numbers = loop.evaluate(job, network, half, SEEN)
        if averages:
            averages.on_test_end()
        return numbers

    return SeenTest(job.splits.test, job.splits.task.watched, evaluate)


@input_pipeline.unwrap_errors()
def _evaluate(job: TrainingJob, model: keras.Model, loop: KerasLoop) -> dict[str, float]:
    """Return the numbers of the trained network on the test set and on its training examples."""
    splits = job.splits
    with job.place.scope():
        network = tester(model, splits.test, splits.task)
    test = loop.evaluate(job, network, splits.test, "test")
    fitted = loop.evaluate(job, model, splits.train.head(FITTED), "train")
    return test | {f"final_{key}": value for key, value in fitted.items()}


def serving_model(model: keras.Model, split: AnySplit) -> keras.Model:
    """Return the network without its optimizer; for pictures from pixels 0 to 255 to probabilities.

    A picture with pixels outside of 0 to 255, or from 0 to 1 alone though it is not black, gets
    NaN: it was scaled before. All of it is layers and operations of Keras itself.
    """
    uncompiled = keras.Model(model.input, model.output, name=model.name)
    if isinstance(split, Split) and not isinstance(split, Pictures):
        return uncompiled
    pixels = keras.Input(split.shape)
    scale, offset = 1 / (255 * split.std), -split.mean / split.std
    standard = keras.layers.Rescaling(scale.tolist(), offset.tolist())(pixels)
    shares = keras.layers.Softmax(name=PROBABILITIES, dtype="float32")(uncompiled(standard))
    least, largest = ops.min(pixels, axis=(1, 2, 3)), ops.max(pixels, axis=(1, 2, 3))
    within = ops.logical_and(least >= 0, largest <= 255)
    unscaled = ops.logical_or(largest > 1, ops.equal(largest, 0))
    is_picture = ops.expand_dims(ops.logical_and(within, unscaled), -1)
    return keras.Model(pixels, ops.where(is_picture, shares, math.nan))


def serving_example(split: AnySplit) -> NDArray[np.float32]:
    """Return one training input as the stored network reads it: pixels 0 to 255; [1, ...]."""
    if isinstance(split, Split):
        return split.x[:1].astype(np.float32)
    standard, *_ = next(iter(split.eval_dataset(1).as_numpy_iterator()))
    pixels = np.round(255 * (standard * split.std + split.mean)).clip(0, 255)
    return np.asarray(pixels, np.float32)
