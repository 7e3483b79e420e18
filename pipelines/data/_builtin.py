"""Image sets that need no download: made here, then stored and read like every other set."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Examples = dict[str, NDArray[Any]]  # {"image": uint8 [n, h, w, c], "label": int64 [n]}


def digits() -> dict[str, Examples]:
    """1,797 handwritten digits, 8x8, of the UCI optdigits test set, as scikit-learn ships them."""
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


def synthetic() -> dict[str, Examples]:
    """Ten random 32x32 colour prototypes under Gaussian noise: CIFAR's shape, no download."""
    rng = np.random.default_rng(0)
    prototypes = rng.uniform(64, 192, (10, 32, 32, 3))

    def examples(n: int) -> Examples:
        labels = rng.integers(0, 10, n)
        noisy = prototypes[labels] + rng.normal(0, 64, (n, 32, 32, 3))
        return {"image": noisy.clip(0, 255).astype(np.uint8), "label": labels}

    return {"train": examples(2_000), "test": examples(500)}
