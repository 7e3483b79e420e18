"""`python -m pipelines list`: claims, recipes, models, schedules, data sets on one screen.

`list claims` and `list recipes` say of each what it is about, what it costs, which data it needs.
"""

import itertools
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.runtime.plain_table import wrap_prose

PROG = "python -m pipelines"
NAME, SECOND = 35, 14  # columns of a line
WIDE = 100  # columns of a terminal with more room for data
FOOTER = f"""
Verdicts are those that the project has published.
Yours beside them:   {PROG} report
Costs and data:      {PROG} list claims; list recipes; data
All about one:       {PROG} show NAME
Run one:             {PROG} run NAME"""


def list_names() -> dict[str, list[Any]]:
    """Return the JSON document of `list`."""
    import keras_models
    from pipelines.data import datasets
    from pipelines.data.integrity import is_at_hand
    from pipelines.measurement import claim_catalog
    from pipelines.measurement.plan import stated_plan
    from pipelines.recipes import catalog, lr
    from pipelines.results.published import read_claims

    at_hand = {name: is_at_hand(name) for name in datasets.DATASETS}

    def data_state(names: Sequence[str]) -> dict[str, Any]:
        return {"data": list(names), "data_at_hand": all(at_hand[name] for name in names)}

    published = read_claims()
    claims = []
    for name in claim_catalog.names():
        claim, document = claim_catalog.load(name), published.get(name, {})
        scale = "cpu" if "cpu" in claim.scales else [*claim.scales][-1]
        claims.append(
            {
                "name": name,
                "source": claim.source,
                "says": claim.says,
                "scales": list(claim.scales),
                "costs": order_scales(claim.costs),
                "verdict": document.get("verdict", claim.verdict_without_run),
                "verdict_scale": document.get("scale", ""),
                **data_state(stated_plan(name, scale, seeds=1).data_sets),
            }
        )
    recipes = [
        {"name": name, "source": recipe.source, "scales": list(scales)}
        | {"reported": dict(recipe.reported), "costs": costs}
        | {"cost": "; ".join(f"{scale}: {cost}" for scale, cost in costs.items())}
        | data_state([recipe.data])
        for name, scales in catalog.RECIPES.items()
        for recipe in [scales["cpu"]]
        for costs in [order_scales(recipe.costs)]
    ]
    return {
        "claims": claims,
        "recipes": recipes,
        "models": keras_models.names(),
        "schedules": list(lr.SCHEDULES),
        "data": list(datasets.DATASETS),
        "data_at_hand": [name for name in at_hand if at_hand[name]],
    }


def order_scales(costs: Mapping[str, Any]) -> dict[str, str]:
    """Return costs in words by scale, the smallest scale first."""
    from pipelines.recipes.settings import SCALES

    return {scale: str(costs[scale]) for scale in SCALES if scale in costs}


def state_costs(costs: Mapping[str, Any]) -> str:
    """Return `It takes: cpu 8 s; hours 13 h.`; nothing where no cost is stated."""
    stated = "; ".join(f"{scale} {cost}" for scale, cost in costs.items())
    return f"It takes: {stated}." if stated else ""


def show(document: Mapping[str, list[Any]]) -> None:
    """Print the names in the document of `list`, claims by verdict."""
    from pipelines.measurement.verdict import VERDICTS

    longest = max(len(row["name"]) for row in document["claims"])
    for verdict in dict.fromkeys([*VERDICTS, *(row["verdict"] for row in document["claims"])]):
        names = [row["name"] for row in document["claims"] if row["verdict"] == verdict]
        if names:
            print(f"claims, {verdict}: {len(names)}")
            _print_columns(names, longest)
    recipes = [row["name"] for row in document["recipes"]]
    here = document["data_at_hand"]
    data = [name if name in here else f"{name} (not here)" for name in document["data"]]
    for title, names in {**document, "recipes": recipes, "data": data}.items():
        if title not in {"claims", "data_at_hand"}:
            print(wrap_prose(f"{title}: {', '.join(names)}", after="  "))
    print(FOOTER)


def _print_columns(names: Sequence[str], longest: int) -> None:
    """Print names of at most that length in as many columns as the terminal has room for."""
    columns = max(1, (shutil.get_terminal_size().columns - 1) // (longest + 2))
    lines = -(-len(names) // columns)
    for number in range(lines):
        print("".join(f"  {name:<{longest}}" for name in names[number::lines]).rstrip())


def show_claims(document: Mapping[str, list[Any]]) -> None:
    """Print of every claim verdict, costs and data, below it what it says; the decided first."""
    from pipelines.measurement.verdict import UNDECIDED

    _print_head("claim", "verdict")
    for row in sorted(document["claims"], key=lambda row: row["verdict"] in UNDECIDED):
        _print_row(row, row["verdict"], row["costs"], row["says"])


def show_recipes(document: Mapping[str, list[Any]]) -> None:
    """Print of every recipe what its source reports, costs and data, below it the source."""
    _print_head("recipe", "reported")
    for row in document["recipes"]:
        reported = next((f"{error_pct:g} %" for error_pct in row["reported"].values()), "")
        _print_row(row, reported, row["costs"], row["source"])


def _widths() -> tuple[int, int, int]:
    """Return the columns of the terminal, of costs and of data."""
    width = shutil.get_terminal_size().columns
    data = 13 if width < WIDE else 24
    return width, max(17, width - NAME - SECOND - data), data


def _print_head(first: str, second: str) -> None:
    """Print the names of the columns over a line."""
    width, cost, _ = _widths()
    print(f"{first:<{NAME}}{second:<{SECOND}}{'cost':<{cost}}data")
    print("─" * (width - 1))


def _print_row(row: Mapping[str, Any], second: str, costs: Mapping[str, str], about: str) -> None:
    """Print a claim or a recipe, on more lines where a column needs them."""
    from pipelines.data.datasets import DATASETS, SAMPLES

    _, cost_width, data_width = _widths()
    cost = _fold([f"{scale} {text}" for scale, text in costs.items()], cost_width)
    names = {"drawn" if DATASETS[name][0] == SAMPLES else name for name in row["data"]}
    data = _fold(sorted(names) + ["not here"] * (not row["data_at_hand"]), data_width)
    seconds = textwrap.wrap(second, SECOND - 1) or [""]
    for cells in itertools.zip_longest([row["name"]], seconds, cost, data, fillvalue=""):
        first, word, cost_text, data_text = cells
        print(f"{first:<{NAME}}{word:<{SECOND}}{cost_text:<{cost_width - 1}} {data_text}".rstrip())
    print(wrap_prose(about, "  "))


def _fold(words: Sequence[str], width: int) -> list[str]:
    """Return words on one line where there is room, else each on its own."""
    joined = ", ".join(words)
    return [joined] if len(joined) < width else list(words)
