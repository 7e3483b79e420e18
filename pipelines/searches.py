"""What claims about learning-rate studies share: a network, and how long schedules are searched."""

import dataclasses
import shlex
from dataclasses import dataclass
from typing import Any

import tyro

from pipelines import provenance
from pipelines.arms import Arms
from pipelines.errors import check_counts
from pipelines.published import RECIPES
from pipelines.recipes import Recipe, digest
from pipelines.studied import study


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
        check_counts(trials=self.trials, workers=self.workers)

    def study(self, title: str, recipe: Recipe, *options: str) -> dict[str, Any]:
        """The document of the study of a recipe at this setting, which is begun or found."""
        *_, scale = RECIPES[self.recipe]
        kept = {**dataclasses.asdict(self), "workers": None}  # they do not change what is found
        return study(
            f"{title}-{digest([kept, recipe.seed, provenance.code()])}",
            *f"--recipe {self.recipe} --scale {scale} --space {self.space}".split(),
            *f"--trials {self.trials} --workers {self.workers}".split(),
            *options,
            *shlex.split(recipe.flags(RECIPES[self.recipe][scale])),
        )
