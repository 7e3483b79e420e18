"""Tiny ImageNet: the archive of Stanford's course CS231n, or the folder that it was unpacked into.

200 classes of ImageNet, 64 x 64 pixels (Le & Yang 2015). Of each 500 pictures are for training and
50 for validation, which are the test part here; the pictures of its own test part have no labels.
JPEGs are decoded by Pillow, whose transform is exact, and stored without loss.
"""

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.embedded import Card
from pipelines.errors import DAMAGE_ERRORS, UserError, short

FOLDER = "tiny-imagenet-200"
ARCHIVE = f"{FOLDER}.zip"
URL = f"http://cs231n.stanford.edu/{ARCHIVE}"
ARCHIVE_BYTES = 248_100_043
ARCHIVE_SHA256 = "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
CLASSES = 200
SIDE = 64  # pixels
SIDES = {
    SIDE: "The pictures as they are.",
    SIDE // 2: "Every pixel is the mean of a block of 2x2, rounded once.",
}
PARTS = ("train", "test")
TRAINING = re.compile(r"train/(n\d{8})/images/(\w+\.JPEG)")
CARD = Card(
    "Tiny ImageNet: pictures of 200 classes of ImageNet, 64x64 pixels, from Stanford's course "
    "CS231n. The part `train` has 99,993 pictures, `test` the 10,000 labelled pictures of the "
    "archive's `val`; those of its `test` have no labels. Of the archive's 100,000 training "
    "pictures 1,821 are grey, of the 10,000 others 168: they have three equal channels here. Byte "
    "for byte 20 training pictures stand under two classes, once under each, and are kept under "
    "both; 7 stand in both parts, and are left out of `train`. Labels are places among the sorted "
    "wnids, which are the classes' names; what they mean is in `info.metadata['words']`.",
    """@techreport{le2015tiny,
  author = {Le, Ya and Yang, Xuan},
  title = {Tiny ImageNet Visual Recognition Challenge},
  institution = {Stanford University, CS 231N},
  year = {2015}
}""",
    "http://cs231n.stanford.edu/",
)


@dataclass(frozen=True)
class Archive:
    """The files of the archive, by their names below its folder."""

    names: Sequence[str]
    read: Callable[[str], bytes]

    def classes(self) -> list[str]:
        """Return the wnids of the classes, sorted. Raise ValueError where they are not 200."""
        wnids = sorted(set(self.read("wnids.txt").decode().split()))
        if len(wnids) != CLASSES:
            raise ValueError(f"wnids.txt names {len(wnids)} classes, not {CLASSES}")
        return wnids

    def words(self, wnids: Sequence[str]) -> dict[str, str]:
        """Return what these wnids mean: `{"n01443537": "goldfish, Carassius auratus"}`."""
        lines = self.read("words.txt").decode().splitlines()
        meanings = dict(line.split("\t", 1) for line in lines if line)
        return {wnid: meanings[wnid] for wnid in wnids}

    def pictures(self, part: str, side: int) -> Iterator[tuple[str, str, NDArray[np.uint8]]]:
        """Yield the name, the wnid and the image [side, side, 3] of every picture of a part.

        Training pictures that stand in the test part too, byte for byte, are left out.
        """
        lines = self.read("val/val_annotations.txt").decode().splitlines()
        tests = [line.split("\t")[:2] for line in lines]
        if part == "test":
            for name, wnid in tests:
                yield name, wnid, decode(self.read(f"val/images/{name}"), name, side)
            return
        tested = {self.read(f"val/images/{name}") for name, _ in tests}
        for found in filter(None, map(TRAINING.fullmatch, self.names)):
            if (content := self.read(found[0])) not in tested:
                yield found[2], found[1], decode(content, found[2], side)


def find(home: Path) -> Path | None:
    """Return the archive, or its unpacked folder, that a person has put into the data folder."""
    by_hand = home / "downloads" / "manual"
    return next((path for name in (FOLDER, ARCHIVE) if (path := by_hand / name).exists()), None)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive or a folder. Raise UserError where something in it is not as it must be."""
    try:
        if path.is_dir():
            names = sorted(file.relative_to(path).as_posix() for file in path.glob("train/*/*/*"))
            yield Archive(names, lambda name: (path / name).read_bytes())
            return
        with zipfile.ZipFile(path) as archive:
            names = [name.removeprefix(f"{FOLDER}/") for name in archive.namelist()]
            yield Archive(names, lambda name: archive.read(f"{FOLDER}/{name}"))
    except DAMAGE_ERRORS as error:
        raise UserError(
            f"Tiny ImageNet must be {ARCHIVE} of {URL}, or the folder {FOLDER} in it. Received: "
            f"{path}: {short(error)}. Fetch it again, or take it away to have it downloaded."
        ) from error


def decode(content: bytes, name: str, side: int) -> NDArray[np.uint8]:
    """Return a JPEG as image uint8 [side, side, 3]; a grey one has three equal channels."""
    from PIL import Image

    image: Any = Image.open(io.BytesIO(content))
    if image.size != (SIDE, SIDE):
        raise ValueError(f"{name} has {image.width}x{image.height} pixels, not {SIDE}x{SIDE}")
    image = image.convert("RGB")
    if side != SIDE:
        image = image.reduce(SIDE // side)  # `resize` by BOX rounds twice
    return np.asarray(image, np.uint8)
