"""What the evidence still lacks, the cheapest verdict first, and the work on it.

A verdict needs every seed of a claim at a scale. `plan` says which seeds and trainings of it are
missing and what they take; `work` measures them at the lowest priority and adds them.
"""

import math
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines import resume
from pipelines.data.integrity import is_at_hand
from pipelines.errors import LISTED_BY, unknown
from pipelines.measurement import claim_catalog, sweep
from pipelines.measurement.claim import Claim, Experiment
from pipelines.measurement.cost import Cost
from pipelines.measurement.grid import Cell
from pipelines.measurement.plan import MeasurementPlan, stated_plan
from pipelines.recipes.catalog import SCALES
from pipelines.recipes.recipe import Recipe
from pipelines.results.evidence import bundles
from pipelines.run import RunOptions
from pipelines.runtime.durations import format_duration
from pipelines.tracking import history

LOWEST_PRIORITY = 19
KINDS = ("training", "search")  # of runs that an experiment trains
MOST_NAMED = 4  # trainings of a seed that are named in the terminal


@dataclass(frozen=True)
class Training:
    """A training of a claim's seed, and how far it has come."""

    seed: int
    arm: str
    steps: int
    done: int

    def __str__(self) -> str:
        """Return `plain`, or `plain from step 1200 of 2340` of one that was begun."""
        return f"{self.arm} from step {self.done} of {self.steps}" if self.done else self.arm


@dataclass(frozen=True)
class Decision:
    """A verdict that the evidence lacks: a claim at a scale, and what is still to be measured."""

    plan: MeasurementPlan
    missing: Sequence[Cell]
    trainings: Sequence[Training]
    """Those of the missing cells of an experiment that are not finished."""
    share: float
    """Of the work of all seeds, what is still to be done."""

    @property
    def name(self) -> str:
        """Return `zero-init at paper scale`."""
        return f"{self.plan.name} at {self.plan.scale} scale"

    @property
    def cost(self) -> Cost:
        """Return what is still to be done, by the cost that the claim states."""
        return self.plan.claim.costs[self.plan.scale] * self.share

    @property
    def absent_data(self) -> list[str]:
        """Return the data sets that it reads and that are not on this machine."""
        return [name for name in self.plan.data_sets if not is_at_hand(name)]

    def document(self) -> dict[str, Any]:
        """Return the decision as `evidence plan --json` prints it."""
        missing_seeds = sorted({cell.seed for cell in self.missing})
        trainings = {s: [str(t) for t in self.trainings if t.seed == s] for s in missing_seeds}
        return {
            "claim": self.plan.name,
            "scale": self.plan.scale,
            "seeds": self.plan.seeds,
            "missing": {str(seed): names for seed, names in trainings.items()},
            "least_s": round(self.cost.least_s),
            "most_s": round(self.cost.most_s),
            "gpu": self.cost.gpu,
            "absent_data": self.absent_data,
        }


def plan_decisions(names: Collection[str] = ()) -> list[Decision]:
    """Return what the evidence lacks of some claims, or of all, the cheapest verdict first.

    What was measured in this store counts, whether it is added yet or not. Raise UserError for a
    name that is no claim's.
    """
    for name in names:
        if name not in claim_catalog.names():
            raise unknown("A claim", name, claim_catalog.names(), LISTED_BY)
    decisions = [
        decision
        for name in names or claim_catalog.names()
        for scale in deciding_scales(claim_catalog.load(name))
        if (decision := _find_missing(name, scale))
    ]
    return sorted(decisions, key=lambda each: (each.cost.gpu, each.cost.least_s))


def deciding_scales(claim: Claim) -> list[str]:
    """Return the scales at which a claim may be decided: of trained networks the larger ones."""
    scales = [s for s in SCALES if s in claim.costs and s not in claim.unjudged_scales]
    larger = [scale for scale in scales if scale != "cpu"]
    return larger if isinstance(claim, Experiment) and larger else scales


def _find_missing(name: str, scale: str) -> Decision | None:
    """Return what a claim lacks at a scale; None where it is complete."""
    plan = stated_plan(name, scale, claim_catalog.load(name).seeds)
    measured = history.finished_cells_anywhere(name, plan.code)
    missing = [cell for cell in plan.cells if plan.cell_fingerprint(cell) not in measured]
    if not missing:
        return None
    trainings = _list_trainings(plan, missing)
    if not trainings:
        return Decision(plan, missing, (), len(missing) / len(plan.cells))
    missing_steps = sum(each.steps - each.done for each in trainings)
    all_steps = sum(_count_steps(recipe) for _, _, recipe in _list_recipes(plan, plan.cells))
    unfinished = [each for each in trainings if each.done < each.steps]
    return Decision(plan, missing, unfinished, missing_steps / all_steps)


