"""The work that the evidence still lacks, the cheapest verdict first.

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

from pipelines.data.integrity import is_at_hand
from pipelines.measurement import cells, claim_catalog, sweep
from pipelines.measurement.experiment import TRAINED
from pipelines.measurement.grid import Cell
from pipelines.measurement.plan import MeasurementPlan, stated_plan
from pipelines.measurement.verdict import INCONCLUSIVE
from pipelines.recipes import checks
from pipelines.recipes.cost import Cost
from pipelines.recipes.recipe import Recipe
from pipelines.results.evidence import adding, bundles
from pipelines.running import code_digest, existing
from pipelines.running.run_options import RunOptions
from pipelines.runtime.durations import format_duration
from pipelines.runtime.plain_table import print_prose
from pipelines.tracking import history

LOWEST_PRIORITY = 19
MOST_NAMED = 4  # trainings of a seed that are named in the terminal


@dataclass(frozen=True)
class Progress:
    """The progress of a training of a claim's seed."""

    seed: int
    arm: str
    steps: int
    done: int


@dataclass(frozen=True)
class Decision:
    """A verdict that the evidence lacks: a claim at a scale, and what is still to be measured."""

    plan: MeasurementPlan
    missing: Sequence[Cell]
    trainings: Sequence[Progress]
    """The unfinished trainings of an experiment's missing cells."""
    share: float
    """What is still to be done, as a share of what the claim's costs state."""

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
        missing: dict[str, list[dict[str, Any]]] = {str(cell.seed): [] for cell in self.missing}
        for each in self.trainings:
            about = {"arm": each.arm, "steps": each.steps, "done": each.done}
            missing[str(each.seed)].append(about)
        return {
            "claim": self.plan.name,
            "scale": self.plan.scale,
            "seeds": self.plan.seeds,
            "missing": missing,
            "least_s": round(self.cost.least_s),
            "most_s": round(self.cost.most_s),
            "gpu": self.cost.gpu,
            "price": self.plan.claim.price,
            "absent_data": self.absent_data,
        }


def plan_decisions(names: Collection[str] = ()) -> list[Decision]:
    """Return what the evidence lacks of some claims, or of all, the cheapest verdict first.

    What was measured in this store counts, whether it is added yet or not. Raise UserError for a
    name that is no claim's.
    """
    bundles.import_if_own(names or None)
    steps_done: dict[str, float] = {}  # keys: fingerprints; infinite where a training has finished
    for row in (row for kind in TRAINED for row in history.rows(None, kind=kind)):
        fingerprint = row.tags.get("fingerprint", "")
        # what other code trained would be trained again
        is_finished = row.status == "FINISHED" and row.tags.get("code") == code_digest.training()
        steps = math.inf if is_finished else existing.last_checkpoint_step(row.id)
        steps_done[fingerprint] = max(steps, steps_done.get(fingerprint, 0))
    decisions = [
        decision
        for name in names or claim_catalog.project_names()
        for scale in claim_catalog.load(name).deciding_scales
        if (decision := _find_missing(name, scale, steps_done))
    ]
    return sorted(decisions, key=lambda each: (each.cost.gpu, each.cost.least_s))


def _find_missing(name: str, scale: str, steps_done: Mapping[str, float]) -> Decision | None:
    """Return what a claim lacks at a scale; None where it is complete.

    Of several looks that is the next one, where those before it decide nothing.
    """
    claim = claim_catalog.load(name)
    for seeds in [look.seeds for look in claim.looks] or [claim.seeds]:
        plan = stated_plan(name, scale, seeds, reuse_anywhere=True)
        measured = cells.find(plan)
        missing = [cell for key, cell in plan.cells_by_fingerprint.items() if key not in measured]
        if missing:
            return _decide(plan, missing, steps_done)
        values = plan.values([*measured.values()]) if claim.looks else {}
        if not values or claim.outcome(values, scale) != INCONCLUSIVE:
            return None
    return None


