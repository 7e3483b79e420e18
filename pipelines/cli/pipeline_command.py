"""`python -m pipelines pipeline NAME`: the two pipelines and their options.

verify                      check the data, measure claims, report, look for regressions
train-and-register RECIPE   check its data, train, evaluate, compare with the champion, register the
                            run if it is better, report
"""

import dataclasses
import sys
from typing import Any

from pipelines.cli.overrides import apply_overrides, as_options, with_schedule
from pipelines.cli.parsing import parse, parse_known
from pipelines.cli.shell import print_answer, use_data_dir
from pipelines.errors import LISTED_BY, Ended, unknown
from pipelines.recipes import catalog, checks
from pipelines.recipes.recipe import Recipe
from pipelines.scheduling.steps import Pipeline, run_pipeline
from pipelines.scheduling.workflows import (
    TRAIN,
    Options,
    TrainAndRegister,
    Verify,
    build_training,
    build_verification,
)

PROG = "python -m pipelines pipeline"


def pipeline_command(arguments: list[str]) -> None:
    """Read the options, which are in part those of a recipe, and run the steps."""
    name, *rest = arguments or ["--help"]
    if name == "verify":
        asked = parse(Verify, rest, default=Verify(Options()), prog=f"{PROG} {name}")
        use_data_dir(asked.options.data_dir)
        _run_pipeline(build_verification(asked), asked.options)
    elif name == TRAIN:
        training, overrides = _parse_training(rest)
        use_data_dir(training.options.data_dir)
        _run_pipeline(build_training(training, overrides), training.options)
    elif name in ("-h", "--help"):
        print(f"usage: {PROG} NAME [options], or {PROG} NAME --help\n\n{__doc__}", end="")
    else:
        raise unknown("A pipeline", name, ["verify", TRAIN])


def _parse_training(rest: list[str]) -> tuple[TrainAndRegister[Recipe], list[str]]:
    """Return the options of a training, and the words that override its recipe."""
    if not rest[:1] or (rest[0].startswith("-") and not {"-h", "--help"} & set(rest)):
        raise unknown("The recipe to train", "nothing", catalog.RECIPES, LISTED_BY)
    name, *words = rest if not rest[0].startswith("-") else [min(catalog.RECIPES), *rest]
    options, overrides = parse_known(Options, words, f"{PROG} {TRAIN} {name}")
    recipe = with_schedule(catalog.get_recipe(name, options.scale), words, f"{PROG} {TRAIN} {name}")
    offered = as_options(recipe)
    kind: Any = TrainAndRegister[type(offered)]  # type: ignore[misc]
    parsed: TrainAndRegister[Recipe] = parse(
        kind,
        [name, *words],
        default=TrainAndRegister(name, Options(), offered),
        prog=f"{PROG} {TRAIN}",
    )
    changed = apply_overrides(recipe, parsed.override)
    checks.require_validation(changed, "A champion is chosen")
    return dataclasses.replace(parsed, override=changed), overrides


def _run_pipeline(pipeline: Pipeline, options: Options) -> None:
    """Run the steps and print the document of the pipeline, also of one that fails."""

    def say(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    def show(document: dict[str, Any]) -> None:
        print(f"{document['pipeline']}: {document['status']}, run {document['run_id']}")
        if document["status"] == "FAILED":
            print("Without --force the same command goes on with the step that failed.")

    try:
        document = run_pipeline(pipeline, options.force, say)
    except Ended as error:
        if error.document is not None:
            print_answer(error.document, options.json, show)
        raise
    print_answer(document, options.json, show)
