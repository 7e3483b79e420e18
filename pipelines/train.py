"""Training: a recipe and its data in, a trained Keras model and its numbers out.

Knows no tracking: what is worth keeping goes through the `log(metrics, step)` function it is given.
Imports Keras at the top: import this module inside the functions that train.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

import keras_models
from pipelines import blowup, devices, feed, interrupts, lr, optimizer, resuming
from pipelines.batches import Pictures, Split, Splits
from pipelines.checkpoints import Saving
from pipelines.curves import MEAN, Curves, Log, named
from pipelines.errors import Diverged, Pruned, UserError
from pipelines.photographs import Photographs
from pipelines.progress import progress_bar
from pipelines.recipes import Recipe


@dataclass(frozen=True)
class Trained:
    """A trained model with its final numbers and the devices that made it."""

    model: keras.Model
    metrics: dict[str, float]
    device: str


def plan(recipe: Recipe, examples: int) -> NDArray[np.float64]:
    """The learning rate of every optimizer step of the run; its length is their number.

    UserError when the batch exceeds the training examples or the schedule cannot be drawn.
    """
    steps = recipe.steps_over(examples)
    try:
        return lr.table(
            recipe.schedule, recipe.learning_rate, steps, recipe.warmup, **recipe.schedule_args
        )
    except ValueError as error:
        raise UserError(str(error)) from error


@dataclass(frozen=True)
class Job:
    """What a training needs besides its checkpoints: recipe, data, rates [steps], devices."""

    recipe: Recipe
    splits: Splits
    rates: NDArray[np.float64]
    place: devices.Place
    validate_every: int | None = None

    @property
    def epoch(self) -> int:
        """Steps between two validations: an epoch, unless told fewer; at most those of the run."""
        whole = min(len(self.rates), len(self.splits.train) // self.recipe.batch_size)
        return min(whole, self.validate_every or whole)

    @property
    def per_call(self) -> int:
        """Steps in one call of Keras, which divide an epoch and the run."""
        alone = not self.place.role and self.recipe.accumulate == 1
        if not (alone and keras.backend.backend() == "tensorflow"):
            return 1
        return math.gcd(self.recipe.per_call, self.epoch, len(self.rates))

    def network(self) -> keras.Model:
        """The recipe's network at its start. UserError where its arguments are wrong."""
        recipe, policy = self.recipe, keras.config.dtype_policy()
        keras.utils.set_random_seed(recipe.seed)
        keras.config.set_dtype_policy(recipe.precision)
        try:
            model = keras_models.build(
                recipe.model,
                input_shape=self.splits.input_shape,
                classes=self.splits.classes,
                **recipe.model_args,
            )
        except ValueError as error:
            raise UserError(str(error)) from error
        finally:
            keras.config.set_dtype_policy(policy)
        if recipe.weight_decay and not optimizer.add_weight_decay(model, recipe.weight_decay):
            raise UserError(
                "weight_decay acts on the kernels of convolutions and dense layers. Received: "
                f"weight_decay={recipe.weight_decay} for {recipe.model}, which has none. "
                "Set --weight-decay 0."
            )
        return model

    def model(self) -> keras.Model:
        """The network with its loss, optimizer and metrics, on its devices."""
        numbers = self.splits.task.numbers
        with self.place.scope():
            model = self.network()
            model.compile(
                optimizer=self._optimizer(),
                loss=numbers["loss"],
                weighted_metrics=[
                    keras.metrics.MeanMetricWrapper(number, name=MEAN + name)
                    for name, number in numbers.items()
                ],
                jit_compile="auto",  # XLA on one GPU and on JAX
            )
            model.optimizer.build(model.trainable_variables)  # restoring needs its variables
        return model

    def _optimizer(self) -> optimizer.MomentumSGD:
        pieces, momentum = self.recipe.accumulate, self.recipe.momentum
        rates = optimizer.RateTable(np.repeat(self.rates, pieces))  # Keras counts pieces
        settings = {"momentum": momentum, "nesterov": self.recipe.nesterov}
        if pieces == 1:
            return optimizer.MomentumSGD(rates, **settings)
        return optimizer.AccumulatedSGD(rates, pieces=pieces, **settings)