def _decide(
    plan: MeasurementPlan, missing: Sequence[Cell], steps_done: Mapping[str, float]
) -> Decision:
    """Return the decision that lacks these cells."""
    seeds_share = plan.seeds / plan.claim.seeds  # its cost is that of the first look
    trainings = [
        Progress(seed, arm, steps, round(min(steps, steps_done.get(recipe.fingerprint, 0))))
        for seed, arm, recipe in _list_recipes(plan, missing)
        for steps in [_count_steps(recipe)]
    ]
    if not trainings:
        return Decision(plan, missing, (), seeds_share * len(missing) / len(plan.cells))
    missing_steps = sum(each.steps - each.done for each in trainings)
    all_steps = sum(_count_steps(recipe) for _, _, recipe in _list_recipes(plan, plan.cells))
    unfinished = [each for each in trainings if each.done < each.steps]
    return Decision(plan, missing, unfinished, seeds_share * missing_steps / all_steps)


def _list_recipes(plan: MeasurementPlan, cells: Sequence[Cell]) -> list[tuple[int, str, Recipe]]:
    """Return seed, arm and recipe of what is trained for cells; what seeds share, once."""
    every = [(cell.seed, *item) for cell in cells for item in plan.arms(cell).items()]
    by_fingerprint = {recipe.fingerprint: (seed, arm, recipe) for seed, arm, recipe in every[::-1]}
    return list(by_fingerprint.values())[::-1]


def _count_steps(recipe: Recipe) -> int:
    """Return the steps of a training; 1 where the data are not here, which say how long it is."""
    if recipe.steps or not is_at_hand(recipe.data):
        return recipe.steps or 1
    return checks.count_steps(recipe, checks.count_examples(recipe))


def work(names: Collection[str] = (), max_minutes: float = math.inf) -> dict[str, Any]:
    """Measure what the evidence lacks, of some claims or of all, and add it to the evidence.

    What needs a GPU is measured only if it is named. Raise Paused when the time is over: all is
    saved, and the same call goes on.
    """
    os.nice(LOWEST_PRIORITY)
    options = RunOptions(until=time.monotonic() + 60 * max_minutes)
    measured, left_out = [], {}
    for decision in plan_decisions(names):
        if decision.absent_data:
            absent = ", ".join(decision.absent_data)
            left_out[decision.name] = f"{absent} is not on this machine"
            continue
        if decision.cost.gpu and decision.plan.name not in names:
            left_out[decision.name] = "it asks for a GPU; name it all the same"
            continue
        print(f"{decision.name}: {decision.cost} to go.", file=sys.stderr)
        plan = decision.plan
        try:
            document = sweep.check(
                plan.name, plan.scale, plan.settings, plan.seeds, run_options=options
            )
        finally:  # what is finished of it, also where it is stopped
            adding.add([plan.name])
        measured.append({key: document[key] for key in ("claim", "scale", "verdict", "wall_s")})
    return {"measured": measured, "left_out": left_out}


def print_plan(document: Mapping[str, Any]) -> None:
    """Print a line a verdict that is lacking, and below it the seeds and trainings it lacks."""
    for each in document["lacking"]:
        cost = Cost(each["least_s"], each["most_s"], each["gpu"])
        absent = "".join(f"; {name} is not here" for name in each["absent_data"])
        print_prose(f"{each['claim']:<36}{each['scale']:<7}{cost}{absent}", after=" " * 43)
        if each["price"]:
            print_prose(f"a decision takes {each['price']}", "  ", after="    ")
        seeds_of: dict[str, list[str]] = {}
        for seed, trainings in each["missing"].items():
            many = [f"{len(trainings)} trainings"] if len(trainings) > MOST_NAMED else []
            named = [  # `plain, normalized from step 1200 of 2340`; of many those that have begun
                one["arm"] + (f" from step {one['done']} of {one['steps']}" if one["done"] else "")
                for one in trainings
                if one["done"] or not many
            ]
            listed = ", ".join([*many, *named])
            seeds_of.setdefault(f": {listed}" if trainings else "", []).append(seed)
        for trainings, seeds in seeds_of.items():
            seed = f"seed {', '.join(seeds)} of {each['seeds']}{trainings}"
            print_prose(seed, "  ", after="    ")
    print(f"Verdicts that are lacking: {len(document['lacking'])}.")
    print("Next: python -m pipelines evidence work [CLAIM ...]")


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
