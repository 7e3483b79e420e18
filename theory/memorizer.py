"""Networks with explicit weights that know their points; HM section 3. Made in memorization.py.

A memorizer projects its input to width k, h = A_0 x, then applies residual blocks
    h <- h + V ReLU(U h - t),    U [k, k], t [k], V [k, k],                                    (1)
each of which moves k of the points to the code of their label and leaves the others where they are,
and reads the label off the code by a last layer V ReLU(U h - t), with r outputs for r labels.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.pairs import check_finite

Array = NDArray[Any]
PRECISIONS = ("float32", "float64")
CHUNK = 1024  # points, and units, whose products are computed together


class Layer(NamedTuple):
    """Units ReLU(U h - t), and what each of them adds to the outputs."""

    U: Array  # [units, k]
    t: Array  # [units]
    V: Array  # [units, outputs], transposed: row i is what unit i adds

    def __call__(self, h: Array) -> Array:
        return np.asarray(np.maximum(h @ self.U.T - self.t, 0) @ self.V)

    def part(self, rows: slice) -> "Layer":
        """Return the layer with some of its units."""
        return Layer(*(array[rows] for array in self))


@dataclass(frozen=True)
class Points:
    """Points with their labels; `kept` are indices of distinct ones, [m]."""

    X: Array  # [n, d]
    index: NDArray[np.int64]  # each point's label in `labels`, [n]
    labels: Array  # [r]
    kept: NDArray[np.int64]


@dataclass(frozen=True)
class Memorizer:
    """A network (1) in the precision of its arrays, which all have the same."""

    projection: Array
    """A_0 [k, d]."""
    units: Layer
    """The units of all blocks; the first k of them are those of the first block."""
    readout: Layer
    """The last layer: r units, r outputs."""
    labels: Array
    """The labels that the outputs stand for; [r]."""
    margin: float
    """How far all units are from firing at a point that they should not move, or from not firing
    at their own: the least gap, over the largest |z|^2."""
    error: float
    """Estimate, no bound, of what rounding does to an output at a point that it knows: below 1/2,
    with a margin above rounding, every label should be right."""

    @property
    def width(self) -> int:
        """Return the width k."""
        return len(self.projection)

    @property
    def parameter_count(self) -> int:
        """Return k d + n (2k + 1) + r (k + 1 + r), the entries of all arrays, HM Theorem 3.2."""
        arrays = (self.projection, *self.units, *self.readout)
        return int(sum(array.size for array in arrays))

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[Layer]:
        """Yield the blocks of units first, ..., last - 1, in order; the last may be smaller."""
        last = len(self.units.t) if last is None else last
        for i in range(first, last, self.width):
            yield self.units.part(slice(i, min(i + self.width, last)))

    def predict(self, X: ArrayLike) -> Array:
        """Return the labels of the points X [n, d]; [n]. ValueError for another shape."""
        return np.asarray(self.labels[np.argmax(self.outputs(X), axis=1)])

    def outputs(self, X: ArrayLike) -> Array:
        """Return one number a label: at the points it knows 1 for the right one and 0 else; [n, r].

        At other points they may be anything, even infinite. Where no unit of a block fires, the
        block adds 0: it is computed at the other points only. ValueError for another shape.
        """
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.projection.shape[1]:
            raise ValueError(
                f"Points must be rows [n, {self.projection.shape[1]}], as those it was made for. "
                f"Received: shape {X.shape}. Flatten each to one row."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return self.readout(self._pass_through(project(X, self.projection)))

    def _pass_through(self, h: Array) -> Array:
        group = self.width * max(1, CHUNK // self.width)
        for first in range(0, len(self.units.t), group):
            last = min(first + group, len(self.units.t))
            moving = _find_firing(self.units.part(slice(first, last)), h)
            moved = h[moving]
            for block in self.blocks(first, last):
                moved += block(moved)
            h[moving] = moved
        return h

    def keras_model(self) -> Any:
        """Return the same network in Keras, for `predict`, `fit` and `save`; [n, d] -> [n, r].

        In float64 mind that Keras's `predict` rounds inputs to `keras.config.floatx()`.
        """
        from keras_models.memorizer import from_weights

        return from_weights(self.projection, self.units, self.readout)


def check_points(X: ArrayLike, y: ArrayLike, dtype: str) -> Points:
    """Return the points of X [n, d] with labels y [n]; ValueError if they are not fit for it."""
    X, y = np.asarray(X), np.asarray(y)
    if X.ndim != 2 or 0 in X.shape or y.shape != X.shape[:1]:
        raise ValueError(
            "Points must be [n, d] with labels [n], n >= 1. Received: shapes "
            f"{X.shape} and {y.shape}. Flatten each point to one row."
        )
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype must be one of {', '.join(PRECISIONS)}. Received: {dtype!r}.")
    if X.dtype.kind not in "biuf" or y.dtype.kind not in "biufSU":
        raise ValueError(
            "Points must be real numbers, and labels numbers or words. Received: arrays of "
            f"{X.dtype} and {y.dtype}. Convert them."
        )
    check_finite(X)
    if y.dtype.kind == "f" and len(bad := np.flatnonzero(~np.isfinite(y))):
        raise ValueError(f"Labels must be finite. Received: that of {bad[0]} is not. Drop it.")
    labels, index = np.unique(y, return_inverse=True)
    return Points(X, index, labels, _find_distinct(X, index, labels, dtype))


def _find_distinct(
    X: Array, index: NDArray[np.int64], labels: Array, dtype: str
) -> NDArray[np.int64]:
    """Return the first of all points that are equal in `dtype`. ValueError if labels differ."""
    first: dict[bytes, int] = {}
    for i, x in enumerate(X):
        row = x.astype(dtype) + 0  # -0 + 0 is 0
        j = first.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), i)
        if index[i] != index[j]:
            equal = "equal" if np.array_equal(x, X[j]) else f"equal in {dtype}"
            raise ValueError(
                f"Equal points must have equal labels. Received: points {j} and {i}, which are "
                f"{equal}, with labels {labels[index[j]]} and {labels[index[i]]}. Drop one of them."
            )
    return np.array(list(first.values()))


def project(X: Array, A0: Array) -> Array:
    """Return A_0 x for the rows of X [n, d], in the precision of A_0 [k, d]; [n, k]."""
    parts = [X[i : i + CHUNK].astype(A0.dtype) @ A0.T for i in range(0, len(X), CHUNK)]
    return np.concatenate(parts) if parts else np.zeros((0, len(A0)), A0.dtype)


def _find_firing(units: Layer, h: Array) -> NDArray[np.int64]:
    """Return rows of h [n, k] at which some unit is positive."""
    U = np.ascontiguousarray(np.column_stack([units.U, -units.t]).T)
    parts = [h[i : i + CHUNK] for i in range(0, len(h), CHUNK)]
    fires = [(np.column_stack([p, np.ones_like(p[:, :1])]) @ U).max(axis=1) > 0 for p in parts]
    return np.flatnonzero(np.concatenate(fires)) if fires else np.zeros(0, np.int64)
