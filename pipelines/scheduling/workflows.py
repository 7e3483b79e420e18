"""The two pipelines: one verifies claims, one trains and registers a recipe."""

import dataclasses
from pathlib import Path
from typing import Any, Generic, TypeVar

import tyro

from pipelines.errors import UserError, check_counts
from pipelines.measurement import claim_catalog
from pipelines.recipes.catalog import Scale
from pipelines.recipes.recipe import Recipe
from pipelines.results import scoreboard
from pipelines.scheduling.steps import Pipeline, Step

CLAIMS = ("small-norm-factorization", "gradient-formula", "identity-beats-plain")
TRAIN = "train-and-register"
ALL, RECORDED = "all", "recorded"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Options:
    """How to run."""

    scale: Scale = "cpu"
    """smoke (seconds), cpu (minutes on 2 cores), hours (on 2 cores) or paper (as published)."""
    force: bool = False
    """Measure again what has finished before, and skip no step."""
    out: Path | None = None
    """Where the report is written (default: report/ beside the database)."""
    json: bool = False
    """Print one JSON document on standard output."""
    data_dir: Path | None = None
    """Folder of prepared data sets (default: TFDS_DATA_DIR, else ~/tensorflow_datasets)."""

    @property
    def force_flags(self) -> tuple[str, ...]:
        return ("--force",) if self.force else ()

    @property
    def report(self) -> Step:
        words = ("--out", _escape_braces(str(self.out.resolve()))) if self.out else ()
        return Step("report", ("pipelines", "report", *words), lambda output: output["results"])


@dataclasses.dataclass(frozen=True)
class Verify:
    """Check the data, measure claims, write the report, and compare with earlier results.

    Exit code 3 where a verdict or a number has changed. The same command goes on where it failed.
    """

    options: tyro.conf.OmitArgPrefixes[Options]
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
    options: tyro.conf.OmitArgPrefixes[Options]
    override: tyro.conf.OmitArgPrefixes[T]


def build_verification(asked: Verify) -> Pipeline:
    """Return the pipeline that measures claims again; UserError if there are no such claims."""
    scale, claims = asked.options.scale, _claim_names(asked.claims, asked.options.scale)
    if asked.seeds is not None:
        check_counts(seeds=asked.seeds)
    seeds = () if asked.seeds is None else ("--seeds", str(asked.seeds))
    more = ("--scale", scale, *seeds, *asked.options.force_flags)
    run_ids = [f"{{{name}[run_id]}}" for name in claims]
    return Pipeline(
        "verify",
        f"verify at {scale} scale",
        {
            "claims": " ".join(asked.claims),
            "scale": scale,
            "seeds": asked.seeds,
            "out": str(asked.options.out or ""),
        },
        (
            Step("data", ("pipelines", "data", "check"), _describe_data),
            *(Step(name, ("pipelines", "run", name, *more), _describe_verdict) for name in claims),
            asked.options.report,
            Step("watch", ("pipelines", "watch", *run_ids), _describe_watch),
        ),
    )


def _claim_names(names: tuple[str, ...], scale: str) -> list[str]:
    """Return the names of the claims that these words mean."""
    results = scoreboard.own_results()
    recorded = sorted(name for name, row in results.items() if row.tags["scale"] == scale)
    every = [name for name in claim_catalog.names() if scale in claim_catalog.load(name).scales]
    groups, claims = {ALL: every, RECORDED: recorded}, list[str]()
    for name in names:
        if name not in groups:
            claim_catalog.get_settings(name, scale)
        claims += groups.get(name, [name])
    if not claims:
        raise UserError(
            f"A verification needs claims. Received: {' '.join(names) or 'none'}, of which there "
            f"is none at scale {scale}. Name some with --claims, or set --scale."
        )
    return list(dict.fromkeys(claims))


def build_training(asked: TrainAndRegister[Recipe], overrides: list[str]) -> Pipeline:
    """Return the pipeline that makes a trained recipe the champion if it is the best."""
    name, scale = asked.recipe, asked.options.scale
    at = (name, "--scale", scale)
    words = (*map(_escape_braces, overrides), *asked.options.force_flags)
    return Pipeline(
        TRAIN,
        f"{TRAIN} {name} at {scale} scale",
        {"recipe": name, "scale": scale, "override": " ".join(overrides)},
        (
            Step("data", ("pipelines", "data", "check", asked.override.data), _describe_data),
            Step("train", ("pipelines", "run", *at, *words), _describe_training),
            Step("evaluate", ("pipelines", "evaluate", "{train[run_id]}"), _describe_evaluation),
            Step("compare", ("pipelines", "register", *at, "--dry-run"), _describe_comparison),
            Step("register", ("pipelines", "register", *at), _describe_registration),
            asked.options.report,
        ),
    )


def _escape_braces(word: str) -> str:
    """Return a word of a step in which braces stand for themselves."""
    return word.replace("{", "{{").replace("}", "}}")


def _describe_data(output: Any) -> str:
    names = [row["name"] for row in output.get("data", [output]) if row["prepared"]]
    return f"{', '.join(names) or 'none'} can be read"


def _describe_verdict(output: Any) -> str:
    return f"{output['verdict']}{' (found finished)' if output['reused'] else ''}"


def _describe_watch(output: Any) -> str:
    return f"{output['compared']} results compared, none changed"


def _describe_training(output: Any) -> str:
    numbers = [f"{k} {v['mean']:.4g}" for k, v in output["metrics"].items() if k.startswith("val_")]
    return f"{', '.join(numbers)}{' (found finished)' if output['reused'] else ''}"


def _describe_evaluation(output: Any) -> str:
    return f"{len(output['metrics'])} numbers agree with what was recorded"


def _describe_comparison(output: Any) -> str:
    now = output["champion_now"]
    if now is None:
        return "there is no champion yet"
    return f"{'better' if output['new'] else 'no better'} than version {now['version']}"


def _describe_registration(output: Any) -> str:
    return f"version {output['version']} {'is' if output['new'] else 'stays'} the champion"
