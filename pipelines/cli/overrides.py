"""Recipes overridden by options of a command line."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypedDict

import tyro

import keras_models
from pipelines.cli.parsing import parse_known
from pipelines.data import datasets
from pipelines.recipes import checks, lr
from pipelines.recipes.recipe import Recipe


def as_options(recipe: Any) -> Any:
    """Return a recipe so that --help names the choices of its words and describes its arguments.

    Other settings, those of a claim, are returned as they are.
    """
    if not isinstance(recipe, Recipe):
        return recipe
    words = {"model": keras_models.names(), "data": datasets.DATASETS, "schedule": lr.SCHEDULES}
    schedule = lr.SCHEDULES.get(recipe.schedule)
    about = f"Shape of the schedule. {(schedule.__doc__ or '').splitlines()[0] if schedule else ''}"
    fields: list[tuple[str, Any]] = [
        *((key, Annotated[str, _one_of(choices)]) for key, choices in words.items()),
        ("model_args", _model_arguments(recipe)),
        ("schedule_args", Annotated[Mapping[str, Any], tyro.conf.arg(help=about)]),
    ]
    kind = dataclasses.make_dataclass(
        "RecipeOptions", fields, bases=(Recipe,), frozen=True, kw_only=True
    )
    kind.__doc__ = Recipe.__doc__
    return kind(**{each.name: getattr(recipe, each.name) for each in dataclasses.fields(recipe)})


def _model_arguments(recipe: Recipe) -> Any:
    """Return the type of the arguments of its architecture, with what `build` says of them."""
    if recipe.model not in keras_models.names():
        return Mapping[str, Any]
    texts, choices = keras_models.describe(recipe.model), keras_models.choices(recipe.model)
    kinds = {
        key: Annotated[type(value), _one_of(choices.get(key, ()), texts.get(key))]
        for key, value in recipe.model_args.items()
    }
    return TypedDict("Arguments", kinds)  # type: ignore[operator]


def _one_of(choices: Iterable[str], text: str | None = None) -> Any:
    """Return what --help shows of an option: its choices, where there are any, and a text."""
    listed = ",".join(choices)
    return tyro.conf.arg(metavar=f"{{{listed}}}" if listed else None, help=text)


def apply_overrides(default: Recipe, parsed: Recipe) -> Recipe:
    """Return the recipe with the fields that were given; what depends on them gets its defaults.

    Raise UserError if no training can be made of it.
    """
    pairs = {
        field.name: (getattr(default, field.name), getattr(parsed, field.name))
        for field in dataclasses.fields(default)
    }
    recipe = default.override(**{key: new for key, (old, new) in pairs.items() if new != old})
    checks.check(recipe)
    return recipe


def with_schedule(recipe: Any, arguments: list[str], prog: str) -> Any:
    """Return the recipe under the schedule of `--schedule`, with that schedule's own options."""

    @dataclasses.dataclass
    class Peek:
        schedule: str = recipe.schedule

    peek, _ = parse_known(Peek, arguments, prog)
    return recipe.override(schedule=peek.schedule)
