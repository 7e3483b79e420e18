"""Recipes overridden by options of a command line."""

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import keras_models
from pipelines.cli.parsing import DATA_DIR, Option, options_of, parse_known, take
from pipelines.cli.shell import use_data_dir
from pipelines.data import datasets
from pipelines.data.own import packing
from pipelines.recipes import checks, lr
from pipelines.recipes.recipe import Recipe

MAPPINGS = ("model_args", "data_args", "schedule_args")
KINDS = {"int": int, "float": float, "bool": bool, "str": str}  # by their names in a source

# What --help says of the arguments of schedules, and of data sets.
SHAPE_TEXTS = {
    "boundaries": "Progress in the run, between 0 and 1, at which the rate is multiplied.",
    "factor": "Number by which the rate is multiplied at each drop.",
    "drops": "Number of drops in the run, at equal distances.",
    "power": "Power of what is left of the run.",
    "final": "Rate at the end, as a share of the peak.",
    "cycles": "Number of cosines in the run.",
    "stretch": "Length of a cycle over that of the one before.",
    "damping": "Peak of a cycle over that of the one before.",
    "decay": "Share of the run, at its end, in which the rate falls.",
    "rise": "Share of the run, at its beginning, in which the rate rises.",
    "start": "Rate at the beginning, as a share of the peak.",
    "timescale": "Share of the run after which the rate falls as 1/sqrt of the progress.",
}
DATA_TEXTS = {
    "dimension": "Numbers in an input.",
    "condition": "Largest over smallest eigenvalue of the inputs' covariance (1: the identity).",
    "noise": "Standard deviation of the noise that is added to the targets.",
    "train_size": "Training examples that are drawn.",
    "val_size": "Validation examples that are drawn.",
    "test_size": "Test examples that are drawn.",
    "data_seed": "Seed of the teacher and of the examples.",
    "gamma": "Largest absolute logarithm of a singular value of the teacher's matrix.",
    "teacher_norm": "Largest singular value of the teacher's W.",
    "teacher_frobenius": "Frobenius norm of the teacher's W.",
    "teacher_identity": "The teacher's matrix is I + W (no: W).",
    "hidden": "Width of the teacher's blocks.",
    "standardized": "Subtract the mean of each channel and divide by its standard deviation.",
    "whitened": "Whiten the pictures (ZCA) after a contrast normalization.",
    "byte_scale": "Pixels from 0 to 255, less their mean, as Krizhevsky et al. 2012.",
    "colours": "Shift the colours of training pictures at random.",
    "crops": "How training pictures are cut: area, side256 or side256-480.",
    "ten_crops": "Test on the mean prediction for ten crops of each picture.",
}


@dataclasses.dataclass(frozen=True)
class PictureSize:
    """The option of commands that read a data set, which `name_own` obeys."""

    size: int | None = None
    """Pixels of a side to which pictures of your own are scaled, their central square taken (None:
    as they are)."""


def recipe_options(recipe: Recipe) -> list[Option]:
    """Return the options that override a recipe: its fields, and the arguments of its parts."""
    choices = {
        "model": [*keras_models.names(), "FILE.py", "PACKAGE.MODULE"],
        "data": [*datasets.DATASETS, "FOLDER", "FILE.npz", "tfds:NAME"],
        "schedule": [*lr.SCHEDULES],
    }
    fields = [
        dataclasses.replace(option, choices=choices.get(option.name, ()))
        for option in options_of(recipe, "Recipe")
        if option.name not in MAPPINGS
    ]
    return [
        *fields,
        *_model_options(recipe),
        *_argument_options(f"Schedule {recipe.schedule}", recipe.schedule_args, SHAPE_TEXTS),
        *_argument_options(f"Data {recipe.data}", recipe.data_args, DATA_TEXTS),
    ]


def _model_options(recipe: Recipe) -> Iterator[Option]:
    """Yield the arguments of its architecture, with what `build` says of them."""
    texts, choices = keras_models.describe(recipe.model), keras_models.choices(recipe.model)
    kinds = keras_models.types(recipe.model)
    for name, value in recipe.model_args.items():
        kind: Any = KINDS.get(kinds.get(name, "").removesuffix(" | None"), _kind_of(value))
        if name in choices:
            kind = Literal[tuple(choices[name])]
        if value is None:
            kind = int | float | str | None if kind is type(None) else kind | None
        text = texts.get(name, "Argument of `build`, which does not describe it.")
        yield Option(name, kind, value, text, f"Architecture {recipe.model}")


def _argument_options(
    panel: str, arguments: Mapping[str, Any], texts: Mapping[str, str]
) -> Iterator[Option]:
    for name, value in arguments.items():
        yield Option(name, _kind_of(value), value, texts.get(name, ""), panel)


def _kind_of(value: Any) -> Any:
    """Return the type of a value; of several, of any number of them."""
    several = isinstance(value, tuple) and value
    return types.GenericAlias(tuple, (type(value[0]), ...)) if several else type(value)


def apply_overrides(default: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the values of its options; what depends on them gets its defaults.

    Raise UserError if no training can be made of it.
    """
    given = take(Recipe, values)
    for key in MAPPINGS:
        arguments: Mapping[str, Any] = getattr(default, key)
        given[key] = {**arguments, **{k: values[k] for k in arguments if k in values}}
    changes = {key: value for key, value in given.items() if value != getattr(default, key)}
    recipe = default.override(**changes)
    checks.check(recipe)
    return recipe


def with_choices(recipe: Any, words: Sequence[str], prog: str) -> Any:
    """Return the recipe with the schedule and the model that are asked for, with their options."""
    asked = [each for each in options_of(recipe) if each.name in ("schedule", "model")]
    given, _ = parse_known(asked, words, prog)
    checks.require_model(given.get("model", recipe.model))
    return recipe.override(**given)


def name_own(words: Sequence[str], prog: str) -> list[str]:
    """Return the words of a command line, data and network of a person's own by recorded names.

    The data are packed for it, in the folder of --data-dir, and --size is left out: it is done.
    Raise UserError for what is no data set and no network, and for --size without such data.
    """
    place, _ = parse_known([DATA_DIR], words, prog)
    use_data_dir(place.get("data_dir"))
    scaled, rest = parse_known(options_of(PictureSize()), words, prog)
    size = scaled.get("size")
    words = [part for word in rest for part in _split_option(word)]
    places = {option: i + 1 for i, (option, _) in enumerate(pairwise(words))}
    if (i := places.get("--model")) is not None:
        words[i] = checks.name_model(words[i])
    if (i := places.get("--data")) is not None:
        words[i] = packing.name_data(words[i], size)
    else:
        packing.name_data("", size)
    return words


def _split_option(word: str) -> list[str]:
    """Return `--data=X` and `--model=X` as two words."""
    option, sign, value = word.partition("=")
    return [option, value] if sign and option in ("--data", "--model") else [word]
