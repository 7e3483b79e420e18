"""Cheap budgets: rank correlations against scipy's own, ties, regret by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from pipelines.errors import UserError
from tuning import budget_comparison

FIVE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])


def test_a_budget_that_ranks_as_the_full_one_is_perfect() -> None:
    found = budget_comparison.correlation(np.sqrt(FIVE), FIVE)
    for name in ("spearman", "top_overlap"):
        assert found[name] == pytest.approx(1)
        assert found[f"ci_high/{name}"] == pytest.approx(1)
    assert found["regret_pct"] == found["ci_low/regret_pct"] == found["ci_high/regret_pct"] == 0
    assert found["n"] == 5


def test_the_opposite_order_is_the_worst() -> None:
    found = budget_comparison.correlation(-FIVE, FIVE)
    assert found["spearman"] == pytest.approx(-1)
    assert found["top_overlap"] == 0
    assert found["regret_pct"] == 40  # 50, chosen for the least of short, against 10


def test_trials_that_diverged_are_tied() -> None:
    short, long = [100.0, 100.0, 100.0, 30.0, 20.0], [100.0, 100.0, 50.0, 25.0, 26.0]
    # Ranks 4, 4, 4, 2, 1 and 4.5, 4.5, 3, 1, 2, their mean 3: 7 / sqrt(8 * 9.5).
    assert budget_comparison.correlation(short, long)["spearman"] == pytest.approx(
        7 / math.sqrt(76)
    )
    # An error that is not finite is 100 %: tied with those, wherever it stands.
    lost = [math.inf, math.nan, 100.0, 30.0, 20.0]
    assert budget_comparison.correlation(lost, long) == budget_comparison.correlation(short, long)


def test_ties_for_the_first_place_are_broken_at_random() -> None:
    short, long = np.array([1.0, 1.0, 2.0, 3.0, 4.0]), np.array([7.0, 4.0, 5.0, 6.0, 9.0])
    assert budget_comparison.regret(short, long) == 1.5  # 3 or 0
    assert budget_comparison.top_overlap(short, long) == 0.5  # the best is kept, or is not
    alike = np.full(10, 100.0)
    assert budget_comparison.top_overlap(alike, np.arange(10.0)) == pytest.approx(
        0.2
    )  # as chance keeps


def test_top_overlap_counts_the_best_fifth() -> None:
    long = np.arange(10.0)
    short = np.array([0.0, 5.0, 1.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
    assert budget_comparison.top_overlap(short, long) == 0.5  # of settings 0 and 1 it keeps 0


def test_a_budget_at_which_all_are_equal_ranks_nothing() -> None:
    found = budget_comparison.correlation([100.0] * 5, FIVE)
    assert "spearman" not in found
    assert found["regret_pct"] == 20  # one of the five at random: 30 against 10


def test_bands_hold_the_correlation_of_the_population() -> None:
    rng = np.random.default_rng(5)
    true, hits = 6 / np.pi * np.arcsin(0.7 / 2), 0  # Spearman's of a normal pair of 0.7
    for _ in range(10):
        short, long = rng.multivariate_normal([50, 50], [[1, 0.7], [0.7, 1]], 30).T
        found = budget_comparison.correlation(short, long)
        assert found["spearman"] == stats.spearmanr(short, long).statistic
        hits += found["ci_low/spearman"] <= true <= found["ci_high/spearman"]
    assert hits >= 7  # 9 expected


@pytest.mark.parametrize(
    ("short", "long"), [([1.0] * 4, [1.0] * 4), ([1.0] * 5, [1.0] * 6), ([[1.0] * 5], [[1.0] * 5])]
)
def test_what_cannot_be_compared_is_refused(short: list[float], long: list[float]) -> None:
    with pytest.raises(UserError, match="one error each of 5 settings or more"):
        budget_comparison.correlation(short, long)


def test_the_table_has_a_row_a_share_and_no_correlation_that_does_not_exist() -> None:
    text = budget_comparison.markdown(
        {
            0.25: budget_comparison.correlation(FIVE, FIVE),
            0.5: budget_comparison.correlation([1.0] * 5, FIVE),
        }
    )
    assert "| 0.25 | 5 | 1.00 (1.00 to 1.00) |" in text
    assert "| 0.5 | 5 |  | 0.20" in text
