"""Momentum as the papers' framework computed it, its rate table, and weight decay as a loss term.

Imports Keras at the top: import this module inside the functions that train.
"""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray


class RateTable(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of every step of a run, looked up; the last one holds afterwards."""

    def __init__(self, rates: NDArray[np.float64]) -> None:
        self.rates = np.asarray(rates, np.float32)

    def __call__(self, step: Any) -> Any:
        last = len(self.rates) - 1
        return ops.take(ops.convert_to_tensor(self.rates), ops.minimum(step, last))

    def get_config(self) -> dict[str, Any]:
        return {"rates": self.rates.tolist()}


class MomentumSGD(keras.optimizers.SGD):
    """v <- m v + g, w <- w - rate v: the rate stands outside the velocity, as in TensorFlow 1.

    Keras's SGD keeps the rate inside (v <- m v - rate g, w <- w + v). The two differ for the steps
    after every change of the rate; the papers of 2016 trained with the form below.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if not self.momentum:  # Keras keeps no velocity then
            super().update_step(gradient, variable, learning_rate)
            return
        rate = ops.cast(learning_rate, variable.dtype)
        velocity = self.momentums[self._get_variable_index(variable)]
        self.assign(velocity, self.momentum * velocity + ops.cast(gradient, variable.dtype))
        self.assign_sub(variable, rate * velocity)


def add_weight_decay(model: keras.Model, decay: float) -> int:
    """Add decay/2 |kernel|^2 of every trainable convolution to the loss; returns how many.

    This is weight decay as HM section 4 means it: a term of the loss, on convolution kernels only.
    Keras's `weight_decay=` argument is decoupled from the gradient, which at momentum 0.9 acts
    about ten times weaker, and its L2 regularizer carries no factor 1/2: hence decay / 2.
    """
    kernels = [
        layer.kernel
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D) and layer.trainable
    ]
    for kernel in kernels:
        kernel.regularizer = keras.regularizers.L2(decay / 2)
    return len(kernels)
