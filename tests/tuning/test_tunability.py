"""How hard tuning is: closed forms, valleys whose width is known, ranks by hand."""

import itertools
import math

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.tuning.sample_trials import CHANCE, at_rates, errors_of, trials, valley
from tuning.analysis import tunability


def decades(found: list[FrozenTrial]) -> float:
    return tunability.find_good(found, CHANCE).decades.value


def test_errors_stand_in_the_order_of_finishing_pruned_ones_with_their_last() -> None:
    rows = [
        {"values": [30.0], "at": 9},
        {"state": TrialState.PRUNED, "intermediate_values": {10: 70.0, 30: 55.0, 20: 60.0}},
        {"state": TrialState.FAIL},
        {"values": [math.inf]},
        {"state": TrialState.PRUNED},  # reported nothing
        {"state": TrialState.PRUNED, "intermediate_values": {10: math.nan}},
    ]
    assert tunability.finished_errors(trials(rows)).tolist() == [55.0, 100.0, 100.0, 30.0]


def test_best_of_k_is_the_mean_over_all_subsets() -> None:
    values = np.random.default_rng(0).normal(40, 5, 7)
    curve = tunability.best_of_k(values)
    subsets = [list(itertools.combinations(values, k)) for k in range(1, 8)]
    means = [np.mean([min(subset) for subset in of_k]) for of_k in subsets]
    assert curve.expected == pytest.approx(means, rel=1e-12)
    assert curve.expected[0] == pytest.approx(values.mean())
    assert curve.expected[-1] == values.min()


def test_the_band_of_best_of_k_holds_nine_searches_of_ten() -> None:
    curve = tunability.best_of_k(np.random.default_rng(1).uniform(0, 100, 1_000))
    k = np.array([1, 2, 5, 20])
    ends = [100 * (1 - (1 - share) ** (1 / k)) for share in tunability.BAND]  # of k uniform draws
    assert curve.low[k - 1] == pytest.approx(ends[0], abs=3)
    assert curve.high[k - 1] == pytest.approx(ends[1], abs=3)
    assert curve.expected[k - 1] == pytest.approx(100 / (k + 1), abs=3)


def test_best_of_k_never_rises_is_seeded_and_takes_one_trial_or_none() -> None:
    values = np.array([100.0, 30.0, 100.0, 60.0])
    first, second = tunability.best_of_k(values), tunability.best_of_k(values)
    for row in (first.expected, first.low, first.high):
        assert np.all(np.diff(row) <= 0)
    assert np.array_equal(first.high, second.high)
    alone = tunability.best_of_k(np.array([42.0]))
    assert (alone.expected, alone.low, alone.high) == ([42.0], [42.0], [42.0])
    assert tunability.best_of_k(np.array([])).expected.size == 0


@pytest.mark.parametrize("slope", [7.0, 28.0, 112.0])
def test_the_good_region_of_a_valley_is_as_wide_as_it(slope: float) -> None:
    x = np.linspace(-4, 2, 301)
    limit = 20 + tunability.TOLERANCE * (CHANCE - 20)
    found = tunability.find_good(at_rates(x, valley(slope, x)), CHANCE)
    assert found.limit_pct == limit == 27
    expected = 2 * math.sqrt(7 / slope)  # 2, 1 and 0.5 decades
    assert found.decades.value == pytest.approx(expected, abs=0.041)
    assert found.share.value == pytest.approx(expected / 6, abs=0.01)
    assert found.share.low < expected / 6 < found.share.high
    ((low, high),) = found.regions
    assert math.log10(high / low) == pytest.approx(found.decades.value)


def test_networks_that_reach_different_errors_are_compared_by_the_same_one() -> None:
    x = np.linspace(-4, 2, 301)
    better, worse = valley(28, x), valley(28, x) + 20  # good at 20 % at best, and at 40 %
    for limit, expected in ((27, (1.0, 0.0)), (47, (1.964, 1.0))):
        decades = [
            tunability.find_good(at_rates(x, errors), CHANCE, good_pct=limit).decades.value
            for errors in (better, worse)
        ]
        assert decades == pytest.approx(expected, abs=0.041)


