"""Curves of cells that are measured one after another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.measurement.grid import Cell, Cells, Curves


def stack_rows(rows: Sequence[Mapping[str, Any]], axis: int = 0) -> dict[str, NDArray[Any]]:
    """Return by name the numbers or curves of several rows, stacked along a new axis."""
    return {key: np.stack([row[key] for row in rows], axis=axis) for key in rows[0]}


def measure_at(
    name: str, measure_one: Callable[[Cell, Any], dict[str, float]]
) -> Callable[[Cells], Curves]:
    """Return `measure` of a claim: the numbers of every cell at each value of its inner axis."""

    def measure(cells: Cells) -> Curves:
        values = cells.shared(name)
        rows = [stack_rows([measure_one(cell, each) for each in values]) for cell in cells.cells]
        return values, stack_rows(rows)

    return measure
