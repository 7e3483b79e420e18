"""Linear residual network x -> (I+A_l)...(I+A_1) x, HM section 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import keras
from keras import layers

from ._blocks import normal_initializer

TINY = {"input_shape": (8,), "classes": 8, "depth": 3}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 8,
    init: Literal["zeros", "small", "standard", "he"] = "zeros",
) -> keras.Model:
    """Return `depth` layers x -> x + A_i x of one width d; vectors [n, d] -> [n, d]; classes = d.

    `depth`: how many layers.
    `init`: "zeros" starts at the identity map; otherwise the entries of every A_i are Gaussian, of
    standard deviation "small" 1/d, "standard" 1/sqrt(d) or "he" sqrt(2/d).
    """
    full = keras.config.floatx()  # sums in full precision also where products are mixed
    x = inputs = keras.Input(tuple(input_shape), dtype=full, name="input")
    for i in range(1, depth + 1):
        start = "zeros" if init == "zeros" else normal_initializer(init, 1, classes)
        step = layers.Dense(classes, use_bias=False, kernel_initializer=start, name=f"A{i}")
        x = layers.Add(dtype=full, name=f"add{i}")([x, step(x)])
    return keras.Model(inputs, x, name="linear_resnet")