def test_bad_trials_between_good_ones_do_not_narrow_it() -> None:
    x = np.linspace(-4, 2, 301)
    errors = np.where(np.arange(301) % 3 == 0, valley(28, x), 85)  # by their other parameters
    found = tunability.find_good(at_rates(x, errors), CHANCE)
    assert found.decades.value == pytest.approx(1, abs=0.121)
    assert found.share.value == pytest.approx(1 / 6 / 3, abs=0.01)


def test_two_valleys_add_up_without_the_ridge_between_them() -> None:
    x = np.linspace(-4, 2, 301)
    errors = np.minimum(valley(28, x, -3), valley(28, x, 0))
    found = tunability.find_good(at_rates(x, errors), CHANCE)
    assert found.decades.value == pytest.approx(2, abs=0.081)
    assert len(found.regions) == 2


def test_a_far_lucky_trial_adds_nothing() -> None:
    x = np.linspace(-2, 0, 21)
    own = decades(at_rates(x, valley(28, x)))
    far = np.append(x, 2.0)
    assert decades(at_rates(far, np.append(valley(28, x), 20.0))) == pytest.approx(own)


def test_width_by_hand() -> None:
    x = np.array([[-3.0, -2.8, -2.5, -1.9, -1.5]] * 3)
    passed = np.array(
        [[True] * 5, [True, False, True, False, True], [False, True, False, False, False]]
    )
    assert tunability.good_decades(x, passed) == pytest.approx([0.2 + 0.3 + 0.4, 0.5, 0.0])


def test_random_search_finds_the_width_of_the_valley_and_not_that_of_a_narrower_one() -> None:
    def objective(trial: optuna.Trial, slope: float) -> float:
        rate = trial.suggest_float("learning_rate", 1e-3, 1, log=True)
        return float(valley(slope, np.log10(rate), -1.5)) + trial.suggest_float("other", 0, 5)

    found = {}
    for slope in (28.0, 112.0):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(lambda trial, slope=slope: objective(trial, slope), n_trials=80)
        found[slope] = tunability.find_good(study.trials, CHANCE).decades
    assert 0.7 < found[28.0].value <= 1.1
    assert 0.3 < found[112.0].value <= 0.6
    assert found[112.0].high < found[28.0].low


def test_nothing_that_only_guesses_is_good() -> None:
    found = tunability.find_good(errors_of(90.0, 91.0, 100.0), CHANCE)
    assert found.share.value == 0
    assert found.regions == []


def test_the_rank_of_the_paper_by_hand() -> None:
    found = errors_of(30.0, 25.0, 30.0, 40.0, 50.0, user_attrs={"published": "paper"})
    paper = tunability.measure(found, chance_pct=CHANCE).paper
    assert paper is not None
    assert (paper.rank, paper.percentile) == (2, 100 * 2.5 / 4)
    # Of 25, 30, 40, 50 one is expected to be 36.25, the best of 2 (3 25 + 2 30 + 40) / 6 = 29.17.
    assert paper.trials_to_match == 2


def test_the_paper_does_not_help_to_match_itself() -> None:
    found = errors_of(20.0, 25.0, 30.0, user_attrs={"published": "paper"})
    measured = tunability.measure(found, chance_pct=CHANCE)
    assert measured.paper is not None
    assert measured.paper.rank == 1
    assert measured.paper.trials_to_match is None
    assert (measured.drawn, measured.best_pct) == (2, 20.0)
    assert measured.curve.expected.tolist() == [27.5, 25.0]


def test_other_published_schedules_are_not_the_paper_and_not_drawn() -> None:
    measured = tunability.measure(
        errors_of(20.0, 25.0, user_attrs={"published": "cosine"}), chance_pct=CHANCE
    )
    assert (measured.paper, measured.drawn) == (None, 1)
