"""Data sets of stored images of one size, which fit in memory: packed, or prepared.

tensorflow-datasets is not imported where a packed file is there. Parts are `train` and `test`;
validation examples are cut from the end of `train`. Sets that need no download (embedded.py) are
stored and read like every other.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipelines.data import packed, task_metrics, tiny_imagenet
from pipelines.data.datasets import DataSet, Splits, check_fits, data_home
from pipelines.data.embedded import EMBEDDED
from pipelines.data.packed import Examples, Packed
from pipelines.data.splits import Pictures, channel_moments
from pipelines.data.whitening import whiten
from pipelines.errors import DAMAGE_ERRORS, Unavailable, UserError, short
from pipelines.runtime import backend, files

VERSION = r"\d+\.\d+\.\d+"  # names a folder that tensorflow-datasets has finished
CATALOG = "https://www.tensorflow.org/datasets/catalog/"  # a page a data set
FEATURES = "tensorflow_datasets.core.features."
Cut = tuple[str, slice]  # examples of a part


@dataclass(frozen=True)
class StoredPictures(DataSet):
    """Stored images of one size: where they come from and how they are cut."""

    builder: str  # the data set's name in tensorflow-datasets
    classes: int
    shape: tuple[int, int, int]
    val_percent: int
    test: str = "test"  # that part's name there
    manual: ClassVar[tuple[str, ...]] = ()  # archives that a person has to fetch ...
    manual_from: ClassVar[str] = ""  # ... and where
    arguments: ClassVar[Mapping[str, Any]] = {"standardized": True, "whitened": False}

    def sizes(self, data_args: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
        return self.shape, self.classes

    def defaults(self) -> dict[str, Any]:
        """Return what a recipe may say of how its images are read, with the default values."""
        return dict(self.arguments)

    def check_arguments(self, data_args: Mapping[str, Any]) -> None:
        """Raise UserError for an argument that such data do not have, or that is no bool."""
        super().check_arguments(data_args)
        for key, value in data_args.items():
            if not isinstance(value, bool):
                raise UserError(f"{key} must be True or False. Received: {key}={value!r}.")

    def examples(self, data_args: Mapping[str, Any], validation: bool = True) -> int:
        (_, train), *_ = self.cuts(self._counts().__getitem__, validation=validation)
        return int(train.stop)

    def cuts(
        self, count: Callable[[str], int], limit: int | None = None, validation: bool = True
    ) -> list[Cut]:
        """Return the training, validation and test examples, in parts of `count` examples.

        Training as tensorflow-datasets rounds `train[:99%]`, then the first `limit` of it;
        validation is the rest, and never empty. Without `validation` training has all of it.
        """
        whole, tests = count("train"), count("test")
        cut = min(round(whole * (100 - self.val_percent) / 100), whole - 1) if validation else whole
        train = slice(0, cut if limit is None else min(limit, cut))
        return [("train", train), ("train", slice(cut, whole)), ("test", slice(0, tests))]

    def load(
        self, train_examples: int | None, data_args: Mapping[str, Any], validation: bool = True
    ) -> Splits:
        """Return the three parts in memory, with the channel moments of the training part."""
        stored = self._open()
        parts = self.cuts(stored.count, train_examples, validation)
        chosen = {**self.arguments, **data_args}
        count = sum(cut.stop - cut.start for _, cut in parts)
        check_fits(self.name, self.shape, count * (9 if chosen["whitened"] else 1))
        arrays = [stored.read(part, cut) for part, cut in parts]
        task = task_metrics.TOP5 if self.classes == 1000 else task_metrics.CLASSIFICATION
        if chosen["whitened"]:
            return Splits(self.name, self.classes, *whiten(arrays), task=task)
        mean, std = channel_moments(arrays[0][0])
        if not chosen["standardized"]:
            mean, std = np.zeros_like(mean), np.ones_like(std)
        splits = (Pictures(*part, mean, std) for part in arrays)
        return Splits(self.name, self.classes, *splits, task=task)

    def check(self, required: bool = False) -> dict[str, Any]:
        """Return what is prepared, once one example of every part has been read."""
        embedded = self.name in EMBEDDED
        if not (self._packed_file.exists() or self._folder() or (required and not embedded)):
            state = "on first use" if embedded else "not prepared"
            return {"name": self.name, "prepared": False, "state": state}
        stored = self._open()
        cuts = dict(zip(("train", "val", "test"), self.cuts(stored.count), strict=True))
        if isinstance(stored, Prepared):  # a packed one was read whole
            for part, cut in cuts.values():
                stored.decode(part, cut.start)
        sizes = {key: cut.stop - cut.start for key, (_, cut) in cuts.items()}
        about = {"name": self.name, "prepared": True, "state": stored.state}
        return {**about, **stored.where, **sizes}

    def origin(self) -> tuple[str, dict[str, Any]]:
        """Return the page of the data set; `code` of one that is made here."""
        if self.name in EMBEDDED:
            return super().origin()
        if self.name.startswith("tiny-imagenet"):
            return "http", {"url": tiny_imagenet.URL}
        return "http", {"url": CATALOG + self.builder.partition("/")[0]}

    def prepare(self) -> Path:
        home = data_home()
        if self.name in EMBEDDED:
            with files.lock(home, f".{self.name}"):  # two first runs at once prepare it once
                self._store(home)
            return home / self.builder
        by_hand = home / "downloads" / "manual"  # where tensorflow-datasets looks for archives
        if not all((by_hand / file).exists() for file in self.manual):
            raise self._not_prepared()
        tfds = _tfds(self.name)
        from pipelines.data import builders

        config = tfds.download.DownloadConfig(manual_dir=str(by_hand)) if self.manual else None
        try:
            builder = builders.get(self.builder, home)
        except (ValueError, AssertionError, tfds.core.DatasetNotFoundError) as error:
            raise UserError(
                "A data set must be one that tensorflow-datasets knows. Received: "
                f"{self.builder}. Its names: https://www.tensorflow.org/datasets/catalog"
            ) from error
        try:
            with contextlib.redirect_stdout(sys.stderr):
                builder.download_and_prepare(download_config=config)
        except (OSError, tfds.download.DownloadError) as error:
            raise Unavailable(
                f"{self.name} could not be downloaded. Received: {str(error).splitlines()[0]}. "
                "Check the network and the disk, then repeat the command."
            ) from error
        return home / self.builder

    def pack(self) -> Path:
        stored = self._open_prepared()
        counts = [stored.count(part) for part in packed.PARTS]
        check_fits(self.name, self.shape, sum(counts))
        parts = [stored.read(p, slice(0, n)) for p, n in zip(packed.PARTS, counts, strict=True)]
        version = stored.where["version"]
        return packed.write(self._packed_file, self.name, version, self.classes, parts)

    @property
    def _packed_file(self) -> Path:
        return data_home() / f"{self.name}.npz"

    def _open(self) -> "Packed | Prepared":
        """Return the packed data set if there is one, else the prepared one."""
        file = self._packed_file
        if file.exists():
            return packed.read(file, self.name, self.classes, self.shape)
        return self._open_prepared()

    def _open_prepared(self) -> "Prepared":
        """Return the prepared data set; an embedded one is prepared if need be."""
        if self.name in EMBEDDED and self._folder() is None:
            self.prepare()
        return Prepared(self.open_builder(), self.test)

    def open_builder(self) -> Any:
        """Return tensorflow-datasets' builder of what is prepared. UserError if nothing is."""
        if (folder := self._folder()) is None:
            raise self._not_prepared()
        tfds = _tfds(self.name)
        try:
            return tfds.builder_from_directory(folder)
        except Exception as error:  # a parser's or tensorflow-datasets': all mean the same
            raise self._unreadable(folder, error) from error

    def _folder(self) -> Path | None:
        """Return the folder of the newest version that is prepared, or None.

        Raise UserError where it does not say how to read it, or by which modules other than those
        of tensorflow-datasets, which would import them.
        """
        found = (data_home() / self.builder).glob("*/dataset_info.json")
        folders = [path.parent for path in found if re.fullmatch(VERSION, path.parent.name)]
        if not folders:
            return None
        folder = max(folders, key=lambda each: [int(part) for part in each.name.split(".")])

        def check(described: dict[str, Any]) -> None:
            if not str(kind := described.get("pythonClassName", FEATURES)).startswith(FEATURES):
                raise ValueError(f"features.json names {kind}")

        try:
            json.loads((folder / "features.json").read_text(), object_hook=check)
        except DAMAGE_ERRORS as error:  # until version 3.2 there was none
            raise self._unreadable(folder, error) from error
        return folder

    def _counts(self) -> Mapping[str, int]:
        """Return the examples in each part, of an embedded set also before it is prepared."""
        if self._packed_file.exists():
            return packed.counts(self._packed_file, self.name, self.classes, self.shape)
        if (folder := self._folder()) is None:
            if self.name not in EMBEDDED:
                raise self._not_prepared()
            parts = EMBEDDED[self.name].make()
            return {part: len(arrays["label"]) for part, arrays in parts.items()}
        try:
            about = json.loads((folder / "dataset_info.json").read_text())
            counts = {part["name"]: sum(map(int, part["shardLengths"])) for part in about["splits"]}
            return {"train": counts["train"], "test": counts[self.test]}
        except DAMAGE_ERRORS as error:
            raise self._unreadable(folder, error) from error

    def _store(self, home: Path) -> None:
        """Write an embedded data set, unless its newest version is there, without messages."""
        _tfds(self.name).disable_progress_bar()
        from pipelines.data import builders

        builder = builders.EmbeddedPictures(self.builder, self.shape, self.classes, home)
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()

    def _unreadable(self, folder: Path, error: Exception) -> UserError:
        """Return the error for a prepared version that cannot be read."""
        return UserError(
            f"What is prepared must be readable. Received: {folder}: {short(error)}. Delete this "
            f"folder and make it anew: python -m pipelines data prepare {self.name}"
        )

    def _not_prepared(self) -> UserError:
        """Return the error for a data set that is not there: how to get it."""
        home = data_home()
        archives = f"{' and '.join(self.manual)} (from {self.manual_from})"
        steps = f"put {archives} into {home / 'downloads' / 'manual'}, then run"
        return UserError(
            f"Data set {self.name} must be prepared before it is used. Received: none in {home}. "
            f"To prepare it, {steps if self.manual else 'run'}: python -m pipelines data prepare "
            f"{self.name} --data-dir {home}"
        )


