"""`python -m pipelines pipeline NAME`: the two pipelines and their options."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.cli.overrides import (
    PictureSize,
    apply_overrides,
    name_own,
    recipe_options,
    with_choices,
)
from pipelines.cli.parsing import (
    Option,
    add_command,
    call,
    call_named,
    name_parameter,
    new_app,
    options_of,
    parse,
    parse_known,
)
from pipelines.cli.shell import print_answer, use_data_dir
from pipelines.errors import Ended, UserError, check_counts
from pipelines.recipes import catalog, checks
from pipelines.recipes.settings import Scale
from pipelines.runtime.progress import say_begin
from pipelines.scheduling import pipeline
from pipelines.scheduling.pipeline import Step

PROG = "python -m pipelines pipeline"
VERIFY, TRAIN = "verify", "train-and-register"
CLAIMS = ("small-norm-factorization", "gradient-formula", "identity-beats-plain")
app = new_app(PROG, "Run several commands in order, as one run that names the results of all.")


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """Options of both pipelines."""

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
class VerifyOptions(PipelineOptions):
    """Options of `verify`."""

    claims: tuple[str, ...] = CLAIMS
    """Names of claims; or recorded: all that are on the scoreboard at this scale; or all."""
    seeds: int | None = None
    """Repeat with seeds 0, 1, ... (None: as many as each claim asks for)."""


def pipeline_command(words: list[str]) -> None:
    """Read the options, which are in part those of a recipe, and run the steps."""
    if words[:1] == [TRAIN]:
        call_named(_train_and_register, train_app, words[1:])
    else:
        call(app, words)


def verify(**values: Any) -> None:
    """Check the data, measure claims, write the report, and compare with earlier results.

    Exit code 3 where a verdict or a number has changed. After a failure the same command goes on
    with the step that failed.
    """
    options = VerifyOptions(**values)
    seeds = options.seeds
    use_data_dir(options.data_dir)
    names = pipeline.claim_names(options.claims, options.scale)
    if seeds is not None:
        check_counts(seeds=seeds)
    flags = ["--scale", options.scale, *(["--seeds", str(seeds)] if seeds is not None else [])]
    steps = pipeline.verification(names, *flags, report=_report(options), force=options.force)
    params = {
        "claims": " ".join(options.claims),
        "scale": options.scale,
        "seeds": seeds,
        "out": str(options.out or ""),
    }
    _run(VERIFY, f"{VERIFY} at {options.scale} scale", steps, params, options.json)


TRAIN_TEXT = """Train a recipe, evaluate it, and make it the registry's champion if it is the best.

Check its data, train, evaluate, compare with the champion, register a better run, report. After a
failure the same command goes on with the step that failed. Every setting of the recipe can be
overridden: `train-and-register RECIPE --help` lists them with their values."""
TRAIN_OPTIONS: list[Option] = [*options_of(PipelineOptions()), *options_of(PictureSize())]
RECIPE = name_parameter(
    "Recipe to train; `python -m pipelines list` names them.", "recipe", catalog.RECIPES
)
train_app = new_app(f"{PROG} {TRAIN}", TRAIN_TEXT)
add_command(train_app, print, [RECIPE, *TRAIN_OPTIONS])
add_command(app, verify, options_of(VerifyOptions()), VERIFY)
app.command(train_app, name=TRAIN)


def _train_and_register(name: str, words: list[str]) -> None:
    """Run the steps; the words that override the recipe are handed on to its training."""
    prog = f"{PROG} {TRAIN} {name}"
    rest = name_own(words, prog)
    known, overrides = parse_known(options_of(PipelineOptions()), rest, prog)
    options = PipelineOptions(**known)
    recipe = with_choices(catalog.get_recipe(name, options.scale), rest, prog)
    offered = [*TRAIN_OPTIONS, *recipe_options(recipe)]
    values = parse(offered, rest, prog, TRAIN_TEXT)
    changed = apply_overrides(recipe, values)
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
