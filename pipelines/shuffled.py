"""Random batches of a split as one TensorFlow graph, which any machine can run.

For asynchronous training, whose batches are no function of the step; all else reads feed.py.
Imports TensorFlow at the top: import this module inside the functions that train.
"""

from typing import Any

import tensorflow as tf

from pipelines.data.batches import PAD, Pictures, Split
from pipelines.data.streamed import Photographs, shuffled_dataset


def random_batches(
    split: Split | Photographs, batch_size: int, shift: int | None
) -> tf.data.Dataset:
    """Endless random batches; arrays in memory travel with the graph, photographs' paths do.

    Every pass over the data has a new order, and every machine orders of its own.
    """
    seed = tf.raw_ops.NonDeterministicInts(shape=[2], dtype=tf.int64)
    if isinstance(split, Photographs):
        tf.compat.v1.set_random_seed(1)  # of this graph: beside 0, tf.data takes no tensor as seed
        return shuffled_dataset(split, batch_size, seed[0], augment=shift is not None)
    x, y = tf.constant(split.x), tf.constant(split.y)

    def batch(index: Any, number: Any) -> tuple[Any, Any]:
        images, targets = tf.gather(x, index), tf.gather(y, index)
        if not isinstance(split, Pictures):
            return images, targets
        standard = (tf.cast(images, tf.float32) / 255 - split.mean) / split.std
        if shift is not None:
            standard = _crop_flip(standard, shift, tf.stack([seed[1], number]))
        return standard, tf.cast(targets, tf.int32)

    def order(epoch: Any) -> tf.data.Dataset:
        numbers = tf.range(len(split), dtype=tf.int64)
        shuffled = tf.random.experimental.stateless_shuffle(numbers, tf.stack([seed[0], epoch]))
        return tf.data.Dataset.from_tensor_slices(shuffled)

    indices = tf.data.Dataset.counter().flat_map(order).batch(batch_size, drop_remainder=True)
    numbered = tf.data.Dataset.zip(indices, tf.data.Dataset.counter())
    return numbered.map(batch, num_parallel_calls=2).prefetch(2)


def _crop_flip(x: Any, shift: int, seed: Any) -> Any:
    """Pad, random crop, random horizontal flip (He et al. 2015, section 4.2); [b, h, w, c]."""
    b, h, w, _ = x.shape
    padded = tf.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    draws = tf.random.stateless_uniform((3, b), seed, maxval=(1 << 16), dtype=tf.int32)
    rows, columns = (PAD - shift + draws[i, :, None] % (2 * shift + 1) for i in range(2))
    forward = tf.range(w)
    across = tf.where(draws[2, :, None] % 2 == 0, forward, forward[::-1])
    cropped = tf.gather(padded, rows + tf.range(h), axis=1, batch_dims=1)
    return tf.gather(cropped, columns + across, axis=2, batch_dims=1)
