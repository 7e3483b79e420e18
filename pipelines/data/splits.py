"""Splits in memory, and their batches as pure functions of (seed, step).

Any step of any run can be made again, without the steps before it and without TensorFlow: exact
resume and equal batches on every Keras backend rest on this.
"""

import dataclasses
import functools
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Part = tuple[int, int]  # (i, k): the i-th of k equal parts of a batch
WHOLE: Part = (0, 1)
COUNTED = 10_000  # images whose pixels are counted at a time
PAD = 8  # pixels around an image before it is cut: the most by which it may be moved


@dataclass(frozen=True)
class Split:
    """Inputs x [n, ...] and targets y [n, ...], which a network reads as they are stored."""

    x: NDArray[Any]
    y: NDArray[Any]
    ten_crops: ClassVar[bool] = False
    """Whether an evaluation reads ten crops of each example; photographs may."""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input."""
        return tuple(self.x.shape[1:])

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits of the inputs and targets."""
        content = hashlib.sha256(self.x.data)
        content.update(self.y.data)
        return content.hexdigest()[:8]

    def head(self, n: int) -> "Split":
        """Return the split of the first n examples, or of all where there are fewer."""
        return dataclasses.replace(self, x=self.x[:n], y=self.y[:n])

    def tail(self, n: int) -> "Split":
        """Return the split of the last n examples, of which there must be so many."""
        cut = len(self) - n
        return dataclasses.replace(self, x=self.x[cut:], y=self.y[cut:])

    def take(self, index: NDArray[np.int64] | slice) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs [b, ...] and targets [b, ...] as the network reads them."""
        return self.x[index], self.y[index]

    def train_batch(
        self, step: int, batch_size: int, seed: int, shift: int | None, part: Part = WHOLE
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the batch of that step: every epoch a new order, a last partial batch left out.

        `shift` is for images, which are moved by at most so many pixels and flipped at random
        (None: neither); `part` cuts the batch for devices or machines that share it.
        """
        mine = share(batch_size, part)
        index = batch_index(len(self), step, batch_size, seed)[mine]
        if shift is None:
            return self.take(index)
        rng = np.random.default_rng([seed, 1, step])
        corners = PAD - shift + rng.integers(0, 2 * shift + 1, (batch_size, 2))
        flips = rng.random((batch_size,)) < 0.5
        return self.cut(index, corners[mine], flips[mine])

    def cut(
        self, index: NDArray[np.int64], corners: NDArray[np.int64], flips: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what `take` does, images padded, cut at upper left `corners` [b, 2], flipped."""
        x, y = self.take(index)  # padded, cropped and flipped as by He et al. 2015, section 4.2
        _, h, w, _ = x.shape
        padded = np.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
        batch = np.empty_like(x)
        for i, (row, column) in enumerate(corners):
            crop = padded[i, row : row + h, column : column + w]
            batch[i] = crop[:, ::-1] if flips[i] else crop
        return batch, y

    def eval_batch(self, number: int, batch_size: int) -> tuple[NDArray[Any], ...]:
        """Return examples number * batch_size, ... in order, with weights float32 [b].

        Batches are of one size, which devices can share evenly: the last is filled up by examples
        of weight 0.
        """
        index = np.arange(number * batch_size, (number + 1) * batch_size)
        weight = (index < len(self)).astype(np.float32)
        return *self.take(np.minimum(index, len(self) - 1)), weight


@dataclass(frozen=True)
class Pictures(Split):
    """Images uint8 [n, h, w, c] and labels int64 [n], with the training set's channel moments."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @property
    def images(self) -> NDArray[np.uint8]:
        """Return the inputs; [n, h, w, c]."""
        return self.x

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the targets; [n]."""
        return self.y

    def take(self, index: NDArray[np.int64] | slice) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return standardized images float32 [b, h, w, c] and labels int32 [b]."""
        images = self.images[index].astype(np.float32) / 255
        return (images - self.mean) / self.std, self.labels[index].astype(np.int32)


@functools.lru_cache(maxsize=4)
def order(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order in which an epoch visits n examples; [n]."""
    return np.random.default_rng([seed, 0, epoch]).permutation(n)


def batch_index(n: int, step: int, batch_size: int, seed: int) -> NDArray[np.int64]:
    """Return which of n examples make the batch of that step; [batch_size]."""
    epoch, position = divmod(step, n // batch_size)
    return order(n, seed, epoch)[position * batch_size : (position + 1) * batch_size]


def share(batch_size: int, part: Part) -> slice:
    """Return where in a batch one of its equal parts lies."""
    i, parts = part
    size = batch_size // parts
    return slice(i * size, (i + 1) * size)


def channel_moments(images: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and standard deviation of each channel, of pixels in [0, 1]; [c], [c]."""
    values, counts = np.arange(256) / 255, np.zeros((images.shape[-1], 256), np.int64)
    for first in range(0, len(images), COUNTED):  # numpy counts integers of 64 bits
        for i, channel in enumerate(np.moveaxis(images[first : first + COUNTED], -1, 0)):
            counts[i] += np.bincount(channel.ravel(), minlength=256)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 1e-12))
    return mean.astype(np.float32), std.astype(np.float32)
