"""Examples of a person's own data set: read one at a time, checked, and divided into three parts.

The readers beside this module give a `Source`; `read` makes of it the arrays that are packed.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.datasets import check_fits
from pipelines.data.packed import Examples
from pipelines.errors import FEW, UserError

PARTS = TRAIN, VALIDATION, TEST = "train", "validation", "test"
TEST_PCT, VALIDATION_PCT = 20, 10  # shares of what is not divided yet
GREY, SIXTEEN_BIT = "grey", "of 16 bits"


@dataclass(frozen=True)
class Example:
    """An image uint8 [h, w, c] with one channel or three, its class, and where it was found."""

    image: NDArray[np.uint8]
    label: int
    where: str
    content: bytes
    """What its place in the parts depends on: the image before it was resized."""
    traits: tuple[str, ...] = ()
    """What was noticed of it: `grey`, `of 16 bits`, `turned`, `transparent`."""


@dataclass(frozen=True)
class Part:
    """Examples of one part of a source, of which there are `count`."""

    count: int
    examples: Iterable[Example]


@dataclass(frozen=True)
class Source:
    """What a folder, a file or a prepared data set holds, before its images are read."""

    classes: tuple[str, ...]
    """Names of the classes; labels are their places in it."""
    parts: Mapping[str, Part]
    """By name: train, and validation and test where the source has them."""
    sizes: Callable[[], Counter[tuple[int, int]]] | None = None
    """Counts all images by height and width, quickly, for an error."""
    notes: tuple[str, ...] = ()
    """Sentences about what was read otherwise than it stands there."""


@dataclass
class Images:
    """Arrays that are being filled: images [n, h, w, c], labels [n], keys [n] of their content."""

    name: str
    size_advice: Callable[[str], UserError]
    labels: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    array: NDArray[np.uint8] | None = None

    def add(self, example: Example, count: int) -> None:
        """Add an example of `count`; raise UserError for one of another size than the first."""
        image, n = example.image, len(self.labels)
        if self.array is None:
            check_fits(self.name, image.shape, count)
            self.array = np.empty((count, *image.shape), np.uint8)
        if image.shape[:2] != self.array.shape[1:3]:
            first = "x".join(map(str, self.array.shape[1:3]))
            other = "x".join(map(str, image.shape[:2]))
            raise self.size_advice(f"{self.where[0]} of {first} and {example.where} of {other}")
        if self.array.shape[-1] < image.shape[-1]:  # those so far were grey
            check_fits(self.name, image.shape, count)
            self.array = np.repeat(self.array, image.shape[-1], axis=-1)
        self.array[n] = image
        self.labels.append(example.label)
        self.keys.append(_key(example.content))
        self.where.append(example.where)


@dataclass(frozen=True)
class OwnExamples:
    """The three parts of a source, and what was noticed while they were read."""

    classes: tuple[str, ...]
    train: Examples
    """Training examples, of which the last `validation` are for validation."""
    test: Examples
    validation: int
    notes: tuple[str, ...]


def read(source: Source, name: str, size: int | None) -> OwnExamples:
    """Return the examples of a source, checked, in three parts.

    A source without a test part gives TEST_PCT of its training examples to it, one without a
    validation part VALIDATION_PCT: which ones depends on the content of each alone, so that a
    picture that is added or taken away moves no other. Training examples are in the order of
    their content, too. Raise UserError for what no training should begin with.
    """
    _check_classes(source)

    def size_advice(found: str) -> UserError:
        counted = source.sizes() if source.sizes else Counter()
        shown = ", ".join(f"{h}x{w} ({n})" for (h, w), n in counted.most_common(3))
        more = f"; {len(counted)} sizes, the most frequent {shown}" if counted else ""
        return UserError(
            f"All pictures must have one size. Received: {found}{more}. Set --size S to have each "
            "scaled until its shorter side is S pixels, and its central square taken."
        )

    traits: Counter[str] = Counter()
    parts: dict[str, Images] = {}
    for part, stored in source.parts.items():
        parts[part] = images = Images(name, size_advice)
        for example in stored.examples:
            images.add(example, stored.count)
            traits.update(example.traits)
    _make_alike(parts, size_advice)
    notes = [*source.notes, *_notes(traits, sum(len(each.labels) for each in parts.values()))]
    notes += _find_repeats(parts)
    train, validation, test = _divide(parts)
    _check_every_class(source.classes, {TRAIN: train[1], TEST: test[1]})
    joined = np.concatenate([train[0], validation[0]]), np.concatenate([train[1], validation[1]])
    return OwnExamples(source.classes, joined, test, len(validation[1]), tuple(notes))


def _check_classes(source: Source) -> None:
    if len(source.classes) < 2:
        raise UserError(
            "Two classes or more are told apart. Received: "
            f"{', '.join(source.classes) or 'none'}. Name the folder whose subfolders are the "
            "classes, or a file with labels of several."
        )


def _make_alike(parts: Mapping[str, Images], size_advice: Callable[[str], UserError]) -> None:
    """Give all parts the same channels. Raise UserError for parts of other sizes than another."""
    sizes = {part: each.array.shape for part, each in parts.items() if each.array is not None}
    if len({shape[1:3] for shape in sizes.values()}) > 1:
        found = [f"{part} of {height}x{width}" for part, (_, height, width, _) in sizes.items()]
        raise size_advice(" and ".join(found))
    channels = max((shape[-1] for shape in sizes.values()), default=0)
    for images in parts.values():
        if images.array is not None and images.array.shape[-1] < channels:
            images.array = np.repeat(images.array, channels, axis=-1)


def _notes(traits: Counter[str], count: int) -> Iterator[str]:
    """Yield a sentence a trait that some images have, and were changed for."""
    words = {
        GREY: "are grey, and get three equal channels",
        SIXTEEN_BIT: "of 16 bits a channel were divided by 257, to 8",
        "turned": "were turned as their EXIF orientation says",
        "transparent": "are partly transparent, and were laid on white",
    }
    for trait, text in words.items():
        if traits[trait] and not (trait == GREY and traits[trait] == count):
            yield f"{traits[trait]:,} of {count:,} pictures {text}."


def _find_repeats(parts: Mapping[str, Images]) -> Iterator[str]:
    """Yield a sentence where pictures stand in two parts, or in two classes."""
    seen: dict[int, tuple[str, int, str]] = {}
    across, classes = [], []
    for part, images in ((part, parts[part]) for part in PARTS if part in parts):
        for key, label, where in zip(images.keys, images.labels, images.where, strict=True):
            first = seen.setdefault(key, (part, label, where))
            if first[0] != part:
                across.append(f"{first[2]} and {where}")
            if first[1] != label:
                classes.append(f"{first[2]} and {where}")
    if across:
        yield f"In two parts, byte for byte: {len(across):,} pictures, the first {across[0]}."
    if classes:
        yield f"In two classes, byte for byte: {len(classes):,} pictures, the first {classes[0]}."


def _divide(parts: Mapping[str, Images]) -> tuple[Examples, Examples, Examples]:
    """Return the training, validation and test examples."""
    train = parts[TRAIN]
    keys, labels = np.array(train.keys, np.uint64), np.array(train.labels, np.int64)
    of_test, of_validation = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
    if TEST not in parts:
        of_test = _choose_share(keys % 100, labels, TEST_PCT, least=1)
    if VALIDATION not in parts:
        rest, numbers = np.flatnonzero(~of_test), keys[~of_test] // 100 % 100
        of_validation[rest] = _choose_share(numbers, labels[rest], VALIDATION_PCT, least=0)
        if not of_validation.any():
            of_validation[rest[np.argmin(numbers)]] = True
    order = np.argsort(keys, kind="stable")

    def own(part: str, chosen: NDArray[np.bool_]) -> Examples:
        if part in parts and part != TRAIN:
            images = parts[part]
            index = np.arange(len(images.labels))
        else:
            images, index = train, order[chosen[order]]
        array = images.array
        if array is None:
            raise UserError(
                f"Every part must have pictures. Received: none for {part}. Add some, or name a "
                "folder that is not divided yet."
            )
        return array[index], np.array(images.labels, np.int64)[index]

    return (
        own(TRAIN, ~of_test & ~of_validation),
        own(VALIDATION, of_validation),
        own(TEST, of_test),
    )


def _choose_share(
    numbers: NDArray[np.uint64], labels: NDArray[np.int64], share_pct: int, least: int
) -> NDArray[np.bool_]:
    """Return which examples are among a share, by the number from 0 to 99 of each.

    Of a class at least so many are, those with its lowest numbers, and never all.
    """
    chosen = numbers < share_pct
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ordered = members[np.argsort(numbers[members], kind="stable")]
        chosen[ordered[:least]] = True
        chosen[ordered[-1]] = False
    return chosen


def _check_every_class(classes: Sequence[str], labels: Mapping[str, NDArray[np.int64]]) -> None:
    """Raise UserError for classes that training or test lacks."""
    for part, found in labels.items():
        missing = [name for i, name in enumerate(classes) if i not in set(found.tolist())]
        if missing:
            more = f" and {len(missing) - FEW} more" if len(missing) > FEW else ""
            raise UserError(
                f"Every class must have pictures in training and test. Received: none in {part} of "
                f"{', '.join(missing[:FEW])}{more}. Add some, or take the class away."
            )


def _key(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def fit(image: Any, size: int | None) -> NDArray[np.uint8]:
    """Return a Pillow image, grey or RGB, as uint8 [h, w, c].

    With a size it is scaled, by antialiased bilinear interpolation, until the shorter side has so
    many pixels, and its central square is taken.
    """
    from PIL import Image

    if size is not None and image.size != (size, size):
        side = min(image.size)
        left, top = ((length - side) / 2 for length in image.size)
        box = (left, top, left + side, top + side)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
    array = np.asarray(image, np.uint8)
    return array if array.ndim == 3 else array[..., None]
