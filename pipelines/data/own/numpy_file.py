"""A NumPy file of pictures: x_train, y_train; x_test, y_test, x_val, y_val where it has them."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.own.examples import GREY, TEST, TRAIN, VALIDATION, Example, Part, Source, fit
from pipelines.errors import DAMAGE_ERRORS, UserError, describe_damage

NAMES = {TRAIN: "train", VALIDATION: "val", TEST: "test"}
FORM = (
    "x_train and x_test [n, height, width] or [n, height, width, channels] of one channel or "
    "three, y_train and y_test [n]"
)


def source(path: Path, size: int | None) -> Source:
    """Return what a file holds. Raise UserError where its arrays have another form."""
    arrays = _load(path)
    images = {part: _images(arrays[f"x_{n}"], f"x_{n}") for part, n in _parts(arrays).items()}
    notes, scale = _scale(images, path)
    classes, labels = _labels({part: arrays[f"y_{NAMES[part]}"] for part in images})
    parts = {}
    for part, x in images.items():
        name = NAMES[part]
        if len(x) != len(labels[part]):
            raise _form_error(f"{len(x):,} pictures x_{name} with {len(labels[part]):,} labels")
        parts[part] = Part(len(x), _examples(x, labels[part], scale, f"x_{name}", size))
    return Source(classes, parts, notes=tuple(notes))


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no archive of arrays")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except DAMAGE_ERRORS as error:
        raise UserError(
            "A file of pictures must be one that numpy.savez writes, without objects. Received: "
            f"{path}: {describe_damage(error)}. Write it anew: numpy.savez('FILE.npz', "
            "x_train=..., y_train=..., x_test=..., y_test=...)"
        ) from error
    if not {"x_train", "y_train"} <= arrays.keys():
        raise _form_error(f"{path} with {', '.join(arrays) or 'nothing'}")
    return arrays


def _parts(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts that are there, by our name and that in the file."""
    present = {part: n for part, n in NAMES.items() if f"x_{n}" in arrays}
    for name in present.values():
        if f"y_{name}" not in arrays:
            raise _form_error(f"x_{name} without y_{name}")
    return present


def _images(x: NDArray[Any], name: str) -> NDArray[Any]:
    """Return images [n, h, w, c] of numbers. Raise UserError for another form."""
    if x.dtype.kind not in "buif":
        raise _form_error(f"{name} of {x.dtype}")
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or 0 in x.shape:
        raise _form_error(f"{name} of shape {list(x.shape)}")
    if x.shape[-1] not in (1, 3):
        first = x.shape[1] in (1, 3)
        advice = f" Set the channels last: numpy.moveaxis({name}, 1, -1)." if first else ""
        raise _form_error(f"{name} of shape {list(x.shape)}", advice)
    return x


def _scale(images: Mapping[str, NDArray[Any]], path: Path) -> tuple[list[str], float]:
    """Return notes and what pixels are multiplied by to be 0 to 255, alike in all parts.

    Raise UserError, which names the first picture, for pixels that are no such numbers.
    """
    tops, notes = {}, []
    for part, x in images.items():
        low, high = float(x.min()), float(x.max())  # NaN where there is one
        if not np.isfinite([low, high]).all() or low < 0 or high > 65535:
            raise _pixel_error(x, f"x_{NAMES[part]}")
        tops[part] = high
    top = max(tops.values())
    fractions = [x.dtype.kind == "f" and tops[part] <= 1 for part, x in images.items()]
    if any(fractions) and not all(fractions):
        ranges = ", ".join(f"x_{NAMES[part]} to {high:g}" for part, high in tops.items())
        raise UserError(
            f"All parts must have pixels of one scale. Received: {path}: {ranges}. Bring all to "
            "0..255, or all to 0..1."
        )
    if all(fractions):
        return ["Pixels from 0 to 1 were multiplied by 255."], 255.0
    for part, x in images.items():
        if x.dtype.kind == "f" and (uneven := np.flatnonzero(_per_image(x != np.round(x)))).size:
            raise _pixel_error(x[uneven[0] :], f"x_{NAMES[part]}", int(uneven[0]))
    if top > 255:
        notes.append(f"Pixels of 16 bits, up to {top:g}, were divided by 257.")
        return notes, 1 / 257
    if top <= 1:
        return ["Pixels 0 and 1 became 0 and 255."], 255.0
    return notes, 1.0


def _per_image(wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(wrong.reshape(len(wrong), -1).any(axis=1))


def _pixel_error(x: NDArray[Any], name: str, before: int = 0) -> UserError:
    """Return the error for pixels, with the first picture whose are wrong."""
    values = x.astype(np.float64)
    wrong = _per_image(~((values >= 0) & (values <= 65535)))
    row = int(np.argmax(wrong))
    low, high = values[row].min(), values[row].max()
    return UserError(
        "Pixels must be whole numbers from 0 to 255 (or 65535), or fractions from 0 to 1. "
        f"Received: {name}[{row + before}] from {low:g} to {high:g}. Store the pictures as they "
        "were before they were standardized; training does that."
    )


def _labels(
    given: Mapping[str, NDArray[Any]],
) -> tuple[tuple[str, ...], dict[str, NDArray[np.int64]]]:
    """Return the classes' names, and by part the labels as places in them."""
    flat = {}
    for part, stored in given.items():
        name = f"y_{NAMES[part]}"
        y = stored[:, 0] if stored.ndim == 2 and stored.shape[1] == 1 else stored
        if y.ndim != 1:
            one_hot = y.ndim == 2 and y.shape[1] > 1
            advice = f" Store {name}.argmax(axis=1)." if one_hot else ""
            raise _form_error(f"{name} of shape {list(y.shape)}", advice)
        flat[part] = _whole(y, name)
    known = np.unique(flat[TRAIN])
    for part, y in flat.items():
        if (row := np.flatnonzero(~np.isin(y, known))).size:
            raise UserError(
                f"Every label must be one of a training picture. Received: y_{NAMES[part]}"
                f"[{row[0]}] = {y[row[0]]}, where y_train has {len(known)} from {known[0]} to "
                f"{known[-1]}. Take such pictures away, or add some to training."
            )
    return tuple(map(str, known)), {part: np.searchsorted(known, y) for part, y in flat.items()}


def _whole(y: NDArray[Any], name: str) -> NDArray[Any]:
    """Return labels that are words or whole numbers. Raise UserError for others, by row."""
    if y.dtype.kind in "US":
        return y.astype(str)
    if y.dtype.kind not in "buif":
        raise _form_error(f"{name} of {y.dtype}")
    values = y.astype(np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0) & (values == np.round(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserError(
            "A label must be a word, or a whole number from 0 on. Received: "
            f"{name}[{row}] = {y[row]}. Take such pictures away, or give them their class."
        )
    return values.astype(np.int64)


def _examples(
    x: NDArray[Any], labels: NDArray[np.int64], scale: float, name: str, size: int | None
) -> Iterator[Example]:
    from PIL import Image

    for row, (image, label) in enumerate(zip(x, labels, strict=True)):
        pixels = np.round(image * scale).astype(np.uint8) if scale != 1 else image.astype(np.uint8)
        content = pixels.tobytes()
        if size is not None:
            pixels = fit(Image.fromarray(pixels[..., 0] if x.shape[-1] == 1 else pixels), size)
        grey = (GREY,) if x.shape[-1] == 1 else ()
        yield Example(pixels, int(label), f"{name}[{row}]", content, grey)


def _form_error(found: str, advice: str = "") -> UserError:
    return UserError(f"A file of pictures must have {FORM}. Received: {found}.{advice}")
