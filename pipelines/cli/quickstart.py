"""The quickstart: claims, a learning-rate study, a table. No finished part is repeated."""

import time
from collections.abc import Callable
from typing import Any

from pipelines.cli import tables
from pipelines.measurement import claim_catalog, sweep
from pipelines.recipes.catalog import get_recipe
from pipelines.results import evidence, reference_runs, scoreboard
from pipelines.run import RunOptions
from pipelines.runtime.durations import format_duration
from pipelines.runtime.subcommands import run_study
from pipelines.scheduling.workflows import CLAIMS

RECIPE = "allconv-digits"  # the study's name ends in its fingerprint: a new recipe, a new study
TRIALS = 6


def quickstart(force: bool) -> None:
    """Run every part, print its result, and end with the scoreboard."""
    started = time.perf_counter()
    evidence.import_if_own()
    reference_runs.write()
    parts: list[tuple[str, Callable[[], str]]] = [
        (name, lambda name=name: _measure_claim(name, force))  # type: ignore[misc]
        for name in CLAIMS
    ]
    parts.append(("learning-rate study", lambda: _run_study(force)))
    parts.append(("results table", lambda: str(scoreboard.write()["results"])))
    for number, (title, part) in enumerate(parts, 1):
        print(f"[{number}/{len(parts)}] {title} ...", flush=True)
        part_started = time.perf_counter()
        result = f"{part()}, {format_duration(time.perf_counter() - part_started)}"
        print(f"[{number}/{len(parts)}] {title}: {result}")
    tables.show_scoreboard([entry for entry in scoreboard.entries() if entry.name in CLAIMS])
    print("The project's numbers of every other claim: python -m pipelines report")
    took = format_duration(time.perf_counter() - started)
    print(f"Done in {took}. See every run and curve: make ui")


def _measure_claim(name: str, force: bool) -> str:
    settings, run_options = claim_catalog.load(name).scales["cpu"], RunOptions(force=force)
    document: dict[str, Any] = sweep.check(name, "cpu", settings, run_options=run_options)
    return f"{document['verdict']}{' (found finished)' if document['reused'] else ''}"


def _run_study(force: bool) -> str:
    """Run the study in a process of its own: tuning builds on pipelines, not the other way."""
    name = f"quickstart-{get_recipe(RECIPE).fingerprint}"
    options = ["--recipe", RECIPE, "--trials", str(TRIALS), *["--force"] * force]
    document = run_study(name, *options)
    best, published = (document["metrics"][f"{k}_val_error_pct"] for k in ("best", "baseline"))
    gain = f"validation error {published:.2f} % as published, {best:.2f} % at best of {TRIALS}"
    return gain + (" (found finished)" if document["reused"] else "")
