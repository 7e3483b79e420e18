"""What is to be measured: a claim, its settings, its seeds."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines import claim, grid, provenance
from pipelines.grid import Cell
from pipelines.recipes import digest


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be measured: a claim, its settings at a scale, over seeds 0, 1, ..."""

    name: str
    scale: str
    settings: Any
    seeds: int
    kind: str = "claim"
    varied: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Axes of fields that hold a single value in the settings."""
    force: bool = False
    workers: int = 1
    """Processes, one BLAS thread each."""

    @property
    def claim(self) -> claim.Theorem | claim.Experiment:
        return claim.load(self.name)

    @property
    def axes(self) -> dict[str, Any]:
        return grid.axes(self.settings, self.claim.inner, self.varied)

    @property
    def fingerprint(self) -> str:
        return digest([self.name, self.kind, self.axes, self.seeds])

    @property
    def code(self) -> str:
        return provenance.code(claim.path(self.name))

    def cell_fingerprint(self, cell: Cell) -> str:
        return digest([self.name, cell.params])

    @property
    def params(self) -> dict[str, Any]:
        flat = dataclasses.asdict(self.settings) | dict(self.varied)
        return flat | {"seeds": self.seeds}
