"""Search spaces: functions from an Optuna trial and a base recipe to the recipe to try.

To add a space, write the function and name it in SPACES.
"""

from collections.abc import Callable
from typing import Any

from pipelines.lr import SCHEDULES
from pipelines.recipes import Recipe

Space = Callable[[Any, Recipe], Recipe]


def lr_schedule(trial: Any, base: Recipe) -> Recipe:
    """Schedule family, and peak rate from a fifth of the base recipe's to twice it."""
    family = trial.suggest_categorical("schedule", list(SCHEDULES))
    low, high = base.learning_rate / 5, 2 * base.learning_rate
    rate = trial.suggest_float("learning_rate", low, high, log=True)
    return base.override(schedule=family, learning_rate=rate)


SPACES: dict[str, Space] = {"lr-schedule": lr_schedule}


def published(base: Recipe) -> dict[str, Any]:
    """The point of the space at which the base recipe stands; every study starts there."""
    return {"schedule": base.schedule, "learning_rate": base.learning_rate}
