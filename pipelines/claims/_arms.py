"""Arms: networks trained alike, seed by seed, but for the one thing that a claim is about."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UserError, check_counts
from pipelines.measurement.experiment import Trainer
from pipelines.measurement.verdict import (
    BROKEN,
    INCONCLUSIVE,
    LEAST_RUNS,
    Bound,
    LearningLimit,
    ReportedError,
)
from pipelines.recipes.catalog import RECIPES
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden

SPLITS = ("train", "test")
LOST_PCT = 60.0  # test error of a network that has not trained, or died
DIVERGED_PCT = 100.0  # stands last in a search; of a network whose loss is no longer finite
LEARNED_PCT = 27.0  # the limit of learning on CIFAR-10, where guessing errs 90 %
TINY_IMAGENET_PCT = 70.0  # the same on Tiny ImageNet, where guessing errs 99.5 %
MATTERS_PCT = 0.5  # points of error that matter: what seeds of one network differ by
FACTORS = (1, 1 / 2, 2, 1 / 4, 1 / 8)  # a search tries these multiples of a rate, in this order
SEARCH_SEED = 10**6  # no claim's own seed
SMOKE: Mapping[str, Any] = {  # settings of a test that shows that a claim can be measured
    "data": "digits",
    "steps": 8,
    "batch_size": 32,
    "blocks_per_stage": 1,
    "width": 4,
}


@dataclass(frozen=True)
class ArmBound(Bound):
    """A bound on a number of trained networks, which is not finite where one of them diverged.

    Then the verdict is `inconclusive`, unless another seed alone refutes what must hold in each.
    """

    def verdict(self, values: Sequence[float]) -> str:
        """Return `holds`, `broken` or `inconclusive` for one value a seed."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) == len(values):
            return super().verdict(values)
        refuted = self.every and finite and super().verdict(finite) == BROKEN
        return BROKEN if refuted else INCONCLUSIVE


@dataclass(frozen=True)
class ReportedArm(ReportedError):
    """An error that a source reports, which networks are held against some of which did not train.

    A seed that diverged, or that errs on LOST_PCT or more, widens the interval until every number
    lies in it. So it counts apart: the others can still contradict what is reported, and nothing is
    reproduced.
    """

    network_is_stated: bool = True
    """Whether the source says which network it trained, and how; else no number of ours decides."""

    def verdict(self, values: Sequence[float]) -> str:
        """Return `holds`, `broken` or `inconclusive` for one error a seed."""
        trained = [value for value in values if value < LOST_PCT]  # NaN is none of them
        if not self.network_is_stated or len(values) < LEAST_RUNS:
            return INCONCLUSIVE
        if len(trained) == len(values):
            return super().verdict(values)
        contradicted = not trained or super().verdict(trained) == BROKEN
        return BROKEN if contradicted else INCONCLUSIVE


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Settings that all arms share: a published recipe, its length and its network's size."""

    recipe: Hidden[str] = "allconv-cifar10"
    data: Hidden[str] = "cifar10"
    steps: int = 64_000
    """Optimizer steps of every arm, over which the recipe's schedule is drawn in proportion."""
    batch_size: int = 128
    """Pictures a step."""
    blocks_per_stage: int | None = 9
    """Residual blocks, of two convolutions each, in each stage (None: as the recipe has)."""
    width: int = 64
    """Channels of the first stage; those of the others are in proportion."""
    learning_rate: float = 0.05
    """Peak learning rate."""
    first_seed: int = 0
    """The trainings' seed where the claim's is 0: seeds before it have been looked at."""

    def __post_init__(self) -> None:
        blocks = self.blocks_per_stage
        check_counts(width=self.width, blocks_per_stage=1 if blocks is None else blocks)
        self.base(0)  # refuses what it must

    def base(self, seed: int) -> Recipe:
        """Return the recipe of the largest scale at this size, before the arms part."""
        *_, largest = RECIPES[self.recipe].values()
        blocks = self.blocks_per_stage
        return scale_width(largest, self.width).override(
            data=self.data,
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.first_seed + seed,
            model_args={} if blocks is None else {"blocks_per_stage": blocks},
        )


def scale_width(recipe: Recipe, width: int) -> Recipe:
    """Return the recipe with `width` channels in the first stage, the others in proportion."""
    first, *_ = widths = recipe.model_args["widths"]
    changed: dict[str, Any] = {"widths": tuple(each * width // first for each in widths)}
    if "stem_width" in recipe.model_args:  # zero padding can only add channels
        changed["stem_width"] = min(width, recipe.model_args["stem_width"])
    return recipe.override(model_args=changed)


def error_names(labels: Iterable[str], splits: Sequence[str] = ("test",)) -> tuple[str, ...]:
    """Return the metrics of `errors`, arm by arm."""
    return tuple(f"{arm}_{split}_error_pct" for arm in labels for split in splits)


def learning_limits(labels: Iterable[str]) -> tuple[LearningLimit, ...]:
    """Return the limits of networks on CIFAR-10 that must all have learned."""
    return tuple(LearningLimit((error,), LEARNED_PCT) for error in error_names(labels))


def search_space(recipe: Recipe, rates: int) -> list[Recipe]:
    """Return the recipe at so many rates about its own, with the seed of searches; none of one."""
    tried = [recipe.learning_rate * factor for factor in FACTORS[:rates]] if rates > 1 else []
    return [recipe.override(learning_rate=rate, seed=SEARCH_SEED) for rate in tried]


def check_rates(rates: int) -> None:
    """Raise UserError for a number of rates that no search tries."""
    check_counts(len(FACTORS), rates=rates)


def check_dropout(dropout: float) -> None:
    """Raise UserError for a rate at which nothing, or everything, is dropped."""
    if not 0 < dropout < 1:
        raise UserError(
            f"dropout must be in (0, 1). Received: dropout={dropout}. Set --dropout accordingly."
        )


def choose(trainer: Trainer, tried: Iterable[Recipe], default: Recipe) -> Recipe:
    """Return the recipe that errs least on validation pictures, of none the default.

    The test set stays unread. Every claim's seed finds the same trainings, recorded once.
    """

    def error_pct(recipe: Recipe) -> float:
        return trainer.search(recipe, lost={"val_error_pct": DIVERGED_PCT}).metrics["val_error_pct"]

    return min(tried, key=error_pct, default=default)


def choose_rate(trainer: Trainer, recipe: Recipe, rates: int) -> Recipe:
    """Return the recipe at the rate, of so many, that errs least on validation pictures."""
    best = choose(trainer, search_space(recipe, rates), recipe)
    return recipe.override(learning_rate=best.learning_rate)


def is_extreme_rate(recipe: Recipe, rate: float, rates: int) -> bool:
    """Return whether a rate is the largest or the smallest of those that a search tries."""
    tried = [each.learning_rate for each in search_space(recipe, rates)]
    return bool(tried) and rate in (min(tried), max(tried))
