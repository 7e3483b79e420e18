"""What the bundles of a claim hold: its runs with their cells, and its trainings.

All of it is read from the files, every byte of which is checked; no database is needed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pipelines.measurement import cells, sweep
from pipelines.measurement.documents import CSV, seed_values
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan, stated_plan_of
from pipelines.recipes.catalog import SCALES
from pipelines.results.evidence import bundles
from pipelines.results.evidence.derive import TRAINED, RecordedCell, Trained, histories, row_of
from pipelines.tracking import history, store
from pipelines.tracking.bundles import file_format, importing
from pipelines.tracking.bundles.shape import Document


@dataclass(frozen=True)
class RecordedRun:
    """A finished run of a claim, with its cells."""

    document: Document
    table: bytes
    """Its cells."""
    csv: str
    """The same for a reader."""

    @cached_property
    def row(self) -> history.Row:
        """Return the run as the database would give it."""
        return row_of(self.document)

    @cached_property
    def plan(self) -> MeasurementPlan | None:
        """Return its plan; None where the claim states other settings today."""
        return stated_plan_of(self.row)

    @property
    def seed_values(self) -> dict[str, list[float]]:
        """Return by metric the numbers of the seeds that it has recorded."""
        return seed_values(histories(self.document))

    @cached_property
    def measured(self) -> list[Measured]:
        """Return the cells of its plan; those that it lacks are left out."""
        wanted = self.plan.cells_by_fingerprint if self.plan else {}
        return list(cells.unpack(self.table, wanted).values())

    @cached_property
    def derived_values(self) -> dict[str, list[float]]:
        """Return by metric one value a seed, made of the cells, of which none may be lacking."""
        plan = self.plan
        return sweep.values_by_metric(sweep.metrics_by_seed(plan, self.measured)) if plan else {}


@dataclass(frozen=True)
class Evidence:
    """What the bundles hold of a claim."""

    name: str
    runs: list[RecordedRun]
    trainings: list[Document]

    @cached_property
    def by_scale(self) -> dict[str, RecordedRun]:
        """Return by scale the run that is as its claim states it today: most seeds, then newest."""
        runs = [run for run in self.runs if run.plan and run.plan.is_as_stated]
        runs.sort(key=lambda run: (int(run.row.tags["seeds"]), run.row.start_ms))
        return {run.row.tags["scale"]: run for run in runs}

    @property
    def deciding(self) -> RecordedRun | None:
        """Return the run at the largest scale."""
        return self.by_scale[max(self.by_scale, key=SCALES.index)] if self.by_scale else None

    def trainings_of(self, run: RecordedRun) -> list[Document]:
        """Return the trainings that the cells of a run follow from."""
        trained = {key for m in run.measured for key in m.trained}
        return [d for d in self.trainings if d.tags.get("fingerprint") in trained]

    def cells(self, run: RecordedRun) -> list[RecordedCell]:
        """Return the cells of a run of today's plan, each with what finds its trainings."""
        own = {*store.reused_ids(run.document.tags)}
        own |= {d.run_id for d in self.trainings if d.tags.get(store.PARENT) == run.row.id}
        find = trained_among(self.trainings)
        return [RecordedCell(run.plan, m, find, own) for m in run.measured if run.plan]


def read(name: str) -> Evidence:
    """Return what the bundles hold of a claim; nothing of it of one that has none."""
    runs: list[RecordedRun] = []
    trainings: list[Document] = []
    for file in bundles.files([name]):
        with file_format.open_archive(file, store.home(), importing.check_tags) as archive:
            for row in archive.manifest.runs:
                if row.kind in TRAINED:
                    trainings.append(archive.run(row))
                elif row.claim == name and row.kind == "claim":
                    parts = (archive.artifact(row.run_id, part) for part in (cells.TABLE, CSV))
                    table, csv = (part or b"" for part in parts)
                    runs.append(RecordedRun(archive.run(row), table, csv.decode()))
    return Evidence(name, runs, trainings)


def trained_among(runs: Iterable[Document]) -> Trained:
    """Return what finds trainings among some runs."""
    by_kind: dict[tuple[str, str], list[Document]] = {}
    for run in runs:
        by_kind.setdefault((run.tags["kind"], run.tags.get("fingerprint", "")), []).append(run)
    return lambda kind, fingerprint: by_kind.get((kind, fingerprint), [])
