"""A data set that tensorflow-datasets has prepared: `tfds:NAME`, `tfds:NAME/CONFIG`."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.data.datasets import data_home
from pipelines.data.own.examples import (
    GREY,
    SIXTEEN_BIT,
    TEST,
    TRAIN,
    VALIDATION,
    Example,
    Part,
    Source,
    fit,
)
from pipelines.data.pictures import StoredPictures
from pipelines.errors import UserError, unknown

PREFIX = "tfds:"
SPLITS = {TRAIN: ("train",), VALIDATION: ("validation", "val", "valid"), TEST: ("test",)}


def data_set(place: str) -> StoredPictures:
    """Return the data set of that name in tensorflow-datasets, which `prepare` downloads."""
    return StoredPictures(place, place.removeprefix(PREFIX).strip("/"), 0, (0, 0, 0), 0)


def source(place: str, size: int | None) -> Source:
    """Return what a prepared data set holds: its image, its label, its parts.

    Raise UserError where it is not prepared, or has no image with a label.
    """
    found = data_set(place)
    try:
        builder = found.open_builder()
    except UserError:
        raise _with_configurations(found) from None
    image, label = _keys(place, builder.info)
    names = tuple(map(str, builder.info.features[label].names))
    parts = {}
    for part, choices in SPLITS.items():
        split = next((name for name in choices if name in builder.info.splits), None)
        if split and _is_labelled(builder, split, label):
            count = int(builder.info.splits[split].num_examples)
            parts[part] = Part(count, _examples(builder, split, image, label, size))
    if TRAIN not in parts:
        raise unknown("The training part", "none", builder.info.splits)
    notes = []
    if TEST not in parts and VALIDATION in parts:  # as ImageNet has them
        parts[TEST] = parts.pop(VALIDATION)
        notes = ["Its validation part is the test part; training gives validation pictures."]
    return Source(names, parts, notes=tuple(notes))


def _with_configurations(data_set: StoredPictures) -> UserError:
    """Return the error for a set that is not prepared, with the configurations that are."""
    folder = data_home() / data_set.builder
    there = sorted({each.parents[1].name for each in folder.glob("*/*/dataset_info.json")})
    names = ", ".join(f"{data_set.name}/{name}" for name in there)
    advice = f"Name one that is there: {names}. Or" if names else "To download it,"
    return UserError(
        f"Data set {data_set.name} must be prepared before it is used. Received: none in {folder}."
        f" {advice} run: python -m pipelines data prepare {data_set.name}"
    )


def _keys(place: str, info: Any) -> tuple[str, str]:
    """Return the names of the image and its label among the features."""
    import tensorflow_datasets as tfds

    features = dict(info.features)
    images = [key for key, each in features.items() if isinstance(each, tfds.features.Image)]
    labels = [key for key, each in features.items() if isinstance(each, tfds.features.ClassLabel)]
    pair = info.supervised_keys
    if pair and len(pair) == 2 and pair[0] in images and pair[1] in labels:
        return str(pair[0]), str(pair[1])
    if len(images) == len(labels) == 1:
        return images[0], labels[0]
    shown = ", ".join(f"{key} ({type(each).__name__})" for key, each in features.items())
    raise UserError(
        f"A data set must have one image with the label of a class. Received: {place} with "
        f"{shown}. Write its images and labels into a NumPy file, and name that by --data."
    )


def _is_labelled(builder: Any, split: str, label: str) -> bool:
    """Return whether the first example of a part has a class; test parts of contests have -1."""
    first = next(iter(_read(builder, f"{split}[:1]")), None)
    return first is not None and int(first[label]) >= 0


def _read(builder: Any, split: str) -> Any:
    """Return the examples of a part in stored order, as dictionaries of arrays."""
    if builder.info.file_format.value == "array_record":  # which as_dataset refuses
        return builder.as_data_source(split=split)
    return builder.as_dataset(split=split, shuffle_files=False).as_numpy_iterator()


def _examples(
    builder: Any, split: str, image: str, label: str, size: int | None
) -> Iterator[Example]:
    from PIL import Image

    for row, example in enumerate(_read(builder, split)):
        pixels, where, traits = np.asarray(example[image]), f"{split}[{row}]", []
        content = pixels.tobytes()
        if pixels.dtype == np.uint16:
            pixels, traits = np.round(pixels / 257).astype(np.uint8), [SIXTEEN_BIT]
        if pixels.dtype != np.uint8 or pixels.shape[-1] not in (1, 3):
            raise UserError(
                "An image must have one channel or three, of 8 or 16 bits. Received: "
                f"{where} of shape {list(pixels.shape)}, {pixels.dtype}. Write the images and "
                "labels into a NumPy file in that form, and name it by --data."
            )
        is_grey = pixels.shape[-1] == 1
        if size is not None:
            pixels = fit(Image.fromarray(pixels[..., 0] if is_grey else pixels), size)
        yield Example(pixels, int(example[label]), where, content, (*traits, *[GREY] * is_grey))
