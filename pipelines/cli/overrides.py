"""Recipes overridden by options of a command line, and its mistakes as errors of ours."""

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
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as exit:
        lines = [line.strip("│╭╮╰╯─ ") for line in said.getvalue().splitlines()]
        told = itertools.takewhile(lambda line: not line.startswith("For full helptext"), lines)
        words = [line for line in told if line.strip("-") and "helptext" not in line]
        if exit.code == 2 and words:
            said_once = re.sub(r"^Error parsing \w+: ", "", " ".join(words[1:] or words))
            raise UserError(said_once) from exit  # without the frame's title
        raise


def apply_overrides(default: Recipe, parsed: Recipe) -> Recipe:
    """The recipe with the fields that were given; what they make void starts from its defaults.

    UserError where no training can be made of it.
    """
    pairs = {
        field.name: (getattr(default, field.name), getattr(parsed, field.name))
        for field in dataclasses.fields(default)
    }
    recipe = default.override(**{key: new for key, (old, new) in pairs.items() if new != old})
    recipe.check()
    return recipe


def with_schedule(recipe: Any, arguments: list[str]) -> Any:
    """The recipe under the schedule that `--schedule` names, with that schedule's own options."""

    @dataclasses.dataclass
    class Peek:
        schedule: str = recipe.schedule

    peek, _ = tyro.cli(Peek, args=arguments, return_unknown_args=True, add_help=False)
    return recipe.override(schedule=peek.schedule)
