"""What a study's report says: importances, costs, the front, metrics, Markdown."""

import math
import re
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from tests.tuning.sample_trials import CHANCE, at_rates, errors_of, random_trials, trials, valley
from tuning.analysis import importances, trial_results, tunability, tunability_report


def test_importances_are_of_what_every_trial_has() -> None:
    def objective(trial: optuna.Trial) -> float:
        strong, weak = trial.suggest_float("strong", 0, 1), trial.suggest_float("weak", 0, 1)
        if trial.suggest_categorical("family", ["a", "b"]) == "a":
            trial.suggest_float("a.shape", 0, 1)
        trial.suggest_float("fixed", 1, 1)
        return 50 * strong + 5 * weak

    found = random_trials(objective)
    shares = importances.fanova(found)
    assert next(iter(shares)) == "strong"
    assert shares.keys() == {"strong", "weak", "family"}
    assert shares["strong"] > 0.9
    assert sum(shares.values()) == pytest.approx(1)
    assert shares == importances.fanova(found)


def test_importances_say_why_there_are_none() -> None:
    def alone(trial: optuna.Trial) -> float:
        family = trial.suggest_categorical("family", ["a"])
        return trial.suggest_float(f"{family}{trial.number}", 0, 1)

    cases = {
        "needs 10 complete trials, there are 3": errors_of(1.0, 2.0, 3.0),
        "the same error": errors_of(*[100.0] * 12),
        "no parameter that varies": random_trials(alone, 12),
    }
    for why, found in cases.items():
        assert why in importances.reason_none(found)
        assert importances.fanova(found) == {}


def test_costs_count_every_trial_that_ended() -> None:
    rows = [
        {"values": [30.0], "user_attrs": {"device_s": 100.0}, "at": 3},
        {"values": [20.0], "user_attrs": {"device_s": 200.0}, "at": 2},
        {
            "state": TrialState.PRUNED,
            "intermediate_values": {1: 50.0},
            "user_attrs": {"device_s": 40.0},
            "at": 1,
        },
        {"state": TrialState.FAIL, "user_attrs": {"device_s": 20.0}, "at": 4},
        {"values": [100.0], "user_attrs": {"device_s": 4.0, "diverged": 7}, "at": 5},
    ]
    found = tunability.measure(trials(rows), chance_pct=CHANCE)
    assert found.device_h == pytest.approx(364 / 3600)
    assert found.device_h_to_best == pytest.approx(240 / 3600)
    assert found.device_s_mean == pytest.approx(364 / 5)
    assert found.best.number == 1
    assert found.diverged == 1
    assert found.states == {"COMPLETE": 3, "PRUNED": 1, "FAIL": 1}


def test_the_front_by_hand_without_the_diverged() -> None:
    pairs = [
        (30.0, 100.0),
        (20.0, 300.0),
        (25.0, 300.0),
        (20.0, 400.0),
        (60.0, 90.0),
        (31.0, 100.0),
    ]
    rows = [{"values": list(pair)} for pair in pairs]
    rows += [{"values": [100.0, 5.0], "user_attrs": {"diverged": 2}}]
    found = tunability.measure(trials(rows), chance_pct=CHANCE)
    assert [trial.number for trial in found.front] == [1, 0, 4]
    assert found.best_pct == 20
    assert "| 4 | 60.00 | 90 |" in tunability_report.markdown(found, "x")


def test_metrics_are_finite_flat_and_named_as_mlflow_allows() -> None:
    x = np.linspace(-2, 0, 21)
    measured = tunability.measure(at_rates(x, valley(28, x)), chance_pct=CHANCE)
    found = tunability_report.metrics(measured)
    assert all(math.isfinite(value) for value in found.values())
    assert all(re.fullmatch(r"(ci_low/|ci_high/)?[\w. -]+", name) for name in found)
    assert found["best_of_10_pct"] == measured.curve.expected[9]
    assert found["ci_low/best_of_10_pct"] <= found["best_of_10_pct"]
    assert found["good_rate_decades"] == measured.good.decades.value
    assert found["importance_learning_rate"] == 1
    assert {"device_hours", "paper_rank"}.isdisjoint(found)  # unknown here


def test_device_time_is_said_in_the_unit_that_suits_it() -> None:
    said = [tunability_report.device_time(seconds / 3600) for seconds in (4.2, 120, 600, 36_000)]
    assert said[:2] == ["4.2 device-seconds", "120 device-seconds"]
    assert said[2:] == ["10 device-minutes", "10 device-hours"]


def test_the_report_says_what_it_found() -> None:
    rows = [{"values": [30.0], "user_attrs": {"published": "paper", "device_s": 36.0}}]
    rows += [{"values": [25.0 + i], "rate": 0.01 * 1.1**i} for i in range(12)]
    rows += [{"values": [100.0], "rate": 1.0, "user_attrs": {"diverged": 4}}]
    measured = tunability.measure(trials(rows), chance_pct=CHANCE)
    text = tunability_report.markdown(measured, "net")
    for part in (
        "# How hard is it to tune net?",
        "14 trials (14 complete; 1 diverged); the sampler drew 13 of the 14",
        "- `learning_rate`: 1e-06 to 1e+03 (log)",
        "**Best**: 25.00 % validation error, trial 1.",
        "**Published schedule**: 30.00 %, 5.00 points more (rank 6 of 14",
        "| 13 | 25.00 | 25.00 to ",
        "**Good** is up to 31.50 %",
        "`learning_rate` 100 %",
        "**Cost**: 36 device-seconds, 36 device-seconds a trial",
        "Diverged trials count as 100 %",
    ):
        assert part in text
    assert "nan" not in text
    assert len(text) < 3_000  # one screen
    given = tunability_report.markdown(measured, "net", "given")
    assert given == text.replace("Published schedule", "Given schedule")


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"state": TrialState.FAIL}],
        [{"values": [30.0], "user_attrs": {"published": "paper"}}],
        [{"state": TrialState.PRUNED, "intermediate_values": {1: 50.0}}],
        [{"values": [100.0], "user_attrs": {"diverged": 1}}] * 12,
    ],
)
def test_studies_with_little_in_them_give_what_can_be_given(rows: list[dict[str, Any]]) -> None:
    measured = tunability.measure(trials(rows) if rows else [], chance_pct=CHANCE)
    assert all(math.isfinite(value) for value in tunability_report.metrics(measured).values())
    assert "nan" not in tunability_report.markdown(measured, "net")


def test_searched_ranges_are_told_by_how_many_trials_have_them() -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_categorical("schedule", ["steps", "cosine"]) == "steps":
            trial.suggest_float("steps.factor", 0.1, 0.5)
        return trial.suggest_float("learning_rate", 1e-3, 1, log=True)

    found = trial_results.describe_ranges(random_trials(objective, 10))
    assert list(found) == ["learning_rate", "schedule", "steps.factor"]
    assert found["learning_rate"] == "0.001 to 1 (log)"
    assert found["schedule"] == "steps | cosine"
    assert re.fullmatch(r"0.1 to 0.5, in \d of 10 trials", found["steps.factor"])
