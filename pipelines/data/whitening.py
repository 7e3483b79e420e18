"""Whitened images: global contrast normalization, then ZCA, as for maxout networks.

Springenberg et al. 2014 (arXiv 1412.6806, section 3) whiten as Goodfellow et al. 2013 (1302.4389).
The two constants are those of the latter's public code, pylearn2, as we remember it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.packed import Examples
from pipelines.data.splits import Split

CONTRAST_BIAS = 10.0  # added to the variance of an image's pixels, 0 to 255
ZCA_BIAS = 0.1  # added to the variances along principal axes
AT_ONCE = 5_000  # images whose products are made at a time

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Whitened(Split):
    """Images float32 [n, h, w, c] and labels int64 [n], which may be cut and flipped."""

    def take(self, index: NDArray[np.int64] | slice) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return images float32 [b, h, w, c] and labels int32 [b]."""
        return self.x[index], self.y[index].astype(np.int32)


def normalize_contrast(images: NDArray[np.uint8]) -> Array:
    """Return images [n, h, w, c] of mean 0 and deviation about 1 each, as rows [n, d]."""
    rows = images.reshape(len(images), math.prod(images.shape[1:])).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt(CONTRAST_BIAS + (rows**2).mean(axis=1, keepdims=True))
    return rows


def zca(rows: Array) -> tuple[Array, Array]:
    """Return the mean [d] of rows [n, d], and the symmetric matrix [d, d] that whitens them.

    Its product with the rows less their mean has variance v / (v + ZCA_BIAS) along each principal
    axis of variance v.
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((rows.shape[1], rows.shape[1]))
    for first in range(0, len(rows), AT_ONCE):
        part = rows[first : first + AT_ONCE] - mean.astype(np.float32)
        covariance += part.T @ part
    variances, axes = np.linalg.eigh(covariance / len(rows))
    matrix = axes / np.sqrt(np.maximum(variances, 0) + ZCA_BIAS) @ axes.T
    return mean.astype(np.float32), matrix.astype(np.float32)


def whiten(parts: list[Examples]) -> list[Whitened]:
    """Return the parts whitened by the moments of the first, the training part."""
    rows = [normalize_contrast(images) for images, _ in parts]
    mean, matrix = zca(rows[0])
    for part in rows:
        for first in range(0, len(part), AT_ONCE):  # changed in place: they fill much of the memory
            some = part[first : first + AT_ONCE]
            some[:] = (some - mean) @ matrix
    return [
        Whitened(part.reshape(images.shape), labels)
        for part, (images, labels) in zip(rows, parts, strict=True)
    ]
