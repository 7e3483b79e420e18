"""Claims about trained networks: what a cell trains on, and how it is measured.

A cell is measured in this process, one after the other: what it trains may take every device.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.measurement.claim import Claim
from pipelines.measurement.grid import Array, Cell, Curves, Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.measurement.verdict import EXPERIMENT, Words
from pipelines.recipes import checks
from pipelines.recipes.catalog import RECIPES
from pipelines.recipes.recipe import Recipe
from pipelines.running.existing import DIVERGED, Result
from pipelines.running.run import TrainingObserver, check_trainable, run
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.tracking import history, store, tracked_run

TRAINED = ("training", "search")  # kinds of runs that an experiment trains


@dataclass(frozen=True)
class Trainer:
    """Trains for a cell of an experiment; its trainings become children of the cell's run."""

    run: tracked_run.Run
    run_options: RunOptions = DEFAULT
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of its trainings."""
    arms: Mapping[str, Recipe] = field(default_factory=dict)
    """The trainings of the cell by what the claim calls them, in whose names and tags that is."""
    trained: dict[str, None] = field(default_factory=dict)
    """The fingerprints of what was trained, in their order."""

    def train(self, recipe: Recipe) -> Result:
        """Train, in a child of this run unless an earlier run is the same; return the result."""
        arm = self._arm_of(recipe)
        named = {store.ARM: arm} if arm else {}
        title = f"{arm} seed {recipe.seed} {recipe.name}".lstrip()
        return self._run(recipe, title=title, tags={**named, **self.tags})

    def search(self, recipe: Recipe, lost: Mapping[str, float]) -> Result:
        """Train with the test set unread; `lost` stands for the numbers of one that diverges."""
        return self._run(
            recipe,
            kind="search",
            watch=TrainingObserver(report=lambda metrics, step: None, lost=lost),
            title=f"{recipe.name} rate {recipe.learning_rate:g}",
            tags=self.tags,
        )

    def _run(self, recipe: Recipe, **how: Any) -> Result:
        """Train in a child of this run; of an earlier run that is the same, say which."""
        self.trained[recipe.fingerprint] = None
        result = run(recipe, self.run_options, parent=self.run, **how)
        if result.reused:
            self.run.link(store.REUSED, result.run_id)
        return result

    def study(self, name: str) -> None:
        """Say that the cell comes from a study, which goes where the run goes."""
        self.run.link(store.STUDIED, name)

    def curve(self, result: Result, metric: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return a curve of a training run: integer steps [k] and values [k]."""
        steps, curves = history.curves([result.run_id])[result.run_id]
        recorded = ~np.isnan(curves[metric])
        return steps[recorded], curves[metric][recorded]

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
    """Values [k] by metric over the steps [k], NaN where a step has none."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Claim):
    """A claim about trained networks: one cell a call, trained by a trainer.

    `measure(setting, seed, trainer)` returns steps [k] and by name curves [k]; `numbers` makes them
    of single numbers. `figure(measured, trainings)` gets of every cell what was trained for it.
    """

    trains: ClassVar[bool] = True
    figure: Callable[[Sequence[Measured], Sequence[Sequence[Training]]], Any]
    measure: Callable[[Any, int, Trainer], Curves]
    derive: Callable[[Any, int, Trainer], Curves] | None = None
    """A function that gives those curves of a cell that follow at once from recorded trainings.

    None: `measure`, which then does nothing but train.
    """
    family: str = "trained networks"
    words: Words = EXPERIMENT

    def published_recipes(self, arms: Mapping[str, Any]) -> list[Any]:
        """Return the published recipes, at every scale, of which arms of the claim are."""
        names = sorted({recipe.name for recipe in arms.values()} & RECIPES.keys())
        return [recipe.flat() for name in names for recipe in RECIPES[name].values()]

    def check_recipes(self, recipes: Iterable[Any]) -> None:
        """Raise UserError for what no machine can train: a name or an argument that is wrong."""
        for recipe in recipes:
            checks.check(recipe)

    def check_trainable(self, recipes: Iterable[Any], run_options: RunOptions) -> None:
        """Raise UserError for what this machine cannot train, unless a run of it is recorded."""
        for recipe in recipes:
            check_trainable(recipe, run_options)

    def draw(self, plan: MeasurementPlan, measured: Sequence[Measured], run_id: str) -> Any:
        """Return its figure, with the learning curves of the trainings of every cell."""
        return self.figure(measured, read_trainings(plan, measured, run_id))

    def link_trainings(self, measured: Iterable[Measured], run: tracked_run.Run) -> None:
        """Let a run name the trainings of cells that other runs have measured."""
        for fingerprint in dict.fromkeys(key for m in measured for key in m.trained):
            for kind in TRAINED:
                rows = history.rows_with_evidence(None, kind=kind, fingerprint=fingerprint)
                ended = [row for row in rows if row.status == "FINISHED" or DIVERGED in row.tags]
                for row in ended[:1]:
                    run.link(store.REUSED, row.id)

    def training_spans(self, measured: Iterable[Measured], run_id: str) -> list[tuple[int, int]]:
        """Return from and until when the trainings of cells ran, whichever run they were made for.

        Both are milliseconds since 1970. A training that paused counts as if it had begun later.
        """
        named = {key for m in measured for key in m.trained}
        rows = history.trainings_of(run_id, kinds=TRAINED)
        return [
            (row.end_ms - int(1000 * row.metrics.get("wall_s", 0)), row.end_ms)
            for row in rows
            if row.end_ms and row.tags.get("fingerprint") in named
        ]

    def measure_cell(self, plan: MeasurementPlan, cell: Cell, run: tracked_run.Run) -> Measured:
        """Measure one cell, whose trainings are children of the run; what was interrupted goes on.

        The trainings of a claim about one recipe are that recipe's, too, by their tag.
        """
        run_as = {store.RUN_AS: f"{plan.name} {plan.scale}"}
        tags = run_as if isinstance(plan.settings, Recipe) else {}
        trainer = Trainer(run, plan.run_options, tags, plan.arms(cell))
        start_ms = int(time.time() * 1000)
        steps, curves = self.measure(plan.settings_at(cell), cell.seed, trainer)
        return Measured(
            cell,
            np.asarray(steps, np.int64),
            {name: np.asarray(values, float) for name, values in curves.items()},
            plan.code,
            tuple(trainer.trained),
            start_ms,
            int(time.time() * 1000),
        )


def read_trainings(
    plan: MeasurementPlan, measured: Sequence[Measured], run_id: str
) -> list[list[Training]]:
    """Return of every cell of a run its trainings with their curves."""
    return trainings_by_cell(plan, measured, history.trainings_of(run_id), history.curves)


def trainings_by_cell(
    plan: MeasurementPlan,
    measured: Sequence[Measured],
    rows: Iterable[history.Row],
    read_curves: Callable[[Sequence[str]], Mapping[str, history.Table]],
) -> list[list[Training]]:
    """Return of every cell its trainings among `rows`, those that finished first.

    Of a repeated one it is that which finished. Those that the claim does not name, such as an arm
    at a rate that a search found, have the name under which they were trained.
    """
    ordered = sorted(rows, key=lambda row: (row.status == "FINISHED", row.start_ms))
    last = {row.tags.get("fingerprint", row.id): row for row in ordered}
    curves = read_curves([row.id for row in last.values()])
    every = {key: Training(plan.arm_of(row.tags), *curves[row.id]) for key, row in last.items()}
    lost = {key for key, row in last.items() if row.status != "FINISHED"}
    in_order = [sorted(m.trained, key=lost.__contains__) for m in measured]
    return [[every[key] for key in keys if key in every] for keys in in_order]
