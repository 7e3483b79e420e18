"""Data sets by name: one table, and what every kind of them can do.

A kind is a class of another module, which is imported when a data set of that kind is used: stored
images, stored photographs, samples of a teacher. To add a data set, add a line to the table; one
that needs no download has a function in embedded.py, too, a teacher one in generated.py.
"""

import contextlib
import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.data.splits import Pictures, Split
from pipelines.data.task_metrics import CLASSIFICATION, Task
from pipelines.errors import Unavailable, UserError, unknown

if TYPE_CHECKING:
    from pipelines.data.streamed import Photographs

AnySplit: TypeAlias = "Split | Photographs"  # one of photographs stays on disk, and is no Split
PICTURES = "pictures.StoredPictures"
PHOTOGRAPHS = "photographs.StoredPhotographs"
SAMPLES = "generated.Samples"
OWN_NAME = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}")  # of a person's own: title, digest of its content
DATASETS: dict[str, tuple[Any, ...]] = {  # the kind, and its fields in their order
    "digits": (PICTURES, "digits", 10, (8, 8, 1), 20),
    "synthetic": (PICTURES, "synthetic", 10, (32, 32, 3), 10),
    "mnist": (PICTURES, "mnist", 10, (28, 28, 1), 10),
    "cifar10": (PICTURES, "cifar10", 10, (32, 32, 3), 10),
    "cifar100": (PICTURES, "cifar100", 100, (32, 32, 3), 10),
    "imagenet2012": (PHOTOGRAPHS, "imagenet2012", 1000, (224, 224, 3), 1, "validation"),
    "imagenet32": (PICTURES, "imagenet_resized/32x32", 1000, (32, 32, 3), 1, "validation"),
    "tiny-imagenet": (PICTURES, "tiny_imagenet/64x64", 200, (64, 64, 3), 10),
    "tiny-imagenet32": (PICTURES, "tiny_imagenet/32x32", 200, (32, 32, 3), 10),
    "linear-teacher": (SAMPLES, "linear"),
    "relu-teacher": (SAMPLES, "relu", 1, True),
    "three-block-teacher": (SAMPLES, "three_blocks", 1),
}


@dataclass(frozen=True)
class Splits:
    """Three disjoint parts of one data set, and what is learned from them.

    `val` is empty where all that is not for testing is trained on (`has_validation`).
    `classes` is the size of a network's output.
    """

    name: str
    classes: int
    train: AnySplit
    val: AnySplit
    test: AnySplit
    task: Task = field(default=CLASSIFICATION, kw_only=True)

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits of the training examples."""
        return self.train.digest

    @property
    def has_validation(self) -> bool:
        """Return whether some examples are kept for validation."""
        return len(self.val) > 0

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.shape

    def untested(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return all images that are not for testing, as rows of pixels [n, d], and labels [n].

        Raise UserError for data that are no images of one size, in memory.
        """
        parts = [part for part in (self.train, self.val) if isinstance(part, Pictures)]
        if len(parts) < 2:
            raise no_points(self.name)
        images = np.concatenate([part.images for part in parts])
        return images.reshape(len(images), -1), np.concatenate([part.labels for part in parts])


def no_points(name: str) -> UserError:
    """Return the error for data that are no images of one size, in memory."""
    return UserError(
        f"Points must be pictures of one size, in memory. Received: --data {name}. Choose "
        "another, such as mnist, cifar10 or digits."
    )


