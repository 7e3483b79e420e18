"""Residual ReLU network of many blocks x + V ReLU(U x + s) in one layer, HM section 3.

It is the architecture of HM Theorem 3.2, which memorizes any labels with thousands of blocks of
small width: theory.memorization gives the weights. On GPUs, products in TensorFloat-32 are coarser
than its margins: switch them off (tf.config.experimental.enable_tensor_float_32_execution).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import layers, ops
from numpy.typing import NDArray

from ._blocks import normal_initializer

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # U, t and V of units V ReLU(U h - t)

TINY = {"width": 32, "depth": 2}


@keras.saving.register_keras_serializable(package="keras_models")
class ResidualBlocks(layers.Layer):
    """`depth` blocks x + V ReLU(U x + s) of one width, with `units` rows in U; [n, k] -> [n, k].

    Weights, of all blocks together: U [depth, k, units], s [depth, units], V [depth, units, k],
    which multiply from the right.
    """

    def __init__(self, depth: int, units: int, init: str = "small", **kw: Any) -> None:
        super().__init__(**kw)
        self.depth, self.units, self.init = depth, units, init

    def build(self, input_shape: Sequence[int]) -> None:
        """Make the weights: Gaussian ones as `init` says, and s = 0."""
        k = input_shape[-1]
        gaussian = {name: normal_initializer(self.init, 1, k) for name in "UV"}
        self.U = self.add_weight((self.depth, k, self.units), gaussian["U"], name="U")
        self.s = self.add_weight((self.depth, self.units), "zeros", name="s")
        self.V = self.add_weight((self.depth, self.units, k), gaussian["V"], name="V")

    def call(self, x: Any) -> Any:
        """Return the outputs of the last block."""

        def block(i: Any, x: Any) -> Any:
            return x + ops.relu(x @ self.U[i] + self.s[i]) @ self.V[i]

        return ops.fori_loop(0, self.depth, block, x)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for `save`."""
        arguments = {"depth": self.depth, "units": self.units, "init": self.init}
        return {**super().get_config(), **arguments}


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
    return _network(input_shape, classes, width, [(depth, width)], init=init)


def from_weights(A0: NDArray[Any], units: Arrays, readout: Arrays) -> keras.Model:
    """Return the network with these weights, in their precision; [n, d] -> [n, r].

    `A0` [k, d] is the projection; `units` are those of all blocks one after the other, U [n, k],
    t [n], V [n, k]; `readout` is the last layer. theory.memorization gives them.
    """
    k, n = len(A0), len(units[1])
    sizes = [size for size in ((n // k, k), (1, n % k)) if all(size)]  # depth, units
    model = _network((A0.shape[1],), len(readout[1]), k, sizes, dtype=A0.dtype.name)
    weights, first = [A0.T], 0
    for depth, size in sizes:
        rows, first = slice(first, first + depth * size), first + depth * size
        U, t, V = (array[rows].reshape(depth, size, *array.shape[1:]) for array in units)
        weights += [U.mT, -t, V]
    U, t, V = readout
    model.set_weights([*weights, U.T, -t, V])
    return model


def _network(
    input_shape: Sequence[int],
    classes: int,
    width: int,
    blocks: Sequence[tuple[int, int]],
    *,
    init: str = "small",
    dtype: str | None = None,
) -> keras.Model:
    """Return the network with layers of `blocks`, each (depth, units)."""
    full = dtype or keras.config.floatx()
    inputs = keras.Input(tuple(input_shape), dtype=full, name="input")
    x = layers.Flatten(dtype=dtype, name="flatten")(inputs)
    x = layers.Dense(width, use_bias=False, dtype=dtype, name="projection")(x)
    for i, (depth, units) in enumerate(blocks, 1):
        x = ResidualBlocks(depth, units, init, dtype=dtype, name=f"blocks{i}")(x)
    x = layers.Dense(classes, "relu", dtype=dtype, name="codes")(x)
    x = layers.Dense(classes, use_bias=False, dtype=full, name="logits")(x)
    return keras.Model(inputs, x, name="memorizer")
