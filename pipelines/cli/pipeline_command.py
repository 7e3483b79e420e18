"""`python -m pipelines pipeline NAME`: the two pipelines and their options.

verify                      check the data, measure claims, report, look for regressions
train-and-register RECIPE   check its data, train, evaluate, compare with the champion, register the
                            run if it is better, report
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
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
from pipelines.cli.shell import print_answer, use_data_dir
from pipelines.errors import LISTED_BY, Ended, UserError, check_counts, unknown
from pipelines.recipes import catalog, checks
from pipelines.recipes.catalog import Scale
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.progress import say_begin
from pipelines.scheduling import pipeline
from pipelines.scheduling.pipeline import Step

PROG = "python -m pipelines pipeline"
VERIFY, TRAIN = "verify", "train-and-register"
CLAIMS = ("small-norm-factorization", "gradient-formula", "identity-beats-plain")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """Options of `pipeline`."""

    scale: Scale = "cpu"
    """smoke (seconds), cpu (minutes on 2 cores), hours (on 2 cores) or paper (as published)."""
    force: bool = False
    """Measure again what has finished before."""
    out: Path | None = None
    """Folder of the report (default: report/ beside the database)."""
    json: bool = False
    """Print one JSON document on standard output."""
    data_dir: Path | None = None
    """Folder of prepared data sets (default: TFDS_DATA_DIR, else ~/tensorflow_datasets)."""


@dataclasses.dataclass(frozen=True)
class Verify:
    """Check the data, measure claims, write the report, and compare with earlier results.

    Exit code 3 where a verdict or a number has changed. The same command goes on where it failed.
    """

    options: tyro.conf.OmitArgPrefixes[PipelineOptions]
    claims: tuple[str, ...] = CLAIMS
    """Their names; or recorded: all that are on the scoreboard at this scale; or all."""
    seeds: int | None = None
    """Repeat with seeds 0, 1, ... (None: as many as each claim asks for)."""


@dataclasses.dataclass(frozen=True)
class TrainAndRegister(Generic[T]):
    """Train a recipe, evaluate it, and make it the champion of the registry if it is the best.

    Every setting of the recipe can be overridden. The same command goes on where it failed.
    """

    recipe: tyro.conf.Positional[str]
    options: tyro.conf.OmitArgPrefixes[PipelineOptions]
    override: tyro.conf.OmitArgPrefixes[T]
    pictures: tyro.conf.OmitArgPrefixes[PictureSize] = dataclasses.field(
        default_factory=PictureSize
    )


def pipeline_command(arguments: list[str]) -> None:
    """Read the options, which are in part those of a recipe, and run the steps."""
    name, *rest = arguments or ["--help"]
    if name == VERIFY:
        _verify(rest)
    elif name == TRAIN:
        _train_and_register(rest)
    elif name in ("-h", "--help"):
        print(f"usage: {PROG} NAME [options], or {PROG} NAME --help\n\n{__doc__}", end="")
    else:
        raise unknown("A pipeline", name, [VERIFY, TRAIN])


def _verify(words: list[str]) -> None:
    asked: Verify = parse(Verify, words, default=Verify(PipelineOptions()), prog=f"{PROG} {VERIFY}")
    options, seeds = asked.options, asked.seeds
    use_data_dir(options.data_dir)
    names = pipeline.claim_names(asked.claims, options.scale)
    if seeds is not None:
        check_counts(seeds=seeds)
    flags = ["--scale", options.scale, *(["--seeds", str(seeds)] if seeds is not None else [])]
    steps = pipeline.verification(names, *flags, report=_report(options), force=options.force)
    params = {
        "claims": " ".join(asked.claims),
        "scale": options.scale,
        "seeds": seeds,
        "out": str(options.out or ""),
    }
    _run(VERIFY, f"{VERIFY} at {options.scale} scale", steps, params, options.json)


def _train_and_register(words: list[str]) -> None:
    """Run the steps; the words that override the recipe are handed on to its training."""
    if not words[:1] or (words[0].startswith("-") and not {"-h", "--help"} & set(words)):
        raise unknown("The recipe to train", "nothing", catalog.RECIPES, LISTED_BY)
    name, *given = words if not words[0].startswith("-") else [min(catalog.RECIPES), *words]
    rest = name_own(given, f"{PROG} {TRAIN} {name}")
    options, overrides = parse_known(PipelineOptions, rest, f"{PROG} {TRAIN} {name}")
    recipe = with_choices(catalog.get_recipe(name, options.scale), rest, f"{PROG} {TRAIN} {name}")
    offered = as_options(recipe)
    kind: Any = TrainAndRegister[type(offered)]  # type: ignore[misc]
    asked: TrainAndRegister[Recipe] = parse(
        kind,
        [name, *rest],
        default=TrainAndRegister(name, PipelineOptions(), offered),
        prog=f"{PROG} {TRAIN}",
    )
    changed = apply_overrides(recipe, asked.override)
    checks.require_validation(changed, "A champion is chosen")
    if changed.data != recipe.data:
        raise UserError(
            "Champions of a recipe are compared on its own data. Received: --data "
            f"{changed.data} for {name}, which has {recipe.data}. Leave it out, or train by "
            f"python -m pipelines run {name} alone."
        )
    steps = pipeline.training(
        name,
        options.scale,
        data=changed.data,
        overrides=overrides,
        report=_report(options),
        force=options.force,
    )
    params = {"recipe": name, "scale": options.scale, "override": " ".join(overrides)}
    _run(TRAIN, f"{TRAIN} {name} at {options.scale} scale", steps, params, options.json)


def _report(options: PipelineOptions) -> Sequence[str]:
    return ("report", *(("--out", str(options.out.resolve())) if options.out else ()))


def _run(
    name: str, title: str, steps: Sequence[Step], params: Mapping[str, Any], json: bool
) -> None:
    """Run the steps and print the document of the pipeline, also of one that fails."""

    def show(document: dict[str, Any]) -> None:
        print(f"{document['pipeline']}: {document['status']}, run {document['run_id']}")
        if document["status"] == "FAILED":
            print("Without --force the same command goes on with the step that failed.")

    def say(line: str) -> None:
        print(line, file=sys.stderr if json else sys.stdout, flush=True)

    say_begin(f"{title}: {', '.join(step.name for step in steps)}.", json)
    try:
        document = pipeline.run_pipeline(name, title, steps, params=params, say=say)
    except Ended as error:
        if error.document is not None:
            print_answer(error.document, json, show)
        raise
    print_answer(document, json, show)
