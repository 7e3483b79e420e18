"""Fully connected residual network, blocks x + V ReLU(U x) of constant width, HM section 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import layers

from ._blocks import logits, normal_initializer

TINY = {"width": 16, "depth": 2}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int = 128,
    depth: int = 4,
    identity: bool = True,
    use_bias: bool = False,
    init: Literal["small", "standard", "he"] = "small",
) -> keras.Model:
    """Return a linear stem and `depth` residual blocks; vectors or images -> logits [n, classes].

    `width`: units of every layer.
    `depth`: how many residual blocks.
    `identity`: whether blocks add x; without it the plain twin, the same matrices in blocks
    ReLU(V ReLU(U x)): without its outer ReLU, V and the next U would be one linear map.
    `use_bias`: whether there is HM's s, as in x + V ReLU(U x + s), and biases in stem and logits.
    `init`: standard deviation in the blocks: "small" 1/width, "standard" 1/sqrt(width), "he"
    sqrt(2/width); stem and logits "standard".
    """
    inputs = keras.Input(tuple(input_shape), name="input")
    x = layers.Flatten(name="flatten")(inputs)
    x = linear(x, width, "standard", use_bias, "stem")
    for block in range(1, depth + 1):
        x = residual_block(x, identity, init, use_bias, f"block{block}")
    return keras.Model(inputs, logits(x, classes, use_bias=use_bias), name="mlp")


def residual_block(x: Any, identity: bool, init: str, use_bias: bool, name: str) -> Any:
    """Apply a block x + V ReLU(U x + s) of HM section 3, or its plain twin."""
    y = linear(x, x.shape[-1], init, use_bias, f"{name}_U")
    y = layers.ReLU(name=f"{name}_relu")(y)
    y = linear(y, x.shape[-1], init, False, f"{name}_V")
    if identity:
        return layers.Add(name=f"{name}_add")([x, y])
    return layers.ReLU(name=f"{name}_out")(y)


def linear(x: Any, width: int, init: str, use_bias: bool, name: str) -> Any:
    """Map linearly with Gaussian initial weights; `init` sees a convolution of kernel size 1."""
    initializer = normal_initializer(init, 1, width)
    return layers.Dense(width, use_bias=use_bias, kernel_initializer=initializer, name=name)(x)
