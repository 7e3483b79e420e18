"""`python -m pipelines run NAME [overrides]` and `sweep NAME`: options read against NAME."""

import dataclasses
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

from pipelines import api
from pipelines.cli import list_command, tables
from pipelines.cli.overrides import (
    PictureSize,
    apply_overrides,
    name_own,
    recipe_options,
    with_choices,
)
from pipelines.cli.parsing import (
    add_command,
    call_named,
    name_parameter,
    new_app,
    options_of,
    parse,
    parse_known,
    take,
)
from pipelines.cli.shell import print_answer, print_json, use_data_dir
from pipelines.errors import MOST, Paused, UserError, check_counts, check_minutes
from pipelines.measurement import claim_catalog, sweep
from pipelines.recipes import catalog, checks
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Scale
from pipelines.results.evidence import bundles
from pipelines.running.existing import Reuse, refuse_changed
from pipelines.running.run_options import RunOptions
from pipelines.running.seeds import repeat
from pipelines.runtime import backend
from pipelines.runtime.progress import say_begin
from pipelines.training import tf_config

PROG = "python -m pipelines"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `run`."""

    scale: Scale = "cpu"
    """smoke (seconds), cpu (minutes on 2 cores), hours (of some claims, on 2 cores) or paper (as
    published)."""
    seeds: int | None = None
    """Repeat with seeds 0, 1, ... (a claim: its own default; a recipe: once, with its seed)."""
    only_seed: int | None = None
    """Measure this seed of a claim alone; `evidence add` joins it with those of other machines."""
    force: bool = False
    """Repeat what has finished before with the same settings."""
    new_run: bool = False
    """Start a training anew that was interrupted (default: it goes on from its checkpoint)."""
    checkpoint_every: int | None = None
    """Steps between checkpoints (None: about a minute)."""
    max_minutes: float | None = None
    """Save and end, with success, after so long; the same command then goes on (None: to the
    end)."""
    system_metrics: bool = False
    """Log processor, memory, disk and network use of trainings, too."""
    json: bool = False
    """Print one JSON document on standard output."""
    data_dir: Path | None = None
    """Folder of prepared data sets (default: TFDS_DATA_DIR, else ~/tensorflow_datasets)."""

    @property
    def run_options(self) -> RunOptions:
        minutes = math.inf if self.max_minutes is None else self.max_minutes
        return RunOptions(
            force=self.force,
            new_run=self.new_run,
            checkpoint_every=self.checkpoint_every,
            until=time.monotonic() + 60 * minutes,
            system_metrics=self.system_metrics,
        )

    def __post_init__(self) -> None:
        if self.seeds is not None:
            check_counts(MOST, seeds=self.seeds)
        if self.checkpoint_every is not None:
            check_counts(checkpoint_every=self.checkpoint_every)
        with_seeds = f" with --seeds {self.seeds}" if self.seeds is not None else ""
        if self.only_seed is not None and (with_seeds or not 0 <= self.only_seed < MOST):
            raise UserError(
                f"only_seed must be an integer from 0 to {MOST - 1:,}, without --seeds. Received: "
                f"only_seed={self.only_seed}{with_seeds}. Set --only-seed accordingly."
            )
        check_minutes(self.max_minutes)
        if self.max_minutes is not None and (self.force or self.new_run):
            raise UserError(
                "A command with --max-minutes is repeated to go on. Received: "
                f"{'--force' if self.force else '--new-run'}, which would begin anew each time. "
                "Leave one of the two out."
            )


def run(words: list[str]) -> None:
    """Run a claim or a recipe by name."""
    call_named(run_command, run_app, words)


def run_command(name: str, words: list[str]) -> None:
    """Run a claim or a recipe, whose own settings the options of the command line override.

    A name that ends in .py is the file of a person's own claim.
    """
    if name.endswith(".py"):
        name = claim_catalog.add(name)
    prog = f"{PROG} run {name}"
    known, _ = parse_known(options_of(Options()), words, prog)
    options = Options(**known)
    settings = api.stated_settings(name, options.scale)
    offered = options_of(Options())
    own = options_of(settings, "Settings of the claim")
    if any(option.name == "data" for option in own):
        offered += options_of(PictureSize())
        words = name_own(words, prog)
    else:
        use_data_dir(options.data_dir)
    if isinstance(settings, Recipe):
        settings = with_choices(settings, words, prog)
        own = recipe_options(settings)
    values = parse([*offered, *own], words, prog, _describe(name))
    if isinstance(settings, Recipe):
        settings = apply_overrides(settings, values)
    else:
        settings = dataclasses.replace(settings, **take(type(settings), values))
    try:
        _run(name, options, settings)
    except Paused as paused:
        if options.json:
            print_json({"name": name, "finished": False, "said": str(paused)})
        raise


def _run(name: str, options: Options, settings: Any) -> None:
    if role := tf_config.role():
        _run_on_machines(settings, options, role)
    elif claim_catalog.is_claim(name):
        _run_claim(name, options, settings)
    else:
        _run_recipe(settings, options)


def _run_on_machines(recipe: Any, options: Options, role: tf_config.Role) -> None:
    """Train a recipe once, as the chief of several machines or as one of the others."""
    if not isinstance(recipe, Recipe) or options.seeds is not None:
        what = "--seeds" if isinstance(recipe, Recipe) else "a claim"
        raise UserError(
            "Several machines train one recipe, once. Received: a TF_CONFIG with "
            f"{role.workers} machines and {what}. Leave --seeds out and set --seed, or unset "
            "TF_CONFIG."
        )
    checks.check_here(recipe)
    backend.keras()
    from pipelines.training import multi_machine
    from pipelines.training.job import prepare
    from pipelines.training.train import train

    machines = multi_machine.meet(recipe, role)
    if role.chief:
        _run_recipe(recipe, options, machines)
    elif isinstance(found := machines.share(None), Reuse):  # what the chief has found
        print("The chief has found this run finished.", file=sys.stderr)
    else:
        job = prepare(recipe, machines)
        train(job, lambda metrics, step: None, None, found.checkpoint, machines=machines)


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Options of `sweep`."""

    grid: tuple[str, ...] = ()
    """An axis NAME=VALUES, with VALUES 8,64 or 0.1:0.5:0.1 or 8:256:2x; once an axis. A setting
    that is not named keeps its values at --scale."""
    scale: Scale = "cpu"
    """smoke (seconds), cpu (minutes on 2 cores), hours (of some claims, on 2 cores) or paper (as
    published)."""
    seeds: int | None = None
    """Seeds 0, 1, ... of every setting (None: as many as the claim asks for)."""
    workers: int | None = None
    """Processes of this machine, one BLAS thread each (None: one a core)."""
    scheduler: str | None = None
    """Address of the Dask scheduler whose workers measure instead: tcp://host:8786."""
    force: bool = False
    """Measure again what has been measured before."""
    json: bool = False
    """Print one JSON document on standard output."""


