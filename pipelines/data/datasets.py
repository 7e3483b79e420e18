"""Data sets: one table, read through tensorflow-datasets, from a packed file, or drawn.

The only module that imports tensorflow-datasets, and not where a packed file is there. What is
done with arrays is in batches.py, with photographs, which stay on disk, in photographs.py.
"""

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data import _builtin, _tfrecords, generated, packed, streamed, tasks
from pipelines.data.batches import Pictures, channel_moments
from pipelines.data.generated import Samples
from pipelines.data.prepared import Dataset, Prepared, check_fits
from pipelines.data.splits import Splits, no_points
from pipelines.data.streamed import Photographs
from pipelines.errors import Unavailable, UserError, unknown
from pipelines.runtime import backend, files

DATASETS: dict[str, Dataset | Samples] = {
    "digits": Dataset("digits", 10, (8, 8, 1), 20, generate=_builtin.digits),
    "synthetic": Dataset("synthetic", 10, (32, 32, 3), 10, generate=_builtin.synthetic),
    "mnist": Dataset("mnist", 10, (28, 28, 1), 10),
    "cifar10": Dataset("cifar10", 10, (32, 32, 3), 10),
    "cifar100": Dataset("cifar100", 100, (32, 32, 3), 10),
    "imagenet2012": Dataset(
        "imagenet2012",
        1000,
        (224, 224, 3),
        1,
        test="validation",
        photographs=True,
        manual=("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"),
        manual_from="image-net.org, after registration",
    ),
    "imagenet32": Dataset("imagenet_resized/32x32", 1000, (32, 32, 3), 1, test="validation"),
    "linear-teacher": Samples(generated.linear),
    "relu-teacher": Samples(generated.relu, outputs=1, of_model=True),
    "three-block-teacher": Samples(generated.three_blocks, outputs=1),
}


def data_home() -> Path:
    """The folder of prepared data: TFDS_DATA_DIR, which --data-dir sets, else the TFDS default."""
    return Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser().resolve()


