"""Claims about trained networks: what a cell trains on, and how it is measured.

A cell is measured in this process, one after the other: what it trains may take every device.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.measurement import documents
from pipelines.measurement.claim import Claim
from pipelines.measurement.grid import Array, Cell, Curves, Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.measurement.verdict import EXPERIMENT, Words
from pipelines.recipes.catalog import RECIPES
from pipelines.recipes.recipe import Recipe
from pipelines.run import Result, TrainingObserver, check_trainable, run
from pipelines.run_options import DEFAULT, RunOptions
from pipelines.tracking import bulk, history, mlflow_ui, store, tracked_run


@dataclass(frozen=True)
class Bench:
    """Where an experiment trains: a run in MLflow, whose children its trainings become."""

    run: tracked_run.Run
    run_options: RunOptions = DEFAULT
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of its trainings."""
    arms: Mapping[str, Recipe] = field(default_factory=dict)
    """The trainings of the claim by what it calls them, in whose names and tags that stands."""

    def train(self, recipe: Recipe) -> Result:
        """Train, in a child of this run unless an earlier run is the same; return the result."""
        arm = self._arm_of(recipe)
        result = run(recipe, self.run_options, parent=self.run, arm=arm, tags=self.tags)
        if result.reused:  # a child of another run: say which
            self.run.tag(f"reused.{result.run_id}", f"{recipe.name} seed {recipe.seed}")
        return result

    def search(self, recipe: Recipe, lost: Mapping[str, float]) -> Result:
        """Train with the test set unread; `lost` stands for the numbers of one that diverges."""
        return run(
            recipe,
            self.run_options,
            parent=self.run,
            kind="search",
            watch=TrainingObserver(report=lambda metrics, step: None, lost=lost),
            title=f"{recipe.name} rate {recipe.learning_rate:g}",
            tags=self.tags,
        )

    def curve(self, result: Result, metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return a curve of a training run: integer steps [k] and values [k]."""
        steps, curves = history.curves([result.run_id])[result.run_id]
        recorded = ~np.isnan(curves[metric])
        return steps[recorded], curves[metric][recorded]

    def add(
        self, name: str, params: Mapping[str, Any], steps: Sequence[int], curves: Mapping[str, Any]
    ) -> None:
        """Record a child run with curves [k] over integer steps [k]."""
        now = int(time.time() * 1000)
        added = bulk.FinishedRun(name, params, {}, steps, curves, now, now)
        bulk.write(self.run.experiment, [added], self.run.id)

    def _arm_of(self, recipe: Recipe) -> str:
        """Return what the claim calls a training, whatever its rate; empty where it has but one."""
        alike = {
            arm: each.override(learning_rate=recipe.learning_rate)
            for arm, each in self.arms.items()
        }
        names = (arm for arm, each in alike.items() if each.fingerprint == recipe.fingerprint)
        return next(names, "") if len(alike) > 1 else ""


def numbers(metrics: Mapping[str, float]) -> Curves:
    """Return single numbers as curves of one step."""
    return [0], {key: np.array([value]) for key, value in metrics.items()}


@dataclass(frozen=True)
class Training:
    """A training below a cell: what its claim calls it, if anything, and its learning curves."""

    arm: str
    steps: NDArray[np.int64]
    curves: Mapping[str, Array]
    """By metric values [k] over the steps [k], NaN where a step has none."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Claim):
    """A claim about trained networks: one cell a call, which trains on a bench.

    `measure(setting, seed, bench)` returns steps [k] and by name curves [k]; `numbers` makes them
    of single numbers. `figure(measured, trainings)` gets of every cell what was trained for it.
    """

    trains: ClassVar[bool] = True
    figure: Callable[[Sequence[Measured], Sequence[Sequence[Training]]], Any]
    measure: Callable[[Any, int, Bench], Curves]
    derive: Callable[[Any, int, Bench], Curves] | None = None
    """What gives those curves of a cell that follow from its recorded trainings at once.

    None: `measure`, which then does nothing but train on the bench.
    """
    family: str = "trained networks"
    words: Words = EXPERIMENT

    def published_recipes(self, arms: Mapping[str, Any]) -> list[Any]:
        """Return the published recipes, at every scale, of which arms of the claim are."""
        names = sorted({recipe.name for recipe in arms.values()} & RECIPES.keys())
        return [recipe.flat() for name in names for recipe in RECIPES[name].values()]

    def check_trainable(self, recipes: Iterable[Any], run_options: RunOptions) -> None:
        """Raise UserError for what this machine cannot train, unless a run of it is recorded."""
        for recipe in recipes:
            check_trainable(recipe, run_options)

    def draw(self, measured: Sequence[Measured], arm_names: Mapping[str, str]) -> Any:
        """Return its figure, with the learning curves of the trainings of every cell."""
        return self.figure(measured, [read_trainings(m.run_id, arm_names) for m in measured])

    def measure_cell(self, plan: MeasurementPlan, cell: Cell, run: tracked_run.Run) -> Measured:
        """Measure one cell in a child run, whose children are its trainings.

        A child that was interrupted goes on, and so does its training.
        """
        fingerprint = plan.cell_fingerprint(cell)
        earlier = history.rows(None, **{store.PARENT: run.id, "fingerprint": fingerprint})
        is_broken = earlier and earlier[0].status in ("KILLED", "FAILED")
        with documents.track_cell(plan, cell, run, earlier[0].id if is_broken else None) as child:
            run_as = {store.RUN_AS: f"{plan.name} {plan.scale}"}  # of a claim about one recipe
            tags = run_as if isinstance(plan.settings, Recipe) else {}
            bench = Bench(child, plan.run_options, tags, plan.arms(cell))
            steps, curves = self.measure(plan.settings_at(cell), cell.seed, bench)
            for i, step in enumerate(steps):
                child.log({key: float(values[i]) for key, values in curves.items()}, int(step))
            child.flush()
            ids = [row.id for row in documents.trainings([child.id])]
            chart = mlflow_ui.learning_curves(ids) if ids else mlflow_ui.children_chart(child.id)
            child.tag(store.NOTE, f"[The curves of its runs]({chart})")
        return Measured(cell, np.asarray(steps), curves, child.id)


def read_trainings(cell: str, arm_names: Mapping[str, str]) -> list[Training]:
    """Return the trainings of a cell with their curves; of a repeated one, that which finished.

    Those that the claim does not name, such as an arm at a rate that a search found, have the name
    under which they were trained.
    """
    rows = documents.trainings([cell])
    rows.sort(key=lambda row: (row.status == "FINISHED", row.start_ms))
    last = {row.tags.get("fingerprint", row.id): row for row in rows}.values()
    curves = history.curves([row.id for row in last])
    return [Training(documents.arm_name(row.tags, arm_names), *curves[row.id]) for row in last]
