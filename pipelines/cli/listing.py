"""What there is by name: claims, recipes, architectures, schedules and data sets."""

from collections.abc import Mapping
from typing import Any

PROG = "python -m pipelines"


def list_names() -> dict[str, list[Any]]:
    """The JSON document of `list`."""
    import keras_models
    from pipelines.data import datasets
    from pipelines.measurement import claim_catalog
    from pipelines.recipes import catalog, lr

    claims = {name: claim_catalog.load(name) for name in claim_catalog.names()}
    return {
        "claims": [
            {
                "name": n,
                "source": c.source,
                "says": c.says,
                "scales": list(c.scales),
                "costs": dict(c.costs),
            }
            for n, c in claims.items()
        ],
        "recipes": [
            {
                "name": n,
                "source": s["cpu"].source,
                "scales": list(s),
                "reported": dict(s["cpu"].reported),
                "cost": s["cpu"].cost,
            }
            for n, s in catalog.RECIPES.items()
        ],
        "models": keras_models.names(),
        "schedules": list(lr.SCHEDULES),
        "data": list(datasets.DATASETS),
    }


def show(document: Mapping[str, list[Any]]) -> None:
    """The same in the terminal."""
    for title, rows in document.items():
        print(f"\n{title}")
        for row in rows:
            print("  " + (row if isinstance(row, str) else _format_row(row)))
    print(f"\nRun one: {PROG} run NAME    Its settings: {PROG} run NAME --help")


def state_costs(costs: Mapping[str, str]) -> str:
    """Return `It takes: cpu 8 s; hours 13 h.`; nothing where no cost is stated."""
    stated = "; ".join(f"{scale} {cost}" for scale, cost in costs.items())
    return f"It takes: {stated}." if stated else ""


def _format_row(row: Mapping[str, Any]) -> str:
    """Return name and sentence, and below them the scales with what each costs."""
    costs = row.get("costs", {})
    scales = "; ".join(
        f"{each} ({costs[each]})" if each in costs else each for each in row["scales"]
    )
    return f"{row['name']:<31} {row.get('says') or row['source']}\n{'':<34}{scales}"
