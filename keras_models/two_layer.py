"""Two-layer network x -> sum_i relu(<e_i + w_i, x>), and the students beside it, LY section 5.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import layers, ops
from numpy.typing import NDArray

from ._blocks import normalize
from ._start_weights import singular_values
from .mlp import linear

TINY = {"input_shape": (16,), "start_frobenius": 2.0}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    variant: Literal["reslink", "vanilla", "three-block"] = "reslink",
    start_norm: float = 0.6,
    start_frobenius: float = 5.0,
    hidden: int = 500,
) -> keras.Model:
    """Return the network; vectors [n, d] -> sums [n, classes] of d / classes ReLUs; LY: one class.

    `variant`: "reslink", relu(x + W^T x) with W [d, d], columns w_i; "vanilla", relu(W^T x);
    "three-block", three times linear map to `hidden` units, batch normalization and ReLU, which is
    our reading of LY's 3-Block.
    `start_norm`: largest singular value of the first W = U diag(s) V^T, in which U and V are random
    orthogonal matrices and s rises linearly.
    `start_frobenius`: root of the sum of the squares of s.
    `hidden`: units of each linear map of "three-block".
    """
    x = inputs = keras.Input(tuple(input_shape), name="input")
    if variant == "three-block":
        for name in ("block1", "block2", "block3"):
            x = linear(x, hidden, "he", False, f"{name}_linear")
            x = layers.ReLU(name=f"{name}_relu")(normalize(x, f"{name}_norm"))
        return keras.Model(inputs, _sums(x, classes), name="two_layer")
    s = singular_values(input_shape[0], start_norm, start_frobenius)
    y = layers.Dense(x.shape[-1], use_bias=False, kernel_initializer="zeros", name="W")(x)
    y = layers.Add(name="identity")([x, y]) if variant == "reslink" else y
    outputs = _sums(layers.ReLU(name="relu")(y), classes)
    model = keras.Model(inputs, outputs, name="two_layer")
    model.get_layer("W").kernel.assign(_start(s))
    return model


def matrix(model: keras.Model) -> NDArray[np.float64] | None:
    """Return B [d, d] of a network x -> sum relu(B^T x), so I + W or W; None for any other."""
    names = [layer.name for layer in model.layers]
    if model.name != "two_layer" or "W" not in names:
        return None
    W = weights(model)
    return W + np.eye(len(W)) if "identity" in names else W


def weights(model: keras.Model) -> NDArray[np.float64]:
    """Return W [d, d] of a network that has a matrix."""
    return np.asarray(ops.convert_to_numpy(model.get_layer("W").kernel), np.float64)


def _sums(x: Any, classes: int) -> Any:
    """Return sums [n, classes] over equal groups of units, in full precision also in mixed."""
    units = x.shape[-1]
    full = keras.config.floatx()
    groups = layers.Reshape((classes, units // classes), dtype=full, name="groups")(x)
    return ops.sum(groups, axis=-1)


def _start(s: NDArray[np.float64]) -> Any:
    """Return U diag(s) V^T with random orthogonal U and V; [d, d]."""
    U, V = (keras.initializers.Orthogonal()((len(s), len(s))) for _ in range(2))
    return ops.matmul(U * ops.convert_to_tensor(s, U.dtype), ops.transpose(V))
