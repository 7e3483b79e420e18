"""The cells of HM Table 2 as claims: what is decided, measured and drawn."""

import numpy as np
import pytest

from pipelines.claims import table2
from pipelines.errors import Diverged
from pipelines.measurement import claim_catalog
from pipelines.measurement.grid import Cell, Measured
from pipelines.recipes.catalog import RECIPES, get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.run import Result
from tests.recipes.test_published import HM_TABLE_2


@pytest.mark.parametrize("name", HM_TABLE_2)
def test_a_cell_is_a_claim_about_its_recipe(name: str) -> None:
    cell = claim_catalog.load(name)
    assert cell.scales == RECIPES[name]
    assert cell.reported == get_recipe(name).reported
    (bound,) = cell.decided_by
    assert bound.at_most == pytest.approx(1.05 * HM_TABLE_2[name])
    assert f"run {name} --scale paper" in claim_catalog.card(name)
    assert get_recipe(name).cost in " ".join(claim_catalog.card(name).split())
    assert f"{HM_TABLE_2[name]:g} %" in claim_catalog.card(name)
    assert cell.seeds == (1 if name.endswith("imagenet") else 5)
    assert cell.outcome({"test_error_pct": [0.0, 0.0]}, "cpu") == "smaller scale"


class Bench:
    """Stands in for a run in MLflow: every training errs by ten times its seed."""

    def train(self, recipe: Recipe) -> Result:
        errors = {"test_error_pct": 10.0 * recipe.seed, "final_train_error_pct": 1.0, "wall_s": 3.0}
        return Result("run", errors)


def test_a_cell_measures_the_errors_of_a_training_with_its_own_seed() -> None:
    recipe = get_recipe("mlp-digits", "smoke").override(seed=2)
    steps, curves = table2.measure(recipe, 1, Bench())  # type: ignore[arg-type]
    assert steps == [0]
    assert {key: float(value[0]) for key, value in curves.items()} == {
        "test_error_pct": 30.0,
        "final_train_error_pct": 1.0,
    }


def test_a_diverged_cell_errs_everywhere() -> None:
    class Wild(Bench):
        def train(self, recipe: Recipe) -> Result:
            raise Diverged("The training loss must stay finite.", step=1)

    _, curves = table2.measure(get_recipe("mlp-digits", "smoke"), 1, Wild())  # type: ignore[arg-type]
    assert {float(value[0]) for value in curves.values()} == {100.0}


def test_the_figure_shows_every_seed_and_what_was_reported() -> None:
    measured = [
        Measured(
            Cell({}, seed),
            np.zeros(1, np.int64),
            {"test_error_pct": np.array([7.0 + seed]), "final_train_error_pct": np.array([0.5])},
            "run",
        )
        for seed in range(3)
    ]
    (axes,) = table2.figure(measured, [[]] * 3, "A network", 6.38).axes
    assert [text.get_text() for text in axes.texts] == [
        "train 0.50 ± 0.00 %",
        "test 8.00 ± 1.00 %",
    ]
    places = [
        {*each.get_offsets()[:, 0]} for each in axes.collections if len(each.get_offsets()) == 3
    ]
    assert places == [{0.5}, {7.0, 8.0, 9.0}]
    [dashed] = [each for each in axes.collections if each.get_label() == "reported"]
    assert {x for line in dashed.get_segments() for x, _ in line} == {6.38}
    assert table2.extra_metrics(measured) == {"final_train_error_pct": 0.5}
