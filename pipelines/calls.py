"""Calls of Keras that take many training steps at once, with no return to Python in between.

TensorFlow loops over the batches within its graph. On JAX, Keras begins every step from Python, one
after another without waiting; here the steps of a call are one program.
Imports Keras at the top: import this module inside the functions that train.
"""

from collections.abc import Callable, Iterator
from typing import Any

import keras

Step = Callable[[Any, Iterator[Any]], tuple[Any, Any]]  # state, batches -> logs, state


def set_steps(model: keras.Model, count: int) -> None:
    """Make `fit` take so many steps in one call; the logs are those of the last."""
    if count == model.steps_per_execution:
        return
    model.steps_per_execution = count
    model.train_function = model.test_function = None  # Keras makes them anew
    if count > 1 and keras.backend.backend() == "jax":
        model.train_function = _program(model, count)


def _program(model: keras.Model, count: int) -> Step:
    """Keras's training step on JAX, `count` times over, as one compiled loop."""
    import jax

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        logs, state = model.train_step(state, batch)
        return state, logs

    def steps(state: Any, batches: Any) -> tuple[Any, Any]:
        stacked = jax.tree.map(lambda *each: jax.numpy.stack(each), *batches)
        state, logs = jax.lax.scan(step, state, stacked)
        return jax.tree.map(lambda log: log[-1], logs), state

    compiled = jax.jit(steps, donate_argnums=0)

    def call(state: Any, batches: Iterator[Any]) -> tuple[Any, Any]:
        logs, state = compiled(state, [next(batches) for _ in range(count)])
        return logs, state

    return call
