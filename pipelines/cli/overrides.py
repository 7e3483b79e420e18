"""Recipes overridden by options of a command line."""

import dataclasses
from typing import Any

from pipelines.cli.parsing import parse_known
from pipelines.recipes.recipe import Recipe


def apply_overrides(default: Recipe, parsed: Recipe) -> Recipe:
    """Return the recipe with the fields that were given; what depends on them gets its defaults.

    Raise UserError if no training can be made of it.
    """
    pairs = {
        field.name: (getattr(default, field.name), getattr(parsed, field.name))
        for field in dataclasses.fields(default)
    }
    recipe = default.override(**{key: new for key, (old, new) in pairs.items() if new != old})
    recipe.check()
    return recipe


def with_schedule(recipe: Any, arguments: list[str], prog: str) -> Any:
    """Return the recipe under the schedule of `--schedule`, with that schedule's own options."""

    @dataclasses.dataclass
    class Peek:
        schedule: str = recipe.schedule

    peek, _ = parse_known(Peek, arguments, prog)
    return recipe.override(schedule=peek.schedule)
