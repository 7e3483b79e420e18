"""Recipes overridden by options of a command line, whose mistakes become errors of ours."""

import contextlib
import dataclasses
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import tyro

from pipelines.errors import UserError
from pipelines.recipes.recipe import Recipe


@contextlib.contextmanager
def parse_errors_as_user_errors() -> Iterator[None]:
    """Turn tyro's framed message about a wrong option into an error like all others."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit as exit:
        lines = [line.strip("│╭╮╰╯─ ") for line in printed.getvalue().splitlines()]
        body = itertools.takewhile(lambda line: not line.startswith("For full helptext"), lines)
        title, *rest = [x for x in body if x.strip("-") and "helptext" not in x] or [""]
        if exit.code == 2 and title:
            message = " ".join(rest) or title
            raise UserError(re.sub(r"^Error parsing \w+: ", "", message)) from exit
        raise


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


def with_schedule(recipe: Any, arguments: list[str]) -> Any:
    """Return the recipe under the schedule of `--schedule`, with that schedule's own options."""

    @dataclasses.dataclass
    class Peek:
        schedule: str = recipe.schedule

    peek, _ = tyro.cli(Peek, args=arguments, return_unknown_args=True, add_help=False)
    return recipe.override(schedule=peek.schedule)
