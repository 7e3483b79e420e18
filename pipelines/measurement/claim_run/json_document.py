"""A claim as one JSON document: what `run --json`, `report --json` and results.json hold of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim import SEED_PREFIX, TAGS
from pipelines.measurement.claim_run import settings_table
from pipelines.running.seed_statistics import metric_spreads, summarize
from pipelines.tracking import history

MEASURED_BY = "measured_by"  # tag of a claim: digests of the codes that measured its cells

JsonDocument = Mapping[str, Any]
Values = Mapping[str, Sequence[float]]  # keys: metrics; values: one number a seed


def stated_document(name: str) -> dict[str, Any]:
    """Return what a claim says without a run: its verdict is `not run` or `not decidable here`."""
    claim = claim_catalog.load(name)
    judgement = claim.judge({}, "smoke")
    return {
        "claim": name,
        "source": claim.source,
        "says": claim.says,
        "verdict": claim.verdict_without_run,
        "reported": dict(claim.reported),
        "metrics": {},
        **{key: judgement[key] for key in ("quotations", "bounds")},
    }


def claim_document(row: history.Row) -> dict[str, Any]:
    """Return a measured claim as users script against it; all of it read back from MLflow."""
    tags, n = row.tags, int(row.tags["seeds"])
    codes = tags.get(MEASURED_BY)
    is_sweep = tags["kind"] == "sweep"
    return {
        **stated_document(tags["claim"]),
        **{key: tags[key] for key in ("scale", *TAGS)},
        "seeds": n,
        "metrics": metric_spreads({k: v for k, v in row.metrics.items() if k != "wall_s"}, n),
        "run_id": row.id,
        "wall_s": row.metrics["wall_s"],
        "commit": tags["commit"] + (f"; measured by the codes {codes}" if codes else ""),
        "reused": False,
        **({"other_code": True} if codes else {}),
        **({"kind": "sweep", "settings": settings_table.read(row.id)} if is_sweep else {}),
    }


def judged_document(row: history.Row, values: Values, altered: bool = False) -> dict[str, Any]:
    """Return the document of a measured claim with its verdict by the rules of today.

    `values` are the numbers that it recorded. `altered`: other settings than those of its scale.
    """
    claim = claim_catalog.load(row.tags["claim"])
    return claim_document(row) | claim.judge(values, row.tags["scale"], altered)


def rejudged_document(row: history.Row, altered: bool = False) -> dict[str, Any]:
    """Return the same of a run in MLflow, which is asked for its numbers."""
    values = seed_values(history.histories([row.id], SEED_PREFIX)[row.id])
    return judged_document(row, values, altered)


def derived_document(row: history.Row, values: Values, altered: bool = False) -> dict[str, Any]:
    """Return the same with numbers that were made anew, of the cells of the run."""
    metrics = metric_spreads(summarize(values), int(row.tags["seeds"]))
    return judged_document(row, values, altered) | {"metrics": metrics}


def seed_values(histories: Mapping[str, Mapping[int, float]]) -> dict[str, list[float]]:
    """Return by metric the numbers of the seeds that a claim's run recorded, in their order."""
    return {
        key.removeprefix(SEED_PREFIX): [by_seed[seed] for seed in sorted(by_seed)]
        for key, by_seed in histories.items()
        if key.startswith(SEED_PREFIX)
    }


def are_same(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two lists hold the same numbers, but for the last bits of a fit.

    Those differ from processor to processor; 1 less a slope can be 2e-16 or 2e-14.
    """
    same_length = len(first) == len(second)
    return same_length and np.allclose(first, second, rtol=1e-9, atol=1e-14, equal_nan=True)
