"""The plan of a measurement: a claim, its settings, its seeds; and its cells."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelines.measurement import claim, claim_catalog, claim_code, grid
from pipelines.measurement.grid import Cell, Measured
from pipelines.recipes.settings import SCALES
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.runtime import backend
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, store

ONLY_SEED = "only_seed"  # parameter of a run that measured one seed, other than 0, alone


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """A claim that is to be measured, its settings at a scale, its seeds from the first on."""

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
    reuse_anywhere: bool = False
    """Whether finished cells and runs count that were measured anywhere, by whatever code."""
    workers: int = 1
    """Processes of this machine, one BLAS thread each."""
    scheduler: str | None = None
    """The address of the Dask cluster whose workers measure in their place, if any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", grid.sort_axes(self.settings))

    @cached_property
    def claim(self) -> claim.Claim:
        return claim_catalog.load(self.name)

    @cached_property
    def axes(self) -> dict[str, Any]:
        return grid.axis_values(self.settings, self.claim.inner, self.varied)

    @cached_property
    def cells(self) -> list[Cell]:
        """Return all cells that are to be measured, seed by seed within each setting."""
        return grid.list_cells(self.axes, self.seeds, self.first_seed)

    @cached_property
    def cells_by_fingerprint(self) -> dict[str, Cell]:
        """Return the cells, in their order, by what they are found by."""
        return {self.cell_fingerprint(cell): cell for cell in self.cells}

    def settings_at(self, cell: Cell) -> Any:
        """Return the claim's settings at that cell."""
        return grid.settings_at(self.settings, cell, self.varied)

    def arms(self, cell: Cell) -> Mapping[str, Any]:
        """Return what is trained for a cell, by what the claim calls it."""
        if self.claim.recipes is None:
            return {}
        return self.claim.recipes(self.settings_at(cell), cell.seed)

    @cached_property
    def arm_names(self) -> dict[str, str]:
        """Return what the claim calls each training of its cells, by the digest of its settings.

        Of several names for one training the first.
        """
        names: dict[str, str] = {}
        for cell in self.cells:
            for name, recipe in self.arms(cell).items():
                names.setdefault(recipe.fingerprint, name)
        return names

    def arm_of(self, tags: Mapping[str, str]) -> str:
        """Return what the claim calls a training with these tags, else the name it has, if any.

        A training that two claims share bears the name of the first.
        """
        return self.arm_names.get(tags.get("fingerprint", "")) or tags.get(store.ARM, "")

    def metrics_by_seed(self, measured: Sequence[Measured]) -> dict[int, dict[str, float]]:
        """Return by seed the numbers that the claim makes of what was measured with it."""
        return {
            seed: self.claim.metrics([m for m in measured if m.cell.seed == seed])
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        }

    def values(self, measured: Sequence[Measured]) -> dict[str, list[float]]:
        """Return by metric one value a seed, of the seeds that have it."""
        return values_by_metric(self.metrics_by_seed(measured))

    def judge(self, values: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Return what the rules of today say of these numbers, one a seed of each metric."""
        return self.claim.judge(values, self.scale, bool(self.changed_settings))

    @property
    def data_sets(self) -> list[str]:
        """Return the names of the data sets that are read."""
        if self.claim.reads:
            return [str(getattr(self.settings, self.claim.reads))]
        return sorted({recipe.data for recipe in self.arms(self.cells[0]).values()})

    @property
    def fingerprint(self) -> str:
        first = [self.first_seed] * bool(self.first_seed)
        return digest([self.name, self.kind, self.axes, self.seeds, *first])

    @cached_property
    def code(self) -> str:
        """Return the digest of what the numbers of a cell depend on: code and published recipes."""
        return digest([claim_code.of_claim(self.name), self._published_recipes])

    def other_codes(self, codes: Iterable[str | None]) -> set[str | None]:
        """Return those of the digests that are not of this code, on any backend of Keras."""
        others = set(codes)
        for each in backend.NAMES:
            if others:
                code = claim_code.of_claim(self.name, each)
                others.discard(digest([code, self._published_recipes]))
        return others

    @property
    def verdict_digest(self) -> str:
        """Return the digest of what a verdict depends on: that, and how the numbers are judged."""
        return digest([claim_code.of_verdict(self.name), self._published_recipes])

    @property
    def _published_recipes(self) -> list[Any]:
        """Return the recipes from which a claim may take what its settings do not say."""
        return self.claim.published_recipes(self.arms(self.cells[0]))

    @property
    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that differ from those of the scale, with their values here."""
        stated = grid.flatten(grid.sort_axes(self.claim.scales[self.scale]))
        changed = {k: v for k, v in grid.flatten(self.settings).items() if v != stated.get(k)}
        return changed | self.varied

    @property
    def is_as_stated(self) -> bool:
        """Return whether this is the claim's own grid, with its seeds or more."""
        has_stated_grid = self.kind == "claim" and not self.changed_settings
        return has_stated_grid and self.first_seed == 0 and self.seeds >= self.claim.seeds

    def cell_fingerprint(self, cell: Cell) -> str:
        return digest([self.name, cell.params])

    @property
    def params(self) -> dict[str, Any]:
        seeds = {"seeds": self.seeds} | ({ONLY_SEED: self.first_seed} if self.first_seed else {})
        flat = grid.flatten(self.settings) | self.varied
        return {key: shorten(value) for key, value in flat.items()} | seeds


def values_by_metric(of_seeds: Mapping[int, Mapping[str, float]]) -> dict[str, list[float]]:
    """Return by metric one value a seed, of the seeds that have it."""
    values: dict[str, list[float]] = {}
    for metrics in of_seeds.values():
        for key, value in metrics.items():
            values.setdefault(key, []).append(value)
    return values


def stated_plan(name: str, scale: str, seeds: int, **more: Any) -> MeasurementPlan:
    """Return what a claim states at a scale, with so many seeds."""
    settings = claim_catalog.load(name).scales[scale]
    return MeasurementPlan(name=name, scale=scale, settings=settings, seeds=seeds, **more)


def stated_plan_of(row: history.Row) -> MeasurementPlan | None:
    """Return the plan of a claim's run; None where its claim states other settings today."""
    name, scale = row.tags["claim"], row.tags["scale"]
    if not claim_catalog.is_claim(name) or scale not in claim_catalog.load(name).scales:
        return None
    first_seed = int(row.params.get(ONLY_SEED, 0))
    plan = stated_plan(name, scale, int(row.tags["seeds"]), first_seed=first_seed)
    return plan if plan.fingerprint == row.tags["fingerprint"] else None


def runs_that_count(rows: Iterable[history.Row]) -> dict[str, history.Row]:
    """Return by claim the run that counts, of finished ones, newest first.

    It has what the claim states today; of several it is the newest at the largest scale.
    """
    stated = [row for row in rows if (plan := stated_plan_of(row)) and plan.is_as_stated]
    stated.sort(key=lambda row: SCALES.index(row.tags["scale"]), reverse=True)
    return {row.tags["claim"]: row for row in reversed(stated)}


def shorten(value: Any, most: int = 20) -> str:
    """Return `8,64`; of longer axes only the ends and a count, for MLflow limits lengths."""
    values = value if isinstance(value, tuple | list) else (value,)
    if len(values) > most:
        return f"{values[0]}...{values[-1]} ({len(values)})"
    return ",".join(map(str, values))
