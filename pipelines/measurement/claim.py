"""Claims: a sentence of a source, how it is measured at each scale, the bounds that decide it.

Each module of pipelines/claims holds one, named after its file, as `CLAIM`; nothing else has to be
edited to add one. How a claim is measured over its grid and recorded is in sweep.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.measurement.cost import Cost
from pipelines.measurement.grid import Array, Cells, Curves, Measured, join
from pipelines.measurement.verdict import VERDICTS, Bound, Floor
from pipelines.recipes.recipe import Recipe
from pipelines.run import DEFAULT, Result, RunOptions, run
from pipelines.tracking import bulk, history, tracked_run

SEED_PREFIX = "seed/"  # begins the metrics of a claim's run whose steps are its seeds


@dataclass(frozen=True)
class Bench:
    """Where an experiment trains: a run in MLflow, whose children its trainings become."""

    run: tracked_run.Run
    run_options: RunOptions = DEFAULT
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of its trainings."""

    def train(self, recipe: Recipe) -> Result:
        """Train, in a child of this run unless an earlier run is the same; return the result."""
        result = run(recipe, self.run_options, parent=self.run, tags=self.tags)
        if result.reused:  # a child of another run: say which
            self.run.tag(f"reused.{result.run_id}", f"{recipe.name} seed {recipe.seed}")
        return result

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


def numbers(metrics: Mapping[str, float]) -> Curves:
    """Return single numbers as curves of one step."""
    return [0], {key: np.array([value]) for key, value in metrics.items()}


def means(*metrics: str) -> Callable[[Sequence[Measured]], dict[str, float]]:
    """Return `extra_metrics` of a claim: the means of these curves over all cells and steps."""
    return reductions(**dict.fromkeys(metrics, np.mean))


def reductions(**reduce: Callable[..., Any]) -> Callable[[Sequence[Measured]], dict[str, float]]:
    """Return `extra_metrics` of a claim: these curves, each reduced to a number."""
    return lambda measured: {key: float(each(join(measured, key))) for key, each in reduce.items()}


