"""A person's own data set, `--data PATH`, packed into the data folder under a name of its content.

The name is that of the folder, file or data set, with eight digits of what was read: it is what a
recipe records. So equal pictures are equal settings wherever they lie, and a run goes on, or is
found again, without them.
"""

import contextlib
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.data import datasets, packed
from pipelines.data.datasets import data_home
from pipelines.data.own import stored
from pipelines.data.own.examples import OwnExamples, Source, read
from pipelines.data.splits import channel_moments
from pipelines.errors import UserError
from pipelines.runtime import files

SIZES = (4, 1024)  # least and most pixels of a side
LONGEST_NAME = 40


def is_own(place: str) -> bool:
    """Return whether `--data` names a folder, a file or a set of tensorflow-datasets."""
    if place in datasets.DATASETS:
        return False
    typed = place.startswith(("tfds:", ".", "~")) or "/" in place or place.endswith(".npz")
    return typed or (bool(place) and Path(place).is_dir())


def name_data(given: str, size: int | None) -> str:
    """Return what a recipe calls a data set: one of a person's own as it is packed for it.

    Raise UserError for a size without such data.
    """
    if is_own(given):
        return pack(given, size).name
    if size is not None:
        raise UserError(
            f"--size belongs to pictures of your own. Received: --size {size} "
            f"{'for ' + given if given else 'without --data'}. Leave it out, or name them by "
            "--data PATH."
        )
    return given


def pack(place: str, size: int | None = None) -> stored.OwnPictures:
    """Return the data set of a folder, a NumPy file, or tfds:NAME, packed where it was not yet.

    `size`: every picture is scaled to a square of so many pixels. What was read is said on
    standard error. Raise UserError, with file or row, for what cannot be trained on.
    """
    if size is not None and not SIZES[0] <= size <= SIZES[1]:
        raise UserError(
            f"size must be from {SIZES[0]} to {SIZES[1]} pixels. Received: size={size}. Set --size "
            "accordingly."
        )
    is_prepared = place.startswith("tfds:")
    path = None if is_prepared else files.user_path(place).resolve()
    words = place.removeprefix("tfds:") if path is None else path.name.removesuffix(".npz")
    title = re.sub(r"[^a-z0-9]+", "-", words.lower())[:LONGEST_NAME].strip("-") or "pictures"
    listing = _listing(place, path, size)
    with files.lock(data_home(), f".{title}", "Another process reads the same data; waiting."):
        found = _find_packed(title, listing)
        if found is None:
            examples = read(_source(place, path, size), title, size)
            found = _write(title, examples, listing, str(path or place))
    for note in found.about["notes"]:
        print(f"  {note}", file=sys.stderr)
    return found


def _source(place: str, path: Path | None, size: int | None) -> Source:
    """Return what is at a place. Raise UserError where nothing of a known kind is."""
    from pipelines.data.own import image_folder, numpy_file, prepared_set

    if path is None:
        return prepared_set.source(place, size)
    if path.is_dir():
        return image_folder.source(path, size)
    if path.is_file() and path.suffix == ".npz":
        return numpy_file.source(path, size)
    found = "another file" if path.is_file() else "nothing there"
    raise UserError(
        "Your own data must be a folder with a subfolder a class, a NumPy file (.npz), or "
        f"tfds:NAME[/CONFIG]. Received: {place}, {found}. Name one of these by --data."
    )


def _listing(place: str, path: Path | None, size: int | None) -> str:
    """Return a digest that changes when files do: by names, lengths and times of change."""
    if path is None:
        places = sorted((data_home() / place.removeprefix("tfds:")).rglob("dataset_info.json"))
    else:
        places = sorted(path.rglob("*")) if path.is_dir() else [path] * path.is_file()
    rows: list[Any] = [str(path or place), size]
    for each in places:
        state = each.stat()
        rows.append([str(each), state.st_size, state.st_mtime_ns])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _find_packed(title: str, listing: str) -> stored.OwnPictures | None:
    """Return the data set that was packed of the same files, if it is there."""
    names = [name for name in datasets.names() if name.rpartition("-")[0] == title]
    for name in names:
        with contextlib.suppress(UserError):  # one that is damaged is written anew
            if name not in datasets.DATASETS:
                own = stored.find(name)
                if own.about.get("listing") == listing:
                    return own
    return None


def _write(title: str, examples: OwnExamples, listing: str, place: str) -> stored.OwnPictures:
    """Pack the examples under a name of their content, and say what was read."""
    parts = [examples.train, examples.test]
    content = hashlib.sha256(json.dumps([examples.classes, examples.validation]).encode())
    for images, labels in parts:
        content.update(str(images.shape).encode())
        content.update(images.data)
        content.update(labels.data)
    name = f"{title}-{content.hexdigest()[:8]}"
    images, labels = examples.train
    mean, deviation = channel_moments(images)
    counts = [np.bincount(y, minlength=len(examples.classes)).tolist() for _, y in parts]
    about = {
        "shape": images.shape[1:],
        "validation": examples.validation,
        "source": place,
        "listing": listing,
        "names": examples.classes,
        "pictures": dict(zip(packed.PARTS, counts, strict=True)),  # by class
        "pixels": {
            "least": int(images.min()),
            "largest": int(images.max()),
            "mean": [round(255 * float(each), 2) for each in mean],
            "deviation": [round(255 * float(each), 2) for each in deviation],
        },
        "notes": examples.notes,
    }
    path = data_home() / f"{name}.npz"
    packed.write(path, name, "1.0.0", len(examples.classes), parts, **about)
    own = stored.find(name)
    shape = "x".join(map(str, own.shape))
    print(
        f"{place}: {len(labels) + len(examples.test[1]):,} pictures of {shape} in "
        f"{len(examples.classes)} classes, packed as {name}: train "
        f"{len(labels) - own.validation:,}, validation {own.validation:,}, test "
        f"{len(examples.test[1]):,}.",
        file=sys.stderr,
    )
    return own
