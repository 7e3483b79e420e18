"""Linear residual network x -> (I+A_l)...(I+A_1) x, HM section 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import layers
from numpy.typing import ArrayLike, NDArray

from ._blocks import normal_initializer

TINY = {"input_shape": (8,), "classes": 8, "depth": 3}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 8,
    init: Literal["zeros", "small", "standard", "he"] = "zeros",
) -> keras.Model:
    """`depth` layers x -> x + A_i x of one width d; vectors [n, d] -> [n, d], so classes = d.

    `depth`: how many layers.
    `init`: "zeros" starts at the identity map; otherwise the entries of every A_i are Gaussian, of
    standard deviation "small" 1/d, "standard" 1/sqrt(d) or "he" sqrt(2/d).
    """
    return _network(classes, depth, init)


def from_layers(A: ArrayLike, dtype: str | None = None) -> keras.Model:
    """Return the network with layers A [l, d, d], A_1 first, as theory.factorization makes them.

    `dtype` is that of weights and outputs (None: Keras's). ValueError if A has another shape.
    """
    A = np.asarray(A)
    if A.ndim != 3 or A.shape[1] != A.shape[2] or not A.size:
        raise ValueError(
            f"A must be the layers [l, d, d] of one network. Received: shape {A.shape}. "
            "Select one factorization, A_1 first."
        )
    model = _network(A.shape[1], len(A), "zeros", dtype)
    model.set_weights(list(A.mT))  # Keras multiplies from the right, x A^T
    return model


def layers_of(model: keras.Model) -> NDArray[np.float64]:
    """Return the layers A [l, d, d] of a network of this module, A_1 first, in float64.

    ValueError if the model is another network.
    """
    kernels = {
        layer.name: keras.ops.convert_to_numpy(layer.kernel)
        for layer in model.layers
        if isinstance(layer, layers.Dense)
    }
    names = [f"A{i}" for i in range(1, len(kernels) + 1)]
    if not kernels or kernels.keys() != set(names):
        raise ValueError(
            "A model must be a linear residual network, with dense layers A1, A2, ... "
            f"Received: {model.name!r} with {list(kernels) or 'none'}. "
            "Make it with build or from_layers."
        )
    return np.stack([kernels[name].T for name in names]).astype(np.float64)


def _network(width: int, depth: int, init: str, dtype: Any = None) -> keras.Model:
    """Keep the sums x + A_i x in full precision also where the products are in mixed precision."""
    full = dtype or keras.config.floatx()
    x = inputs = keras.Input((width,), dtype=full, name="input")
    for i in range(1, depth + 1):
        start = "zeros" if init == "zeros" else normal_initializer(init, 1, width)
        step = layers.Dense(
            width, use_bias=False, kernel_initializer=start, dtype=dtype, name=f"A{i}"
        )
        x = layers.Add(dtype=full, name=f"add{i}")([x, step(x)])
    return keras.Model(inputs, x, name="linear_resnet")
