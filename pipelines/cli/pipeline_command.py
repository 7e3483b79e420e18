"""`python -m pipelines pipeline NAME`: the two pipelines there are, as their options make them.

verify                      check the data, measure claims, report, look for regressions
train-and-register RECIPE   check its data, train, evaluate, compare with the champion, register the
                            run if it is better, report
"""

import dataclasses
import sys
from typing import Any

import tyro

from pipelines.cli.overrides import apply_overrides, parse_errors_as_user_errors, with_schedule
from pipelines.cli.shell import print_json, use_data_dir
from pipelines.errors import Ended, unknown
from pipelines.recipes import catalog
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
    """`pipeline NAME`: read the options, which are in part those of a recipe, and do the steps."""
    name, *rest = arguments or ["--help"]
    if name == "verify":
        with parse_errors_as_user_errors():
            asked = tyro.cli(Verify, args=rest, default=Verify(Options()), prog=f"{PROG} {name}")
        use_data_dir(asked.options.data_dir)
        _run_pipeline(build_verification(asked), asked.options)
    elif name == TRAIN:
        with parse_errors_as_user_errors():
            training, overrides = _parse_training(rest)
        use_data_dir(training.options.data_dir)
        _run_pipeline(build_training(training, overrides), training.options)
    elif name in ("-h", "--help"):
        print(f"usage: {PROG} NAME [options], or {PROG} NAME --help\n\n{__doc__}", end="")
    else:
        raise unknown("A pipeline", name, ["verify", TRAIN])


def _parse_training(rest: list[str]) -> tuple[TrainAndRegister[Recipe], list[str]]:
    """The options of a training, and those words of the command line that override its recipe."""
    words = [word for word in rest[:1] if not word.startswith("-")]
    if not words and not {"-h", "--help"} & set(rest):
        raise unknown("The recipe to train", "nothing", catalog.RECIPES)
    name = words[0] if words else min(catalog.RECIPES)
    own = rest[len(words) :]
    options, overrides = tyro.cli(Options, args=own, return_unknown_args=True, add_help=False)
    recipe = with_schedule(catalog.get_recipe(name, options.scale), own)
    kind: Any = TrainAndRegister[Recipe]
    parsed: TrainAndRegister[Recipe] = tyro.cli(
        kind,
        args=[name, *own],
        default=TrainAndRegister(name, Options(), recipe),
        prog=f"{PROG} {TRAIN}",
    )
    changed = apply_overrides(recipe, parsed.override)
    return dataclasses.replace(parsed, override=changed), overrides


def _run_pipeline(pipeline: Pipeline, options: Options) -> None:
    """Do the steps, saying how they end; the document of a pipeline that fails is printed too."""

    def say(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    try:
        document = run_pipeline(pipeline, options.force, say)
    except Ended as error:
        if options.json and error.document is not None:
            print_json(error.document)
        elif error.document is not None:
            _print_run(error.document)
            print("Without --force the same command goes on with the step that failed.")
        raise
    if options.json:
        print_json(document)
    else:
        _print_run(document)


def _print_run(document: dict[str, Any]) -> None:
    print(f"{document['pipeline']}: {document['status']}, run {document['run_id']}")
