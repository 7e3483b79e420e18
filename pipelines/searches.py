"""What claims about learning-rate studies share: a network, and how long schedules are searched."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tyro

from pipelines import provenance
from pipelines.arms import Arms
from pipelines.errors import MOST, WORKERS, UserError, check_counts
from pipelines.published import RECIPES
from pipelines.recipes import Recipe, digest
from pipelines.studied import study


def best_changes(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the best trial of a study changes of its recipe; UserError where no trial is complete.

    `found` is the study's document.
    """
    if found["best_changes"] is None:
        raise UserError(
            f"A schedule is found by a complete trial. Received: study {found['study']}, which has "
            "none. Set --trials higher."
        )
    return dict(found["best_changes"])


@dataclass(frozen=True, kw_only=True)
class Search(Arms):
    """The network, and how long schedules are searched for it."""

    trials: int = 200
    """Finished trials of a study, the published schedules among them."""
    workers: int = 2
    """Processes that search."""
    space: tyro.conf.Suppress[str] = "lr-schedule"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(MOST, trials=self.trials)
        check_counts(WORKERS, workers=self.workers)

    def study(self, title: str, recipe: Recipe, *options: str) -> dict[str, Any]:
        """The document of the study of a recipe at this setting, which is begun or found."""
        *_, scale = RECIPES[self.recipe]
        determines = [recipe.fingerprint, self.trials, self.space, provenance.code()]
        return study(
            f"{title}-{digest(determines)}",
            *f"--recipe {self.recipe} --scale {scale} --space {self.space}".split(),
            *f"--trials {self.trials} --workers {self.workers}".split(),
            *options,
            *shlex.split(recipe.flags(RECIPES[self.recipe][scale])),
        )
