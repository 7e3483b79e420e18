"""Resident pictures: a data set that stays on the device, where its batches are cut.

Of a batch only its numbers travel: which pictures, cut where, flipped or not, the same functions of
(seed, step) as on the host (splits.py). A layer ahead of the network makes of them, in the same
arithmetic, what the host would have sent.
Imports Keras at the top: import this module inside the functions that train.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from pipelines.data.datasets import Splits
from pipelines.data.splits import PAD, Pictures
from pipelines.errors import UserError
from pipelines.recipes.recipe import Recipe
from pipelines.training.devices import Place

MOST_BYTES = 4 << 30  # largest data set that is kept on a GPU unasked
MOST_PIXELS = 2**31  # in all pictures: their indices are int32


@dataclass(frozen=True)
class Places(Pictures):
    """Pictures that a device holds; inputs are int32 [b, 4]: number, row, column, flipped or not.

    `first` is the number of the first one on the device.
    """

    first: int

    def tail(self, n: int) -> "Places":
        """Return the split of the last n pictures, of which there must be so many."""
        cut = len(self) - n
        first = self.first + cut
        return dataclasses.replace(self, x=self.x[cut:], y=self.y[cut:], first=first)

    def take(self, index: NDArray[np.int64] | slice) -> tuple[NDArray[Any], NDArray[Any]]:
        """Whole pictures, neither cut nor flipped, and labels int32 [b]."""
        numbers = np.arange(len(self))[index]
        count = len(numbers)
        return self.cut(numbers, np.full((count, 2), PAD), np.zeros(count, np.bool_))

    def cut(
        self, index: NDArray[np.int64], corners: NDArray[np.int64], flips: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return where the device cuts the pictures [b]; labels int32 [b]."""
        where = np.column_stack([self.first + index, corners, flips]).astype(np.int32)
        return where, self.labels[index].astype(np.int32)


class Resident(keras.layers.Layer):
    """Places int32 [b, 4] -> standardized pictures float32 [b, h, w, c], from `images` uint8.

    Outside of a picture is 0, its mean, as He et al. 2015 (section 4.2) pad after subtracting it.
    """

    def __init__(
        self, images: NDArray[np.uint8], mean: NDArray[np.float32], std: NDArray[np.float32]
    ) -> None:
        super().__init__(dtype="float32", name="resident")
        self.size, self.mean, self.std = images.shape[1:], mean, std
        self.pixels = self.add_weight(
            shape=(images[..., 0].size, self.size[2]),
            initializer=lambda shape, dtype: ops.convert_to_tensor(images.reshape(shape), dtype),
            dtype="uint8",
            trainable=False,
        )

    def call(self, where: Any) -> Any:
        height, width, _ = self.size
        number, row, column, flip = (where[:, i : i + 1] for i in range(4))  # [b, 1]
        across = ops.arange(width, dtype="int32")
        rows = row - PAD + ops.arange(height, dtype="int32")  # [b, h]
        columns = column - PAD + ops.where(flip == 1, width - 1 - across, across)  # [b, w]
        inside = _within(rows, height)[:, :, None] & _within(columns, width)[:, None, :]
        lines = number * height + ops.clip(rows, 0, height - 1)
        pixels = lines[:, :, None] * width + ops.clip(columns, 0, width - 1)[:, None, :]
        # one kernel under XLA, which Keras uses on one GPU; TensorFlow's own gathers uint8 on CPUs
        x = ops.cast(ops.take(self.pixels, pixels, axis=0), "float32") / 255
        return ops.where(inside[..., None], (x - self.mean) / self.std, 0.0)


def _within(positions: Any, size: int) -> Any:
    return (positions >= 0) & (positions < size)


def place_pictures(recipe: Recipe, splits: Splits, place: Place) -> Splits:
    """Return the splits for a device that holds their pictures, where `recipe.pictures` says so.

    UserError where that is asked of data that cannot be held by one device.
    """
    parts = (splits.train, splits.val, splits.test)
    pictures = [each for each in parts if isinstance(each, Pictures)]
    pixels = sum(each.images[..., 0].size for each in pictures)
    can = len(pictures) == 3 and place.alone and pixels < MOST_PIXELS
    if recipe.pictures == "device" and not can:
        raise UserError(
            "Pictures of one size can stay on one device. Received: pictures=device for "
            f"{recipe.data} on {place}. Set --pictures host."
        )
    fit = can and sum(each.images.nbytes for each in pictures) <= MOST_BYTES
    unasked = "device" if fit and place.is_accelerator else "host"
    if (unasked if recipe.pictures == "auto" else recipe.pictures) == "host":
        return splits
    train, val, test = (
        Places(each.images, each.labels, each.mean, each.std, first)
        for each, first in zip(pictures, np.cumsum([0, *map(len, pictures)]).tolist(), strict=False)
    )
    return dataclasses.replace(splits, train=train, val=val, test=test)


def wrap(network: keras.Model, splits: Splits) -> keras.Model:
    """Return the network behind the pictures that the device holds, or as it is."""
    train = splits.train
    if not isinstance(train, Places):
        return network
    parts = [part for part in (train, splits.val, splits.test) if isinstance(part, Places)]
    layer = Resident(np.concatenate([part.images for part in parts]), train.mean, train.std)
    where = keras.Input((4,), dtype="int32", name="where")
    return keras.Model(where, network(layer(where)), name=network.name)


def unwrap(model: keras.Model) -> keras.Model:
    """Return the network alone, which `wrap` put behind a device's pictures."""
    behind = any(isinstance(layer, Resident) for layer in model.layers)
    return model.layers[-1] if behind else model


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
    """Return Keras's training step on JAX, `count` times over, as one compiled loop."""
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
