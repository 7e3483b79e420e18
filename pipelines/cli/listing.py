"""The names of claims, recipes, architectures, schedules and data sets, as tables."""

import itertools
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROG = "python -m pipelines"
NAME, SECOND = 35, 14  # columns of a line
WIDE = 100  # columns of a terminal with more room for data
LIMIT = re.compile(r",|:| (?:on|at|for|of|after|a) ")  # what follows it is said by `show`
SHORT = {r"\bminutes?\b": "min", r"\bhours?\b": "h", r"\bseconds?\b": "s"}
FOOTER = f"""
Verdicts are those that the project has published.
Yours beside them:                     {PROG} report
Card, evidence, settings, cost of one: {PROG} show NAME
Run one:                               {PROG} run NAME"""


def list_names() -> dict[str, list[Any]]:
    """Return the JSON document of `list`."""
    import keras_models
    from pipelines.data import datasets
    from pipelines.data.integrity import is_at_hand
    from pipelines.measurement import claim_catalog
    from pipelines.measurement.plan import stated_plan
    from pipelines.recipes import catalog, lr
    from pipelines.results.published import read_rows

    at_hand = {name: is_at_hand(name) for name in datasets.DATASETS}
    published = read_rows()
    claims = [
        {"name": name, "source": claim.source, "says": claim.says}
        | {
            "scales": list(claim.scales),
            "costs": order_scales({s: str(c) for s, c in claim.costs.items()}),
        }
        | {"verdict": published.get(name, {}).get("verdict", claim.verdict_without_run)}
        | {"verdict_scale": published.get(name, {}).get("scale", "")}
        | _data_state(
            stated_plan(
                name, "cpu" if "cpu" in claim.scales else [*claim.scales][-1], seeds=1
            ).data_sets,
            at_hand,
        )
        for name in claim_catalog.names()
        for claim in [claim_catalog.load(name)]
    ]
    recipes = [
        {"name": name, "source": recipe.source, "scales": list(scales)}
        | {"reported": dict(recipe.reported), "cost": recipe.cost}
        | _data_state([recipe.data], at_hand)
        for name, scales in catalog.RECIPES.items()
        for recipe in [scales["cpu"]]
    ]
    return {
        "claims": claims,
        "recipes": recipes,
        "models": keras_models.names(),
        "schedules": list(lr.SCHEDULES),
        "data": list(datasets.DATASETS),
        "data_at_hand": [name for name in at_hand if at_hand[name]],
    }


def _data_state(names: Sequence[str], at_hand: Mapping[str, bool]) -> dict[str, Any]:
    return {"data": list(names), "data_at_hand": all(at_hand[name] for name in names)}


def order_scales(costs: Mapping[str, Any]) -> dict[str, str]:
    """Return costs in words by scale, the smallest scale first."""
    from pipelines.recipes.catalog import SCALES

    return {scale: str(costs[scale]) for scale in SCALES if scale in costs}


def split_costs(cost: str) -> dict[str, str]:
    """Return by scale what `paper: 2 GPU hours; cpu: 1 minute on 2 cores` says."""
    parts = (part.partition(": ") for part in cost.split("; ") if part)
    return order_scales({scale: text for scale, _, text in parts})


def state_costs(costs: Mapping[str, Any]) -> str:
    """Return `It takes: cpu 8 s; hours 13 h.`; nothing where no cost is stated."""
    stated = "; ".join(f"{scale} {cost}" for scale, cost in costs.items())
    return f"It takes: {stated}." if stated else ""


def show(document: Mapping[str, list[Any]]) -> None:
    """Print the document of `list`: a name with its columns, below it what it is about.

    Claims that are decided come first.
    """
    from pipelines.measurement.verdict import UNDECIDED

    columns = Columns(shutil.get_terminal_size().columns)
    columns.print_head("claim", "verdict")
    for row in sorted(document["claims"], key=lambda row: row["verdict"] in UNDECIDED):
        columns.print_row(row, row["verdict"], row["costs"], row["says"])
    print()
    columns.print_head("recipe", "reported")
    for row in document["recipes"]:
        reported = next((f"{error_pct:g} %" for error_pct in row["reported"].values()), "")
        costs = {scale: LIMIT.split(text)[0] for scale, text in split_costs(row["cost"]).items()}
        for long, unit in SHORT.items():
            costs = {scale: re.sub(long, unit, text) for scale, text in costs.items()}
        columns.print_row(row, reported, costs, row["source"])
    here = document["data_at_hand"]
    data = [name if name in here else f"{name} (not here)" for name in document["data"]]
    for title, names in {**document, "data": data}.items():
        if title in ("models", "schedules", "data"):
            print(f"\n{columns.wrap(f'{title}: ' + ', '.join(names)).strip()}")
    print(FOOTER)


@dataclass(frozen=True)
class Columns:
    """The columns of a line in a terminal: name, verdict or reported number, cost, data."""

    width: int

    @property
    def data(self) -> int:
        return 12 if self.width < WIDE else 24

    @property
    def cost(self) -> int:
        return max(18, self.width - NAME - SECOND - self.data)

    def print_head(self, first: str, second: str) -> None:
        """Print the names of the columns over a line."""
        print(self._format([first, second, "cost", "data"]))
        print("─" * (self.width - 1))

    def print_row(
        self, row: Mapping[str, Any], second: str, costs: Mapping[str, str], about: str
    ) -> None:
        """Print a claim or a recipe, on more lines where a column needs them."""
        cost = _fold([f"{scale} {text}" for scale, text in costs.items()], self.cost)
        missing = [] if row["data_at_hand"] else ["not here"]
        from pipelines.data.datasets import DATASETS, SAMPLES

        names = {"drawn" if DATASETS[name][0] == SAMPLES else name for name in row["data"]}
        data = _fold([*sorted(names), *missing], self.data)
        seconds = textwrap.wrap(second, SECOND - 1) or [""]
        for cells in itertools.zip_longest([row["name"]], seconds, cost, data, fillvalue=""):
            print(self._format(cells))
        print(self.wrap(about))

    def wrap(self, text: str) -> str:
        """Return a text that is set in."""
        return textwrap.fill(
            text,
            max(20, self.width - 1),
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )

    def _format(self, cells: Sequence[str]) -> str:
        name, second, cost, data = cells
        return f"{name:<{NAME}}{second:<{SECOND}}{cost:<{self.cost}}{data}".rstrip()


def _fold(words: Sequence[str], width: int) -> list[str]:
    """Return words on one line where there is room, else each on its own."""
    joined = ", ".join(words)
    return [joined] if len(joined) < width else list(words)
