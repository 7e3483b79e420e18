"""The optimizer of a recipe: momentum as the papers' framework computed it, and weight decay.

Imports Keras at the top: import this module inside the functions that train.
"""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from pipelines.recipes.recipe import Recipe


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

    Nesterov's form steps along g + m v, with the new v. With `rate_in_velocity` the rate stands
    inside, v <- m v + rate g, w <- w - v, as in Caffe and in Keras's SGD; Nesterov's form steps
    by rate g + m v. The two differ for the steps after every change of the rate. HM's TensorFlow
    and Huang et al.'s Torch have the first form, He et al. and Krizhevsky et al. the second.

    With `ema` E every step moves an average of each weight, a <- E a + (1 - E) w; the first step
    sets it. What rounding leaves of a change is added to the next (Kahan 1965): without it, as in
    Keras's own averages, changes below half a unit in the last place of float32 are lost.
    """

    pieces = 1  # batches of a step

    def __init__(
        self,
        learning_rate: RateTable,
        *,
        ema: float = 0.0,
        rate_in_velocity: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate, **settings)
        self.ema, self.rate_in_velocity = ema, rate_in_velocity

    def build(self, variables: Any) -> None:
        super().build(variables)
        if self.ema:
            self.averages = self.add_optimizer_variables(variables, "average")
            self.rests = self.add_optimizer_variables(variables, "rest")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if self.momentum:
            rate, gradient = (ops.cast(x, variable.dtype) for x in (learning_rate, gradient))
            velocity = self.momentums[self._get_variable_index(variable)]
            if self.rate_in_velocity:
                rate, gradient = 1.0, rate * gradient
            self.assign(velocity, self.momentum * velocity + gradient)
            along = gradient + self.momentum * velocity if self.nesterov else velocity
            self.assign_sub(variable, rate * along)
        else:  # Keras keeps no velocity then
            super().update_step(gradient, variable, learning_rate)
        if self.ema:
            self._move_average(variable)

    def _move_average(self, variable: Any) -> None:
        """Move the average of a weight at the last piece of a step, and only there."""
        index = self._get_variable_index(variable)
        average, rest = (each[index] for each in (self.averages, self.rests))
        share = ops.where(self.iterations < self.pieces, 1.0, 1 - self.ema)
        share = ops.where((self.iterations + 1) % self.pieces == 0, share, 0.0)
        change = rest + ops.cast(share, variable.dtype) * (variable - average - rest)
        moved = average + change
        self.assign(rest, change - (moved - average))
        self.assign(average, moved)

    def put_averages(self, variables: Any) -> None:
        """Give the weights the values of their averages, where the optimizer keeps them."""
        for variable, average in zip(variables, self.averages, strict=True):
            variable.assign(ops.copy(average))  # on JAX a step ends the average's own memory


class AccumulatedSGD(MomentumSGD):
    """MomentumSGD that steps after every `pieces` batches, along the mean of their gradients.

    Keras's `gradient_accumulation_steps` branches around the sum over devices, which TensorFlow
    allows on one device alone. Here every batch is summed over the devices, and steps of rate 0
    leave the velocities as they were; so they do the weights where velocities hold the rate.
    """

    def __init__(self, learning_rate: RateTable, *, pieces: int, **settings: Any) -> None:
        super().__init__(learning_rate, **settings)
        self.pieces = pieces

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.sums = self.add_optimizer_variables(variables, "sum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        over = (self.iterations + 1) % self.pieces == 0
        total = self.sums[index] + ops.cast(gradient, variable.dtype)
        before = [velocity + 0.0 for velocity in self.momentums[index : index + 1]]  # values
        start = variable + 0.0 if self.rate_in_velocity else None
        super().update_step(total / self.pieces, variable, ops.where(over, learning_rate, 0.0))
        if start is not None:
            self.assign(variable, ops.where(over, ops.convert_to_tensor(variable), start))
        for velocity, value in zip(self.momentums[index:], before, strict=False):
            self.assign(velocity, ops.where(over, ops.convert_to_tensor(velocity), value))
        self.assign(self.sums[index], ops.where(over, 0.0, total))


def build_optimizer(recipe: Recipe, rates: NDArray[np.float64]) -> MomentumSGD:
    """Return the optimizer of a recipe, for the rates [steps] of its steps.

    One that is added here keeps averages of the weights where `ema` is set (`put_averages`), and
    steps after `accumulate` batches, or refuses what it cannot do.
    """
    pieces = recipe.accumulate
    table = RateTable(np.repeat(rates, pieces))  # Keras counts pieces
    settings: dict[str, Any] = {
        "momentum": recipe.momentum,
        "nesterov": recipe.nesterov,
        "ema": recipe.ema,
        "rate_in_velocity": recipe.rate_in_velocity,
    }
    if pieces == 1:
        return MomentumSGD(table, **settings)
    return AccumulatedSGD(table, pieces=pieces, **settings)


def add_weight_decay(model: keras.Model, decay: float, all_of_them: bool = False) -> int:
    """Add decay/2 |kernel|^2 of every trained convolution and dense layer; returns how many.

    A term of the loss, as the papers mean it. Keras's `weight_decay=` argument is decoupled from
    the gradient, which at momentum 0.9 acts about ten times weaker, and its L2 regularizer carries
    no factor 1/2: hence decay / 2. Which weights decay is our reading: HM section 4 mean their
    convolution kernels, their last layer being fixed; He, Huang, Krizhevsky and Springenberg et al.
    decay all kernels. Biases and normalization are left out, unless `all_of_them` decay, as in
    Torch's optimizer, which knows no kinds of weights.
    """
    kernels = [
        layer.kernel
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D | keras.layers.Dense)
        if layer.trainable and layer.kernel.trainable
    ]
    decaying = model.trainable_variables if all_of_them else kernels
    for weight in decaying:
        weight.regularizer = keras.regularizers.L2(decay / 2)
    return len(decaying)
