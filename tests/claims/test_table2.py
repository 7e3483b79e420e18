"""The cells of HM Table 2 as claims: what is decided, measured, quoted and drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.claims import table2
from pipelines.claims._arms import ReportedArm
from pipelines.claims._table2_cell import extra_metrics, figure, measure
from pipelines.errors import Diverged
from pipelines.measurement import cells, claim_catalog, sweep
from pipelines.measurement.grid import Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.recipes import differences
from pipelines.recipes.catalog import RECIPES, get_recipe
from pipelines.recipes.cifar import HALF_BEST
from pipelines.recipes.recipe import Recipe
from pipelines.running.existing import Result
from pipelines.tracking import history
from tests.claims.measured import made
from tests.recipes.test_published import HM_TABLE_2

CELLS = HM_TABLE_2


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_a_claim_about_its_recipe_on_all_pictures(name: str) -> None:
    cell = claim_catalog.load(name)
    paper = cell.scales["paper"]
    assert cell.scales == {**RECIPES[paper.name], "paper": paper}
    assert paper == RECIPES[paper.name]["paper"].override(validation=False)
    assert paper.name in (name, f"{name}-footnote5", f"{name}-whitened")
    (bound,) = cell.decided_by
    assert isinstance(bound, ReportedArm)
    assert cell.reported[bound.metric] == bound.reported == CELLS[name]
    card = " ".join(claim_catalog.card(name).split())
    assert f"run {name} --scale paper" in card
    assert all(f"{scale} {cost}" in card for scale, cost in paper.costs.items())
    assert f"{CELLS[name]:g} %" in card
    assert cell.verdict({bound.metric: [0.0] * 5}, "cpu") == "not judged (smaller run)"


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_says_what_is_ours(name: str) -> None:
    card = claim_catalog.card(name)
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert rows[0] == "| setting | here | source | likely effect |"
    assert len(rows) == 2 + len(differences.DIFFERENCES[name]) > 3
    assert all(line.count(" | ") == 3 for line in rows)


@pytest.mark.parametrize("name", [name for name in CELLS if name.endswith("imagenet")])
def test_a_cell_of_imagenet_is_not_decidable_here(name: str) -> None:
    cell = claim_catalog.load(name)
    (bound,) = cell.decided_by
    assert cell.verdict({bound.metric: [bound.reported]}, "paper") == "not decidable here"
    assert cell.price in " ".join(claim_catalog.card(name).split())


def test_no_number_decides_about_a_network_that_hm_do_not_state() -> None:
    for errors in ([10.0, 10.1, 9.9], [80.0, 80.1, 79.9], [100.0] * 3):
        values = {"test_error_pct": errors}
        assert table2.ALLCONV_IMAGENET.verdict(values, "paper") == "not decidable here"


@pytest.mark.parametrize("name", CELLS)
def test_no_sentence_of_a_cell_is_accused(name: str) -> None:
    """Of none HM state all that it needs: where a number differs, it is not tested, or a slip."""
    cell = claim_catalog.load(name)
    values = {key: [99.0, 99.1, 98.9, 99.0, 99.0] for key in (*cell.reported, "parameters")}
    grades = {grade.grade for _, grade in cell.grades(values, "paper")}
    assert grades <= {"not tested", "slip"}


def test_the_claim_of_hm_s_network_is_that_of_footnote_5() -> None:
    for classes in ("10", "100"):
        paper = claim_catalog.load(f"allconv-cifar{classes}").scales["paper"]
        assert paper == get_recipe(f"allconv-cifar{classes}-footnote5", "paper")
        assert (paper.steps, paper.test_every, paper.shift) == (56_000, 1_000, 2)
    base = get_recipe("allconv-cifar10", "paper")  # what studies and comparisons start from
    assert (base.steps, base.validation, base.test_every) == (64_000, True, None)


# mean 7, sd 0.1: t(0.975, 2) = 4.3027, half width 4.3027 * 0.1 * sqrt(1 + 1/3) = 0.4968
@pytest.mark.parametrize(
    ("reported", "values", "outcome"),
    [
        (6.51, [6.9, 7.0, 7.1], "holds"),
        (6.50, [6.9, 7.0, 7.1], "broken"),
        (9.00, [6.9, 7.0, 7.1], "holds"),  # ours have a lower error: what is reported is reached
        (6.50, [6.9, 7.1], "inconclusive"),
        (6.50, [6.9], "inconclusive"),
        (7.00, [6.9, 7.0, 7.1, 100.0], "inconclusive"),
        (7.00, [6.9, 7.0, 7.1, np.nan], "inconclusive"),
        (7.00, [6.9, 7.0, 7.1, 90.0], "inconclusive"),  # a network that died
        (6.50, [6.9, 7.0, 7.1, 100.0], "broken"),
        (7.00, [100.0, 100.0, 100.0], "broken"),
    ],
)
def test_by_hand_a_reported_error_is_judged_by_the_prediction_interval(
    reported: float, values: list[float], outcome: str
) -> None:
    assert ReportedArm("error_pct", reported=reported).verdict(values) == outcome
    unknown = ReportedArm("error_pct", reported=reported, network_is_stated=False)
    assert unknown.verdict(values) == "inconclusive"


def test_by_hand_the_mean_of_five_runs_is_predicted_more_closely_than_one() -> None:
    values = [6.9, 7.0, 7.1]  # half width 4.3027 * 0.1 * sqrt(1/5 + 1/3) = 0.3142
    assert ReportedArm("error_pct", reported=6.69, runs=5).verdict(values) == "holds"
    assert ReportedArm("error_pct", reported=6.68, runs=5).verdict(values) == "broken"


def test_the_last_weights_alone_refute_nothing() -> None:
    cell = table2.ALLCONV_CIFAR10
    worse = {"test_error_pct": [9.0] * 3, "last_5_seen_test_error_pct": [9.0] * 3}
    assert cell.verdict(worse | {HALF_BEST: [6.3, 6.4, 6.5]}, "paper") == "reproduced"
    assert cell.verdict(worse | {HALF_BEST: [8.0, 8.1, 7.9]}, "paper") == "inconclusive"
    assert cell.verdict(worse | {HALF_BEST: [6.3, 100.0, 6.5]}, "paper") == "inconclusive"


class Trainer:
    """Stands in for a run in MLflow: every training errs by ten times its seed."""

    def train(self, recipe: Recipe) -> Result:
        errors = {"test_error_pct": 10.0 * recipe.seed, "final_train_error_pct": 1.0, "wall_s": 3.0}
        return Result("run", errors)


class Wild(Trainer):
    """Every training diverges."""

    def train(self, recipe: Recipe) -> Result:
        raise Diverged("The training loss must stay finite.", step=1)


def measured_by(recipe: Recipe, seed: int, trainer: Any) -> dict[str, float]:
    steps, curves = measure(recipe, seed, trainer)
    assert steps == [0]
    return {key: float(value[0]) for key, value in curves.items()}


def test_a_cell_measures_the_errors_of_a_training_with_its_own_seed() -> None:
    recipe = get_recipe("mlp-digits", "smoke").override(seed=2)
    assert measured_by(recipe, 1, Trainer()) == {
        "test_error_pct": 30.0,
        "final_train_error_pct": 1.0,
        "diverged": 0.0,
    }


def test_a_diverged_cell_errs_everywhere_and_says_so() -> None:
    found = measured_by(get_recipe("mlp-digits", "smoke").override(test_every=2), 1, Wild())
    assert found.pop("diverged") == 1
    assert {found.pop(key) for key in [k for k in found if k.endswith("_pct")]} == {100.0}
    assert np.isnan([*found.values()]).all()


def test_a_diverged_cell_has_the_numbers_of_one_that_did_not(home: Path, digits: Path) -> None:
    recipe = get_recipe("mlp-digits", "smoke").override(test_every=4, validation=False)
    document = sweep.check("allconv-cifar10", "paper", recipe, seeds=1)
    row = history.row(document["run_id"])
    assert row.tags["code"]  # by which it is found again
    assert document["verdict"] == "not judged (smaller run)"
    plan = MeasurementPlan(name="allconv-cifar10", scale="paper", settings=recipe, seeds=1)
    (cell,) = cells.read_plan(plan, row.id) or []
    assert cell.curves.keys() == measured_by(recipe, 0, Wild()).keys()
    assert 0 < document["metrics"][HALF_BEST]["mean"] < 100
    assert document["metrics"]["best_half_seen_test_step"]["mean"] in (4, 8)


def cells_of(errors: list[float]) -> list[Measured]:
    numbers = [
        {"test_error_pct": error, "final_train_error_pct": 0.5, "diverged": float(error == 100)}
        for error in errors
    ]
    return [made(each, seed=seed) for seed, each in enumerate(numbers)]


def test_the_figure_shows_every_seed_and_what_was_reported() -> None:
    measured = cells_of([7.0, 8.0, 9.0])
    (axes,) = figure(measured, [[]] * 3, "A network", {"test": 6.38}).axes
    assert [text.get_text() for text in axes.texts] == ["train 0.50 ± 0.00 %", "test 8.00 ± 1.00 %"]
    places = [
        {*each.get_offsets()[:, 0]} for each in axes.collections if len(each.get_offsets()) == 3
    ]
    assert places == [{0.5}, {7.0, 8.0, 9.0}]
    [dashed] = [each for each in axes.collections if each.get_label() == "reported"]
    assert {x for line in dashed.get_segments() for x, _ in line} == {6.38}
    assert extra_metrics(measured) == {
        "test_error_pct": 8.0,
        "final_train_error_pct": 0.5,
        "diverged": 0.0,
    }


def test_the_figure_names_the_seeds_that_diverged() -> None:
    (axes,) = figure(cells_of([7.0, 100.0, 9.0]), [[]] * 3, "A network", {}).axes
    assert "seed 1 diverged" in axes.texts[1].get_text()
    assert "8.00 ± 1.41 %" in axes.texts[1].get_text()
