"""`python -m tuning run STUDY [overrides]` and `resume STUDY`: options read against the recipe."""

import dataclasses
from pathlib import Path
from typing import Any

from pipelines.cli.overrides import (
    PictureSize,
    apply_overrides,
    name_own,
    recipe_options,
    with_choices,
)
from pipelines.cli.parsing import Option, options_of, parse, parse_known, take
from pipelines.cli.shell import use_data_dir
from pipelines.errors import WORKERS, check_counts
from pipelines.recipes.catalog import get_recipe
from pipelines.runtime.progress import say_begin
from tuning.plan import Goal, StudyPlan, changed_fields

PROG = "python -m tuning"


@dataclasses.dataclass(frozen=True)
class Length(Goal):
    """Length of a study, its place, and its workers."""

    workers: int = 1
    """Processes on this machine, each with a share of its cores and of CUDA_VISIBLE_DEVICES."""
    storage: str | None = None
    """Where the study is kept: journal:///FILE (for one machine; an absolute path begins with a
    fourth /), postgresql://..., or grpc://HOST:PORT (None: OPTUNA_STORAGE, else a journal beside
    MLflow's database). With the same one, other machines help."""
    json: bool = False
    """Print one JSON document on standard output."""
    data_dir: Path | None = None
    """Folder of prepared data sets (default: TFDS_DATA_DIR, else ~/tensorflow_datasets)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(WORKERS, workers=self.workers)


def run_options(plan: StudyPlan) -> list[Option]:
    """Return the options of `run` that do not depend on the recipe, as a plan has them."""
    return [
        *options_of(Length()),
        Option("force", bool, False, "Start the study over."),
        *options_of(PictureSize()),
        *options_of(plan, "Search"),
    ]


def run_search(study: str, words: list[str]) -> tuple[dict[str, Any], bool]:
    """Return the document of `run STUDY`, and whether it is to be printed as JSON."""
    prog = f"{PROG} run {study}"
    words = name_own(words, prog)
    given, _ = parse_known(options_of(StudyPlan()), words, prog)
    search = StudyPlan(**given)
    published = get_recipe(search.trained_name, search.scale)
    default = with_choices(published, words, prog)
    text = f"""Search learning-rate schedules for {search.trained_name}.

    The study ends when it has so many finished trials; started again, it goes on. Every setting of
    the recipe can be overridden as in `python -m pipelines run`."""
    values = parse([*run_options(search), *recipe_options(default)], words, prog, text)
    recipe = apply_overrides(default, values)
    plan = dataclasses.replace(search, changes=changed_fields(recipe, published))
    return _search(study, plan, Length(**take(Length, values)), values.get("force", False))


def resume_search(study: str, **values: Any) -> tuple[dict[str, Any], bool]:
    """Return the document of `resume STUDY`, and whether it is to be printed as JSON."""
    return _search(study, None, Length(**values))


def _search(
    name: str, plan: StudyPlan | None, length: Length, force: bool = False
) -> tuple[dict[str, Any], bool]:
    use_data_dir(length.data_dir)
    goal = Goal(length.trials, length.hours, length.patience)
    where, count = length.storage, length.workers
    about = f": {plan.trained_name} at {plan.scale} scale" if plan else ""
    say_begin(f"Study {name}{about}; loading Optuna and MLflow.", length.json)
    from tuning.study import search

    document = search(name, plan, goal, where=where, worker_count=count, force=force)
    return document, length.json
