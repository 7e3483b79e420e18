"""Later habits: each arm adds one to the published recipe at the same cost, and gains add up."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.claims import _search
from pipelines.claims.ours import later_habits
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.running.existing import Result
from tests.claims.measured import made

FOUND = {"best_changes": {"schedule": "cosine", "schedule_args": {"final": 0.0}, "momentum": 0.8}}
ERRORS = {"published": 6.5, "schedule": 6.0, "smoothing": 6.25, "ema": 6.75}


@pytest.mark.parametrize("scale", ["smoke", "cpu", "hours", "paper"])
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
    ]
    assert all(found <= habit for found, habit in zip(differing, habits, strict=False))
    assert differing[-1] == set().union(*differing[:-1])
    seeds = {recipe.seed for recipe in (published, *others)}
    assert seeds == {setting.first_seed + 3}  # which no trial had


def test_at_paper_scale_the_first_arm_is_the_published_recipe() -> None:
    arms = later_habits.recipes(later_habits.CLAIM.scales["paper"], 0, FOUND)
    published = get_recipe("allconv-cifar10", "paper").override(seed=1)
    assert arms["published"].fingerprint == published.fingerprint


def test_a_study_without_a_schedule_is_one_sentence() -> None:
    setting = later_habits.CLAIM.scales["smoke"]
    with pytest.raises(UserError, match=r"study s, which has none\. Set --trials higher"):
        later_habits.recipes(setting, 0, {"study": "s", "best_changes": None})


def test_habits_that_no_recipe_has_are_refused_before_the_study() -> None:
    setting = later_habits.CLAIM.scales["cpu"]
    for wrong in ({"ema": 2.0}, {"label_smoothing": 1.0}, {"search_steps": 0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            dataclasses.replace(setting, **wrong)


def errors(together: float, more: float = 0.0) -> dict[str, float]:
    return {f"{arm}_test_error_pct": e + more for arm, e in (ERRORS | {"all": together}).items()}


class Trainer:
    """A trainer whose trainings err as a function of their recipe says."""

    def __init__(self, error_pct: Callable[[Recipe], float]) -> None:
        self.error_pct = error_pct

    def study(self, name: str) -> None:
        assert name == "s"

    def train(self, recipe: Recipe) -> Result:
        return Result("run", {"test_error_pct": self.error_pct(recipe)})


def test_the_gap_is_the_sum_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "run_study", lambda *_: {"study": "s", **FOUND})
    setting, ends = later_habits.CLAIM.scales["smoke"], [*ERRORS.values(), 5.0]
    arms = later_habits.recipes(setting, 0, FOUND).values()
    by_arm = {recipe.fingerprint: end for recipe, end in zip(arms, ends, strict=True)}
    trainer: Any = Trainer(lambda recipe: by_arm[recipe.fingerprint])
    _, curves = later_habits.measure(setting, 0, trainer)
    gains = {key: float(column[0]) for key, column in curves.items() if "gain" in key}
    assert gains.pop("gain_pct") == 1.5
    assert gains == {"gain_schedule_pct": 0.5, "gain_smoothing_pct": 0.25, "gain_ema_pct": -0.25}
    assert curves["interaction_pct"] == 1.5 - sum(gains.values())


def verdict(
    monkeypatch: pytest.MonkeyPatch, error_pct: Callable[[Recipe], float], scale: str = "hours"
) -> str:
    """Return the verdict over three seeds whose study finds FOUND."""
    monkeypatch.setattr(_search, "run_study", lambda *_: {"study": "s", **FOUND})
    setting, values = later_habits.CLAIM.scales["hours"], dict[str, list[float]]()
    for seed in range(3):
        _, curves = later_habits.measure(setting, seed, Trainer(error_pct))  # type: ignore[arg-type]
        for key, column in curves.items():
            values.setdefault(key, []).append(float(column[0]))
    return later_habits.CLAIM.verdict(values, scale)


def test_what_only_longer_training_gains_is_not_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_length(recipe: Recipe) -> float:
        return 1e5 / (recipe.steps or 1)  # 14 % at 7,020 steps

    assert verdict(monkeypatch, by_length) == "not reproduced"


def test_habits_are_judged_by_half_a_point_and_of_networks_that_have_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def smoothing_gains(gain: float, base: float = 20.0) -> Callable[[Recipe], float]:
        return lambda recipe: base - gain * (recipe.label_smoothing > 0) + 0.01 * recipe.seed

    assert verdict(monkeypatch, smoothing_gains(0.6)) == "reproduced"
    assert verdict(monkeypatch, smoothing_gains(0.4)) == "not reproduced"
    assert verdict(monkeypatch, smoothing_gains(12.0, base=69.0)) == "not judged (smaller run)"
    assert verdict(monkeypatch, smoothing_gains(12.0, base=69.0), "paper") == "inconclusive"


def test_the_figure_shows_the_reported_error_of_the_published_training_alone() -> None:
    for scale, dashes in (("hours", 0), ("paper", 1)):
        point = dataclasses.asdict(later_habits.CLAIM.scales[scale])
        measured = [made(errors(together=5.0), point, seed=seed) for seed in range(3)]
        (axes,) = later_habits.CLAIM.figure(measured, [[]] * 3).axes
        dashed = [lines for lines in axes.collections if lines.get_label() == "reported"]
        assert len(dashed) == dashes
        texts = [text.get_text() for text in axes.texts]
        assert texts[0] == "test 6.50 ± 0.00 %"
        assert texts[-1] == "test 5.00 ± 0.00 %"
