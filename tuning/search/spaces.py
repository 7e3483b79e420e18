"""Search spaces: functions from an Optuna trial and a base recipe to the recipe to try.

To add a space, write the function and name it in SPACES. A schedule of pipelines/recipes/lr.py is
in `lr-schedule` as soon as it is there; the ranges of its arguments are those of _ranges.py.
Parameters are named like the recipe's fields, arguments of a schedule `family.argument`.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UserError, unknown
from pipelines.recipes import cifar, imagenet, lr
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.provenance import digest
from tuning.search._ranges import LENGTH, Range, RecordingTrial, boundaries_of, ranges_of, values_of

PUBLISHED = "published"  # attribute of a trial: the label of a published schedule
PAPER = "paper"  # the label of the recipe's own

Space = Callable[[Any, Recipe], Recipe]
Params = dict[str, Any]


def lr_schedule(trial: Any, base: Recipe) -> Recipe:
    """Vary schedule family, its shape, peak rate, warm-up, momentum and weight decay."""
    family = trial.suggest_categorical("schedule", list(lr.SCHEDULES))
    return _build_recipe(trial, base, family, ranges_of(base, family))


def lr_only(trial: Any, base: Recipe) -> Recipe:
    """Vary the peak rate, of the base's schedule."""
    rates = ranges_of(base, base.schedule)["learning_rate"]
    return base.override(learning_rate=rates.ask(trial, "learning_rate"))


def paper_neighbourhood(trial: Any, base: Recipe) -> Recipe:
    """Vary all that `lr-schedule` does within the base's family, near the base's values."""
    ranges, values = ranges_of(base, base.schedule), values_of(base)
    near = {name: ranges[name].near(value) for name, value in values.items() if name in ranges}
    return _build_recipe(trial, base, base.schedule, ranges | near)


SPACES: dict[str, Space] = {
    "lr-schedule": lr_schedule,
    "lr-only": lr_only,
    "paper-neighbourhood": paper_neighbourhood,
}


def recipe(space: str, base: Recipe, trial: Any, lengths: bool = False) -> Recipe:
    """Return what the trial trains: a published recipe where it names one, else the space's.

    `lengths`: the trial also chooses `length`, the share of the base's steps that it trains.
    """
    tried = SPACES[space](trial, base)  # also for a published one: Optuna records what is asked
    label = trial.user_attrs.get(PUBLISHED)
    if label is not None:
        known = published_schedules(space, base)
        if label not in known:
            raise unknown("A published schedule", label, known)
        tried = known[label].recipe
    if not lengths:
        return tried
    return shorten(tried, LENGTH.ask(trial, "length"))


def shorten(recipe: Recipe, share: float) -> Recipe:
    """Return the recipe at a share of its length, its schedule in proportion."""
    if share == 1:
        return recipe
    if recipe.steps:
        return recipe.override(steps=max(1, round(share * recipe.steps)))
    return recipe.override(epochs=share * (recipe.epochs or 0))


@dataclass(frozen=True)
class PublishedSchedule:
    """A published schedule as a point of a space, and as the recipe that it is exactly."""

    params: Params
    recipe: Recipe


def published_schedules(
    space: str, base: Recipe, lengths: bool = False
) -> dict[str, PublishedSchedule]:
    """Return what a study starts from, by label: PAPER, the base itself, first.

    A space of several families adds the schedules of HM for CIFAR-10 and ImageNet and of He et al.
    and the cosine, at the base's peak rate, but those that are the base's own. `lengths` as for
    `recipe`: they are of full length.
    """
    sources = {"HM CIFAR-10": cifar.ALLCONV, "HM ImageNet": imagenet.ALLCONV}
    sources |= {"He et al.": cifar.RESNET, "cosine": base.override(schedule="cosine")}
    recipes = {PAPER: base}
    if "schedule" in _params(space, base, base):
        recipes |= {
            label: base.override(
                schedule=source.schedule, schedule_args=source.schedule_args, warmup=source.warmup
            )
            for label, source in sources.items()
        }
    full = {"length": 1.0} if lengths else {}
    return {
        label: PublishedSchedule(_params(space, base, exact) | full, exact)
        for label, exact in recipes.items()
        if label == PAPER or exact.fingerprint != base.fingerprint
    }


