"""Data sets of stored pictures: a row of the table, and what is read of it.

Part names are those of the files (`train`, `test` or `validation`); validation examples are cut
from the end of `train`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines import embedded
from pipelines.errors import UserError

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images [n, h, w, c], labels [n]
Cut = tuple[str, slice]  # examples of a part


@dataclass(frozen=True)
class Dataset:
    """A row of the table: where the pictures come from and how they are cut."""

    builder: str
    classes: int
    shape: tuple[int, int, int]
    val_percent: int
    test: str = "test"
    photographs: bool = False  # of many sizes, too many for memory
    generate: Callable[[], dict[str, embedded.Examples]] | None = None
    manual: tuple[str, ...] = ()  # archives that a person has to fetch ...
    manual_from: str = ""  # ... and where

    def cuts(self, count: Callable[[str], int], limit: int | None = None) -> list[Cut]:
        """Training, validation and test examples, in parts of `count` examples.

        Training as tensorflow-datasets rounds `train[:99%]`, then the first `limit` of it;
        validation is the rest, and never empty.
        """
        whole, tests = count("train"), count(self.test)
        cut = min(round(whole * (100 - self.val_percent) / 100), whole - 1)
        train = slice(0, cut if limit is None else min(limit, cut))
        return [("train", train), ("train", slice(cut, whole)), (self.test, slice(0, tests))]


class Stored(Protocol):
    """Arrays on disk, packed or prepared by tensorflow-datasets."""

    @property
    def where(self) -> Mapping[str, str]:
        """Its folder and version."""

    def count(self, part: str) -> int:
        """How many examples a part has."""

    def read(self, part: str, cut: slice) -> Examples:
        """Some examples of a part, in stored order."""


def check_fits(name: str, shape: tuple[int, ...], count: int) -> None:
    """UserError where that many examples of one byte a number do not fit in memory."""
    import psutil

    need, free = count * int(np.prod(shape)), psutil.virtual_memory().available
    if need > 0.8 * free:
        raise UserError(
            f"The examples must fit in memory. Received: {count} of {name} need "
            f"{need >> 20} MiB, {free >> 20} MiB are free. Set --train-examples to use fewer."
        )
