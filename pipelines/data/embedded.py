"""Data sets that need no download: how they are made, and what their cards say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]  # {"image": uint8 [n, h, w, c], "label": int64 [n]}


@dataclass(frozen=True)
class Card:
    """What a prepared data set says of itself to whoever reads it by tensorflow-datasets."""

    description: str
    citation: str
    homepage: str | None = None
    """Page of its source (None: it has none)."""


@dataclass(frozen=True)
class Embedded:
    """A data set that is made here: its parts by name, and its card."""

    make: Callable[[], dict[str, Arrays]]
    card: Card


def digits() -> dict[str, Arrays]:
    """Return the digits of scikit-learn, a quarter of them, with equal shares, for testing."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = np.round(digits.images[..., None] * 255 / 16).astype(np.uint8)
    parts = train_test_split(
        images, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    return {
        "train": {"image": parts[0], "label": parts[2]},
        "test": {"image": parts[1], "label": parts[3]},
    }


def synthetic() -> dict[str, Arrays]:
    """Return noisy pictures of ten prototypes, of CIFAR's shape."""
    rng = np.random.default_rng(0)
    prototypes = rng.uniform(64, 192, (10, 32, 32, 3))

    def draw(n: int) -> Arrays:
        labels = rng.integers(0, 10, n)
        noisy = prototypes[labels] + rng.normal(0, 64, (n, 32, 32, 3))
        return {"image": noisy.clip(0, 255).astype(np.uint8), "label": labels}

    return {"train": draw(2_000), "test": draw(500)}


EMBEDDED = {
    "digits": Embedded(
        digits,
        Card(
            "1,797 handwritten digits, 8x8, of the UCI optdigits test set, as scikit-learn ships "
            "them. Grey levels 0 to 16 are scaled to 0 to 255. A quarter of the pictures, with the "
            "same shares of the classes, is the test part.",
            """@misc{alpaydin1998optical,
  author = {Alpaydin, E. and Kaynak, C.},
  title = {Optical Recognition of Handwritten Digits},
  year = {1998},
  howpublished = {UCI Machine Learning Repository},
  doi = {10.24432/C50P49}
}""",
            "https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        ),
    ),
    "synthetic": Embedded(
        synthetic,
        Card(
            "Ten random 32x32 colour prototypes under Gaussian noise: CIFAR's shape, no download. "
            "2,000 pictures for training, 500 for testing, all drawn from seed 0.",
            """@misc{synthetic,
  author = {{near-identity}},
  title = {Noisy pictures of ten random prototypes, generated from a seed}
}""",
        ),
    ),
}
