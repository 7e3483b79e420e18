"""Claims about learning-rate studies: their network, and how long schedules are searched."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.claims._arms import Arms, check_rates, scale_width
from pipelines.errors import MOST, WORKERS, UserError, check_counts
from pipelines.recipes.catalog import RECIPES
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden
from pipelines.running import code_digest
from pipelines.runtime.provenance import digest
from pipelines.runtime.subcommands import run_study

HOURS: Mapping[str, Any] = {  # claims that share these settings share one study
    "steps": 20 * (45_000 // 128),
    "batch_size": 128,
    "blocks_per_stage": 2,
    "width": 32,
    "trials": 40,
    "search_steps": 1_400,
    "search_width": 16,
    "first_seed": 300,  # the published schedule with earlier ones is known from other claims
}


def best_changes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the best trial changes of its recipe; raise UserError where none is complete.

    `found` is the study's document.
    """
    if found["best_changes"] is None:
        raise UserError(
            f"A schedule is found by a complete trial. Received: study {found['study']}, which has "
            "none. Set --trials higher."
        )
    return dict(found["best_changes"])


def finalists(found: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return what the best trials, so many, change of the study's recipe, the best first.

    Raise UserError where none is complete. `found` is the study's document.
    """
    best_changes(found)  # refuses
    complete = [trial for trial in found["trials"] if trial["changes"] is not None]
    ranked = sorted(complete, key=lambda trial: (trial["val_error_pct"], trial["number"]))
    return [dict(trial["changes"]) for trial in ranked[:count]]


@dataclass(frozen=True, kw_only=True)
class Search(Arms):
    """The network, and how long schedules are searched for it."""

    trials: int = 200
    """Finished trials of a study, the published schedules among them."""
    workers: int = 2
    """Processes that search."""
    space: Hidden[str] = "lr-schedule"
    sampler: Hidden[str] = "tpe"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(MOST, trials=self.trials)
        check_counts(WORKERS, workers=self.workers)

    def study(self, title: str, recipe: Recipe) -> dict[str, Any]:
        """Return the document of the study of a recipe at this setting, which is begun or found."""
        *_, scale = RECIPES[self.recipe]
        how = [self.trials, self.space, self.sampler]
        return run_study(
            f"{title}-{digest([recipe.fingerprint, *how, code_digest.training()])}",
            *f"--recipe {self.recipe} --scale {scale} --space {self.space}".split(),
            *f"--sampler {self.sampler} --trials {self.trials} --workers {self.workers}".split(),
            *shlex.split(recipe.flags(RECIPES[self.recipe][scale])),
        )


@dataclass(frozen=True, kw_only=True)
class Transfer(Search):
    """A search at a size and a length of its own, whose schedule the arms are then trained by."""

    search_steps: int = 64_000
    """Optimizer steps of a trial."""
    search_width: int = 64
    """Channels of the first stage of the network that a trial trains."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(search_steps=self.search_steps, search_width=self.search_width)

    def search_base(self) -> Recipe:
        """Return the recipe that the study starts from, with a seed that no arm has."""
        return scale_width(self.base(0), self.search_width).override(steps=self.search_steps)

    def find(self) -> dict[str, Any]:
        """Return the document of the study, which claims of the same search share."""
        return self.study("schedule", self.search_base())


@dataclass(frozen=True, kw_only=True)
class Finals(Transfer):
    """A search whose best schedules are tried at the arms' whole length, and so are rates."""

    finalists: int = 5
    """Best schedules of the study that are tried at full length; validation pictures choose one."""
    rates: int = 5
    """Peak rates of the published schedule that are tried at full length, in the same way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rates(self.rates)
        check_counts(finalists=self.finalists)
