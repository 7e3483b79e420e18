"""Square blocks relu(x + W x) on the pixels themselves, LY section 5.4."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
from keras import layers

from ._blocks import INITIAL_STD, check_choice, check_positive, check_shape, logits
from .mlp import linear

TINY = {"input_shape": (8, 8, 1), "depth": 2}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 5,
    identity: bool = True,
    init: str = "small",
) -> keras.Model:
    """Flatten to d numbers, `depth` blocks relu(x + W x) with W [d, d], logits [n, classes].

    `identity=False`: the plain twin, blocks relu(W x). `init`: "zeros" starts every weight at 0,
    those of the logits too; otherwise all are Gaussian, in the blocks of standard deviation
    "small" 1/d, "standard" 1/sqrt(d) or "he" sqrt(2/d), in the logits 1/sqrt(d). No biases.
    ValueError for sizes that are not integers > 0 or another `init`.
    """
    check_shape("input_shape", input_shape)
    check_positive(classes=classes, depth=depth)
    check_choice(["zeros", *INITIAL_STD], init=init)
    inputs = keras.Input(tuple(input_shape), name="input")
    x = layers.Flatten(name="flatten")(inputs)
    drawn = "small" if init == "zeros" else init
    for number in range(1, depth + 1):
        y = linear(x, x.shape[-1], drawn, False, f"block{number}_W")
        if identity:
            y = layers.Add(name=f"block{number}_add")([x, y])
        x = layers.ReLU(name=f"block{number}_relu")(y)
    model = keras.Model(inputs, logits(x, classes), name="relu_blocks")
    if init == "zeros":
        model.set_weights([np.zeros(weight.shape) for weight in model.weights])
    return model
