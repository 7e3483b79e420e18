"""What is already in the database: finished runs, found by their tags."""

import math
import sys
from dataclasses import dataclass
from typing import Any

from pipelines.store import client, unavailable

LARGEST = sys.float_info.max  # what MLflow keeps for infinity
INFINITIES = {LARGEST: math.inf, -LARGEST: -math.inf}


@dataclass(frozen=True)
class Row:
    """A run as it stands in the database."""

    id: str
    name: str
    status: str
    start_ms: int
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]


def rows(status: str | None = "FINISHED", **tags: str) -> list[Row]:
    """All runs, not deleted ones, with that status (None: any) and these tags, newest first."""
    experiments = [e.experiment_id for e in client().search_experiments()]
    conditions = [f"attributes.status = '{status}'"] if status else []
    conditions += [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
    found: list[Row] = []
    token = None
    while True:
        page = client().search_runs(
            experiments,
            " and ".join(conditions),
            max_results=1_000,
            order_by=["attributes.start_time DESC"],
            page_token=token,
        )
        found += [_row(run) for run in page]
        token = page.token
        if not token:
            return found


def row(run_id: str) -> Row:
    """The run of that id."""
    return _row(client().get_run(run_id))


def find(run_id: str) -> Row | None:
    """The run of that id, or None where this store has no such run."""
    try:
        return row(run_id)
    except unavailable():
        return None


def _row(run: Any) -> Row:
    data, info = run.data, run.info
    return Row(
        info.run_id,
        info.run_name,
        info.status,
        info.start_time,
        dict(data.params),
        {key: INFINITIES.get(value, value) for key, value in data.metrics.items()},
        dict(data.tags),
    )
