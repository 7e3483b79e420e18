"""The names of claims, recipes, architectures, schedules and data sets."""

from collections.abc import Mapping
from typing import Any

PROG = "python -m pipelines"


def list_names() -> dict[str, list[Any]]:
    """Return the JSON document of `list`."""
    import keras_models
    from pipelines.data import datasets
    from pipelines.measurement import claim_catalog
    from pipelines.recipes import catalog, lr

    claims = [
        {"name": name, "source": claim.source, "says": claim.says}
        | {"scales": list(claim.scales), "costs": dict(claim.costs)}
        for name in claim_catalog.names()
        for claim in [claim_catalog.load(name)]
    ]
    recipes = [
        {"name": name, "source": recipe.source, "scales": list(scales)}
        | {"reported": dict(recipe.reported), "cost": recipe.cost}
        for name, scales in catalog.RECIPES.items()
        for recipe in [scales["cpu"]]
    ]
    return {
        "claims": claims,
        "recipes": recipes,
        "models": keras_models.names(),
        "schedules": list(lr.SCHEDULES),
        "data": list(datasets.DATASETS),
    }


def show(document: Mapping[str, list[Any]]) -> None:
    """Print the document of `list`."""
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
