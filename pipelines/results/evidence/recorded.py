"""Contents of the bundles of a claim: its runs with their cells, and its trainings.

All of it is read from the files, every byte of which is checked; no database is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipelines.measurement import cells
from pipelines.measurement.claim_run import json_document, settings_table
from pipelines.measurement.claim_run.json_document import JsonDocument, seed_values
from pipelines.measurement.experiment import TRAINED, Experiment, trainings_by_cell
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan, stated_plan_of
from pipelines.recipes.settings import SCALES
from pipelines.results.evidence import bundles
from pipelines.results.evidence.bundles import histories, row_of
from pipelines.tracking import history, store
from pipelines.tracking.bundles import file_format, importing
from pipelines.tracking.bundles.shape import Document


@dataclass(frozen=True)
class RecordedRun:
    """A finished run of a claim, with its cells."""

    bundle: str
    """The name of the file that holds it."""
    document: Document
    table: bytes
    """The run's cells."""
    csv: str
    """The same for a reader."""
    picture: bytes | None
    """The claim's figure as PNG."""
    every_training: list[Document]
    """The whole contents of the claim's bundles."""

    @cached_property
    def row(self) -> history.Row:
        """Return the run as the database would give it."""
        return row_of(self.document)

    @cached_property
    def plan(self) -> MeasurementPlan | None:
        """Return its plan; None where the claim states other settings today."""
        return stated_plan_of(self.row)

    @cached_property
    def seed_values(self) -> dict[str, list[float]]:
        """Return by metric the numbers of the seeds that it has recorded."""
        return seed_values(histories(self.document))

    @property
    def judged_document(self) -> JsonDocument:
        """Return the claim as `run --json` prints it, of recorded numbers by the rules of today."""
        return json_document.judged_document(self.row, self.seed_values)

    @cached_property
    def measured(self) -> list[Measured]:
        """Return the cells of its plan; those that it lacks are left out."""
        wanted = self.plan.cells_by_fingerprint if self.plan else {}
        return list(cells.unpack(self.table, wanted).values())

    @property
    def is_whole(self) -> bool:
        """Return whether it holds all cells of the plan that its claim states today."""
        return self.plan is not None and len(self.measured) == len(self.plan.cells)

    @cached_property
    def derived_values(self) -> dict[str, list[float]]:
        """Return by metric one value a seed, made of the cells, of which none may be lacking."""
        plan = self.plan
        return plan.values(self.measured) if plan else {}

    @property
    def trainings(self) -> list[Document]:
        """Return the trainings that its cells follow from."""
        trained = {key for m in self.measured for key in m.trained}
        return [d for d in self.every_training if d.tags.get("fingerprint") in trained]

    @property
    def own_ids(self) -> set[str]:
        """Return the ids of the trainings below it, and of those that it names."""
        below = {d.run_id for d in self.every_training if d.tags.get(store.PARENT) == self.row.id}
        return below | {*store.read_links(self.document.tags, store.REUSED)}

    def draw(self, plan: MeasurementPlan) -> Any:
        """Return the figure of its plan anew, with the learning curves of trained networks."""
        if not isinstance(plan.claim, Experiment):
            return plan.claim.figure(self.measured)
        own = self.own_ids
        by_id = {d.run_id: d for d in self.every_training if d.run_id in own}
        rows = [row_of(d) for d in by_id.values() if d.tags["kind"] == "training"]

        def read_curves(ids: Sequence[str]) -> dict[str, history.Table]:
            return {each: history.table(histories(by_id[each])) for each in ids}

        trained = trainings_by_cell(plan, self.measured, rows, read_curves)
        return plan.claim.figure(self.measured, trained)


@dataclass(frozen=True)
class Evidence:
    """Contents of a claim's bundles."""

    name: str
    runs: list[RecordedRun]

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

    @property
    def begun(self) -> RecordedRun | None:
        """Return the run of most seeds, and fewer than stated, at a scale larger than decided."""
        decided = SCALES.index(self.deciding.row.tags["scale"]) if self.deciding else -1
        lacking = {
            (SCALES.index(plan.scale), plan.seeds, run.row.start_ms): run
            for run in self.runs
            if (plan := run.plan) and plan.claim.recipes and not plan.first_seed
            if not plan.is_as_stated
            if SCALES.index(plan.scale) > decided
        }
        return lacking[max(lacking)] if lacking else None


def read(name: str) -> Evidence:
    """Return what the bundles hold of a claim; nothing of it of one that has none."""
    runs: list[RecordedRun] = []
    trainings: list[Document] = []
    documents: dict[str, Document] = {}

    def keep(document: Document) -> None:
        importing.check_tags(document)
        documents[document.run_id] = document

    for file in bundles.files([name]):
        with file_format.open_archive(file, store.home(), keep) as archive:
            for row in archive.manifest.runs:
                run = documents[row.run_id]
                if row.kind in TRAINED:
                    trainings.append(run)
                elif row.claim == name and row.kind == "claim":
                    names = (cells.TABLE, settings_table.FILE, "figure.png")
                    table, csv, picture = (archive.artifact(row.run_id, n) for n in names)
                    text = (csv or b"").decode()
                    recorded = RecordedRun(file.name, run, table or b"", text, picture, trainings)
                    runs.append(recorded)
    return Evidence(name, runs)
