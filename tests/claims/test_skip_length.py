"""The three networks of LY Table 1: their pictures, what decides them, what is quoted."""

from typing import Any

import numpy as np
import pytest

from pipelines.claims.li_yuan.skip_length import CLAIM, REPORTED, recipes
from pipelines.recipes import differences
from pipelines.recipes.catalog import get_recipe

GAPS = {"single_minus_two_layer_pct": [2.0] * 5, "vanilla_minus_single_pct": [3.0] * 5}
SPREAD = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])  # sd 0.1581


def grade(**shifts: float) -> str:
    """Return what becomes of LY's numbers at paper scale, of errors so far above them."""
    errors = {name: [*(pct + SPREAD + shifts.get(name, 0.0))] for name, pct in REPORTED.items()}
    assert CLAIM.outcome(GAPS | errors, "paper") == "holds"  # the order alone decides
    [(_, found)] = CLAIM.grades(GAPS | errors, "paper")
    return found.grade


def test_at_paper_scale_they_train_on_all_pictures_and_else_keep_some() -> None:
    for scale, setting in CLAIM.scales.items():
        for arm, recipe in recipes(setting, 0).items():
            assert recipe.validation == (scale != "paper")
            published = get_recipe(f"skip56-{arm.replace('_', '-')}", "paper")
            if scale == "paper":
                assert recipe.override(validation=True).fingerprint == published.fingerprint


# t(0.975, 4) = 2.7764: half width 2.7764 * 0.1581 * sqrt(1/5 + 1/5) = 0.2776
@pytest.mark.parametrize("name", REPORTED)
def test_by_hand_a_number_is_judged_by_the_mean_of_five_more_runs(name: str) -> None:
    assert grade(**{name: 0.27}) == "holds"
    assert grade(**{name: 0.29}) == "not tested"
    assert grade(**{name: -2.0}) == "holds"


def test_a_network_that_diverged_reproduces_nothing() -> None:
    errors: dict[str, Any] = {name: [pct] * 5 for name, pct in REPORTED.items()}
    errors["vanilla_test_error_pct"][2] = np.nan
    gaps = GAPS | {"vanilla_minus_single_pct": [3.0, 3.0, np.nan, 3.0, 3.0]}
    assert CLAIM.outcome(gaps | errors, "paper") == "inconclusive"


def test_what_ly_print_is_not_accused_for_they_state_no_training() -> None:
    (quotation,) = CLAIM.printed
    assert quotation.unstated
    worse = {name: [2 * pct] * 5 for name, pct in REPORTED.items()}
    right = {name: [pct] * 5 for name, pct in REPORTED.items()}
    for errors, scale, expected in (
        (worse, "paper", "not tested"),
        (right, "paper", "holds"),
        (right, "hours", "not tested"),  # narrower networks, fewer steps
    ):
        [(_, found)] = CLAIM.grades(GAPS | errors, scale)
        assert found.grade == expected


def test_the_card_has_the_table_and_what_others_found() -> None:
    assert differences.table("skip-length") in CLAIM.card
    assert "9.90 % with skips of one" in CLAIM.card