NO_NUMBERS = reductions()  # beside those that decide


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a source and how it is decided; a `Theorem` or an `Experiment`.

    `scales` holds a frozen dataclass of settings for each scale; its fields that are tuples are the
    axes of a grid. A bound is on a curve, of which the worst point of every seed counts, or on one
    of the numbers that `extra_metrics` makes from all that was measured with a seed.
    """

    source: str
    says: str
    formula: str = ""
    """The statement in LaTeX, for its page in the documentation."""
    family: str
    """The experiment in MLflow that its runs stand in."""
    scales: Mapping[str, Any]
    decided_by: tuple[Bound, ...]
    figure: Callable[..., Any]
    """What draws the cells; of an `Experiment`, the cells and the trainings below each."""
    extra_metrics: Callable[[Sequence[Measured]], dict[str, float]] = NO_NUMBERS
    reported: Mapping[str, float] = field(default_factory=dict)
    as_printed: tuple[Bound, ...] = ()
    """What is printed, in the damaged copies that were read, a number within a margin that the
    card states; or none."""
    shown: tuple[str, ...] = ()
    """Metrics that decide nothing and stand on the scoreboard beside those that do."""
    floors: tuple[Floor, ...] = ()
    """Of a comparison of trained networks: what they must reach, all of it, to be judged."""
    unjudged_scales: tuple[str, ...] = ()
    """Scales with other data than the source's, whose numbers are shown and not judged."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """By scale, what all its seeds take."""
    card: str = ""
    """The claim in words, where those at the beginning of its module are of several claims."""
    seeds: int = 5
    charts: tuple[tuple[str, ...], ...] = ()
    """Curves that share a chart in the UI, one tuple a chart: what is measured and its bounds."""
    recipes: Callable[[Any, int], Mapping[str, Recipe]] | None = None
    """What is trained with a setting and a seed: refused, if need be, before a run is opened."""
    reads: str | None = None
    """The setting that names a data set which is read without a recipe."""
    unstable: Mapping[str, float] = field(default_factory=dict)
    """Curves that rounding changes, such as where a search ends: by how much another processor may
    find them elsewhere, on the same side of their bounds."""
    inner: str | None = None
    """The axis that is not cut into cells: it becomes the step of every cell's curves."""

    def metrics(self, measured: Sequence[Measured]) -> dict[str, float]:
        """Return numbers of one seed: the worst of every bounded curve where the premise holds."""
        worst = {}
        for bound in self.curve_bounds(measured):
            values = np.concatenate([m.curves[bound.metric][m.holds] for m in measured])
            if len(values):
                worst[bound.metric] = bound.worst(values)
        return worst | self.extra_metrics(measured)

    def curve_bounds(self, measured: Sequence[Measured]) -> list[Bound]:
        """Return the bounds that are on curves."""
        return [bound for bound in self.decided_by if bound.metric in measured[0].curves]

    def judge(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> dict[str, str]:
        """Return the `verdict`, what becomes of the statement `as_printed`, and the `floor`.

        `values` holds one number a seed of each metric. `altered`: other settings than those of the
        scale. What is printed of trained networks is tested in the published setting alone, and
        what is not judged says nothing of the printed statement either. Of trained networks, more
        seeds than a claim states can make a verdict inconclusive and never give one: otherwise one
        could add seeds until it pleases. Where one is stated, which decides nothing, they can.
        """
        verdict = self.verdict(values, scale, altered)
        printed = self.judge_printed(values)
        if self.recipes and self.seeds > 1:
            stated = {key: column[: self.seeds] for key, column in values.items()}
            if verdict != self.verdict(stated, scale, altered):
                verdict = "inconclusive"
            if printed.partition(":")[0] != self.judge_printed(stated).partition(":")[0]:
                printed = "undecided"
        judged = verdict != "smaller scale" and self.reaches_floors(values)
        tested = judged and (scale == "paper" or self.recipes is None)
        return {
            "verdict": verdict,
            "as_printed": printed if tested else "not tested",
            "floor": "; ".join(floor.state(values) for floor in self.floors),
        }

    def verdict(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> str:
        """Return the weakest verdict of its bounds; `smaller scale` where it is not judged.

        A reported number is judged at paper scale only, and trained networks only in the settings
        of a scale. Networks that have not reached the floors decide nothing.
        """
        published = scale == "paper" and not altered
        bounds = [b for b in self.decided_by if published or b.metric not in self.reported]
        if not bounds or scale in self.unjudged_scales or (altered and self.recipes):
            return "smaller scale"
        if self.floors and (scale == "smoke" or not self.reaches_floors(values)):
            return "inconclusive" if published else "smaller scale"
        return weakest_verdict(bounds, values)

    def reaches_floors(self, values: Mapping[str, Sequence[float]]) -> bool:
        """Return whether the networks have reached all floors."""
        return all(floor.is_reached(values) for floor in self.floors)

    def judge_printed(self, values: Mapping[str, Sequence[float]]) -> str:
        """Return `holds`, `undecided`, `not tested`, or `fails: NUMBER, where RULE is printed`."""
        tested = [b for b in self.as_printed if b.metric in values]
        verdicts = [b.verdict(values[b.metric]) for b in tested]
        broken = [b for b, each in zip(tested, verdicts, strict=True) if each == "refuted"]
        if broken:
            return "fails: " + "; ".join(
                describe_contradiction(b, values[b.metric]) for b in broken
            )
        if not tested or len(tested) < len(self.as_printed):
            return "not tested"
        return "undecided" if "inconclusive" in verdicts else "holds"


def describe_contradiction(bound: Bound, values: Sequence[float]) -> str:
    """Return what is printed beside the number that contradicts it: the mean, or the worst seed.

    The worst is shown where the bound is for every seed and the mean satisfies it.
    """
    shown = mean(values)
    if bound.every and bound.at_least <= shown <= bound.at_most:
        shown = bound.worst(np.array(values))
    value = f"{bound.metric} {shown:.4g}"
    if bound.wording:
        return f"{bound.wording} ({value}, not {bound.rule})"
    return f"{value}, where {bound.rule} is printed"


def weakest_verdict(bounds: Sequence[Bound], values: Mapping[str, Sequence[float]]) -> str:
    """Return the weakest verdict of these bounds; one that was not measured is inconclusive."""
    verdicts = [
        b.verdict(values[b.metric]) if b.metric in values else "inconclusive" for b in bounds
    ]
    return min(verdicts, key=VERDICTS.index)


@dataclass(frozen=True, kw_only=True)
class Theorem(Claim):
    """A claim about arrays: measured for many cells in one call, in processes of their own."""

    measure: Callable[[Cells], Curves]
    apart: tuple[str, ...] = ()
    """Settings that fix shapes of arrays: cells that differ in them are measured apart."""
    batch: int = 8
    """Most cells in one call: as many as fit in memory."""


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

    figure: Callable[[Sequence[Measured], Sequence[Sequence[Training]]], Any]
    measure: Callable[[Any, int, Bench], Curves]
    derive: Callable[[Any, int, Bench], Curves] | None = None
    """What gives those curves of a cell that follow from its recorded trainings at once.

    None: `measure`, which then does nothing but train on the bench.
    """
    family: str = "trained networks"
