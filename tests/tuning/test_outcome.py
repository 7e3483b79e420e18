"""What a study came to: published schedules counted apart, families, ties, gains in the noise."""

from typing import Any

import pytest
from optuna.trial import FrozenTrial

from pipelines.running.seed_statistics import difference_interval
from tests.tuning.sample_trials import trials
from tuning.analysis import outcome
from tuning.execution import trial_queue
from tuning.plan import Goal, StudyPlan

PLAN = StudyPlan(recipe="mlp-digits", scale="smoke")
GIVEN = StudyPlan(recipe="mlp-digits", scale="smoke", changes={"learning_rate": 0.1})
PAPER, COSINE = {"published": "paper"}, {"published": "cosine"}


def searched(*rows: tuple[float, dict[str, str]]) -> list[FrozenTrial]:
    return trials([{"values": [error], "user_attrs": attributes} for error, attributes in rows])


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is recorded here: every part of the data has 100 pictures."""
    monkeypatch.setattr(outcome, "count_examples", lambda run_id, part: 100)


def said(found: list[FrozenTrial], **metrics: float) -> str:
    gain = outcome.find_gain(PLAN, found)
    document: dict[str, Any] = {"gain": gain, "metrics": metrics, "start": PLAN.start}
    return " ".join(outcome.sentences(document))


def test_published_schedules_are_counted_apart() -> None:
    counts = outcome.count_trials(searched((9.0, PAPER), (8.0, COSINE), (7.0, {})))
    assert counts == {"published_trials": 2, "chosen_trials": 1}
    words = outcome.describe_counts(counts, "published", "tpe")
    assert words == "3 trials: 2 published schedules, 1 that tpe chose"
    given = outcome.describe_counts(counts, "given", "tpe")
    assert given == "3 trials: the given schedule and 1 published schedule, 1 that tpe chose"


@pytest.mark.parametrize(
    ("plan", "goal", "words"),
    [
        (
            PLAN,
            Goal(trials=20),
            "5 published schedules first, then 15 that tpe chooses.",
        ),
        (PLAN, Goal(trials=8), "then 3 that tpe chooses. That is few for a search; --trials 20 "),
        (PLAN, Goal(trials=5), "then 0 that tpe chooses. That is none for a search; --trials 20 "),
        (
            PLAN,
            Goal(hours=2),
            "schedules first, then as many as tpe chooses in 2 hours.",
        ),
        (GIVEN, Goal(trials=20), "20 trials: the given schedule and 4 published schedules first"),
    ],
)
def test_a_study_says_what_it_will_try(plan: StudyPlan, goal: Goal, words: str) -> None:
    assert words in trial_queue.describe(plan, goal)


def test_what_is_announced_is_what_is_tried() -> None:
    published = len(trial_queue.initial_trials(PLAN, Goal(trials=8)))
    assert f"{published} published" in trial_queue.describe(PLAN, Goal(trials=8))


def test_the_best_of_each_family_is_shown_and_ties_are_named() -> None:
    found = searched((9.0, PAPER), (7.0, {}), (7.0, {}), (8.0, COSINE))
    for trial, family in zip(found, ("steps", "linear", "linear", "cosine"), strict=True):
        trial.params["schedule"] = family
    rows = outcome.find_families(PLAN, found)
    assert [(row["family"], row["trial"], row["equal"]) for row in rows] == [
        ("linear", 1, [2]),
        ("cosine", 3, []),
        ("steps", 0, []),
    ]
    assert [outcome.cells(row)[2] for row in rows] == [
        "1; equal: 2",
        "3 (published: cosine)",
        "0 (published)",
    ]
    assert "trial 1, linear, 7.00 %. Equal: trial 2; the first that ended is taken." in said(found)


def test_a_gain_in_the_noise_is_no_gain_and_a_large_one_is_a_gain() -> None:
    noise = said(searched((9.0, PAPER), (8.0, COSINE), (7.0, {})))
    assert "trial 1 (published: cosine), 8.00 %. Gain over it: 1.00 points" in noise
    assert "no gain shown" in noise
    assert "100 validation pictures; one seed each" in noise
    assert "no gain shown" not in said(searched((60.0, PAPER), (7.0, {})))
    assert "No gain shown: no trial has a lower error" in said(searched((6.0, PAPER), (7.0, {})))
    assert "No gain shown" in said(searched((6.0, PAPER), (6.0, {})))


def test_a_search_in_which_nothing_has_learned_says_so() -> None:
    hint = "No trial has learned much: guessing has an error of 90 %."
    assert hint in said(searched((90.0, PAPER), (75.0, {})))
    assert hint not in said(searched((90.0, PAPER), (60.0, {})))


def test_without_a_published_or_a_complete_trial_there_is_no_gain() -> None:
    assert outcome.find_gain(PLAN, searched((9.0, {}))) is None
    assert outcome.find_gain(PLAN, []) is None
    assert said([]) == ""


def test_test_errors_with_new_seeds_have_their_own_interval() -> None:
    found = searched((60.0, PAPER), (7.0, {}))
    ends = {"ci_low/test_gain_pct": -1.0, "ci_high/test_gain_pct": 5.0}
    words = said(found, test_error_pct=8.0, baseline_test_error_pct=10.0, **ends)
    assert "8.00 % by the best, 10.00 % by the recipe's own schedule" in words
    assert "2.00 points, 95 % interval -1.00 to 5.00: no gain shown" in words


def test_intervals_of_seeds_are_welchs_and_of_one_seed_binomial() -> None:
    old, new = [10.0, 12.0, 14.0], [5.0, 6.0, 10.0]
    interval, basis = outcome.gain_interval(old, new, None, "test")
    assert interval == difference_interval((7.0, 7**0.5, 3), (12.0, 2.0, 3))
    assert basis == "Welch, 3 seeds each"
    interval, _ = outcome.gain_interval([20.0], [10.0], 100, "test")
    assert interval == pytest.approx((10 - 1.96 * 5, 10 + 1.96 * 5))  # sqrt(0.16 + 0.09) / 10
    assert outcome.gain_interval([20.0], [10.0], None, "test")[0] is None
    assert outcome.gain_interval([20.0] * 2, [10.0] * 2, None, "test")[0] is None
