"""Recipes overridden by options of a command line."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import tyro

import keras_models
from pipelines.cli.parsing import parse_known
from pipelines.cli.shell import use_data_dir
from pipelines.data import datasets
from pipelines.data.own import packing
from pipelines.recipes import checks, lr
from pipelines.recipes.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class PictureSize:
    """The option of commands that read a data set, which `name_own` obeys."""

    size: int | None = None
    """Pixels of a side to which pictures of your own are scaled, their central square taken (None:
    as they are)."""


def as_options(recipe: Any) -> Any:
    """Return a recipe so that --help names the choices of its words and describes its arguments.

    Other settings, those of a claim, are returned as they are.
    """
    if not isinstance(recipe, Recipe):
        return recipe
    words = {
        "model": [*keras_models.names(), "FILE.py", "PACKAGE.MODULE"],
        "data": [*datasets.DATASETS, "FOLDER", "FILE.npz", "tfds:NAME"],
        "schedule": lr.SCHEDULES,
    }
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


KINDS = {"int": int, "float": float, "bool": bool, "str": str}  # by their names in a source


def _model_arguments(recipe: Recipe) -> Any:
    """Return the type of the arguments of its architecture, with what `build` says of them."""
    texts, choices = keras_models.describe(recipe.model), keras_models.choices(recipe.model)
    types = keras_models.types(recipe.model)
    kinds: dict[str, Any] = {}
    for key, value in recipe.model_args.items():
        kind: Any = KINDS.get(types.get(key, "").removesuffix(" | None"), type(value))
        if value is None:
            kind = int | float | str | None if kind is type(None) else kind | None
        kinds[key] = Annotated[kind, _one_of(choices.get(key, ()), texts.get(key))]
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


def with_choices(recipe: Any, arguments: list[str], prog: str) -> Any:
    """Return the recipe with the schedule and the model that are asked for, with their options."""

    @dataclasses.dataclass
    class Peek:
        schedule: str = recipe.schedule
        model: str = recipe.model

    peek, _ = parse_known(Peek, arguments, prog)
    checks.require_model(peek.model)
    return recipe.override(schedule=peek.schedule, model=peek.model)


def name_own(arguments: Sequence[str], prog: str) -> list[str]:
    """Return the words of a command line, data and network of a person's own by recorded names.

    The data are packed for it, in the folder of --data-dir, and --size is left out: it is done.
    Raise UserError for what is no data set and no network, and for --size without such data.
    """

    @dataclasses.dataclass
    class Place:
        data_dir: Path | None = None

    place, _ = parse_known(Place, arguments, prog)
    use_data_dir(place.data_dir)
    scaled, rest = parse_known(PictureSize, arguments, prog)
    words = [part for word in rest for part in _split_option(word)]
    places = {option: i + 1 for i, (option, _) in enumerate(pairwise(words))}
    if (i := places.get("--model")) is not None:
        words[i] = checks.name_model(words[i])
    if (i := places.get("--data")) is not None:
        words[i] = packing.name_data(words[i], scaled.size)
    else:
        packing.name_data("", scaled.size)
    return words


def _split_option(word: str) -> list[str]:
    """Return `--data=X` and `--model=X` as two words."""
    option, sign, value = word.partition("=")
    return [option, value] if sign and option in ("--data", "--model") else [word]
