"""Cheap budgets: rank correlations against scipy's own, ties, regret by hand, curves of studies."""

import io
import math

import numpy as np
import optuna
import pytest
from scipy import stats

from pipelines.errors import UserError
from tuning import budgets

FIVE = np.array([10.0, 20.0, 30.0, 40.0, 50.0])


def test_a_budget_that_ranks_as_the_full_one_is_perfect() -> None:
    found = budgets.correlation(np.sqrt(FIVE), FIVE)
    for name in ("spearman", "kendall", "top_overlap"):
        assert found[name] == pytest.approx(1)
        assert found[f"ci_high/{name}"] == pytest.approx(1)
    assert found["regret_pct"] == found["ci_low/regret_pct"] == found["ci_high/regret_pct"] == 0
    assert found["n"] == 5


def test_the_opposite_order_is_the_worst() -> None:
    found = budgets.correlation(-FIVE, FIVE)
    assert found["spearman"] == pytest.approx(-1)
    assert found["kendall"] == pytest.approx(-1)
    assert found["top_overlap"] == 0
    assert found["regret_pct"] == 40  # 50, chosen for the least of short, against 10


def test_trials_that_diverged_are_tied() -> None:
    short, long = [100.0, 100.0, 100.0, 30.0, 20.0], [100.0, 100.0, 50.0, 25.0, 26.0]
    # Of 10 pairs: tied in short 3, in long 1 of these; concordant 6, discordant 1.
    assert budgets.correlation(short, long)["kendall"] == pytest.approx(5 / math.sqrt(7 * 9))
    # An error that is not finite is 100 %: tied with those, wherever it stands.
    lost = [math.inf, math.nan, 100.0, 30.0, 20.0]
    assert budgets.correlation(lost, long) == budgets.correlation(short, long)


def test_ties_for_the_first_place_are_broken_at_random() -> None:
    short, long = np.array([1.0, 1.0, 2.0, 3.0, 4.0]), np.array([7.0, 4.0, 5.0, 6.0, 9.0])
    assert budgets.regret(short, long) == 1.5  # 3 or 0
    assert budgets.top_overlap(short, long) == 0.5  # the best is kept, or is not
    alike = np.full(10, 100.0)
    assert budgets.top_overlap(alike, np.arange(10.0)) == pytest.approx(0.2)  # as chance keeps


def test_top_overlap_counts_the_best_fifth() -> None:
    long = np.arange(10.0)
    short = np.array([0.0, 5.0, 1.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])
    assert budgets.top_overlap(short, long) == 0.5  # of settings 0 and 1 it keeps 0


def test_a_budget_at_which_all_are_equal_ranks_nothing() -> None:
    found = budgets.correlation([100.0] * 5, FIVE)
    assert found.keys().isdisjoint({"spearman", "kendall"})
    assert found["regret_pct"] == 20  # one of the five at random: 30 against 10


def test_bands_hold_the_correlation_of_the_population() -> None:
    rng = np.random.default_rng(5)
    true, hits = 6 / np.pi * np.arcsin(0.7 / 2), 0  # Spearman's of a normal pair of 0.7
    for _ in range(10):
        short, long = rng.multivariate_normal([50, 50], [[1, 0.7], [0.7, 1]], 30).T
        found = budgets.correlation(short, long)
        assert found["spearman"] == stats.spearmanr(short, long).statistic
        hits += found["ci_low/spearman"] <= true <= found["ci_high/spearman"]
    assert hits >= 7  # 9 expected


@pytest.mark.parametrize(
    ("short", "long"), [([1.0] * 4, [1.0] * 4), ([1.0] * 5, [1.0] * 6), ([[1.0] * 5], [[1.0] * 5])]
)
def test_what_cannot_be_compared_is_refused(short: list[float], long: list[float]) -> None:
    with pytest.raises(UserError, match="one error each of 5 settings or more"):
        budgets.correlation(short, long)


def crossing(slow: float, trial: optuna.Trial) -> float:
    """Settings that are good early are bad late: error (1 - t) x + t (1 - x), times 80 %."""
    x = trial.suggest_float("x", 0, 1)
    trial.set_user_attr("steps", 400 if x < slow else 800)
    for t in (0.25, 0.5, 0.75, 1.0):
        error = 80 * ((1 - t) * x + t * (1 - x))
        trial.report(error, int(t * trial.user_attrs["steps"]))
    return error


def curves(slow: float) -> optuna.Study:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: crossing(slow, trial), n_trials=12)
    return study


@pytest.mark.parametrize("slow", [0.0, 0.5])  # equal lengths; of two lengths, by their shares
def test_curves_that_cross_turn_the_ranks_around(slow: float) -> None:
    found = budgets.from_curves(curves(slow).trials)
    assert list(found) == [0.25, 0.5, 0.75, 1.0]
    assert found[0.25]["spearman"] == pytest.approx(-1)
    assert "spearman" not in found[0.5]  # where they cross, all are equal
    assert found[0.75]["spearman"] == pytest.approx(1)
    assert found[1.0]["kendall"] == pytest.approx(1)


def test_curves_know_when_a_trial_diverged_and_leave_out_pruned_ones() -> None:
    study = curves(0.0)

    def diverges(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.set_user_attr("steps", 800)
        trial.set_user_attr("diverged", 300)
        trial.report(0.0, 200)
        return 100.0

    def is_pruned(trial: optuna.Trial) -> float:
        trial.set_user_attr("steps", 800)
        trial.report(0.0, 200)
        raise optuna.TrialPruned

    study.optimize(diverges, n_trials=1)
    study.optimize(is_pruned, n_trials=1)
    found = budgets.from_curves(study.trials)
    assert [found[share]["n"] for share in found] == [13] * 4
    assert found[0.25]["regret_pct"] == 100 - study.best_value  # it was the best at first
    assert found[0.75]["spearman"] == pytest.approx(1)  # 100 % from step 300 on


def test_too_few_curves_say_nothing() -> None:
    assert budgets.from_curves(curves(0.0).trials[:4]) == {}
    assert "takes 5 complete trials" in budgets.markdown({}, {})
    budgets.figure({}, {}).savefig(io.BytesIO())


def test_the_picture_and_the_table_have_both_kinds() -> None:
    mid_run = budgets.from_curves(curves(0.0).trials)
    short_runs = {0.25: budgets.correlation(FIVE, FIVE), 0.5: budgets.correlation([1.0] * 5, FIVE)}
    axes = budgets.figure(mid_run, short_runs).axes[0]
    by_label = {line.get_label(): line for line in axes.lines}
    assert list(by_label["value in mid-run"].get_xdata()) == [0.25, 0.75, 1.0]
    assert list(by_label["separate short run"].get_xdata()) == [0.25]  # none at 0.5, in both
    text = budgets.markdown(mid_run, short_runs)
    assert "| separate short run | 0.25 | 5 | 1.00 (1.00 to 1.00) |" in text
    assert "| separate short run | 0.5 | 5 |  |  | 0.20" in text
