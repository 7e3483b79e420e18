"""Data sets: one table, read through tensorflow-datasets or drawn, held in memory as arrays.

The only module that imports tensorflow-datasets. What is done with the arrays is in batches.py.
"""

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import embedded, live, quiet, samples
from pipelines.batches import Pictures, Splits, channel_moments
from pipelines.errors import UserError, unknown
from pipelines.samples import Samples


@dataclass(frozen=True)
class Dataset:
    """A row of the table for stored pictures: where they come from and how they are cut."""

    builder: str
    classes: int
    shape: tuple[int, int, int]
    val_percent: int
    test: str = "test"
    generate: Callable[[], dict[str, embedded.Examples]] | None = None
    manual: tuple[str, ...] = ()  # archives that a person has to fetch ...
    manual_from: str = ""  # ... and where


DATASETS: dict[str, Dataset | Samples] = {
    "digits": Dataset("digits", 10, (8, 8, 1), 20, generate=embedded.digits),
    "synthetic": Dataset("synthetic", 10, (32, 32, 3), 10, generate=embedded.synthetic),
    "mnist": Dataset("mnist", 10, (28, 28, 1), 10),
    "cifar10": Dataset("cifar10", 10, (32, 32, 3), 10),
    "cifar100": Dataset("cifar100", 100, (32, 32, 3), 10),
    "imagenet2012": Dataset(
        "imagenet2012",
        1000,
        (224, 224, 3),
        1,
        test="validation",
        manual=("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"),
        manual_from="image-net.org, after registration",
    ),
    "linear-teacher": Samples(samples.linear),
}


def data_home() -> Path:
    """The folder of prepared data: TFDS_DATA_DIR, which --data-dir sets, else the TFDS default."""
    return Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser().resolve()


def defaults(name: str) -> dict[str, Any]:
    """The data arguments of a data set with their default values; none for a stored one."""
    row = DATASETS.get(name)
    return row.defaults() if isinstance(row, Samples) else {}


def load(
    name: str, train_examples: int | None = None, data_args: Mapping[str, Any] | None = None
) -> Splits:
    """Train, validation and test arrays of a data set, always cut, or drawn, the same way.

    Validation is the last `val_percent` of the stored training order, which tensorflow-datasets
    shuffles by a hash; the embedded sets are prepared on first use. Raises UserError, at once and
    without touching the network, for a data set that is not there.
    """
    row, data_args = _row(name), data_args or {}
    for key in data_args.keys() - defaults(name).keys():
        raise unknown(f"A data argument of {name}", key, defaults(name) or ["none"])
    if isinstance(row, Samples):
        return samples.draw(name, row.teacher, train_examples, **data_args)
    if row.generate and _find(row) is None:
        prepare(name)
    builder = _find(row)
    if builder is None:
        raise UserError(_how_to_get(name, row))
    _must_fit(name, builder, row, train_examples)
    train, val, test = _splits(row)
    arrays = [
        _read(builder, train, row, train_examples),
        _read(builder, val, row),
        _read(builder, test, row),
    ]
    mean, std = channel_moments(arrays[0][0])
    return Splits(name, row.classes, *(Pictures(*part, mean, std) for part in arrays))


def _row(name: str) -> Dataset | Samples:
    if name not in DATASETS:
        raise unknown("A data set", name, DATASETS)
    return DATASETS[name]


def _find(row: Dataset) -> Any:
    """The builder of a prepared data set, made from its files alone, or None."""
    folder = data_home() / row.builder
    with contextlib.suppress(OSError):
        versions = sorted(p.parent for p in folder.glob("[0-9]*.*.*/dataset_info.json"))
        if versions:
            import tensorflow_datasets as tfds

            return tfds.builder_from_directory(versions[-1])
    return None


def _how_to_get(name: str, row: Dataset) -> str:
    home = data_home()
    files = f"{' and '.join(row.manual)} (from {row.manual_from}) into {_manual(home)}"
    steps = f"put {files}, then run" if row.manual else "run"
    return (
        f"Data set {name} must be prepared before it is used. Received: none in {home}. "
        f"To prepare it, {steps}: python -m pipelines data prepare {name} --data-dir {home}"
    )


def _manual(home: Path) -> Path:
    """Where tensorflow-datasets looks for archives fetched by hand."""
    return home / "downloads" / "manual"


def _must_fit(name: str, builder: Any, row: Dataset, limit: int | None) -> None:
    import psutil

    train, *others = (builder.info.splits[split].num_examples for split in _splits(row))
    count = min(limit or train, train) + sum(others)
    need, free = count * int(np.prod(row.shape)), psutil.virtual_memory().available
    if need > 0.8 * free:
        raise UserError(
            f"The examples must fit in memory. Received: {count} of {name} need "
            f"{need >> 20} MiB, {free >> 20} MiB are free. Set --train-examples to use fewer."
        )


