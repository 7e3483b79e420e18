"""What a study searches, and how long: a plan is fixed with the study, a goal may be raised."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelines.data import datasets, prepared
from pipelines.errors import MOST, UserError, check_counts, unknown
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from tuning.search import samplers, spaces

OBJECTIVE = "val_error_pct"  # never the test error
OBJECTIVE_NAMES = [
    "validation error (%)",
    "images trained on",
]  # names of the objectives for readers
PLAN = "plan"  # attribute of a study: its identity
GOAL = "goal"  # and when it is over
REPORTS = 9  # validations of a trial, where a pruner reads them: Hyperband's rungs are 1, 3 and 9
SCHEDULE_FIELDS = (
    "schedule",
    "schedule_args",
    "learning_rate",
    "warmup",
    "momentum",
    "weight_decay",
)
PROXIES = {  # what may stand for a recipe that is dear to train, and be said to
    "allconv-imagenet": ("allconv-imagenet32", "allconv-cifar10"),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study searches; a study of that name with another plan is refused."""

    recipe: str
    scale: str = "cpu"
    space: str = "lr-schedule"
    sampler: str = "tpe"
    pruner: str = "none"
    seeds: int = 1
    """Trainings a trial, whose mean error counts."""
    budget: float = 1.0
    """Share of the recipe's length that a trial is trained for, its schedule in proportion."""
    minimize_cost: bool = False
    """Two objectives: error, and pictures seen in training; trials then choose their length."""
    proxy: str | None = None
    """The recipe that is trained instead, as declared in PROXIES."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the recipe that differ from those published."""

    def __post_init__(self) -> None:
        if self.space not in spaces.SPACES:
            raise unknown("A search space", self.space, spaces.SPACES)
        samplers.check(self.sampler, self.pruner, self.objectives)
        if not 1 <= self.seeds <= MOST:
            raise UserError(
                f"seeds must be >= 1, at most {MOST:,}. Received: seeds={self.seeds}. "
                "Set --seeds-per-trial 1 or more."
            )
        if not (0 < self.budget <= 1):
            raise UserError(
                "budget must be a share of the recipe's length, 0 < budget <= 1. Received: "
                f"budget={self.budget}. Set --budget accordingly."
            )
        if self.proxy and self.proxy not in PROXIES.get(self.recipe, ()):
            declared = PROXIES.get(self.recipe, ("none",))
            raise unknown(f"A proxy of {self.recipe}", self.proxy, declared)
        self.base.check()
        _ = self.chance_pct  # refuses what it must

    @property
    def objectives(self) -> int:
        return 2 if self.minimize_cost else 1

    @property
    def start(self) -> str:
        """What its own schedule is to a reader: published, or given where that was overridden."""
        return "given" if set(self.changes) & set(SCHEDULE_FIELDS) else "published"

    @property
    def trained(self) -> str:
        """The name of the recipe that is trained: the proxy, where there is one."""
        return self.proxy or self.recipe

    @cached_property
    def full(self) -> Recipe:
        """The recipe that is trained, at its whole length."""
        return dataclasses.replace(get_recipe(self.trained, self.scale), **self.changes)

    @cached_property
    def base(self) -> Recipe:
        """The same at the study's budget: where every study starts."""
        return shorten(self.full, self.budget)

    @property
    def chance_pct(self) -> float:
        """The error of guessing. UserError where the recipe is no classifier."""
        row = datasets.DATASETS.get(self.base.data)
        if not isinstance(row, prepared.Dataset):
            raise UserError(
                "A study lowers the validation error of a classifier. Received: recipe "
                f"{self.trained}, a regression on {self.base.data}. Choose another --recipe."
            )
        return 100 * (1 - 1 / row.classes)

    @cached_property
    def steps(self) -> int:
        """Optimizer steps of a trial that is as long as the base."""
        return count_steps(self.base)

    def tried(self, trial: Any, base: Recipe | None = None) -> Recipe:
        """What a trial trains; `base`: at another length than the study's."""
        return spaces.recipe(self.space, base or self.base, trial, lengths=self.minimize_cost)

    @property
    def identity(self) -> dict[str, Any]:
        """All of it as JSON has it, with what would change the meaning of its trials."""
        found = dataclasses.asdict(self)
        ranges = spaces.signature(self.space, self.base, lengths=self.minimize_cost)
        found |= {"fingerprint": self.base.fingerprint, "ranges": ranges}
        return dict(json.loads(json.dumps(found)))

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> "Plan":
        """The plan of that identity, to read what its trials came to."""
        names = {each.name for each in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in identity.items() if key in names})

    @classmethod
    def going_on(cls, identity: Mapping[str, Any]) -> "Plan":
        """The same, to train more.

        UserError where its recipe or its ranges have changed since, or its sampler cannot be had.
        """
        plan = cls.of(identity)
        samplers.check_installed(plan.sampler)
        if plan.identity != identity:
            raise UserError(
                "A study goes on with the recipe and the ranges it began with. Received: one of "
                f"{plan.trained}, {plan.space}, which has changed since. Take another study name, "
                "or --force to start it over."
            )
        return plan


def count_steps(recipe: Recipe) -> int:
    """Optimizer steps of a recipe. UserError where they depend on data that are not there."""
    return recipe.steps or recipe.steps_over(recipe.examples())


def shorten(recipe: Recipe, share: float) -> Recipe:
    """The recipe at a share of its length, its schedule in proportion."""
    if share == 1:
        return recipe
    if recipe.steps:
        return recipe.override(steps=max(1, round(share * recipe.steps)))
    return recipe.override(epochs=share * (recipe.epochs or 0))


def changed_fields(recipe: Recipe, base: Recipe) -> dict[str, Any]:
    """The fields in which a recipe differs from another, with their values."""
    pairs = {
        f.name: (getattr(recipe, f.name), getattr(base, f.name)) for f in dataclasses.fields(Recipe)
    }
    return {name: new for name, (new, old) in pairs.items() if new != old}


@dataclass(frozen=True)
class Goal:
    """When a study is over; what is None does not end it."""

    trials: int | None = None
    """Finished trials, pruned ones among them."""
    hours: float | None = None
    """Wall hours after which no trial begins, over all the times that the study was run."""
    patience: int | None = None
    """Finished trials in a row that lower no error."""

    def __post_init__(self) -> None:
        given = {"trials": self.trials, "patience": self.patience}
        check_counts(MOST, **{key: n for key, n in given.items() if n is not None})
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise UserError(
                f"hours must be finite and > 0. Received: hours={self.hours}. Set --hours "
                "accordingly."
            )

    def reached(self, errors: list[float], spent_s: float) -> bool:
        """Whether no trial is to begin, after finished trials with these errors, oldest first."""
        if self.trials is not None and len(errors) >= self.trials:
            return True
        if self.hours is not None and spent_s >= 3600 * self.hours:
            return True
        if self.patience is None or len(errors) <= self.patience:
            return False
        return min(errors[-self.patience :]) >= min(errors[: -self.patience])