def grid(space: str, base: Recipe, most: int) -> list[Params]:
    """Return all combinations of the middles of equal parts of every range, at most `most`.

    Parameters get one more part in turn, the peak rate first, for as long as the combinations are
    no more than that. Raise UserError where those of the middles of whole ranges are more.
    """
    branches = list(_branches(SPACES[space], base, {}))
    ranges = {
        name: asked for b in branches for name, asked in b.asked.items() if isinstance(asked, Range)
    }
    counts = dict.fromkeys(ranges, 1)
    size = _size(branches, ranges, counts)
    if size > most:
        raise UserError(
            f"A grid of {space} must have {size} points or more, beside the published schedules. "
            f"Received: trials for {max(0, most)}. Raise --trials, or choose another --sampler."
        )
    grown = True
    while grown:
        grown = False
        for name, whole_range in ranges.items():
            finer = counts | {name: counts[name] + 1}
            more = _size(branches, ranges, finer)  # no more where nothing asks for it yet
            if counts[name] < whole_range.most and size < more <= most:
                counts, size, grown = finer, more, True
    return [point for b in branches for point in _points(b, ranges, counts)]


def signature(space: str, base: Recipe, lengths: bool = False) -> str:
    """Return 12 hexadecimal digits of all that the space asks about a base: names and ranges."""
    branches = [(b.answers, b.asked) for b in _branches(SPACES[space], base, {})]
    return digest([branches, LENGTH if lengths else None])


def describe(params: Params) -> str:
    """Return a point in words: `schedule steps, rate 0.05, momentum 0.9, boundaries 0.5 0.75`."""
    names = {key: key.rpartition(".")[2].removeprefix("learning_") for key in params}
    words = {
        name: f"{params[key]:.3g}" if isinstance(params[key], float) else str(params[key])
        for key, name in names.items()
        if key != "steps.drops" and not re.fullmatch(r"drop\d+", name)
    }
    shares = [params[key] for key, name in names.items() if re.fullmatch(r"drop\d+", name)]
    if shares:
        words["boundaries"] = " ".join(f"{each:.3g}" for each in boundaries_of(shares))
    return ", ".join(f"{name} {value}" for name, value in words.items())


def _branches(space: Space, base: Recipe, answers: Params) -> Iterator[RecordingTrial]:
    """Yield the questions of the space under every answer to those of countably many."""
    questions = RecordingTrial(answers)
    space(questions, base)
    for name, asked in questions.asked.items():
        if name in answers or (isinstance(asked, Range) and not asked.whole):
            continue
        choices = range(int(asked.low), int(asked.high) + 1) if isinstance(asked, Range) else asked
        for choice in choices:
            yield from _branches(space, base, answers | {name: choice})
        return
    yield questions


def _size(
    branches: list[RecordingTrial], ranges: Mapping[str, Range], counts: dict[str, int]
) -> int:
    """Return how many points a grid has."""
    return sum(
        math.prod(counts[name] for name in branch.asked.keys() - branch.answers.keys())
        for branch in branches
        if _in_grid(branch, ranges, counts)
    )


def _in_grid(branch: RecordingTrial, ranges: Mapping[str, Range], counts: dict[str, int]) -> bool:
    numbers = {name: value for name, value in branch.answers.items() if name in ranges}
    return all(value in ranges[name].points(counts[name]) for name, value in numbers.items())


def _points(
    branch: RecordingTrial, ranges: Mapping[str, Range], counts: dict[str, int]
) -> Iterator[Params]:
    """Yield the grid's points in a branch."""
    if _in_grid(branch, ranges, counts):
        free = [name for name in branch.asked if name not in branch.answers]
        for values in itertools.product(*(ranges[name].points(counts[name]) for name in free)):
            yield branch.answers | dict(zip(free, values, strict=True))


def _params(space: str, base: Recipe, exact: Recipe) -> Params:
    """Return the point of the space at which that recipe stands."""
    values = values_of(exact)
    questions = RecordingTrial(values)
    SPACES[space](questions, base)
    return {name: values[name] for name in questions.asked}


def _build_recipe(trial: Any, base: Recipe, family: str, ranges: Mapping[str, Range]) -> Recipe:
    """Return the base with what the trial says of everything that has a range."""

    def ask(name: str) -> Any:
        return ranges[name].ask(trial, name)

    changes: Params = {"warmup": base.warmup if family == base.schedule else 0.0}
    changes |= {name: ask(name) for name in ranges if "." not in name}
    names = lr.defaults(family)
    shape = {name: ask(f"{family}.{name}") for name in names if f"{family}.{name}" in ranges}
    if "boundaries" in names:
        shape["boundaries"] = boundaries_of(
            [ask(f"{family}.drop{i + 1}") for i in range(ask(f"{family}.drops"))]
        )
    return base.override(schedule=family, schedule_args=shape, **changes)
