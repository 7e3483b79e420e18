"""Packed data sets: the arrays of one in a file that NumPy alone can read and write.

`<data folder>/<name>.npz`, which `numpy.load` opens, is an uncompressed zip archive of

    train_images.npy, test_images.npy    uint8 [n, h, w, c], in stored order
    train_labels.npy, test_labels.npy    int64 [n]
    about.json                           name, version, classes, and the SHA-256 of the bytes of
                                         each array by its name
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import DAMAGE_ERRORS, UserError, describe_damage, disk_error
from pipelines.runtime.files import replace_whole

PARTS = ("train", "test")
ARRAYS = tuple(f"{part}_{kind}" for part in PARTS for kind in ("images", "labels"))
ABOUT = "about.json"
Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images [n, h, w, c], labels [n]


@dataclass(frozen=True)
class Packed:
    """The arrays of a packed data set by name, and what its file says of itself."""

    path: Path
    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]
    state = "packed"

    @property
    def where(self) -> dict[str, str]:
        return {"folder": str(self.path.parent), "version": self.about["version"]}

    def count(self, part: str) -> int:
        return len(self.arrays[f"{part}_labels"])

    def read(self, part: str, cut: slice) -> Examples:
        """Return images uint8 [n, h, w, c] and labels int64 [n] of some examples."""
        return self.arrays[f"{part}_images"][cut], self.arrays[f"{part}_labels"][cut]


def write(
    path: Path,
    name: str,
    version: str,
    classes: int,
    parts: Sequence[Examples],
    **more: Any,
) -> Path:
    """Pack the PARTS of a data set into the file, the same bytes each time; return its path.

    `more` is said in its about.json, too. Raise UserError if the folder cannot be written.
    """
    arrays = dict(zip(ARRAYS, (array for part in parts for array in part), strict=True))
    about: dict[str, Any] = {"name": name, "version": version, "classes": classes, **more}
    about["sha256"] = {key: _sha256(array) for key, array in arrays.items()}
    try:
        with replace_whole(path) as half, zipfile.ZipFile(half, "w") as archive:
            for key, array in arrays.items():
                member = zipfile.ZipInfo(f"{key}.npy")  # dated 1980, so that bytes do not change
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(ABOUT), json.dumps(about, indent=1))
    except OSError as error:
        raise disk_error(error)(
            f"The data folder must be writable. Received: {path.parent}: {error.strerror}. Change "
            "its permissions, make room on the disk, or choose another with --data-dir."
        ) from error
    return path


def read_about(path: Path, name: str) -> dict[str, Any]:
    """Return what the file says of itself. Raise UserError if it is no packed data set."""
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(json.loads(archive.read(ABOUT)))
    except DAMAGE_ERRORS as error:
        raise damage_error(
            path, name, f"not a packed data set ({describe_damage(error)})"
        ) from error


def counts(path: Path, name: str, classes: int, shape: tuple[int, ...]) -> dict[str, int]:
    """Return the examples in each part; of the images only sizes are read.

    Raise UserError unless every image is of the shape and has a label of a class.
    """
    try:
        with path.open("rb") as file, np.load(file) as archive:
            return {part: _count(archive, part, classes, shape) for part in PARTS}
    except DAMAGE_ERRORS as error:
        raise damage_error(
            path, name, f"not a packed data set ({describe_damage(error)})"
        ) from error


def _count(archive: Any, part: str, classes: int, shape: tuple[int, ...]) -> int:
    """Return the examples in a part. Raise ValueError unless the labels are those of images."""
    heads = []
    for kind in ("images", "labels"):
        with archive.zip.open(f"{part}_{kind}.npy") as member:
            np.lib.format.read_magic(member)
            size, _, dtype = np.lib.format.read_array_header_1_0(member)
            heads.append(f"{kind} {dtype} {size}")
    count = size[0] if size else 0
    if not count or heads != [f"images uint8 {(count, *shape)}", f"labels int64 {(count,)}"]:
        raise ValueError(
            f"{part} {' and '.join(heads)}, where uint8 (n, *{shape}) and int64 belong"
        )
    labels = archive[f"{part}_labels"]
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{part}_labels from {labels.min()} to {labels.max()}, where classes are 0 to "
            f"{classes - 1}"
        )
    return int(count)


def read(path: Path, name: str, classes: int, shape: tuple[int, ...]) -> Packed:
    """Return the packed data set of that name. Raise UserError if a checksum differs."""
    try:
        with path.open("rb") as file, np.load(file) as archive:  # which would not close it
            about = json.loads(archive[ABOUT])
            arrays = {key: archive[key] for key in ARRAYS}
        sums, found = about["sha256"], (str(about["version"]), about["name"])
        damaged = [key for key, array in arrays.items() if _sha256(array) != sums[key]]
    except DAMAGE_ERRORS as error:
        raise damage_error(
            path, name, f"not a packed data set ({describe_damage(error)})"
        ) from error
    if damaged:
        raise damage_error(path, name, f"{' and '.join(damaged)} of another checksum")
    if found[1] != name:
        raise damage_error(path, name, f"the data set {found[1]}")
    counts(path, name, classes, shape)
    return Packed(path, arrays, about)


def _sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def damage_error(path: Path, name: str, found: str) -> UserError:
    """Return the error for a file that holds something else."""
    return UserError(
        f"A packed data file must hold {name} as it was written. Received: {path}: {found}. "
        f"Make it anew: python -m pipelines data pack {name} --data-dir {path.parent}"
    )
