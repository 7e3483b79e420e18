"""Figures of studies: what is drawn of which trials, on which axes, and that pages hold all."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from pipelines.recipes import lr
from tests.tuning.sample_trials import CHANCE, errors_of, random_trials, trials
from tuning.analysis import figures, tunability

OF_COMPLETE = {"history", "ranks", "slice", "parallel"}


def conditional_error(trial: optuna.Trial) -> float:
    """As the space of schedules: families with shapes of their own, rates that diverge."""
    family = trial.suggest_categorical("schedule", ["constant", "steps", "exponential"])
    if family == "steps":
        trial.suggest_float("steps.factor", 0.05, 0.5, log=True)
    if family == "exponential":
        trial.suggest_float("exponential.final", 1e-3, 0.1, log=True)
    rate = trial.suggest_float("learning_rate", 1e-3, 1, log=True)
    trial.set_user_attr("steps", 100)
    if rate > 0.3:
        trial.set_user_attr("diverged", 20)
        return 100.0
    error = 30 + 10 * math.log10(rate / 0.03) ** 2
    for step in (50, 100):
        trial.report(error + 100 - step, step)
        if step == 50 and trial.number % 5 == 4:
            raise optuna.TrialPruned
    return error


def draw(found: list[FrozenTrial]) -> dict[str, Any]:
    """All of Optuna's figures, each of which can be written."""
    charts = figures.optuna_charts(found, tunability.measure(found, chance_pct=CHANCE))
    for chart in charts.values():
        chart.to_json()
    return charts


def test_a_search_with_conditional_parameters_is_drawn_whole() -> None:
    charts = draw(random_trials(conditional_error))
    assert charts.keys() == OF_COMPLETE | {"importances", "intermediate"}
    names = charts["parallel"].layout.xaxis.ticktext
    assert list(names) == [
        figures.ERROR,
        "learning_rate",
        "schedule",
    ]  # no family's own shape


def test_a_page_has_every_figure_and_plotly_once() -> None:
    charts = draw(errors_of(40.0, 35.0))
    page = figures.html_page("a < b", charts)
    assert "<title>a &lt; b</title>" in page
    assert page.count("plotly.js v") == 1
    assert "<script src=" not in page
    assert all(f'id="{name}"' in page for name in charts)
    assert page == figures.html_page("a < b", draw(errors_of(40.0, 35.0)))


PRUNED = {"state": TrialState.PRUNED, "intermediate_values": {10: 60.0, 20: 50.0}}
DIVERGED = {"values": [100.0], "user_attrs": {"diverged": 3}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], set()),
        (trials([{"state": TrialState.FAIL}]), set()),
        (errors_of(40.0), OF_COMPLETE),
        (errors_of(40.0, math.inf, 35.0), OF_COMPLETE),
        (trials([PRUNED] * 12), {"intermediate"}),
        (trials([DIVERGED] * 12), OF_COMPLETE - {"parallel"}),
        (errors_of(*[40.0] * 12), OF_COMPLETE),
    ],
    ids=["none", "failed", "one", "inf", "pruned", "lost", "ties"],
)
def test_what_cannot_be_drawn_is_left_out(found: list[FrozenTrial], expected: set[str]) -> None:
    assert draw(found).keys() == expected


def test_reports_that_are_not_finite_do_no_harm() -> None:
    row = {"values": [50.0], "intermediate_values": {1: math.nan, 2: math.inf, 3: 50.0}}
    assert "intermediate" in draw(trials([row] * 3))


def test_two_objectives_have_a_front_and_their_errors_are_drawn() -> None:
    rows = [{"values": [30.0 + i, 900.0 - i], "rate": 0.1 + i} for i in range(12)]
    found = trials([*rows, {"values": [100.0, 5.0], "user_attrs": {"diverged": 2}}])
    charts = draw(found)
    assert charts.keys() == OF_COMPLETE | {"importances", "pareto"}
    assert sum(len(each.x) for each in charts["pareto"].data) == 12  # the diverged is no offer
    assert charts["pareto"].layout.xaxis.title.text == figures.ERROR


@pytest.mark.parametrize("low", [0.0, 6.0])
def test_one_bad_trial_does_not_flatten_the_others(low: float) -> None:
    charts = draw(errors_of(low, 7.0, 9.0, 8.0, 100.0))
    axes = [charts["history"].layout.yaxis, charts["slice"].layout.yaxis]
    for axis in [*axes, charts["ranks"].layout.xaxis]:
        assert axis.range[0] < low
        assert 9 < axis.range[1] < 10
    assert axes[0].title.text == figures.ERROR
    assert charts["history"].layout.title.text.endswith("beyond the axis: 1, of up to 100 %")


def test_an_axis_of_like_errors_shows_them_all() -> None:
    chart = draw(errors_of(40.0, 50.0, 100.0))["history"]
    assert chart.layout.yaxis.range is None
    assert "beyond" not in chart.layout.title.text


def test_the_published_schedule_has_its_rank_among_the_errors() -> None:
    own = {"values": [35.0], "user_attrs": {"published": "paper"}}
    chart = draw(trials([own, {"values": [30.0]}, {"values": [40.0]}]))["ranks"]
    assert chart.layout.title.text.endswith("dashed: published, rank 2 of 3")
    assert chart.layout.shapes[0].x0 == pytest.approx(35.0)


def test_curves_of_several_studies_are_overlaid() -> None:
    curves = {
        label: tunability.best_of_k(np.random.default_rng(seed).uniform(20, 90, 5 + seed))
        for seed, label in enumerate(("with", "without"))
    }
    axes = figures.draw_best_of_k(curves, 40.0).axes[0]
    assert [line.get_label() for line in axes.lines] == ["with", "without", "published schedule"]
    given = figures.draw_best_of_k(curves, 40.0, "given").axes[0].lines
    assert [line.get_label() for line in given] == ["with", "without", "given schedule"]
    assert len(axes.collections) == 2  # a band each
    assert len({line.get_color() for line in axes.lines}) == 3


def test_the_ten_best_schedules_are_drawn_and_every_published_one_dashed() -> None:
    table: Callable[[int], Any] = lambda i: lr.table("linear", 0.1 + i, 50 + i)  # noqa: E731
    scheduled = [figures.Schedule(f"s{i}", table(i), 30.0 + i, i == 14) for i in range(15)]
    axes = figures.draw_schedules(scheduled[::-1]).axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert labels == [f"{30 + i:.2f} % s{i}" for i in (*range(10), 14)]
    assert [line.get_linestyle() for line in axes.lines] == ["-"] * 10 + ["--"]
    assert all(line.get_xdata()[0] >= 0 and line.get_xdata()[-1] < 1 for line in axes.lines)
