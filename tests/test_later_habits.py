"""The habits of later years: each arm adds one to the published recipe, and gains add up."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.claims import later_habits
from pipelines.errors import UserError
from pipelines.grid import Cell, Measured
from pipelines.published import named

FOUND = {"best_changes": {"schedule": "cosine", "schedule_args": {"final": 0.0}, "momentum": 0.8}}
ERRORS = {"published": 6.5, "schedule": 6.0, "smoothing": 6.25, "ema": 6.75, "longer": 5.5}


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_each_arm_adds_one_habit_to_the_published_recipe(scale: str) -> None:
    setting = later_habits.CLAIM.scales[scale]
    published, *others = later_habits.recipes(setting, 2, FOUND).values()
    rows = [recipe.flat() for recipe in others]
    start = published.flat()
    differing = [{k for k in row | start if row.get(k) != start.get(k)} for row in rows]
    habits = [
        {"schedule", "momentum", *(k for k in rows[0] | start if k.startswith("schedule_args"))},
        {"label_smoothing"},
        {"ema"},
        {"steps"},
    ]
    assert all(found <= habit for found, habit in zip(differing, habits, strict=False))
    assert differing[-1] == set().union(*differing[:-1])
    assert {recipe.seed for recipe in (published, *others)} == {3}  # which no trial had


def test_at_paper_scale_the_first_arm_is_the_published_recipe() -> None:
    arms = later_habits.recipes(later_habits.CLAIM.scales["paper"], 0, FOUND)
    published = named("allconv-cifar10", "paper").override(seed=1)
    assert arms["published"].fingerprint == published.fingerprint


def test_a_study_without_a_schedule_is_one_sentence() -> None:
    setting = later_habits.CLAIM.scales["smoke"]
    with pytest.raises(UserError, match=r"study s, which has none\. Set --trials higher"):
        later_habits.recipes(setting, 0, {"study": "s", "best_changes": None})


def test_habits_that_no_recipe_has_are_refused_before_the_study() -> None:
    setting = later_habits.CLAIM.scales["cpu"]
    for wrong in ({"ema": 2.0}, {"label_smoothing": 1.0}, {"longer": 0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            dataclasses.replace(setting, **wrong)


def errors(together: float, more: float = 0.0) -> dict[str, float]:
    return {f"{arm}_test_error_pct": e + more for arm, e in (ERRORS | {"all": together}).items()}


def test_the_gap_is_the_sum_of_its_parts() -> None:
    gains = later_habits.gains(errors(together=5.0))
    assert gains["gain_pct"] == 1.5 == sum(gains[key] for key in later_habits.GAINS)
    assert gains["gain_ema_pct"] == -0.25  # a habit that costs
    assert gains["interaction_pct"] == 1.5 - (0.5 + 0.25 - 0.25 + 1.0)


def test_the_figure_leads_from_the_published_error_to_that_of_all(tmp_path: Path) -> None:
    measured: list[Any] = []
    for seed in range(3):
        curves = errors(together=5.0, more=0.1 * seed)
        curves |= later_habits.gains(curves)
        arrays = {key: np.array([value]) for key, value in curves.items()}
        measured.append(Measured(Cell({}, seed), np.array([0]), arrays, ""))
    picture = later_habits.figure(measured)
    (axes,) = picture.axes
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars[0] == pytest.approx((0, 6.6))
    assert bars[-1] == pytest.approx((0, 5.1))
    between = [*bars[:-1], bars[-1][::-1]]
    for (_, end), (start, _) in itertools.pairwise(between):
        assert start == pytest.approx(end)
    picture.savefig(tmp_path / "figure.png")