@dataclass(frozen=True)
class DataSet:
    """A line of the table. Nothing is read from disk before `examples`, `check` or `load`."""

    name: str
    is_classification: ClassVar[bool] = True

    def sizes(self, data_args: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
        """Return the shape of an input, and the number of classes or targets."""
        raise NotImplementedError

    def defaults(self) -> dict[str, Any]:
        """Return all data arguments with their default values."""
        raise NotImplementedError

    def start(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data arguments of a recipe that goes over to this data set.

        `given` are those of the data set that it had.
        """
        return {key: value for key, value in given.items() if key in self.defaults()}

    def check_arguments(self, data_args: Mapping[str, Any]) -> None:
        """Raise UserError unless these are arguments of the data set, with values that it takes."""
        known = self.defaults()
        for key in data_args:
            if key not in known:
                raise unknown(f"A data argument of {self.name}", key, known or ["none"])

    def unsuitable_settings(self) -> dict[str, str]:
        """Return the settings that such data do not allow, with the options that leave them out."""
        return {}

    def check_points(self) -> None:
        """Raise UserError unless the data are images of one size, in memory."""
        if self.unsuitable_settings():
            raise no_points(self.name)

    def examples(self, data_args: Mapping[str, Any], validation: bool = True) -> int:
        """Return how many training examples there are, by what is written beside them.

        Quick, without TensorFlow. Raise UserError if the data set is not there.
        """
        raise NotImplementedError

    def load(
        self, train_examples: int | None, data_args: Mapping[str, Any], validation: bool = True
    ) -> Splits:
        """Return the three parts, with the first `train_examples` of the training part.

        Without `validation` that part is empty, and stored images of it are for training.
        """
        raise NotImplementedError

    def check(self, required: bool = False) -> dict[str, Any]:
        """Return what is prepared, from its files alone: the network is never touched.

        Read one example of every part. Raise UserError if the data set is `required` and not there.
        """
        raise NotImplementedError

    def origin(self) -> tuple[str, dict[str, Any]]:
        """Return where its examples come from: a type of MLflow's data sources, and its fields."""
        return "code", {"tags": {"data": self.name}}

    def describe(self, splits: Splits) -> dict[str, Any]:
        """Return what MLflow is told of the parts: source, shapes of the examples, profile."""
        kind, source = self.origin()
        target = ("int64", [-1]) if self.is_classification else ("float32", [-1, splits.classes])
        pixels = "uint8" if self.is_classification else "float32"
        return {
            "source_type": kind,
            "source": source,
            "schema": {"features": (pixels, [-1, *splits.input_shape]), "targets": target},
            "profile": {
                **{part: len(getattr(splits, part)) for part in ("train", "val", "test")},
                "classes": splits.classes,
            },
        }

    def prepare(self) -> Path:
        """Download or generate the data set and prepare it; return its folder."""
        raise UserError(
            f"Only stored data sets are prepared. Received: {self.name}, which is drawn in memory. "
            "Use it as it is."
        )

    def pack(self) -> Path:
        """Write the data set into one file, which is read instead from then on; return its path."""
        raise UserError(
            f"Only stored data sets that fit in memory are packed. Received: {self.name}. Use it "
            "as it is."
        )


def get(name: str) -> DataSet:
    """Return the data set of that name. Raise UserError if there is none.

    One that is not in the table may be a person's own, which is in the data folder.
    """
    if name not in DATASETS:
        if not OWN_NAME.fullmatch(name):
            raise unknown("A data set", name, DATASETS, "python -m pipelines data")
        own: DataSet = importlib.import_module("pipelines.data.own.stored").find(name)
        return own
    kind, *fields = DATASETS[name]
    module, _, maker = kind.partition(".")
    data_set: DataSet = getattr(importlib.import_module(f"pipelines.data.{module}"), maker)(
        name, *fields
    )
    return data_set


def names() -> list[str]:
    """Return the names of all data sets: of the table, and of a person's own that are here."""
    own = (path.stem for path in data_home().glob("*.npz"))
    return [*DATASETS, *sorted(filter(OWN_NAME.fullmatch, own))]


def require(name: str) -> None:
    """Raise UserError unless the data set is there; quick, without TensorFlow."""
    get(name).examples({})


def load(
    name: str,
    train_examples: int | None = None,
    data_args: Mapping[str, Any] | None = None,
    validation: bool = True,
) -> Splits:
    """Return the training, validation and test part of a data set, always cut, or drawn, alike.

    Validation is the last `val_percent` of the stored training order, which tensorflow-datasets
    shuffles by a hash; without `validation` it is empty, and all are for training. The embedded
    sets are prepared on first use. The data argument `standardized=False` leaves the pixels of
    stored images in [0, 1]. Raise UserError, at once and without touching the network, for a data
    set that is not there.
    """
    data_set, data_args = get(name), dict(data_args or {})
    data_set.check_arguments(data_args)
    return data_set.load(train_examples, data_args, validation)


def data_home() -> Path:
    """Return the folder of prepared data: TFDS_DATA_DIR, which --data-dir sets, else TFDS's own.

    Raise UserError for a bucket, and where the user has no home folder and names no other.
    """
    given = os.environ.get("TFDS_DATA_DIR")
    if given and re.match(r"\w+:/", given):  # a Path has one slash of the two
        raise UserError(
            f"Prepared data must be in a folder of this machine. Received: {given}. Mount it, or "
            "copy it, then name that folder by TFDS_DATA_DIR or --data-dir."
        )
    with contextlib.suppress(RuntimeError):  # a user may have no account
        if given or Path.home().is_dir():
            return Path(given or "~/tensorflow_datasets").expanduser().resolve()
    raise UserError(
        f"The folder of prepared data must be known. Received: {given or 'none'}, and this user "
        "has no home folder. Name one by TFDS_DATA_DIR or --data-dir."
    )


def check_fits(name: str, shape: tuple[int, ...], count: int) -> None:
    """Raise Unavailable if that many examples of one byte a number do not fit in memory."""
    import psutil

    need, free = count * int(np.prod(shape)), psutil.virtual_memory().available
    if need > 0.8 * free:
        raise Unavailable(
            f"The examples must fit in memory. Received: {count} of {name} need "
            f"{need >> 20} MiB, {free >> 20} MiB are free. Set --train-examples to use fewer."
        )
