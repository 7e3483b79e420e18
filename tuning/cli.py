"""`python -m tuning run STUDY [overrides]` and `resume STUDY`: options read against the recipe."""

import dataclasses
from pathlib import Path
from typing import Any, Generic, TypeVar

import tyro

from pipelines.cli.overrides import (
    PictureSize,
    apply_overrides,
    as_options,
    name_own,
    with_choices,
)
from pipelines.cli.parsing import parse, parse_known
from pipelines.cli.shell import use_data_dir
from pipelines.errors import WORKERS, check_counts
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.progress import say_begin
from tuning.plan import Goal, StudyPlan, changed_fields

PROG = "python -m tuning"
T = TypeVar("T")


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


@dataclasses.dataclass(frozen=True)
class RunArguments(Generic[T]):
    """Search until the study has so many finished trials; started again, it goes on.

    Every setting of the recipe can be overridden as in `python -m pipelines run`.
    """

    length: tyro.conf.OmitArgPrefixes[Length]
    search: tyro.conf.OmitArgPrefixes[StudyPlan]
    override: tyro.conf.OmitArgPrefixes[T]
    force: bool = False
    """Start the study over."""
    pictures: tyro.conf.OmitArgPrefixes[PictureSize] = dataclasses.field(
        default_factory=PictureSize
    )


@dataclasses.dataclass(frozen=True)
class ResumeArguments:
    """Go on with a study that is there, as it was planned; --trials and --hours raise its goal."""

    length: tyro.conf.OmitArgPrefixes[Length]


def run_search(study: str, arguments: list[str]) -> tuple[dict[str, Any], bool]:
    """Return the document of `run STUDY`, and whether it is to be printed as JSON."""
    arguments = name_own(arguments, f"{PROG} run {study}")
    search, _ = parse_known(StudyPlan, arguments, f"{PROG} run {study}")
    published = get_recipe(search.trained_name, search.scale)
    default = with_choices(published, arguments, f"{PROG} run {study}")
    offered = as_options(default)
    kind: Any = RunArguments[type(offered)]  # type: ignore[misc]
    parsed: RunArguments[Recipe] = parse(
        kind,
        arguments,
        default=RunArguments(Length(), StudyPlan(), offered),
        prog=f"{PROG} run {study}",
    )
    recipe = apply_overrides(default, parsed.override)
    plan = dataclasses.replace(parsed.search, changes=changed_fields(recipe, published))
    return _search(study, plan, parsed.length, parsed.force)


def resume_search(study: str, arguments: list[str]) -> tuple[dict[str, Any], bool]:
    """Return the document of `resume STUDY`, and whether it is to be printed as JSON."""
    parsed: ResumeArguments = parse(
        ResumeArguments, arguments, default=ResumeArguments(Length()), prog=f"{PROG} resume {study}"
    )
    return _search(study, None, parsed.length)


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