def start(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The data arguments of a recipe that goes over to this data set from one with those `given`.

    Those of a drawn one, by default; of stored pictures those given that are theirs too.
    """
    row = DATASETS.get(name)
    if isinstance(row, Samples):
        return row.defaults()
    return {key: value for key, value in given.items() if row and key in row.arguments}


def check_arguments(name: str, data_args: Mapping[str, Any]) -> None:
    """Raise UserError for an unknown data set, or arguments that are not its own."""
    row = _row(name)
    if isinstance(row, Samples):
        row.check(name, data_args)
        return
    for key, value in data_args.items():
        if key not in row.arguments:
            raise unknown(f"A data argument of {name}", key, row.arguments or ["none"])
        if not isinstance(value, bool):
            raise UserError(f"{key} must be True or False. Received: {key}={value!r}.")


def check_points(name: str) -> None:
    """Raise UserError for an unknown data set, or one without pictures of one size, in memory."""
    if unsuitable_settings(name):
        raise no_points(name)


def unsuitable_settings(name: str) -> Mapping[str, str]:
    """Return the settings that such data do not allow, with the options that leave them out."""
    row = _row(name)
    if not isinstance(row, Samples):
        return {"pictures": "--pictures host"} if row.photographs else {}
    never = {"augment": "--no-augment", "label_smoothing": "--label-smoothing 0"}
    return never | {"pictures": "--pictures host"} | ({"ema": "--ema 0"} if row.of_model else {})


def sizes(name: str, data_args: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return the shape of an input of a data set, and the number of its classes or targets."""
    row = _row(name)
    return row.sizes(data_args) if isinstance(row, Samples) else (row.shape, row.classes)


def examples(name: str, data_args: Mapping[str, Any] | None = None) -> int:
    """Return how many training examples there are, by what is written beside them.

    Quick, without TensorFlow. UserError where the data set is not there.
    """
    row = _row(name)
    if isinstance(row, Samples):
        return int((row.defaults() | dict(data_args or {}))["train_size"])
    (_, train), *_ = row.cuts(_counts(name, row).__getitem__)
    return int(train.stop)


def _counts(name: str, row: Dataset) -> Mapping[str, int]:
    """Return the examples in each part, of an embedded set also before it is prepared."""
    if _packed(name).exists():
        return packed.counts(_packed(name), name)
    if folder := _folder(row):
        return row.counts(folder)
    if row.generate:
        return {part: len(arrays["label"]) for part, arrays in row.generate().items()}
    raise UserError(_how_to_get(name, row))


def load(
    name: str, train_examples: int | None = None, data_args: Mapping[str, Any] | None = None
) -> Splits:
    """Train, validation and test part of a data set, always cut, or drawn, the same way.

    Validation is the last `val_percent` of the stored training order, which tensorflow-datasets
    shuffles by a hash; the embedded sets are prepared on first use. The data argument
    `standardized=False` leaves the pixels of stored pictures in [0, 1]. Raises UserError, at once
    and without touching the network, for a data set that is not there.
    """
    row, data_args = _row(name), dict(data_args or {})
    check_arguments(name, data_args)
    if isinstance(row, Samples):
        return generated.draw(name, row.teacher, train_examples, **data_args)
    if row.photographs:
        return _photographs(name, row, train_examples)
    stored = _stored(name, row)
    parts = row.cuts(stored.count, train_examples)
    check_fits(name, row.shape, sum(cut.stop - cut.start for _, cut in parts))
    arrays = [stored.read(part, cut) for part, cut in parts]
    mean, std = channel_moments(arrays[0][0])
    if not (row.arguments | data_args)["standardized"]:
        mean, std = np.zeros_like(mean), np.ones_like(std)
    task = tasks.TOP5 if row.classes == 1000 else tasks.CLASSIFICATION
    return Splits(name, row.classes, *(Pictures(*part, mean, std) for part in arrays), task=task)


def _photographs(name: str, row: Dataset, limit: int | None) -> Splits:
    """Splits that stay on disk: only the places of their records are read."""
    stored = _prepared(name, row)
    files = {"train": "train", "test": row.test}
    found = {part: _tfrecords.stored(stored.builder, file) for part, file in files.items()}
    splits = [
        Photographs(found[part][cut], row.shape, streamed.MEAN, streamed.STD)
        for part, cut in row.cuts(stored.count, limit)
    ]
    return Splits(name, row.classes, *splits, task=tasks.TOP5)


def _stored(name: str, row: Dataset) -> "packed.Packed | Prepared":
    """The packed data set where there is one, else the prepared one."""
    file = _packed(name)
    return packed.read(file, name) if file.exists() else _prepared(name, row)


def _prepared(name: str, row: Dataset) -> Prepared:
    """The prepared data set; an embedded one is prepared if need be."""
    if row.generate and _find(row) is None:
        prepare(name)
    builder = _find(row)
    if builder is None:
        raise UserError(_how_to_get(name, row))
    return Prepared(builder, row.test)


def _packed(name: str) -> Path:
    return data_home() / f"{name}.npz"


def _row(name: str) -> Dataset | Samples:
    if name not in DATASETS:
        raise unknown("A data set", name, DATASETS)
    return DATASETS[name]


def _find(row: Dataset) -> Any:
    """The builder of a prepared data set, made from its files alone, or None."""
    with contextlib.suppress(OSError):
        if folder := _folder(row):
            return _tfds().builder_from_directory(folder)
    return None


def _folder(row: Dataset) -> Path | None:
    """Return the folder of the newest version that is prepared, or None."""
    with contextlib.suppress(OSError):
        versions = sorted((data_home() / row.builder).glob("[0-9]*.*.*/dataset_info.json"))
        return versions[-1].parent if versions else None
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


def check(name: str, required: bool = False) -> dict[str, Any]:
    """What is prepared of a data set, from its files alone: never touches the network.

    Reads one example of every split. UserError if it is `required` and not there. What is drawn
    in memory is always there, in the sizes that its data arguments say.
    """
    row = _row(name)
    if isinstance(row, Samples):
        sizes = {part: row.defaults()[f"{part}_size"] for part in ("train", "val", "test")}
        return {"name": name, "prepared": True, "state": "generated", **sizes}
    if not (_packed(name).exists() or _find(row) or (required and not row.generate)):
        state = "on first use" if row.generate else "not prepared"
        return {"name": name, "prepared": False, "state": state}
    stored = _stored(name, row)
    cuts = dict(zip(("train", "val", "test"), row.cuts(stored.count), strict=True))
    for part, cut in cuts.values():
        if isinstance(stored, Prepared) and row.photographs:
            stored.decode(part, cut.start)
        else:
            stored.read(part, slice(cut.start, cut.start + 1))
    sizes = {key: cut.stop - cut.start for key, (_, cut) in cuts.items()}
    return {"name": name, "prepared": True, "state": stored.state, **stored.where, **sizes}


def prepare(name: str) -> Path:
    """Download (or generate) and prepare a data set; returns its folder."""
    row, home = _row(name), data_home()
    if isinstance(row, Samples):
        raise UserError(
            f"Only stored data sets are prepared. Received: {name}, which is drawn in memory. "
            "Use it as it is."
        )
    if row.generate:
        with files.lock(home, f".{name}"):  # two first runs at once prepare it once
            if _find(row) is None:
                _store(row, home)
        return home / row.builder
    if not all((_manual(home) / file).exists() for file in row.manual):
        raise UserError(_how_to_get(name, row))
    tfds = _tfds()
    config = tfds.download.DownloadConfig(manual_dir=str(_manual(home))) if row.manual else None
    builder = tfds.builder(row.builder, data_dir=str(home))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare(download_config=config)
    except (OSError, tfds.download.DownloadError) as error:
        raise Unavailable(
            f"{name} could not be downloaded. Received: {str(error).splitlines()[0]}. "
            "Check the network and the disk, then repeat the command."
        ) from error
    return home / row.builder


def pack(name: str) -> Path:
    """Write a prepared data set into one file, which is read instead from then on; its path."""
    row = _row(name)
    if isinstance(row, Samples) or row.photographs:
        raise packed.unfit(name)
    stored = _prepared(name, row)
    check_fits(name, row.shape, sum(map(stored.count, packed.PARTS)))
    return packed.write(_packed(name), name, row.classes, stored)


def _tfds() -> Any:
    """The module tensorflow_datasets; UserError where it, or TensorFlow, is not installed."""
    try:
        backend.tensorflow()
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise packed.needed(data_home(), error) from error
    return tfds


def _store(row: Dataset, home: Path) -> None:
    """Write an embedded data set in tensorflow-datasets' own format, without its chatter."""
    tfds, tf = _tfds(), backend.tensorflow()
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
