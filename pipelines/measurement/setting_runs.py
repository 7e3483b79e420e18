"""The settings of a sweep as runs of their own, which MLflow's table and charts compare."""

from collections.abc import Iterable

import numpy as np

from pipelines.measurement import grid
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.runtime import signals
from pipelines.tracking import finished_runs, history, store
from pipelines.tracking.tracked_run import Run


class SettingRuns:
    """The children of a sweep's run, one a cell; those that are there are not written again."""

    def __init__(self, plan: MeasurementPlan, run: Run) -> None:
        self.plan, self.run = plan, run
        there = history.rows(None, kind="setting", **{store.PARENT: run.id})
        for row in (row for row in there if row.status != "FINISHED"):  # of a kill
            store.client().delete_run(row.id)
        self.written = {row.tags["fingerprint"] for row in there if row.status == "FINISHED"}

    def write(self, measured: Iterable[Measured]) -> None:
        """Write a run for each of these cells: its settings, its curves over the inner axis."""
        for m in measured:
            fingerprint = self.plan.cell_fingerprint(m.cell)
            if fingerprint in self.written:
                continue
            about = {
                "kind": "setting",
                "claim": self.plan.name,
                "code": m.code,
                "fingerprint": fingerprint,
            }
            with signals.defer():
                finished_runs.write(
                    grid.cell_title(m.cell, self.plan.axes),
                    experiment=self.run.experiment,
                    parent=self.run.id,
                    params=m.cell.params,
                    tags=about | _premise_tag(m),
                    steps=m.steps.tolist(),
                    curves=m.curves,
                    start_ms=m.start_ms,
                    end_ms=m.end_ms,
                )
            self.written.add(fingerprint)


def _premise_tag(m: Measured) -> dict[str, str]:
    """Return a tag that says whether the premise is in force: True, False or `at some steps`."""
    if grid.ASSUMPTION not in m.curves:
        return {}
    holds = np.asarray(m.curves[grid.ASSUMPTION], bool)
    where = str(bool(holds.all())) if holds.all() or not holds.any() else "at some steps"
    return {grid.ASSUMPTION: where}
