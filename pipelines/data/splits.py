"""The parts of a data set: training, validation and test, and what is learned from them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipelines.data.batches import Photographs, Pictures, Split
from pipelines.data.tasks import CLASSIFICATION, Task
from pipelines.errors import UserError


@dataclass(frozen=True)
class Splits:
    """Three disjoint parts of one data set, and what is learned from them.

    `classes` is the size of a network's output; `source` says where the arrays come from.
    """

    name: str
    classes: int
    train: Split | Photographs
    val: Split | Photographs
    test: Split | Photographs
    task: Task = field(default=CLASSIFICATION, kw_only=True)
    source: str = field(default="tensorflow_datasets", kw_only=True)

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits of the training examples."""
        return self.train.digest

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.shape

    def untested(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return all pictures that are not for testing, as rows of pixels [n, d], and labels [n].

        Raise UserError for data that are no pictures of one size, in memory.
        """
        parts = [part for part in (self.train, self.val) if isinstance(part, Pictures)]
        if len(parts) < 2:
            raise no_points(self.name)
        images = np.concatenate([part.images for part in parts])
        return images.reshape(len(images), -1), np.concatenate([part.labels for part in parts])


def no_points(name: str) -> UserError:
    """Return the error for data that are no pictures of one size, in memory."""
    return UserError(
        f"Points must be pictures of one size, in memory. Received: --data {name}. Choose one of "
        "mnist, cifar10, cifar100 and digits."
    )
