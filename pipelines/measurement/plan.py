"""What is to be measured: a claim, its settings, its seeds."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelines.measurement import claim, claim_catalog, claim_code, grid
from pipelines.measurement.grid import Cell
from pipelines.recipes.catalog import RECIPES
from pipelines.recipes.recipe import Recipe
from pipelines.resume import RUN_AS
from pipelines.run import DEFAULT, RunOptions
from pipelines.runtime.provenance import digest


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be measured: a claim, its settings at a scale, over seeds from the first on."""

    name: str
    scale: str
    settings: Any
    seeds: int
    first_seed: int = 0
    """0, or the one seed that is measured apart, on a machine of its own."""
    kind: str = "claim"
    varied: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Axes of fields that hold a single value in the settings."""
    run_options: RunOptions = DEFAULT
    sparing: bool = False
    """Whether finished cells and runs are taken that were measured anywhere, by whatever code."""
    cells_there: Mapping[str, str] | None = None
    """The runs of cells by fingerprint which alone are taken, if any are given."""
    workers: int = 1
    """Processes of this machine, one BLAS thread each."""
    scheduler: str | None = None
    """The address of the Dask cluster whose workers measure in their place, if any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", grid.ordered(self.settings))

    @cached_property
    def claim(self) -> claim.Theorem | claim.Experiment:
        return claim_catalog.load(self.name)

    @cached_property
    def axes(self) -> dict[str, Any]:
        if isinstance(self.settings, Recipe):
            return {key: (value,) for key, value in _flat(self.settings).items()} | self.varied
        return grid.axes(self.settings, self.claim.inner, self.varied)

    @property
    def each_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def cells(self) -> list[Cell]:
        """All that is to be measured, seed by seed within each setting."""
        return grid.cells(self.axes, self.seeds, self.first_seed)

    def setting(self, cell: Cell) -> Any:
        """The claim's settings at that cell."""
        if isinstance(self.settings, Recipe):
            return self.settings.override(**{key: cell.point[key] for key in self.varied})
        return type(self.settings)(**cell.point)

    @property
    def fingerprint(self) -> str:
        apart = [self.first_seed] * bool(self.first_seed)
        return digest([self.name, self.kind, self.axes, self.seeds, *apart])

    @cached_property
    def code(self) -> str:
        """Digest of what the numbers of a cell depend on: code, and what recipes it trains."""
        return digest([claim_code.of_claim(self.name), self._trained])

    @property
    def judged_by(self) -> str:
        """Digest of what a verdict depends on: that, and how it is made of the numbers."""
        return digest([claim_code.of_verdict(self.name), self._trained])

    @property
    def _trained(self) -> list[Any]:
        """The published recipes from which a claim may take what its settings do not say."""
        cell = self.cells[0]
        recipes = self.claim.recipes(self.setting(cell), 0) if self.claim.recipes else {}
        names = sorted({recipe.name for recipe in recipes.values()} & RECIPES.keys())
        return [recipe.flat() for name in names for recipe in RECIPES[name].values()]

    @property
    def differing(self) -> dict[str, Any]:
        """The settings in which this differs from those of the scale, with their values here."""
        own = _flat(grid.ordered(self.claim.scales[self.scale]))
        here = _flat(self.settings)
        return {k: v for k, v in here.items() if v != own.get(k)} | dict(self.varied)

    @property
    def as_stated(self) -> bool:
        """Whether this is the claim's own grid, with its seeds or more."""
        own = self.kind == "claim" and not self.differing
        return own and self.first_seed == 0 and self.seeds >= self.claim.seeds

    @property
    def training_tags(self) -> dict[str, str]:
        """Of a claim about one recipe: its trainings are that recipe's, run by name."""
        recipe = isinstance(self.settings, Recipe)
        return {RUN_AS: f"{self.name} {self.scale}"} if recipe else {}

    def cell_fingerprint(self, cell: Cell) -> str:
        return digest([self.name, cell.params])

    @property
    def params(self) -> dict[str, Any]:
        flat = _flat(self.settings) | dict(self.varied)
        seeds = {"seeds": self.seeds}
        if self.first_seed:
            seeds["first_seed"] = self.first_seed
        return {key: brief(value) for key, value in flat.items()} | seeds


def _flat(settings: Any) -> dict[str, Any]:
    """Every setting by name; of a recipe, whose seed is the cell's, the fields of its mappings."""
    if isinstance(settings, Recipe):
        return {key: value for key, value in settings.flat().items() if key != "seed"}
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def brief(value: Any, most: int = 20) -> str:
    """`8,64`; of an axis with more values its ends and their number: MLflow limits lengths."""
    values = value if isinstance(value, tuple | list) else (value,)
    if len(values) > most:
        return f"{values[0]}...{values[-1]} ({len(values)})"
    return ",".join(map(str, values))