def _read(
    builder: Any, split: str, row: Dataset, limit: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images uint8 [n, h, w, c] and labels int64 [n] of one split, pictures cut to one size."""
    tf = quiet.tensorflow()
    ds = builder.as_dataset(split=split, shuffle_files=False)
    if row.builder == "imagenet2012":
        ds = ds.map(functools.partial(_centre_crop, row.shape), num_parallel_calls=2)
    ds = ds.map(lambda example: (example["image"], example["label"]))
    ds = ds.take(limit if limit is not None else -1).batch(1024).prefetch(tf.data.AUTOTUNE)
    images, labels = zip(*ds.as_numpy_iterator(), strict=True)
    return np.concatenate(images), np.concatenate(labels).astype(np.int64)


def _centre_crop(shape: tuple[int, int, int], example: Any) -> Any:
    """Shorter side resized to 8/7 of the crop (256 for 224), then the centre crop."""
    import tensorflow as tf

    image, (height, width, _) = example["image"], shape
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    scaled = tf.cast(tf.round(size * (height * 8 / 7) / tf.reduce_min(size)), tf.int32)
    image = tf.image.resize(image, scaled, antialias=True)
    image = tf.image.resize_with_crop_or_pad(image, height, width)
    return {"image": tf.saturate_cast(tf.round(image), tf.uint8), "label": example["label"]}


def check(name: str, required: bool = False) -> dict[str, Any]:
    """What is prepared of a data set, from its files alone: never touches the network.

    Reads one example of every split. UserError if it is `required` and not there. What is drawn
    in memory is always there, in the sizes that its data arguments say.
    """
    row = _row(name)
    if isinstance(row, Samples):
        sizes = {part: row.defaults()[f"{part}_size"] for part in ("train", "val", "test")}
        return {"name": name, "prepared": True, "state": "generated", **sizes}
    builder = _find(row)
    if builder is None:
        if required and not row.generate:
            raise UserError(_how_to_get(name, row))
        state = "on first use" if row.generate else "not prepared"
        return {"name": name, "prepared": False, "state": state}
    quiet.tensorflow()
    parts = dict(zip(("train", "val", "test"), _splits(row), strict=True))
    for split in parts.values():
        next(iter(builder.as_dataset(split=split).take(1)))
    sizes = {part: builder.info.splits[split].num_examples for part, split in parts.items()}
    where = {"folder": str(builder.data_path), "version": str(builder.version)}
    return {"name": name, "prepared": True, "state": "prepared", **where, **sizes}


def _splits(row: Dataset) -> tuple[str, str, str]:
    """Train, validation and test in tensorflow-datasets' split notation; disjoint."""
    cut = 100 - row.val_percent
    return f"train[:{cut}%]", f"train[{cut}%:]", row.test


def prepare(name: str) -> Path:
    """Download (or generate) and prepare a data set; returns its folder."""
    import tensorflow_datasets as tfds

    row, home = _row(name), data_home()
    if isinstance(row, Samples):
        raise UserError(
            f"Only stored data sets are prepared. Received: {name}, which is drawn in memory. "
            "Use it as it is."
        )
    if row.generate:
        with live.locked(home, f".{name}"):  # two first runs at once prepare it once
            if _find(row) is None:
                _store(row, home)
        return home / row.builder
    if not all((_manual(home) / file).exists() for file in row.manual):
        raise UserError(_how_to_get(name, row))
    config = tfds.download.DownloadConfig(manual_dir=str(_manual(home))) if row.manual else None
    builder = tfds.builder(row.builder, data_dir=str(home))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare(download_config=config)
    except (OSError, tfds.download.DownloadError) as error:
        raise UserError(
            f"{name} could not be downloaded. Received: {str(error).splitlines()[0]}. "
            "Check the network and the disk, then repeat the command."
        ) from error
    return home / row.builder


def _store(row: Dataset, home: Path) -> None:
    """Write an embedded data set in tensorflow-datasets' own format, without its chatter."""
    tf = quiet.tensorflow()
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    image = tfds.features.Image(shape=row.shape)
    label = tfds.features.ClassLabel(num_classes=row.classes)
    parts = row.generate() if row.generate else {}
    with contextlib.redirect_stdout(io.StringIO()):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=row.builder,
            version="1.0.0",
            data_dir=home,
            description=row.generate.__doc__,
            features=tfds.features.FeaturesDict({"image": image, "label": label}),
            split_datasets={k: tf.data.Dataset.from_tensor_slices(v) for k, v in parts.items()},
        )
