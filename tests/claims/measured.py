"""What tests of claims share: cells that were measured, or are said to be, and their numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Cell, Cells, Measured


def made(
    curves: Mapping[str, Any],
    point: Mapping[str, Any] | None = None,
    seed: int = 0,
    steps: Sequence[int] | None = None,
) -> Measured:
    """Return a cell with these curves [k], over the steps 0, 1, ... if no others are given."""
    arrays = {key: np.atleast_1d(curve) for key, curve in curves.items()}
    count = max(map(len, arrays.values()))
    return Measured(Cell(point or {}, seed), np.array(steps or range(count)), arrays)


def measure(claim: Theorem, *cells: Cell) -> list[Measured]:
    """Return these cells as the claim measures them, in one call."""
    steps, curves = claim.measure(Cells(cells))
    rows = [{key: curve[i] for key, curve in curves.items()} for i in range(len(cells))]
    return [Measured(cell, np.asarray(steps), row) for cell, row in zip(cells, rows, strict=True)]


def values_of(claim: Any, *measured: Measured) -> dict[str, list[float]]:
    """Return by metric what the claim makes of the cells of one seed."""
    return {key: [value] for key, value in claim.metrics(measured).items()}
