"""Cells derived anew, by what measured them: from their trainings, or by measuring them again.

A training is found by the settings and the seed that the claim asks for; none is made.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipelines.data.integrity import is_at_hand
from pipelines.errors import Diverged
from pipelines.measurement import grid
from pipelines.measurement.experiment import Experiment, Trainer
from pipelines.measurement.grid import Cells, Curves, Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.recipes.cost import seconds
from pipelines.recipes.recipe import Recipe
from pipelines.results.evidence import bundles
from pipelines.results.evidence.recorded import RecordedRun
from pipelines.running.existing import DIVERGED, PER_STEP, Result, select_final
from pipelines.tracking.bundles.exporting import POINTS
from pipelines.tracking.bundles.shape import Document
from pipelines.tracking.history import LARGEST_FLOAT
from pipelines.training.seen_test import HALF, SEEN

DERIVED, ANEW = 1e-9, 1e-6  # relative tolerances, a thousandth of which is the absolute one
NOWHERE: Any = SimpleNamespace(tag=lambda key, value: None, model=lambda model: None)
Trained = Callable[[str, str], Iterable[Document]]
"""Returns the trainings of a kind whose settings have a fingerprint, of whatever cell."""


@dataclass(frozen=True, kw_only=True)
class RecordedTrainer(Trainer):
    """A trainer that finds recorded trainings; what else a claim records by it is not kept."""

    find: Callable[[Recipe, str], Document]
    """Returns the training of a kind, also one that diverged."""
    found: dict[str, Document] = field(default_factory=dict)

    def train(self, recipe: Recipe) -> Result:
        """Return a recorded training; raise Diverged for one that diverged."""
        training = self.find(recipe, "training")
        if DIVERGED not in training.tags:
            return self._result(recipe, training)
        if training.status == "FINISHED":
            raise ValueError(f"{training.name} has finished, and says that it diverged")
        raise Diverged("", int(training.tags[DIVERGED]))

    def search(self, recipe: Recipe, lost: Mapping[str, float]) -> Result:
        """Return a recorded training of a search, which finishes with `lost` where it diverges."""
        training = self.find(recipe, "search")
        if DIVERGED not in training.tags:
            return self._result(recipe, training)
        step, curves = int(training.tags[DIVERGED]), bundles.histories(training)
        stood_for = {metric: curves.get(metric, {}).get(step) for metric in lost}
        if stood_for != lost or max(map(max, curves.values())) > step:
            raise ValueError(f"{training.name} diverged at step {step}, its curves say otherwise")
        return Result(training.run_id, dict(lost))

    def _result(self, recipe: Recipe, training: Document) -> Result:
        self.found[training.run_id] = training
        return Result(training.run_id, select_final(final_numbers(training, recipe.steps or 0)))

    def curve(self, result: Result, metric: str) -> tuple[Any, Any]:
        """Return a curve of a training: integer steps [k] and values [k]."""
        points = bundles.curve(self.found[result.run_id], metric)
        steps = [step for step in sorted(points) if not np.isnan(points[step])]
        return np.array(steps), np.array([points[step] for step in steps])


@dataclass(frozen=True)
class RecordedCell:
    """A cell as it is recorded in a plan, and what finds its trainings."""

    plan: MeasurementPlan
    measured: Measured
    trained: Trained
    own: Collection[str] = ()
    """The ids of trainings that count before equal ones: those of the run that holds the cell."""

    @property
    def title(self) -> str:
        """Return `two-phases d=8 seed=0`."""
        return f"{self.plan.name} {grid.cell_title(self.measured.cell, self.plan.axes)}"

    def trainer(self) -> Trainer:
        """Return where its trainings are found: of equal ones its own, else the newest."""

        def find(recipe: Recipe, kind: str) -> Document:
            equal = [r for r in self.trained(kind, recipe.fingerprint) if r.params == recipe.flat()]
            equal = [r for r in equal if r.status == "FINISHED" or DIVERGED in r.tags]
            if not equal:
                raise ValueError(
                    f"there is no {kind} of {recipe.name} with seed {recipe.seed} and the settings "
                    f"that the claim asks for (fingerprint {recipe.fingerprint})"
                )
            return max(equal, key=lambda run: (run.run_id in self.own, run.start_ms))

        return RecordedTrainer(NOWHERE, find=find)

    def check(self) -> Iterator[str]:
        """Yield what a cell of an experiment says that its trainings do not."""
        claim = self.plan.claim
        if isinstance(claim, Experiment) and claim.recipes:
            yield from self._compare(claim.derive or claim.measure, "by its trainings", DERIVED)

    def measure_anew(self) -> Iterator[str]:
        """Measure the cell; yield in what it differs from what is recorded."""
        claim: Any = self.plan.claim
        yield from self._compare(claim.measure, "measured anew", ANEW)

    def _curves(self, measure: Callable[..., Curves]) -> Curves:
        cell = self.measured.cell
        if self.plan.claim.trains:
            return measure(self.plan.settings_at(cell), cell.seed, self.trainer())
        with threadpool_limits(1, user_api="blas"):  # the measurement used one, too
            steps, curves = measure(Cells((cell,)))
        return steps, {metric: values[0] for metric, values in curves.items()}

    def _compare(self, measure: Callable[..., Curves], how: str, near: float) -> Iterator[str]:
        """Yield which curves are recorded otherwise, each with the first such number."""
        try:
            steps, curves = self._curves(measure)
        except (KeyError, ValueError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            yield f"{self.title}: {what}"
            return
        there = self.measured
        arrays = {metric: np.asarray(values, float) for metric, values in curves.items()}
        here = Measured(there.cell, np.asarray(steps), arrays)
        if curves and not np.array_equal(here.steps, there.steps):
            yield f"{self.title}: its steps are others {how}"
            return
        unstable = self.plan.claim.unstable
        odd = there.curves.keys() ^ here.curves.keys()
        if measure is getattr(self.plan.claim, "derive", None):  # which gives a part of them
            odd = here.curves.keys() - there.curves.keys()
        if odd:
            yield f"{self.title}: {', '.join(sorted(odd))}: in the evidence or {how}, not in both"
            return
        for metric, values in here.curves.items():
            recorded = there.curves[metric]
            # where rounding changes values, the worst must stay on the same side of every bound
            bounds = [b for b in self.plan.claim.decided_by if b.metric == metric]
            judged = [part for m in (there, here) if len(part := m.curves[metric][m.holds])]
            sides = [{b.verdict([b.worst(part)]) for part in judged} for b in bounds]
            is_loose = metric in unstable and all(len(side) < 2 for side in sides)
            limit = max(near / 1000, unstable[metric] if is_loose else 0)
            same = np.isclose(recorded, values, near, min(limit, LARGEST_FLOAT), equal_nan=True)
            if not same.all() and limit < np.inf:
                i = int(np.argmin(same))
                at = f" at step {here.steps[i]}" if len(values) > 1 else ""
                numbers = f"{recorded[i]:.6g} in the evidence, {values[i]:.6g} {how}"
                yield f"{self.title}: {metric}{at} is {numbers}"


def final_numbers(training: Document, steps: int) -> dict[str, float]:
    """Return the last value of every metric; raise ValueError where one contradicts the curves.

    These must go to the last of `steps`; 0 where the recipe states none.
    """
    curves = bundles.histories(training)
    final = {metric: by_step[max(by_step)] for metric, by_step in curves.items()}
    end, about = max(map(max, curves.values()), default=0), f"{training.name} ({training.run_id})"
    if end < steps or any(end not in curves.get(metric, ()) for metric in PER_STEP):
        raise ValueError(f"{about} has no curves up to its last step, {max(end, steps)}")
    errs = {"best_val_error_pct", "test_error_pct"} & final.keys()
    watched = "best_val_error_pct" if errs else "best_val_loss"
    for metric in [key for key in final if key.startswith("best_val_")]:
        curve = curves.get(metric.removeprefix("best_"), {})
        best_step = final.get("best_step", 0)
        expected = curve.get(int(best_step) if math.isfinite(best_step) else -1, final[metric])
        if len(curve) < POINTS / 2 and best_step not in curve:  # thinned ones have more points
            raise ValueError(f"{about} has best_step {best_step:.6g}, at which no validation was")
        if metric == watched:
            expected = min([expected, *curve.values()])
        if final[metric] != expected:
            raise ValueError(f"{about} has {metric} {final[metric]:.6g}, its curve {expected:.6g}")
    for metric in (f"{kind}_{watched.removeprefix('best_val_')}" for kind in (SEEN, HALF)):
        if metric in curves or f"best_{metric}" in final:
            least = min(curves.get(metric, {}).values(), default=math.nan)
            if (found := final.get(f"best_{metric}", math.nan)) != least:
                raise ValueError(f"{about} has best_{metric} {found:.6g}, its curve {least:.6g}")
    return final


def cells_of(run: RecordedRun) -> list[RecordedCell]:
    """Return the cells of a run by today's plan, each with what finds its trainings."""
    by_kind: dict[tuple[str, str], list[Document]] = {}
    for each in run.every_training:
        key = each.tags["kind"], each.tags.get("fingerprint", "")
        by_kind.setdefault(key, []).append(each)

    def find(kind: str, fingerprint: str) -> list[Document]:
        return by_kind.get((kind, fingerprint), [])

    own = run.own_ids
    return [RecordedCell(run.plan, m, find, own) for m in run.measured if run.plan]


def is_measurable(each: RecordedCell, most_s: float) -> bool:
    """Return whether more than trainings made a cell, at a stated cost of at most so much, here."""
    claim, plan = each.plan.claim, each.plan
    if isinstance(claim, Experiment) and claim.recipes and not claim.derive:
        return False
    unknown = seconds(0 if plan.scale == "smoke" else math.inf)
    cost = claim.costs.get(plan.scale, unknown) * (1 / len(plan.cells) / claim.seeds)
    return cost.most_s <= most_s and all(map(is_at_hand, plan.data_sets))


def draw(claims: Iterable[Sequence[RecordedCell]], count: int, seed: int) -> list[RecordedCell]:
    """Return so many cells at random: of every claim one, then of every claim another."""
    rng = np.random.default_rng(seed)
    columns = [[cells[i] for i in rng.permutation(len(cells))] for cells in claims]
    rows = itertools.zip_longest(*(columns[i] for i in rng.permutation(len(columns))))
    return [each for row in rows for each in row if each][:count]
