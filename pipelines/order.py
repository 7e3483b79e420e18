"""What is to be measured: a claim, its settings, its seeds."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", grid.ordered(self.settings))

    @cached_property
    def claim(self) -> claim.Theorem | claim.Experiment:
        return claim.load(self.name)

    @cached_property
    def axes(self) -> dict[str, Any]:
        return grid.axes(self.settings, self.claim.inner, self.varied)

    @property
    def fingerprint(self) -> str:
        return digest([self.name, self.kind, self.axes, self.seeds])

    @cached_property
    def code(self) -> str:
        """Digest of what the numbers of a cell depend on."""
        return provenance.code(claim.path(self.name))

    @property
    def judged_by(self) -> str:
        """Digest of what a verdict depends on: that, and how it is made of the numbers."""
        here = Path(__file__).parent
        return provenance.code(claim.path(self.name), here / "claim.py", here / "verdict.py")

    @property
    def differing(self) -> dict[str, Any]:
        """The settings in which this differs from those of the scale, with their values here."""
        own = grid.ordered(self.claim.scales[self.scale])
        fields = [field.name for field in dataclasses.fields(own)]
        here = {name: getattr(self.settings, name) for name in fields}
        changed = {name: here[name] for name in fields if here[name] != getattr(own, name)}
        return changed | dict(self.varied)

    @property
    def as_stated(self) -> bool:
        """Whether this is the claim's own grid, with its seeds."""
        return self.kind == "claim" and not self.differing and self.seeds >= self.claim.seeds

    def cell_fingerprint(self, cell: Cell) -> str:
        return digest([self.name, cell.params])

    @property
    def params(self) -> dict[str, Any]:
        flat = dataclasses.asdict(self.settings) | dict(self.varied)
        return {key: brief(value) for key, value in flat.items()} | {"seeds": self.seeds}


def brief(value: Any, most: int = 20) -> str:
    """`8,64`; of an axis with more values its ends and their number: MLflow limits lengths."""
    values = value if isinstance(value, tuple | list) else (value,)
    if len(values) > most:
        return f"{values[0]}...{values[-1]} ({len(values)})"
    return ",".join(map(str, values))
