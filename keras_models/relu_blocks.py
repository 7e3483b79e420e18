"""Square blocks relu(x + W x) on the pixels themselves, LY section 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, Literal

import keras
from keras import layers

TINY = {"input_shape": (8, 8, 1), "depth": 2}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 5,
    identity: bool = True,
    init: Literal["zeros", "uniform"] = "uniform",
) -> keras.Model:
    """Return `depth` blocks relu(x + W x), W [d, d], of d pixels; images -> logits [n, classes].

    `depth`: how many blocks.
    `identity`: whether blocks add x; without it the plain twin, blocks relu(W x).
    `init`: "zeros" starts every weight at 0, those of the logits too, "uniform" draws them from
    +-1/sqrt(d), as Torch draws linear layers.

    No biases.
    """
    d = prod(input_shape)
    bound = 0.0 if init == "zeros" else 1 / sqrt(d)

    def linear(x: Any, width: int, **options: Any) -> Any:
        start = keras.initializers.RandomUniform(-bound, bound)  # a new one: else it repeats itself
        return layers.Dense(width, use_bias=False, kernel_initializer=start, **options)(x)

    inputs = keras.Input(tuple(input_shape), name="input")
    x = layers.Flatten(name="flatten")(inputs)
    for number in range(1, depth + 1):
        y = linear(x, d, name=f"block{number}_W")
        if identity:
            y = layers.Add(name=f"block{number}_add")([x, y])
        x = layers.ReLU(name=f"block{number}_relu")(y)
    outputs = linear(x, classes, dtype=keras.config.floatx(), name="logits")
    return keras.Model(inputs, outputs, name="relu_blocks")
