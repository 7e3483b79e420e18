"""Training: a recipe and its data in, a trained Keras model and its numbers out.

Knows no tracking: what is worth keeping goes through the `log(metrics, step)` function it is given.
Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import keras_models
from pipelines import devices, lr, optimizer
from pipelines.batches import Pictures, Split, Splits
from pipelines.curves import MEAN, Curves, Log, named
from pipelines.errors import UserError
from pipelines.progress import progress_bar
from pipelines.recipes import Recipe

EVAL_BATCH = 500


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
    per_epoch = examples // recipe.batch_size
    if per_epoch == 0:
        raise UserError(
            f"batch_size must be at most the number of training examples. Received: batch_size="
            f"{recipe.batch_size} for {examples} examples of {recipe.data}. Set --batch-size lower."
        )
    steps = recipe.steps or max(1, round((recipe.epochs or 0) * per_epoch))
    try:
        return lr.table(
            recipe.schedule, recipe.learning_rate, steps, recipe.warmup, **recipe.schedule_args
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def train(
    recipe: Recipe,
    splits: Splits,
    rates: NDArray[np.float64],
    strategy: Any,
    log: Log,
    *,
    test: bool = True,
) -> Trained:
    """Train for `len(rates)` steps; `log(metrics, step)` receives the curves as they grow.

    Metrics are means over the whole split, of the numbers of its task: `*_loss` (without the
    weight-decay term) and, in classification, `*_error_pct`. The test set is read once, at the end,
    and not at all when `test` is False. Raises Diverged when the loss stops being finite.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(recipe.seed)
    with strategy.scope():
        model = compiled(recipe, splits, rates)
    epoch = min(len(rates), len(splits.train) // recipe.batch_size)
    with progress_bar(recipe.name, len(rates), "images/s") as advance:
        curves = Curves(rates, recipe.batch_size, splits.task.watched, log, advance)
        model.fit(
            train_stream(recipe, splits.train, len(rates)),
            epochs=math.ceil(len(rates) / epoch),
            steps_per_epoch=epoch,
            validation_data=_eval_stream(splits.val, strategy),
            callbacks=[curves],
            shuffle=False,
            verbose=0,
        )
    final = {
        f"best_val_{splits.task.watched}": curves.best_val,
        "images_per_s": curves.images_per_s,
        "parameters": float(sum(math.prod(v.shape) for v in model.trainable_variables)),
    }
    if test:
        logs = model.evaluate(_eval_stream(splits.test, strategy), verbose=0, return_dict=True)
        final |= named("test", logs)
    log(final, len(rates))
    return Trained(model, curves.last | final, devices.describe(strategy))


def serving_model(model: keras.Model, split: Split) -> keras.Model:
    """The network without its optimizer; for pictures, pixels 0..255 in and logits out."""
    uncompiled = keras.Model(model.input, model.output, name=model.name)
    if not isinstance(split, Pictures):
        return uncompiled
    pixels = keras.Input(split.images.shape[1:])
    scale, offset = 1 / (255 * split.std), -split.mean / split.std
    standard = keras.layers.Rescaling(scale.tolist(), offset.tolist())(pixels)
    return keras.Model(pixels, uncompiled(standard))


def compiled(recipe: Recipe, splits: Splits, rates: NDArray[np.float64]) -> keras.Model:
    """The recipe's network with its loss, optimizer and metrics."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(recipe.precision)
    try:
        model = keras_models.build(
            recipe.model,
            input_shape=splits.input_shape,
            classes=splits.classes,
            **recipe.model_args,
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    finally:
        keras.config.set_dtype_policy(policy)
    if recipe.weight_decay and not optimizer.add_weight_decay(model, recipe.weight_decay):
        raise UserError(
            f"weight_decay acts on convolution kernels only. Received: weight_decay="
            f"{recipe.weight_decay} for {recipe.model}, which has none. Set --weight-decay 0."
        )
    model.compile(
        optimizer=optimizer.MomentumSGD(optimizer.RateTable(rates), momentum=recipe.momentum),
        loss=splits.task.numbers["loss"],
        weighted_metrics=[
            keras.metrics.MeanMetricWrapper(number, name=MEAN + name)
            for name, number in splits.task.numbers.items()
        ],
        jit_compile=bool(devices.gpus()),
    )
    return model


def train_stream(recipe: Recipe, split: Split, steps: int) -> Any:
    """tf.data of the run's batches: step number in, batch out, prepared ahead."""
    if recipe.augment and not isinstance(split, Pictures):
        raise UserError(
            f"augment crops and flips pictures. Received: augment=True for {recipe.data}, which "
            "has none. Set --no-augment."
        )
    specs = _specs(split, recipe.batch_size)

    def batch(step: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        return split.train_batch(int(step), recipe.batch_size, recipe.seed, recipe.augment)

    def mapped(step: Any) -> tuple[Any, Any]:
        x, y = tf.numpy_function(batch, [step], [spec.dtype for spec in specs], stateful=False)
        return tf.ensure_shape(x, specs[0].shape), tf.ensure_shape(y, specs[1].shape)

    ds = tf.data.Dataset.range(steps).map(mapped, num_parallel_calls=2, deterministic=True)
    return ds.prefetch(tf.data.AUTOTUNE)


def _eval_stream(split: Split, strategy: Any) -> Any:
    """tf.data of a split's batches (x, y, weight), about EVAL_BATCH large, even over devices."""
    batches, replicas = math.ceil(len(split) / EVAL_BATCH), strategy.num_replicas_in_sync
    size = math.ceil(len(split) / batches / replicas) * replicas
    signature = (*_specs(split, size), tf.TensorSpec((size,), tf.float32))
    ds = tf.data.Dataset.from_generator(
        lambda: split.eval_batches(size), output_signature=signature
    )
    return ds.apply(tf.data.experimental.assert_cardinality(batches)).prefetch(tf.data.AUTOTUNE)


def _specs(split: Split, size: int) -> tuple[Any, Any]:
    """Shape and type of a batch's inputs and targets."""
    x, y = (tf.TensorSpec((size, *a.shape[1:]), a.dtype) for a in split.take(slice(1)))
    return x, y
