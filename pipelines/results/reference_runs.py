"""Reference runs: what the sources report, as runs in MLflow beside our own.

They are in the experiments and under the metric names of ours, so that selecting both in MLflow's
table compares them. Their kind keeps them out of everything that counts measured runs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.plan import MeasurementPlan
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe
from pipelines.results._paper_numbers import TABLE, Reported
from pipelines.run import EXPERIMENT
from pipelines.runtime import locks
from pipelines.runtime.provenance import digest
from pipelines.tracking import bulk, history, store

KIND = "reference"
SOURCE = "paper"
SCALE = "paper"
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Reference:
    """A row of the table as a run: with what its claim or recipe states of itself."""

    name: str
    experiment: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        return digest([self.name, self.experiment, self.params, self.metrics, self.tags])


def write(table: Sequence[Reported] = TABLE) -> dict[str, Any]:
    """Make the reference runs of the store those of the table; the document of `reference`.

    A run that is there is left; one that the table no longer holds, or holds with other numbers,
    is deleted.
    """
    with locks.lock(store.home() / "live", KIND):
        wanted = {each.fingerprint: each for each in map(build_reference, table)}
        there = _delete_outdated(wanted)
        missing = [each for each in wanted.values() if each.fingerprint not in there]
        ids = there | _record(missing)
    runs = [_describe_run(ids[each.fingerprint], each) for each in wanted.values()]
    return {"runs": runs, "written": len(missing)}


def build_reference(row: Reported) -> Reference:
    """The run of a row of the table."""
    metrics = {**row.numbers, **stated_numbers(row.name)}
    recipe = {"recipe": row.name} if row.name in catalog.RECIPES else {}
    tags = {
        "kind": KIND,
        "source": SOURCE,
        "scale": SCALE,
        "claim": row.claim,
        "citation": "; from ".join(citation for citation, _ in row.places),
        "where": "; from ".join(where for _, where in row.places),
        "n": str(row.n or NOT_STATED),
        store.NOTE: note(row, metrics),
        **recipe,
    }
    return Reference(f"{SOURCE}: {row.name}", _experiment(row), _params(row), metrics, tags)


def stated_numbers(name: str) -> Mapping[str, float]:
    """The numbers that the claim or the recipe of that name says are reported of it."""
    if name in claim_catalog.names():
        return claim_catalog.load(name).reported
    return _recipe(name).reported if name in catalog.RECIPES else {}


def _recipe(name: str) -> Recipe:
    return catalog.get_recipe(name, SCALE)


def _experiment(row: Reported) -> str:
    """That of the claim's own runs; of a recipe that is no claim, that of trainings."""
    if row.name in claim_catalog.names():
        return claim_catalog.load(row.name).family
    return EXPERIMENT


def _params(row: Reported) -> dict[str, str]:
    """The settings at paper scale, as our own runs record them; no seed, which papers omit."""
    if row.name in catalog.RECIPES:
        return {key: value for key, value in _recipe(row.name).flat().items() if key != "seed"}
    if row.name in claim_catalog.names() and SCALE in claim_catalog.load(row.name).scales:
        settings = claim_catalog.get_settings(claim_catalog.load(row.name), row.name, SCALE)
        params = MeasurementPlan(name=row.name, scale=SCALE, settings=settings, seeds=1).params
        return {key: str(value) for key, value in params.items() if key != "seeds"}
    return {key: str(value) for key, value in row.params.items()}


def note(row: Reported, metrics: Mapping[str, float]) -> str:
    """Markdown for the top of the run's page: claim, numbers, where they are printed, of what."""
    found = claim_catalog.load(row.claim)
    at = (
        ""
        if row.name in claim_catalog.names() and SCALE not in found.scales
        else f" --scale {SCALE}"
    )
    first, *others = (f"{where}: {citation}" for citation, where in row.places)
    return "\n\n".join(
        [
            f"**{found.says}** (`{row.claim}`)",
            f"Reported in {first}.",
            *(f"From {other}." for other in others),
            f"Setting: {row.setting}. Runs behind each number: {row.n or NOT_STATED}.",
            "\n".join(f"- `{key}` {value:.10g}" for key, value in metrics.items()),
            f"Measured by `python -m pipelines run {row.name}{at}`.",
        ]
    )


def _delete_outdated(wanted: Mapping[str, Reference]) -> dict[str, str]:
    """Ids of the runs that are there, by fingerprint; all other reference runs are deleted."""
    kept: dict[str, str] = {}
    for row in history.rows(None, kind=KIND):
        fingerprint = row.tags.get("fingerprint", "")
        if row.status == "FINISHED" and fingerprint in wanted and fingerprint not in kept:
            kept[fingerprint] = row.id
        else:
            store.client().delete_run(row.id)
    return kept


def _record(missing: Sequence[Reference]) -> dict[str, str]:
    """Write the runs, one transaction an experiment; their ids by fingerprint."""
    now = int(time.time() * 1000)
    ids: dict[str, str] = {}
    for experiment in sorted({each.experiment for each in missing}):
        here = [each for each in missing if each.experiment == experiment]
        runs = [
            bulk.FinishedRun(
                each.name,
                each.params,
                {**each.tags, "fingerprint": each.fingerprint},
                [0],
                {key: [value] for key, value in each.metrics.items()},
                now,
                now,
            )
            for each in here
        ]
        written = bulk.write(experiment, runs, None)
        ids |= {each.fingerprint: run_id for each, run_id in zip(here, written, strict=True)}
    return ids


def print_references(document: Mapping[str, Any]) -> None:
    """The reference runs in the terminal, and how many are new."""
    for row in document["runs"]:
        print(f"{row['run_id']}  {row['name']:<40} {row['where']}")
    print(f"{document['written']} written, {len(document['runs'])} in all: python -m pipelines ui")


def _describe_run(run_id: str, each: Reference) -> dict[str, Any]:
    """A run as the document of `reference` lists it."""
    return {
        "run_id": run_id,
        "name": each.name,
        "claim": each.tags["claim"],
        "where": each.tags["where"],
        "metrics": dict(each.metrics),
    }
