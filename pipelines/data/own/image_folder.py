"""A folder of pictures: one subfolder a class, with or without train/ and test/ above them."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

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
from pipelines.errors import FEW, UserError, short

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}
NOT_OURS = ("__MACOSX", "Thumbs.db", "desktop.ini")  # other programs leave them, and hidden ones
AT_ONCE = 1_000  # files that are read ahead


def source(folder: Path, size: int | None) -> Source:
    """Return what a folder holds. Raise UserError where its form is another."""
    below = _folders(folder)
    divided = {PARTS.get(each.name.lower()) for each in below}
    if below and None not in divided and TRAIN in divided:
        roots = {str(PARTS[each.name.lower()]): each for each in below}
    else:
        roots = {TRAIN: folder}
    notes = []
    if TEST not in roots and VALIDATION in roots:  # as ImageNet has them
        roots[TEST] = roots.pop(VALIDATION)
        notes = [f"{roots[TEST].name}/ is the test part; {TRAIN}/ gives validation pictures."]
    names = {part: [each.name for each in _folders(root)] for part, root in roots.items()}
    classes = tuple(sorted(set(itertools.chain(*names.values())), key=_natural))
    skipped: list[str] = [each.name for each in folder.iterdir() if each.is_file()]
    files: dict[str, list[tuple[Path, int]]] = {}
    for part, root in roots.items():
        files[part] = []
        for label, name in enumerate(classes):
            pictures, others = _pictures(root / name)
            skipped += others
            if not pictures and (name in names[part] or part != VALIDATION):
                raise _no_pictures(root / name)
            files[part] += [(path, label) for path in pictures]
    if left := [name for name in skipped if not _is_foreign(name)]:
        notes.append(f"Left out as no pictures in a class: {_listed(left)}.")
    flat = [path for of_part in files.values() for path, _ in of_part]
    return Source(
        classes,
        {part: Part(len(each), _examples(each, folder, size)) for part, each in files.items()},
        lambda: Counter(map(_size, flat)),
        tuple(notes),
    )


def _folders(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.is_dir() and not _is_foreign(each.name)]


def _is_foreign(name: str) -> bool:
    return name.startswith(".") or name in NOT_OURS


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which 2 comes before 10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", name)]


def _pictures(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the pictures below a folder, in a fixed order, and the names of other files."""
    pictures, others = [], []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_foreign(name))
        for name in sorted(names, key=_natural):
            if _is_foreign(name) or not name.lower().endswith(ENDINGS):
                others.append(name)
            else:
                pictures.append(Path(place, name))
    return pictures, others


def _no_pictures(folder: Path) -> UserError:
    return UserError(
        f"Every class must have pictures: {', '.join(each[1:] for each in ENDINGS)}. Received: "
        f"none in {folder}. Add some, or take the class away from every part."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{', '.join(names[:FEW])}{more}"


def _examples(files: Sequence[tuple[Path, int]], root: Path, size: int | None) -> Iterator[Example]:
    """Yield the examples in the order of their files, which several threads decode."""

    def read(file: tuple[Path, int]) -> Example:
        return _read(file[0], file[1], str(file[0].relative_to(root)), size)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for first in range(0, len(files), AT_ONCE):
            yield from pool.map(read, files[first : first + AT_ONCE])


def _read(path: Path, label: int, where: str, size: int | None) -> Example:
    from PIL import Image, ImageOps

    try:
        content = path.read_bytes()
        with Image.open(path) as opened:
            if (frames := getattr(opened, "n_frames", 1)) > 1:
                raise ValueError(f"{frames} pictures in one file")
            turned = opened.getexif().get(0x0112, 1) != 1  # orientation
            image, traits = _to_eight_bits(ImageOps.exif_transpose(opened))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(
            f"Every picture must be readable. Received: {path}: {short(error)}. Fix it, or take "
            "it away."
        ) from error
    return Example(fit(image, size), label, where, content, (*traits, *["turned"] * turned))


def _to_eight_bits(image: Any) -> tuple[Any, list[str]]:
    """Return a Pillow image as grey or RGB of 8 bits, opaque, and what was changed."""
    from PIL import Image

    traits = []
    if image.mode.startswith("I"):  # 16 bits, or 32 that hold 16
        values = np.asarray(image, np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"pixels from {values.min()} to {values.max()}")
        image = Image.fromarray(np.round(values / 257).astype(np.uint8))
        traits.append(SIXTEEN_BIT)
    if image.mode == "F":
        raise ValueError("pixels that are fractions")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema()[0] < 255:
            traits.append("transparent")
            white = Image.new("RGBA", image.size, (255, 255, 255, 255))
            image = Image.alpha_composite(white, image)
    if image.mode in ("1", "L", "LA"):
        return image.convert("L"), [*traits, GREY]
    return image.convert("RGB"), traits


def _size(path: Path) -> tuple[int, int]:
    """Return height and width of a picture, as its orientation says."""
    from PIL import Image

    with Image.open(path) as image:
        sides = image.size if image.getexif().get(0x0112, 1) > 4 else image.size[::-1]
        return (sides[0], sides[1])