def _list_trainings(plan: MeasurementPlan, cells: Sequence[Cell]) -> list[Training]:
    """Return the trainings of cells with the steps of each and those that are done."""
    return [
        Training(seed, arm, steps, _count_steps_done(recipe, steps))
        for seed, arm, recipe in _list_recipes(plan, cells)
        for steps in [_count_steps(recipe)]
    ]


def _list_recipes(plan: MeasurementPlan, cells: Sequence[Cell]) -> list[tuple[int, str, Recipe]]:
    """Return seed, arm and recipe of what is trained for cells; what seeds share, once."""
    every = [(cell.seed, *item) for cell in cells for item in plan.arms(cell).items()]
    by_fingerprint = {recipe.fingerprint: (seed, arm, recipe) for seed, arm, recipe in every[::-1]}
    return list(by_fingerprint.values())[::-1]


def _count_steps(recipe: Recipe) -> int:
    """Return the steps of a training; 1 where the data are not here, which say how long it is."""
    if recipe.steps or not is_at_hand(recipe.data):
        return recipe.steps or 1
    return recipe.steps_over(recipe.examples())


def _count_steps_done(recipe: Recipe, steps: int) -> int:
    """Return the steps of a training that are done: all, those of its checkpoint, or none."""
    identity = resume.identity(recipe.fingerprint)
    if any(history.rows(kind=kind, **identity) for kind in KINDS):
        return steps
    same = {"fingerprint": recipe.fingerprint}
    begun = [row.id for kind in KINDS for row in history.rows(None, kind=kind, **same)]
    return min(steps, max(map(resume.last_checkpoint_step, begun), default=0))


def work(names: Collection[str] = (), max_minutes: float = math.inf) -> dict[str, Any]:
    """Measure what the evidence lacks, of some claims or of all, and add it to the evidence.

    What needs a GPU is measured only if it is named. Raise Paused when the time is over: all is
    saved, and the same call goes on.
    """
    os.nice(LOWEST_PRIORITY)
    options = RunOptions(until=time.monotonic() + 60 * max_minutes)
    measured, left_out = [], {}
    for decision in plan_decisions(names):
        if reason := _reason_left_out(decision, decision.plan.name in names):
            left_out[decision.name] = reason
            continue
        print(f"{decision.name}: {decision.cost} to go.", file=sys.stderr)
        document = _measure(decision.plan, options)
        measured.append({key: document[key] for key in ("claim", "scale", "verdict", "wall_s")})
    return {"measured": measured, "left_out": left_out}


def _measure(plan: MeasurementPlan, options: RunOptions) -> dict[str, Any]:
    """Measure a claim and add to the evidence what is finished of it, also where it is stopped."""
    try:
        return sweep.check(
            plan.name, plan.scale, plan.settings, run_options=options, reuse_anywhere=True
        )
    finally:
        bundles.add([plan.name])


def _reason_left_out(decision: Decision, named: bool) -> str:
    if decision.absent_data:
        return f"{', '.join(decision.absent_data)} is not on this machine"
    return "it asks for a GPU; name it all the same" if decision.cost.gpu and not named else ""


def print_plan(document: Mapping[str, Any]) -> None:
    """Print a line a verdict that is lacking, and below it the seeds and trainings it lacks."""
    for each in document["lacking"]:
        cost = Cost(each["least_s"], each["most_s"], each["gpu"])
        absent = "".join(f"; {name} is not here" for name in each["absent_data"])
        print(f"{each['claim']:<36}{each['scale']:<7}{cost}{absent}")
        seeds_of: dict[str, list[str]] = {}
        for seed, trainings in each["missing"].items():
            seeds_of.setdefault(_describe_trainings(trainings), []).append(seed)
        for trainings, seeds in seeds_of.items():
            print(f"  seed {', '.join(seeds)} of {each['seeds']}{trainings}")
    print(f"Verdicts that are lacking: {len(document['lacking'])}.")
    print("Next: python -m pipelines evidence work [CLAIM ...]")


def _describe_trainings(trainings: Sequence[str]) -> str:
    """Return `: plain, normalized`; of many trainings their number and those that were begun."""
    if not trainings:
        return ""
    if len(trainings) <= MOST_NAMED:
        return f": {', '.join(trainings)}"
    begun = [each for each in trainings if " from step " in each]
    return f": {', '.join([f'{len(trainings)} trainings', *begun])}"


def print_work(document: Mapping[str, Any]) -> None:
    """Print what was measured, and what was left out and why."""
    for each in document["measured"]:
        duration = format_duration(each["wall_s"])
        print(f"{each['claim']:<36}{each['scale']:<7}{each['verdict']}, in {duration}")
    for name, reason in document["left_out"].items():
        print(f"{name} was left out: {reason}.")
    if document["measured"]:
        print("Next: python -m pipelines report --publish, and commit what it wrote.")
    else:
        print("Nothing was measured.")