def run_sweep(words: list[str]) -> None:
    """Measure a claim over a grid of its settings."""
    call_named(sweep_command, sweep_app, words)


def sweep_command(name: str, words: list[str]) -> None:
    """Measure a claim over the grid of the command line."""
    if name.endswith(".py"):
        name = claim_catalog.add(name)
    text = (
        f"Measure {name} over a grid of its settings, times seeds; `run {name} --help` names them."
    )
    values = parse(options_of(SweepOptions()), words, f"{PROG} sweep {name}", text)
    parsed = SweepOptions(**values)
    if name in catalog.RECIPES:
        raise UserError(
            f"A sweep takes a claim. Received: {name} is a recipe. Vary its settings with "
            f"{PROG} run {name}, or search them with python -m tuning."
        )
    say_begin(f"{name} at {parsed.scale} scale: measuring {' '.join(parsed.grid)}.", parsed.json)
    document = sweep.sweep(
        name,
        parsed.scale,
        parsed.grid,
        parsed.seeds,
        workers=parsed.workers,
        scheduler=parsed.scheduler,
        run_options=RunOptions(force=parsed.force),
    )
    print_answer(document, parsed.json, tables.show_sweep)


run_app = new_app(
    f"{PROG} run",
    """Run a claim or a recipe by name; with the same settings it is found finished.

    `run NAME --help` lists the settings of that claim or recipe, with their values, which can be
    overridden, too.""",
)
sweep_app = new_app(
    f"{PROG} sweep",
    """Measure a claim over a grid of its settings, times seeds.

    For example: sweep CLAIM --grid d=8,64. `run CLAIM --help` names the settings.""",
)
CLAIMS, RECIPES = claim_catalog.names(), [*catalog.RECIPES]
_name = name_parameter(
    "Claim or recipe, which `list` names, or FILE.py of your own claim.",
    choices=[*CLAIMS, *RECIPES],
)
add_command(run_app, print, [_name, *options_of(Options())])
_name = name_parameter("Claim, which `list` names, or FILE.py of your own.", choices=CLAIMS)
add_command(sweep_app, print, [_name, *options_of(SweepOptions())])


