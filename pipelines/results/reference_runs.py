"""Reference runs: what the sources report, as runs in MLflow beside our own.

They are in the experiments and under the metric names of ours, so that selecting both in MLflow's
table compares them. Their kind keeps them out of everything that counts measured runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.measurement import claim_catalog
from pipelines.measurement.plan import MeasurementPlan
from pipelines.recipes import catalog
from pipelines.results._paper_numbers import TABLE, Reported
from pipelines.running.run import EXPERIMENT
from pipelines.runtime.plain_table import print_prose
from pipelines.runtime.provenance import digest
from pipelines.tracking import finished_runs, history, store

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
    start_ms: int
    """Milliseconds since 1970, of the year of its citation: so it stands below one's own runs."""

    @property
    def fingerprint(self) -> str:
        parts = (self.name, self.experiment, self.params, self.metrics, self.tags, self.start_ms)
        return digest(parts)


def write(table: Sequence[Reported] = TABLE) -> dict[str, Any]:
    """Make the reference runs of the store those of the table; return the document of `reference`.

    An existing run is left; one that the table no longer holds, or holds with other numbers, is
    deleted.
    """
    with store.lock(KIND):
        wanted = {each.fingerprint: each for each in map(build_reference, table)}
        present: dict[str, str] = {}
        for row in history.rows(None, kind=KIND):
            fingerprint = row.tags.get("fingerprint", "")
            if row.status == "FINISHED" and fingerprint in wanted and fingerprint not in present:
                present[fingerprint] = row.id
            else:  # outdated
                store.client().delete_run(row.id)
        missing = [each for each in wanted.values() if each.fingerprint not in present]
        ids = present | {each.fingerprint: _record(each) for each in missing}
    runs = [
        {"run_id": ids[fingerprint], "name": each.name, "metrics": dict(each.metrics)}
        | {key: each.tags[key] for key in ("claim", "where")}
        for fingerprint, each in wanted.items()
    ]
    return {"runs": runs, "written": len(missing)}


def list_places(name: str) -> list[dict[str, Any]]:
    """Return where the sources print its numbers, of what, from how many runs."""
    return [
        {"where": where, "citation": citation, "setting": row.setting, "n": row.n}
        | {"numbers": dict(row.numbers)}
        for row in TABLE
        if row.name == name
        for citation, where in row.places
    ]


def build_reference(row: Reported) -> Reference:
    """Return the run of a row of the table."""
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
        store.RESULT: "; ".join(f"{key} {value:,.10g}" for key, value in metrics.items()),
        store.NOTE: note(row, metrics),
        **recipe,
    }
    name, date = f"{SOURCE}: {row.name}", datetime(int(row.places[0][0][-4:]), 1, 1, tzinfo=UTC)
    start_ms = int(1000 * date.timestamp())
    is_claim = claim_catalog.is_claim(row.name)
    experiment = claim_catalog.load(row.name).family if is_claim else EXPERIMENT
    return Reference(name, experiment, _params(row), metrics, tags, start_ms)


def stated_numbers(name: str) -> Mapping[str, float]:
    """Return the numbers that the claim or the recipe of that name states as reported."""
    if claim_catalog.is_claim(name):
        return claim_catalog.load(name).reported
    return catalog.get_recipe(name, SCALE).reported if name in catalog.RECIPES else {}


def _params(row: Reported) -> dict[str, str]:
    """Return the settings at paper scale, as our runs record them; no seed, which papers omit."""
    is_claim = claim_catalog.is_claim(row.name)
    if row.name in catalog.RECIPES:
        stated = claim_catalog.get_settings if is_claim else catalog.get_recipe
        settings = stated(row.name, SCALE).flat()
        return {key: value for key, value in settings.items() if key != "seed"}
    if is_claim and SCALE in claim_catalog.load(row.name).scales:
        settings = claim_catalog.get_settings(row.name, SCALE)
        params = MeasurementPlan(name=row.name, scale=SCALE, settings=settings, seeds=1).params
        return {key: str(value) for key, value in params.items() if key != "seeds"}
    return {key: str(value) for key, value in row.params.items()}


def note(row: Reported, metrics: Mapping[str, float]) -> str:
    """Return Markdown for the run's page: claim, numbers, where they are printed, of what."""
    claim = claim_catalog.load(row.claim)
    has_scale = not claim_catalog.is_claim(row.name) or SCALE in claim.scales
    scale = f" --scale {SCALE}" if has_scale else ""
    first, *others = (f"{where}: {citation}" for citation, where in row.places)
    return "\n\n".join(
        [
            f"**{claim.says}** (`{row.claim}`)",
            f"Reported in {first}.",
            *(f"From {other}." for other in others),
            f"Setting: {row.setting}. Runs behind each number: {row.n or NOT_STATED}.",
            "\n".join(f"- `{key}` {value:,.10g}" for key, value in metrics.items()),
            f"Measured by `python -m pipelines run {row.name}{scale}`.",
        ]
    )


def _record(each: Reference) -> str:
    """Write the run; return its id."""
    return finished_runs.write(
        each.name,
        experiment=each.experiment,
        params=each.params,
        tags={**each.tags, "fingerprint": each.fingerprint},
        steps=[0],
        curves={key: [value] for key, value in each.metrics.items()},
        start_ms=each.start_ms,
        end_ms=each.start_ms,
    )


def print_references(document: Mapping[str, Any]) -> None:
    """Print the numbers that the sources report, below what they are of and where they stand."""
    for row in document["runs"]:
        print_prose(f"{row['name'].removeprefix(f'{SOURCE}: ')}: {row['where']}", after="    ")
        for key, value in row["metrics"].items():
            print(f"  {key:<34}{value:>13,.10g}")
    counts = f"{len(document['runs'])} runs hold these numbers, {document['written']} of them new."
    print(f"{counts} Beside ours: python -m pipelines ui")