@dataclass(frozen=True)
class Prepared:
    """A data set in the folder of tensorflow-datasets, whose part `test` has a name of its own."""

    builder: Any
    test: str = "test"
    state = "prepared"

    @property
    def where(self) -> dict[str, str]:
        return {"folder": str(self.builder.data_path), "version": str(self.builder.version)}

    def file(self, part: str) -> str:
        """Return what tensorflow-datasets calls a part."""
        return self.test if part == "test" else part

    def count(self, part: str) -> int:
        return int(self.builder.info.splits[self.file(part)].num_examples)

    def read(self, part: str, cut: slice) -> Examples:
        """Return images uint8 [n, h, w, c] and labels int64 [n] of some examples."""
        count = cut.stop - cut.start
        images = np.empty((count, *self.builder.info.features["image"].shape), np.uint8)
        labels = np.empty(count, np.int64)
        if not count:  # which tensorflow-datasets refuses
            return images, labels
        tf = backend.tensorflow()
        split = f"{self.file(part)}[{cut.start}:{cut.stop}]"
        ds = self.builder.as_dataset(split=split, shuffle_files=False)
        ds = ds.map(lambda example: (example["image"], example["label"]))
        batches = ds.batch(1024).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
        for number, (image, label) in enumerate(batches):
            place = slice(1024 * number, 1024 * number + len(label))
            images[place], labels[place] = image, label
        return images, labels

    def decode(self, part: str, number: int) -> None:
        """Read one example, of any size: a photograph has its own."""
        split = f"{self.file(part)}[{number}:{number + 1}]"
        for _ in self.builder.as_dataset(split=split, shuffle_files=False):
            pass


def _tfds(name: str) -> Any:
    """Return tensorflow_datasets. Raise UserError if it, or TensorFlow, is not installed."""
    try:
        backend.tensorflow()
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"Without TensorFlow only packed data are read. Received: none in {data_home()}, and "
            f"{error}. Where TensorFlow is, run python -m pipelines data pack {name}, then copy "
            f"its {name}.npz here."
        ) from error
    return tfds
