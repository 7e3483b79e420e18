"""Feeds: the batches of a split as the backend in use reads them.

TensorFlow reads tf.data; JAX and PyTorch read NumPy arrays, and need no TensorFlow. Both make every
batch from its step alone, so that a feed may start at any step.
Imports Keras at the top: import this module inside the functions that train.
"""

import contextlib
import itertools
import math
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
from numpy.typing import NDArray

from pipelines.data.datasets import AnySplit
from pipelines.data.splits import WHOLE, Part, Pictures, Split, share
from pipelines.data.whitening import Whitened
from pipelines.errors import Unavailable, UserError
from pipelines.recipes.recipe import Recipe

Batch = tuple[NDArray[Any], ...]
EVAL_BATCH = 500
CROPS = 10  # a photograph that is tested by several has so many
AHEAD = 4  # batches that are prepared while the network works


def train(recipe: Recipe, split: AnySplit, start: int, stop: int, part: Part = WHOLE) -> Any:
    """Return the batches of steps start, ..., stop - 1, each in `recipe.accumulate` equal pieces.

    `part` is this machine's share where several share every batch. UserError where the data cannot
    be augmented, or not be read by this backend.
    """
    if recipe.augment and isinstance(split, Split) and not isinstance(split, Pictures | Whitened):
        raise UserError(
            f"augment crops and flips pictures. Received: augment=True for {recipe.data}, which "
            "has none. Set --no-augment."
        )
    pieces, (i, machines) = recipe.accumulate, part
    size = recipe.batch_size // (pieces * machines)
    if not isinstance(split, Split):
        _needs_tensorflow(recipe)
        whole = split.train_dataset(
            range(start, stop), recipe.batch_size, recipe.seed, augment=recipe.augment, part=part
        )
        return whole.rebatch(size) if pieces > 1 else whole

    borrowed = weakref.proxy(split) if _tensorflow() else split
    shift = recipe.shift if recipe.augment else None

    def batch(number: int) -> Batch:
        step, piece = divmod(start * pieces + int(number), pieces)
        mine = (i * pieces + piece, pieces * machines)
        return borrowed.train_batch(step, recipe.batch_size, recipe.seed, shift, mine)

    count = (stop - start) * pieces
    return _map_batches(batch, count, split, size) if _tensorflow() else _prefetch(batch, count)


def evaluation(recipe: Recipe, split: AnySplit, replicas: int, part: Part = WHOLE) -> Any:
    """Return all examples (x, y, weight) once, in batches of one size: about EVAL_BATCH.

    Of photographs, about the recipe's batch_size, or a tenth of it where each has ten crops. The
    size is a multiple of `replicas`; the last batch is filled up by examples of weight 0. `part` is
    this machine's share of every batch.
    """
    if not isinstance(split, Split):
        _needs_tensorflow(recipe)
        most = math.ceil(recipe.batch_size / CROPS) if split.ten_crops else recipe.batch_size
        size = math.ceil(min(len(split), most) / replicas) * replicas
        return _take_part(split.eval_dataset(size), size, part)
    count = math.ceil(len(split) / EVAL_BATCH)
    size = math.ceil(len(split) / count / replicas) * replicas
    if not _tensorflow():
        return Evaluation(split, count, size)
    import tensorflow as tf

    signature = (*_specs(split, size), tf.TensorSpec((size,), tf.float32))
    borrowed = weakref.proxy(split)
    ds = tf.data.Dataset.from_generator(
        lambda: (borrowed.eval_batch(number, size) for number in range(count)),
        output_signature=signature,
    )
    ds = ds.apply(tf.data.experimental.assert_cardinality(count))
    return _attach(split, _take_part(ds, size, part).prefetch(AHEAD))


def _take_part(batches: Any, size: int, part: Part) -> Any:
    """Return one machine's part of every batch."""
    mine = share(size, part)
    return batches if part == WHOLE else batches.map(lambda *batch: tuple(a[mine] for a in batch))


class Evaluation(keras.utils.PyDataset):
    """Batches of a split in order, as Keras reads them again and again."""

    def __init__(self, split: Split, count: int, size: int) -> None:
        super().__init__()
        self.split, self.count, self.size = split, count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Batch:
        return self.split.eval_batch(number, self.size)


@contextlib.contextmanager
def unwrap_errors() -> Iterator[None]:
    """Give back our own error for what TensorFlow makes of one that was raised in a feed."""
    try:
        yield
    except Exception as error:
        named_error = re.search(r"(UserError|Unavailable): (.*)", str(error))
        if named_error and type(error).__module__.startswith("tensorflow."):
            raise (UserError if named_error[1] == "UserError" else Unavailable)(
                named_error[2]
            ) from error
        raise


def _tensorflow() -> bool:
    return bool(keras.backend.backend() == "tensorflow")


def _needs_tensorflow(recipe: Recipe) -> None:
    if not _tensorflow():
        raise UserError(
            f"Photographs are decoded by TensorFlow. Received: {recipe.data} with KERAS_BACKEND="
            f"{keras.backend.backend()}. Unset KERAS_BACKEND, or choose data held in memory."
        )


def _map_batches(batch: Callable[[int], Batch], count: int, split: Split, size: int) -> Any:
    """tf.data of numbered batches, in order, prepared ahead."""
    import tensorflow as tf

    specs = _specs(split, size)

    def make_batch(number: Any) -> tuple[Any, Any]:
        x, y = tf.numpy_function(batch, [number], [spec.dtype for spec in specs], stateful=False)
        return tf.ensure_shape(x, specs[0].shape), tf.ensure_shape(y, specs[1].shape)

    ds = tf.data.Dataset.range(count).map(make_batch, num_parallel_calls=2, deterministic=True)
    return _attach(split, ds.prefetch(AHEAD))


def _attach(split: Split, ds: Any) -> Any:
    """Return the data set, with which the split lives and dies, and which nothing tunes.

    TensorFlow never lets go of a Python function that a data set has called: those here only borrow
    the split, or every training of a process would leave its data in memory. And its tuner sleeps
    for 10 ms, 20 ms, 40 ms, ...: a data set that it tunes does not end before it wakes.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    ds = ds.with_options(options)
    ds.split = split
    return ds


def _specs(split: Split, size: int) -> tuple[Any, Any]:
    """Return the shape and type of a batch's inputs and targets."""
    import tensorflow as tf

    x, y = (tf.TensorSpec((size, *a.shape[1:]), a.dtype) for a in split.take(slice(1)))
    return x, y


def _prefetch(batch: Callable[[int], Batch], count: int) -> Iterator[Batch]:
    """Yield the same numbered batches for backends that read arrays, prepared ahead by a thread."""
    with ThreadPoolExecutor(1) as thread:
        numbers = iter(range(count))
        ready = deque(thread.submit(batch, number) for number in itertools.islice(numbers, AHEAD))
        while ready:
            yield ready.popleft().result()
            ready.extend(thread.submit(batch, number) for number in itertools.islice(numbers, 1))
