"""The plan of a study, fixed with it: what it searches; and its goal, which may be raised."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipelines.data import datasets
from pipelines.errors import MOST, UserError, check_counts, unknown
from pipelines.recipes import checks
from pipelines.recipes.catalog import RECIPES, get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden, Scale
from tuning.search import samplers, spaces

OBJECTIVE = "val_error_pct"  # never the test error
TRIAL_ERROR = "trial_error_pct"  # metric of a study's run: every trial's objective, by its number
OBJECTIVE_NAMES = ["validation error (%)", "images trained on"]  # titles of the two objectives
PLAN = "plan"  # attribute of a study: its identity
GOAL = "goal"  # tag that says when it is over
REPORTS = 9  # validations of a trial, where a pruner reads them: Hyperband's rungs are 1, 3 and 9
SCHEDULE_FIELDS = (
    *("schedule", "schedule_args", "learning_rate"),
    *("warmup", "momentum", "weight_decay"),
)
# What may stand for a recipe that is dear to train, and is then named; the nearest to it first.
PROXIES = {
    "allconv-imagenet": ("allconv-tiny-imagenet", "allconv-imagenet32", "allconv-cifar10"),
}


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The search of a study; a study of that name with another plan is refused."""

    recipe: str = "allconv-imagenet"
    """Recipe to improve; `python -m pipelines list` names them."""
    scale: Scale = "cpu"
    """smoke (seconds), cpu (minutes on 2 cores), hours or paper (as published)."""
    space: str = "lr-schedule"
    """lr-schedule (family, shape, peak rate, warm-up, momentum, decay), lr-only (peak rate) or
    paper-neighbourhood (near the published values)."""
    sampler: str = "tpe"
    """tpe, cmaes, gp, random, grid or nsga2."""
    pruner: str = "none"
    """hyperband, median or none: ends trials early that do badly on validation pictures."""
    seeds: int = field(default=1, metadata={"option": "seeds-per-trial"})
    """Trainings a trial, whose mean error counts."""
    budget: float = 1.0
    """Share of the recipe's length that a trial is trained for, its schedule in proportion."""
    minimize_cost: bool = False
    """Two objectives, error and pictures seen in training; trials then choose their length."""
    proxy: str | None = None
    """Train a declared, cheaper stand-in of the recipe: of allconv-imagenet, allconv-tiny-imagenet,
    allconv-imagenet32 or allconv-cifar10."""
    changes: Hidden[Mapping[str, Any]] = field(default_factory=dict)
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
        checks.check(self.base)
        checks.check_searchable(self.base)
        if not datasets.get(self.base.data).is_classification:
            raise UserError(
                "A study lowers the validation error of a classifier. Received: recipe "
                f"{self.trained_name}, a regression on {self.base.data}. Choose another --recipe."
            )

    @property
    def objectives(self) -> int:
        return 2 if self.minimize_cost else 1

    @property
    def start(self) -> str:
        """Return what a reader calls its own schedule: published, or given where overridden."""
        return "given" if set(SCHEDULE_FIELDS) & set(self.changes) else "published"

    @property
    def trained_name(self) -> str:
        """Return the name of the recipe that is trained: the proxy, where there is one."""
        return self.proxy or self.recipe

    @property
    def target_scale(self) -> str:
        """Return the scale at which the recipe is trained by what is found.

        The study's own, or where it is a proxy's alone the largest.
        """
        *_, largest = RECIPES[self.recipe]
        return self.scale if self.scale in RECIPES[self.recipe] else largest

    @cached_property
    def full(self) -> Recipe:
        """Return the recipe that is trained, at its whole length."""
        return dataclasses.replace(get_recipe(self.trained_name, self.scale), **self.changes)

    @cached_property
    def base(self) -> Recipe:
        """Return the same at the study's budget: where every study starts."""
        return spaces.shorten(self.full, self.budget)

    @property
    def chance_pct(self) -> float:
        """Return the error of guessing."""
        _, classes = datasets.get(self.base.data).sizes(self.base.data_args)
        return 100 * (1 - 1 / classes)

    def recipe_of(self, trial: Any, base: Recipe | None = None) -> Recipe:
        """Return what a trial trains; `base`: at another length than the study's."""
        return spaces.recipe(self.space, base or self.base, trial, lengths=self.minimize_cost)

    @property
    def identity(self) -> dict[str, Any]:
        """Return all of it as JSON has it, with what would change the meaning of its trials."""
        ranges = spaces.signature(self.space, self.base, lengths=self.minimize_cost)
        digests = {"fingerprint": self.base.fingerprint, "ranges": ranges}
        return dict(json.loads(json.dumps(dataclasses.asdict(self) | digests)))

    @classmethod
    def from_study(cls, study: Any) -> "StudyPlan":
        """Return the plan of a study, to read what its trials came to."""
        names, plan = {each.name for each in dataclasses.fields(cls)}, study.user_attrs[PLAN]
        try:
            return cls(**{key: value for key, value in plan.items() if key in names})
        except (AttributeError, LookupError, TypeError) as error:
            raise UserError(
                "A study's plan must be as this project writes it. Received: another, of study "
                f"{study.study_name}. Take another study name."
            ) from error

    @classmethod
    def to_continue(cls, study: Any) -> "StudyPlan":
        """Return the plan of a study, to train more.

        Raise UserError where its recipe or its ranges have changed since, or its sampler cannot be
        had.
        """
        plan = cls.from_study(study)
        samplers.check_installed(plan.sampler)
        if plan.identity != study.user_attrs[PLAN]:
            raise UserError(
                "A study goes on with the recipe and the ranges it began with. Received: one of "
                f"{plan.trained_name}, {plan.space}, which has changed since. Take another study "
                "name, or --force to start it over."
            )
        return plan


def has_plan(study: Any) -> bool:
    """Return whether this project has made a study, and its beginning was not cut short."""
    plan = study.user_attrs.get(PLAN)
    return isinstance(plan, dict) and plan.keys() >= {"recipe", "scale", "space", "sampler"}


def count_steps(recipe: Recipe) -> int:
    """Return a recipe's optimizer steps. Raise UserError where they need data that are missing."""
    return recipe.steps or checks.count_steps(recipe, checks.count_examples(recipe))


def changed_fields(recipe: Recipe, base: Recipe) -> dict[str, Any]:
    """Return the fields in which a recipe differs from another, with their values."""
    values = {each.name: getattr(recipe, each.name) for each in dataclasses.fields(Recipe)}
    return {name: value for name, value in values.items() if value != getattr(base, name)}


@dataclass(frozen=True)
class Goal:
    """The end of a study; what is None does not end it."""

    trials: int | None = None
    """Finished trials to reach, pruned ones among them (None: of a new study 20, unless --hours is
    given; of one that is there as many as before)."""
    hours: float | None = None
    """Wall hours after which no trial begins, over all the times that the study is run."""
    patience: int | None = None
    """End after so many finished trials in a row that lower no error."""

    def __post_init__(self) -> None:
        given = {"trials": self.trials, "patience": self.patience}
        check_counts(MOST, **{key: n for key, n in given.items() if n is not None})
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise UserError(
                f"hours must be finite and > 0. Received: hours={self.hours}. Set --hours "
                "accordingly."
            )

    def is_reached(self, errors: list[float], spent_s: float) -> bool:
        """Return whether the study is over, after trials with these errors, oldest first."""
        if self.trials is not None and len(errors) >= self.trials:
            return True
        if self.hours is not None and spent_s >= 3600 * self.hours:
            return True
        if self.patience is None or len(errors) <= self.patience:
            return False
        return min(errors[-self.patience :]) >= min(errors[: -self.patience])
