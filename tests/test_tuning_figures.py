"""Pictures of studies: what is drawn of which trials, and that pyplot is left as it was."""

import io
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import optuna
import pytest
from matplotlib import pyplot as plt
from optuna.trial import FrozenTrial, TrialState

from pipelines import lr
from tests.searched import CHANCE, errors_of, random_trials, trials
from tuning import figures, optuna_figures, outcomes, tunability

OF_ERRORS = {"rates.png", "best_of_k.png"}
OF_COMPLETE = {"history.png", "slice.png", "parallel.png"}


def searched(trial: optuna.Trial) -> float:
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


def drawn(found: list[FrozenTrial], **more: Any) -> dict[str, Any]:
    """All figures, of which each can be written."""
    made = figures.all_of(found, tunability.measure(found, chance_pct=CHANCE), **more)
    for figure in made.values():
        figure.savefig(io.BytesIO())
    return made


def test_a_search_with_conditional_parameters_is_drawn_whole() -> None:
    found = random_trials(searched)
    tables = [figures.Schedule("cosine", lr.table("cosine", 0.1, 100), 30.0)]
    made = drawn(found, scheduled=tables)
    expected = OF_ERRORS | OF_COMPLETE | {"importances.png", "intermediate.png", "schedules.png"}
    assert made.keys() == expected
    names = [label.get_text() for label in made["parallel.png"].axes[0].get_xticklabels()]
    assert names == [optuna_figures.ERROR, "learning_rate", "schedule"]  # no family's own shape


def pruned(count: int) -> list[FrozenTrial]:
    row = {"state": TrialState.PRUNED, "intermediate_values": {10: 60.0, 20: 50.0}}
    return trials([row] * count)


def diverged(count: int) -> list[FrozenTrial]:
    return trials([{"values": [100.0], "user_attrs": {"diverged": 3}}] * count)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], set()),
        (trials([{"state": TrialState.FAIL}]), set()),
        (errors_of(40.0), OF_ERRORS | OF_COMPLETE),
        (errors_of(40.0, user_attrs={"published": "paper"}), OF_COMPLETE | {"rates.png"}),
        (errors_of(40.0, math.inf, 35.0), OF_ERRORS | OF_COMPLETE),
        (pruned(1), OF_ERRORS | {"intermediate.png"}),
        (pruned(12), OF_ERRORS | {"intermediate.png"}),
        (diverged(1), OF_ERRORS | OF_COMPLETE - {"parallel.png"}),
        (diverged(12), OF_ERRORS | OF_COMPLETE - {"parallel.png"}),
        (errors_of(*[40.0] * 12), OF_ERRORS | OF_COMPLETE),
    ],
    ids=[
        "none",
        "failed",
        "one",
        "paper",
        "inf",
        "pruned",
        "all pruned",
        "lost",
        "all lost",
        "ties",
    ],
)
def test_what_cannot_be_drawn_is_left_out(found: list[FrozenTrial], expected: set[str]) -> None:
    assert drawn(found).keys() == expected


def test_reports_that_are_not_finite_do_no_harm() -> None:
    row = {"values": [50.0], "intermediate_values": {1: math.nan, 2: math.inf, 3: 50.0}}
    assert "intermediate.png" in drawn(trials([row] * 3))


def test_without_rates_there_is_no_picture_of_them() -> None:
    found = random_trials(lambda trial: trial.suggest_float("momentum", 0, 1), 3)
    assert drawn(found).keys() == (OF_ERRORS | OF_COMPLETE) - {"rates.png"}


def test_two_objectives_have_a_front_and_their_errors_are_drawn() -> None:
    rows = [{"values": [30.0 + i, 900.0 - i], "rate": 0.1 + i} for i in range(12)]
    found = trials([*rows, {"values": [100.0, 5.0], "user_attrs": {"diverged": 2}}])
    made = drawn(found)
    assert made.keys() == OF_ERRORS | OF_COMPLETE | {"importances.png", "pareto.png"}
    points = [len(each.get_offsets()) for each in made["pareto.png"].axes[0].collections]
    assert sum(points) == 12  # the diverged one costs little, and is no offer


def test_trials_keep_their_numbers_among_failed_ones() -> None:
    rows = [{"state": TrialState.FAIL}, {"values": [40.0]}, {"values": [30.0]}]
    axes = drawn(trials(rows))["history.png"].axes[0]
    assert [x for x, _ in axes.collections[0].get_offsets()] == [1, 2]


def test_pyplot_is_left_as_it_was(recwarn: pytest.WarningsRecorder) -> None:
    found, own = random_trials(searched, 12), plt.figure()
    before = dict(mpl.rcParams), list(warnings.filters)
    backend = mpl.get_backend()
    drawn(found)
    assert before == (dict(mpl.rcParams), list(warnings.filters))
    assert mpl.get_backend() == backend
    assert plt.get_fignums() == [own.number]
    assert plt.gcf() is own
    assert not recwarn.list
    plt.close(own)


@pytest.mark.slow
def test_nothing_leaks_across_calls() -> None:
    import gc

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(each), mpl.figure.Figure) for each in gc.get_objects())

    found = random_trials(searched, 12)
    drawn(found)
    before = alive()
    for _ in range(3):
        drawn(found)
    assert alive() <= before
    assert plt.get_fignums() == []


def test_the_region_of_good_rates_is_shaded() -> None:
    found = random_trials(searched)
    measured = tunability.measure(found, chance_pct=CHANCE)
    axes = figures.rates(found, measured).axes[0]
    ((low, high),) = measured.good.regions
    (shade,) = axes.patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((low, high))
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks.count("x") == sum(outcomes.diverged(trial) for trial in found)


def test_curves_of_several_studies_are_overlaid() -> None:
    curves = {
        label: tunability.best_of_k(np.random.default_rng(seed).uniform(20, 90, 5 + seed))
        for seed, label in enumerate(("with", "without"))
    }
    axes = figures.best_of_k(curves, 40.0).axes[0]
    assert [line.get_label() for line in axes.lines] == ["with", "without", "published schedule"]
    given = figures.best_of_k(curves, 40.0, "given").axes[0].lines
    assert [line.get_label() for line in given] == ["with", "without", "given schedule"]
    assert len(axes.collections) == 2  # a band each
    assert len({line.get_color() for line in axes.lines}) == 3


def test_the_ten_best_schedules_are_drawn_and_every_published_one_dashed() -> None:
    table: Callable[[int], Any] = lambda i: lr.table("linear", 0.1 + i, 50 + i)  # noqa: E731
    scheduled = [figures.Schedule(f"s{i}", table(i), 30.0 + i, i == 14) for i in range(15)]
    axes = figures.schedules(scheduled[::-1]).axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert labels == [f"{30 + i:.2f} % s{i}" for i in (*range(10), 14)]
    assert [line.get_linestyle() for line in axes.lines] == ["-"] * 10 + ["--"]
    assert all(line.get_xdata()[0] >= 0 and line.get_xdata()[-1] < 1 for line in axes.lines)
    assert sys.modules["matplotlib.pyplot"].get_fignums() == []
