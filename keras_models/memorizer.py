"""Residual ReLU network of many blocks x + V ReLU(U x + s), HM section 3.

It is the architecture of HM Theorem 3.2, which memorizes any labels with thousands of blocks of
small width: theory.memorization gives the weights. On GPUs, products in TensorFloat-32 are coarser
than its margins: switch them off (tf.config.experimental.enable_tensor_float_32_execution).

Every layer is Keras's own, so that a stored network opens without this project. Thousands of blocks
as layers of their own would take minutes to trace: a loop, keras.ops.scan, applies them, whose step
is a Keras model in the file of the network. A step must hold no weights: Keras would not store
them, and JAX would keep their first values. They are columns of what the loop carries, ahead of
the points x; a step uses the first of them and moves these behind the others:
    [ U_1^T  V_1  U_2^T  V_2  ...  x_1  ...  x_n ]    with a last row of
    [  s_1    0    s_2    0   ...   1   ...   1  ].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import layers, ops
from numpy.typing import NDArray

from ._blocks import normal_initializer

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # U, t and V of units V ReLU(U h - t)

TINY = {"classes": 16, "width": 32, "depth": 5}  # with few classes, all codes may die


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int = 8,
    depth: int = 16,
    init: Literal["small", "standard", "he"] = "small",
) -> keras.Model:
    """Return the network; vectors or images -> outputs [n, classes].

    Flatten, linear map to `width`, `depth` blocks, a layer of `classes` units, linear outputs.

    `width`: numbers between two blocks, and units of a block.
    `depth`: how many blocks.
    `init`: deviation in the blocks: "small" 1/width, "standard" 1/sqrt(width), "he" sqrt(2/width).
    """
    return _network(input_shape, classes, width, depth * width, init=init)


def from_weights(A0: NDArray[Any], units: Arrays, readout: Arrays) -> keras.Model:
    """Return the network with these weights, in their precision; [n, d] -> [n, r].

    `A0` [k, d] is the projection; `units` are those of all blocks one after the other, U [n, k],
    t [n], V [n, k]; `readout` is the last layer. theory.memorization gives them.
    """
    (U, t, V), (Q, q, W) = units, readout
    model = _network((A0.shape[1],), len(q), len(A0), len(t), dtype=A0.dtype.name)
    model.get_layer("projection").set_weights([A0.T])
    for name, table in (("U", U), ("s", -t[:, None]), ("V", V)):
        model.get_layer(name).set_weights([table[None]])
    model.get_layer("codes").set_weights([Q.T, -q])
    model.get_layer("logits").set_weights([W])
    return model


def _network(
    input_shape: Sequence[int],
    classes: int,
    width: int,
    units: int,
    *,
    init: str = "small",
    dtype: str | None = None,
) -> keras.Model:
    """Return the network with so many units in all blocks together."""
    full = dtype or keras.config.floatx()
    inputs = keras.Input(tuple(input_shape), dtype=full, name="input")
    x = layers.Flatten(dtype=dtype, name="flatten")(inputs)
    x = layers.Dense(width, use_bias=False, dtype=dtype, name="projection")(x)
    x = _residual_blocks(x, units, init, dtype)
    x = layers.Dense(classes, "relu", dtype=dtype, name="codes")(x)
    x = layers.Dense(classes, use_bias=False, dtype=full, name="logits")(x)
    return keras.Model(inputs, x, name="memorizer")


def _residual_blocks(x: Any, units: int, init: str, dtype: str | None) -> Any:
    """Apply blocks of k units each to x [n, k], the last with the units that are left; [n, k].

    A step applies about sqrt(depth) blocks: fewer would be more steps, and eager TensorFlow and
    PyTorch keep what each of them carries; more would take XLA long to compile.
    """
    k = x.shape[1]
    blocks = math.isqrt(-(-units // k))
    steps = -(-units // (k * blocks))
    used, total = 2 * k * blocks, 2 * k * blocks * steps
    carried = keras.Input(batch_shape=(k + 1, None), dtype=x.dtype)
    after = _apply(blocks, ops.take(carried, list(range(used)), axis=1), carried[:, total:])
    after = ops.concatenate([ops.roll(carried[:, :total], -used, axis=1), after], axis=1)
    step = keras.Model(carried, (after, after))  # TensorFlow wants the second one of this shape
    ones = ops.ones_like(x[:, :1])
    one = ops.prod(ones, axis=0, keepdims=True)
    columns = _weights(one, units, (blocks * steps, k), init, dtype)
    points = ops.transpose(ops.concatenate([x, ones], axis=1))
    carried, _ = ops.scan(step, ops.concatenate([columns, points], axis=1), length=steps)
    return ops.transpose(carried[:k, total:])


def _apply(blocks: int, columns: Any, x: Any) -> Any:
    """Return the points x [k + 1, n] after so many blocks, whose weights are `columns`."""
    U = ops.split(ops.transpose(columns), 2 * blocks, axis=0)[::2]
    V = ops.split(columns, 2 * blocks, axis=1)[1::2]
    for first, last in zip(U, V, strict=True):
        x = x + last @ ops.relu(first @ x)
    return x


def _weights(one: Any, units: int, whole: tuple[int, int], init: str, dtype: str | None) -> Any:
    """Return the weights of `whole` = (depth, k) blocks as columns [k + 1, depth 2k].

    Units are 0 beyond the first `units`, whose weights are what layers make of `one`, [1, 1].
    """
    depth, k = whole

    def table(name: str, columns: int, initializer: Any) -> Any:
        arguments = {"kernel_initializer": initializer, "dtype": dtype, "name": name}
        return layers.EinsumDense("ab,bij->aij", (units, columns), **arguments)(one)[0]

    U, V = (table(name, k, normal_initializer(init, 1, k)) for name in "UV")
    s = table("s", 1, "zeros")
    both = [ops.concatenate([U, s], axis=1), ops.concatenate([V, ops.zeros_like(s)], axis=1)]
    padding = ((0, depth * k - units), (0, 0))
    both = [ops.reshape(ops.pad(each, padding), (depth, k, k + 1)) for each in both]
    return ops.transpose(ops.reshape(ops.concatenate(both, axis=1), (-1, k + 1)))