def _describe(name: str) -> str:
    """Return what --help says of a claim, with its card, source and costs, or of a recipe."""
    if not claim_catalog.is_claim(name):
        source = catalog.get_recipe(name).source
        return f"Train the recipe {name} ({source}). Its settings are options, shown as they are."
    claim = claim_catalog.load(name)
    card = claim_catalog.card(name).replace("\nExpect", "\n\nExpect")  # a paragraph of its own
    table = f"See the table that `{PROG} show {name}` prints.\n"
    card = re.sub(r"(?m)(^\| .*\|\n?)+", table, card).strip()
    source = f"Source: {claim.source}." * ("Source:" not in card)
    parts = [card, source, list_command.state_costs(claim.costs)]
    return "\n\n".join(filter(None, parts))


def _run_claim(name: str, options: Options, settings: Any) -> None:
    if isinstance(settings, Recipe):
        _check_seeds(name, options, settings)
    cost = claim_catalog.load(name).costs.get(options.scale)
    takes = f", which takes {cost}" if cost else ""
    begin = f"{name} at {options.scale} scale{takes}: looking for a finished run, else measuring."
    say_begin(begin, options.json)
    bundles.import_if_own([name])
    document = sweep.check(
        name,
        options.scale,
        settings,
        options.seeds,
        run_options=options.run_options,
        only_seed=options.only_seed,
    )
    print_answer(document, options.json, tables.show_claim)


def _check_seeds(name: str, options: Options, recipe: Recipe) -> None:
    """Raise UserError for --seed with a claim about a recipe, or a changed unfinished training."""
    if recipe.seed:
        raise UserError(
            f"A claim takes seeds 0, 1, ... Received: --seed {recipe.seed} for {name}. Set "
            "--seeds to their number."
        )
    seeds = claim_catalog.load(name).seeds if options.seeds is None else options.seeds
    chosen = range(seeds) if options.only_seed is None else [options.only_seed]
    for seed in [] if options.new_run else chosen:
        refuse_changed(recipe.override(seed=seed), f"{name} {options.scale}")


def _run_recipe(recipe: Recipe, options: Options, machines: Any = None) -> None:
    run_as = f"{recipe.name} {options.scale}"
    if options.only_seed is not None:
        raise UserError(
            f"A claim has seeds of its own. Received: --only-seed {options.only_seed} for the "
            f"recipe {recipe.name}. Set --seed instead."
        )
    length = f"{recipe.steps:,} steps" if recipe.steps else f"{recipe.epochs:g} epochs"
    begin = f"{recipe.name} at {options.scale} scale: {length} on {recipe.data}"
    say_begin(f"{begin}; loading {backend.name()}, unless a finished run is found.", options.json)
    run_options = dataclasses.replace(options.run_options, machines=machines)
    document = repeat(recipe, options.seeds, run_options, run_as) | {"scale": options.scale}
    print_answer(document, options.json, tables.show_training)