def train(job: Job, log: Log, saving: Saving | None = None, *, test: bool = True) -> Trained:
    """Train for `len(rates)` steps; `log(metrics, step)` receives the curves as they grow.

    Goes on from the latest checkpoint of `saving`, to the same end as without the interruption.
    Metrics are means over the whole split, of the numbers of its task: `*_loss` (without the
    weight-decay term) and, in classification, `*_error_pct`. The test set is read once, at the end,
    and not at all when `test` is False. Raises Diverged when the loss stops being finite.
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
            if isinstance(error, Diverged) and not job.place.role:
                _log_norms(job, error.step - 1, log, saving)
            raise
    final = {
        **curves.best,
        "images_per_s": curves.images_per_s,
        "parameters": float(sum(math.prod(v.shape) for v in model.trainable_variables)),
    }
    if test:
        final |= named("test", _evaluate(job, model, job.splits.test))
    final["wall_s"] = curves.wall_s
    log(final, len(rates))
    return Trained(model, curves.last | final, str(job.place))


def _log_norms(job: Job, step: int, log: Log, saving: Saving | None) -> None:
    """Log the norms of every block after the last finite step; trouble hides no blow-up."""
    try:
        log(blowup.norms(job, step, saving), step)
    except Exception as error:
        print(f"Norms of the blocks are not known: {error}", file=sys.stderr)


@feed.sentences()
def _run(job: Job, model: keras.Model, curves: Curves, saving: Saving | None) -> None:
    """Bring the network from its last checkpoint, or its start, to the end."""
    several = job.place.role
    with interrupts.held() as held:
        saver = resuming.Saver(curves, saving, held, job.place)
        found = saving.latest() if saving else None
        if several and not several.asynchronous:
            found = cluster().agreed(found, job.place.strategy)
        if found:
            with job.place.scope():
                resuming.restore(model, found.arrays, *resuming.LASTING)
            curves.resume(found.note, means=not several)
        curves.per_call = model.steps_per_execution = math.gcd(job.per_call, curves.step)
        if found and not several:
            _evaluate(job, model, job.splits.val, steps=1)  # makes the running means
            saver.resume(found)
        if several:
            cluster().fit(job, model, curves.step, [curves, saver], saver.wishes)
        else:
            _fit(job, model, curves.step, [curves, saver])


def cluster() -> Any:
    """The module that trains on several machines, which needs TensorFlow."""
    from pipelines import cluster

    return cluster


def _fit(
    job: Job, model: keras.Model, start: int, callbacks: list[keras.callbacks.Callback]
) -> None:
    """From step `start` to the end; an epoch that was begun before is finished first."""
    stop = len(job.rates)
    boundary = min(-(-start // job.epoch) * job.epoch, stop)
    validation = feed.evaluation(job.recipe, job.splits.val, job.place.replicas)
    for begin, end in ((start, boundary), (boundary, stop)):
        steps = min(job.epoch, end - begin)
        if steps:
            model.fit(
                feed.train(job.recipe, job.splits.train, begin, end),
                epochs=math.ceil((end - begin) / steps),
                steps_per_epoch=steps * job.recipe.accumulate,
                validation_data=validation,
                callbacks=callbacks,
                shuffle=False,
                verbose=0,
            )


@feed.sentences()
def _evaluate(
    job: Job, model: keras.Model, split: Split | Photographs, steps: int | None = None
) -> dict[str, float]:
    """Keras's means over a split, or its first batches."""
    if job.place.role:
        several: dict[str, float] = cluster().evaluation(job, model, split)()
        return several
    stream = feed.evaluation(job.recipe, split, job.place.replicas)
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
