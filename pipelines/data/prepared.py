"""Data sets of stored pictures: a row of the table, and what is read of it.

Parts are `train` and `test`; validation examples are cut from the end of `train`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.data import _builtin
from pipelines.errors import Unavailable, UserError
from pipelines.runtime import backend

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images [n, h, w, c], labels [n]
Cut = tuple[str, slice]  # examples of a part


@dataclass(frozen=True)
class Dataset:
    """A row of the table: where the pictures come from and how they are cut."""

    builder: str
    classes: int
    shape: tuple[int, int, int]
    val_percent: int
    test: str = "test"  # what tensorflow-datasets calls that part
    photographs: bool = False  # of many sizes, too many for memory
    generate: Callable[[], dict[str, _builtin.Examples]] | None = None
    manual: tuple[str, ...] = ()  # archives that a person has to fetch ...
    manual_from: str = ""  # ... and where

    @property
    def arguments(self) -> dict[str, Any]:
        """What a recipe may say of how its pictures are read, and what holds where it does not."""
        return {} if self.photographs else {"standardized": True}

    def cuts(self, count: Callable[[str], int], limit: int | None = None) -> list[Cut]:
        """Training, validation and test examples, in parts of `count` examples.

        Training as tensorflow-datasets rounds `train[:99%]`, then the first `limit` of it;
        validation is the rest, and never empty.
        """
        whole, tests = count("train"), count("test")
        cut = min(round(whole * (100 - self.val_percent) / 100), whole - 1)
        train = slice(0, cut if limit is None else min(limit, cut))
        return [("train", train), ("train", slice(cut, whole)), ("test", slice(0, tests))]

    def counts(self, folder: Path) -> dict[str, int]:
        """Return the examples in each part, as written in the folder of a prepared version."""
        try:
            about = json.loads((folder / "dataset_info.json").read_text())
            stored = {part["name"]: sum(map(int, part["shardLengths"])) for part in about["splits"]}
            return {"train": stored["train"], "test": stored[self.test]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"What is prepared must be readable. Received: {folder}: {error!r}. Delete this "
                "folder and make it anew: python -m pipelines data prepare NAME"
            ) from error


class Stored(Protocol):
    """Arrays on disk, packed or prepared by tensorflow-datasets."""

    @property
    def where(self) -> Mapping[str, str]:
        """Its folder and version."""

    def count(self, part: str) -> int:
        """How many examples a part has."""

    def read(self, part: str, cut: slice) -> Examples:
        """Some examples of a part, in stored order."""


@dataclass(frozen=True)
class Prepared:
    """A data set in the folder of tensorflow-datasets, whose part `test` has a name of its own."""

    builder: Any
    test: str = "test"
    state = "prepared"

    @property
    def where(self) -> dict[str, str]:
        return {"folder": str(self.builder.data_path), "version": str(self.builder.version)}

    def _file(self, part: str) -> str:
        return self.test if part == "test" else part

    def count(self, part: str) -> int:
        return int(self.builder.info.splits[self._file(part)].num_examples)

    def read(self, part: str, cut: slice) -> Examples:
        """Images uint8 [n, h, w, c] and labels int64 [n] of some examples, in stored order."""
        tf = backend.tensorflow()
        split = f"{self._file(part)}[{cut.start}:{cut.stop}]"
        ds = self.builder.as_dataset(split=split, shuffle_files=False)
        ds = ds.map(lambda example: (example["image"], example["label"]))
        batches = ds.batch(1024).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
        count = cut.stop - cut.start
        images = np.empty((count, *self.builder.info.features["image"].shape), np.uint8)
        labels = np.empty(count, np.int64)
        for number, (image, label) in enumerate(batches):
            place = slice(1024 * number, 1024 * number + len(label))
            images[place], labels[place] = image, label
        return images, labels

    def decode(self, part: str, number: int) -> None:
        """Read one example, of any size: a photograph has its own."""
        split = f"{self._file(part)}[{number}:{number + 1}]"
        for _ in self.builder.as_dataset(split=split, shuffle_files=False):
            pass


def check_fits(name: str, shape: tuple[int, ...], count: int) -> None:
    """Unavailable where that many examples of one byte a number do not fit in memory."""
    import psutil

    need, free = count * int(np.prod(shape)), psutil.virtual_memory().available
    if need > 0.8 * free:
        raise Unavailable(
            f"The examples must fit in memory. Received: {count} of {name} need "
            f"{need >> 20} MiB, {free >> 20} MiB are free. Set --train-examples to use fewer."
        )
