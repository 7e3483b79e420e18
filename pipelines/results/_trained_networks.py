"""The table of claims about trained networks: how well they learned, what decides, what it cost."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pipelines.measurement import claim_catalog, documents
from pipelines.measurement.claim import SEED_PREFIX
from pipelines.measurement.plan import stated_plan
from pipelines.results.evidence import bundles
from pipelines.running.seed_statistics import format_mean
from pipelines.runtime.durations import format_duration
from pipelines.tracking import history

COLUMNS = (
    *(
        "trained networks",
        "scale",
        "arms",
        "seeds",
        "test error: mean ± sd",
        "floor reached",
        "verdict",
    ),
    *("decided by, with its interval", "time", "commit", "evidence"),
)
TEST_ERROR = re.compile(r"(?:(\w+)_)?test_error_pct")


def write_table(entries: Iterable[Any]) -> list[str]:
    """Return the entries of trained networks that have a run, as the lines of a Markdown table."""
    rows = [
        _row(entry)
        for entry in entries
        if entry.shown and claim_catalog.load(entry.name).recipes is not None
    ]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows] if rows else []
    return [f"| {' | '.join(line)} |" for line in lines]


def _row(entry: Any) -> Sequence[str]:
    """Return the cells of a claim's run, in the order of the columns."""
    document, run = entry.shown.document(), entry.shown.run
    values = documents.seed_values(history.histories([run.id], SEED_PREFIX)[run.id])
    bounds = claim_catalog.load(entry.name).decided_by
    decided = [
        f"{b}: between {interval[0]:.3g} and {interval[1]:.3g}" if interval else str(b)
        for b in bounds
        if b.metric in values
        for interval in [b.deciding_interval(values[b.metric])]
    ]
    trainings = documents.trainings(run.id)
    devices = {row.tags["device"].partition(",")[0] for row in trainings if "device" in row.tags}
    on = f" on {' and '.join(sorted(devices))}" * bool(devices)
    files = bundles.files([entry.name]) if run.is_project else []
    tested = ((TEST_ERROR.fullmatch(key), each) for key, each in document["metrics"].items())
    return (
        entry.name,
        document["scale"],
        ", ".join(arms(entry.name, document["scale"])),
        str(document["seeds"]),
        "; ".join(f"{arm[1] or ''} {format_mean(each)} %".strip() for arm, each in tested if arm),
        document["floor"],
        document["verdict"],
        "; ".join(decided),
        f"{format_duration(document['wall_s'])}{on}",
        run.tags["commit"],
        ", ".join(file.name for file in files),
    )


def arms(name: str, scale: str) -> list[str]:
    """Return what a claim calls the networks that it compares, without those of searches."""
    plan = stated_plan(name, scale, 1)
    return [arm for arm in plan.arms(plan.cells[0]) if ", search " not in arm]
