"""Verdicts: Student intervals against a printed table, and which way each case is decided."""

import math

import pytest

from pipelines.measurement.verdict import OUTCOMES, Bound, LearningLimit, ReportedError
from pipelines.running.seed_statistics import (
    format_difference,
    format_mean,
    mean_interval,
    metric_spreads,
    prediction_interval,
    standard_deviation,
    summarize,
)

NAN, INF = math.nan, math.inf
PREDICTED = "95 % prediction interval"


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        # The 95 % quantiles of Student's t are 6.313752, 2.919986 and 2.131847 for 1, 2 and 4
        # degrees of freedom.
        ([1.0, 3.0], 2 - 6.313752, 2 + 6.313752),  # sd sqrt 2, over sqrt 2
        ([1.0, 2.0, 3.0], 2 - 1.685854, 2 + 1.685854),  # sd 1, over sqrt 3
        ([1.0, 2.0, 3.0, 4.0, 5.0], 3 - 1.507443, 3 + 1.507443),  # sd sqrt 2.5, over sqrt 5
        ([4.0, 4.0, 4.0], 4.0, 4.0),
        ([0.3], -INF, INF),  # one value says nothing of the mean
    ],
)
def test_interval_by_hand(values: list[float], low: float, high: float) -> None:
    assert mean_interval(values) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 3.0], math.sqrt(2)),
        ([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], math.sqrt(32 / 7)),
        ([5.0], NAN),
    ],
)
def test_deviation_divides_by_n_minus_1(values: list[float], expected: float) -> None:
    assert standard_deviation(values) == pytest.approx(expected, rel=1e-15, nan_ok=True)


EQUAL = Bound("difference", at_least=-0.5, at_most=0.5)
MEAN_2 = [1.0, 2.0, 3.0]  # interval 0.314 .. 3.686


@pytest.mark.parametrize(
    ("bound", "values", "expected"),
    [
        (Bound("x", at_most=3.7), MEAN_2, "holds"),
        (Bound("x", at_most=3.6), MEAN_2, "inconclusive"),
        (Bound("x", at_most=0.4), MEAN_2, "inconclusive"),
        (Bound("x", at_most=0.3), MEAN_2, "broken"),
        (Bound("x", at_least=0.3), MEAN_2, "holds"),
        (Bound("x", at_least=0.4), MEAN_2, "inconclusive"),
        (Bound("x", at_least=3.6), MEAN_2, "inconclusive"),
        (Bound("x", at_least=3.7), MEAN_2, "broken"),
        (Bound("x", at_least=0.3, at_most=3.7), MEAN_2, "holds"),
        (Bound("x", at_least=0.3, at_most=3.0), MEAN_2, "inconclusive"),
        (Bound("x", at_least=1.0, at_most=3.0), MEAN_2, "inconclusive"),
        (Bound("x", at_least=3.7, at_most=9.0), MEAN_2, "broken"),
        (Bound("x", at_least=-9.0, at_most=0.3), MEAN_2, "broken"),
        # two one-sided tests: a small difference that is not known well is not an equality
        (EQUAL, [0.1, -0.1, 0.05], "holds"),
        (EQUAL, [2.0, -2.0, 0.0], "inconclusive"),
        (EQUAL, [1.0, 1.1, 0.9], "broken"),
        # one seed has no interval
        *(
            (bound, [value], "inconclusive")
            for bound in (Bound("x", at_most=1.0), Bound("x", at_least=1.0))
            for value in (-1e9, 0.5, 1e9)
        ),
    ],
)
def test_the_interval_of_the_mean_decides(bound: Bound, values: list[float], expected: str) -> None:
    assert bound.verdict(values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 1.0, 0.9], "holds"),
        ([1.0], "holds"),
        ([0.5, 1.0 + 1e-12, 0.9], "broken"),
        ([-0.1, 0.5], "broken"),
    ],
)
def test_a_theorem_is_refuted_by_one_counterexample(values: list[float], expected: str) -> None:
    assert Bound("x", at_least=0.0, at_most=1.0, every=True).verdict(values) == expected


def test_without_every_one_outlier_does_not_refute() -> None:
    values = [0.1, 0.2, 0.1, 0.2, 1.1]
    assert Bound("x", at_most=1.0).verdict(values) == "holds"
    assert Bound("x", at_most=1.0, every=True).verdict(values) == "broken"


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("others", [[], [0.5, 0.5]])
def test_a_number_that_is_not_finite_refutes(bad: float, every: bool, others: list[float]) -> None:
    bound = Bound("x", at_least=-10.0, at_most=10.0, every=every)
    assert bound.verdict([*others, bad]) == "broken"
    assert bound.verdict([bad, *others]) == "broken"


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 1e-8, 123.456])
def test_equal_values_on_the_bound_satisfy_it(value: float) -> None:
    # Summed one after the other, 0.1 + 0.1 + 0.1 exceeds 0.3 and its third exceeds 0.1.
    for n in (2, 3, 6, 7, 10):
        assert mean_interval([value] * n) == (value, value)
        assert Bound("x", at_most=value).verdict([value] * n) == "holds"
        assert Bound("x", at_least=value).verdict([value] * n) == "holds"


def test_five_in_a_hundred_true_claims_are_refuted() -> None:
    import numpy as np

    # The true mean lies on the bound: each one-sided test errs with probability 1 - 0.95.
    samples = np.random.default_rng(0).normal(1.0, 0.3, (4_000, 5))
    verdicts = [Bound("x", at_most=1.0).verdict(row.tolist()) for row in samples]
    # Of 4,000, 200 are expected on each side; the standard deviation is 13.8.
    assert verdicts.count("broken") == pytest.approx(200, abs=4 * 13.8)
    assert verdicts.count("holds") == pytest.approx(200, abs=4 * 13.8)


@pytest.mark.parametrize(
    ("bound", "sentence"),
    [
        (Bound("ratio", at_most=1.0, every=True), "ratio <= 1 for every seed"),
        (Bound("gap", at_least=0.25), "gap >= 0.25"),
        (Bound("gap", at_least=-1.0, at_most=1e-9), "gap <= 1e-09 and >= -1"),
        (ReportedError("x", reported=6.43), f"x <= 6.43, by the {PREDICTED} of one more run"),
        (
            ReportedError("x", reported=6.97, runs=5),
            f"x <= 6.97, by the {PREDICTED} of the mean of 5 more runs",
        ),
    ],
)
def test_a_bound_reads_as_a_rule(bound: Bound, sentence: str) -> None:
    assert str(bound) == sentence


def test_outcomes_are_ordered_from_the_weakest() -> None:
    # A claim with several bounds takes the first of its outcomes in this order.
    assert OUTCOMES == ("broken", "inconclusive", "holds")


def test_prediction_interval_by_hand() -> None:
    # sd 1, n = 3: t(0.975, 2) = 4.302653; one more run, and the mean of two more
    assert prediction_interval([1.0, 2.0, 3.0]) == pytest.approx(
        (2 - 4.968275, 2 + 4.968275), abs=1e-6
    )
    half = 4.302653 * math.sqrt(1 / 2 + 1 / 3)
    assert prediction_interval([1.0, 2.0, 3.0], runs=2) == pytest.approx(
        (2 - half, 2 + half), abs=1e-6
    )
    assert prediction_interval([1.0]) == (-INF, INF)


# five runs of mean 6.61 and deviation 0.16, as He et al. report of their ResNet-110
THEIRS = [6.61 + 0.16 * each for each in (-1.0, -1.0, 0.0, 1.0, 1.0)]


def test_the_authors_own_five_runs_reproduce_their_best() -> None:
    assert standard_deviation(THEIRS) == pytest.approx(0.16)
    best = ReportedError("x", reported=6.43)
    assert best.verdict(THEIRS) == "holds"
    assert mean_interval(THEIRS)[1] > 1.05 * 6.43  # which 5 % of the reported one refused
    assert ReportedError("x", reported=6.0).verdict(THEIRS) == "broken"  # no run of theirs
    assert ReportedError("x", reported=6.61, runs=5).verdict(THEIRS) == "holds"
    assert ReportedError("x", reported=6.2, runs=5).verdict(THEIRS) == "broken"


def test_errors_below_the_reported_one_reach_it_and_two_runs_decide_nothing() -> None:
    assert ReportedError("x", reported=9.0).verdict(THEIRS) == "holds"
    assert ReportedError("x", reported=6.43).verdict(THEIRS[:2]) == "inconclusive"
    assert ReportedError("x", reported=6.43).verdict([*THEIRS, NAN]) == "broken"


def test_summary_has_mean_deviation_number_and_interval() -> None:
    summary = summarize({"loss": [1.0, 2.0, 6.0], "error": [0.5]})
    half = 2.919985580 * math.sqrt(7) / math.sqrt(3)  # Student's 95 % quantile, 2 degrees
    assert summary == {
        "loss": 3.0,
        "n/loss": 3,
        "sd/loss": pytest.approx(math.sqrt(7)),
        "ci_low/loss": pytest.approx(3 - half),
        "ci_high/loss": pytest.approx(3 + half),
        "error": 0.5,
        "n/error": 1,
    }
    assert summarize({}) == {}
    diverged = summarize({"loss": [1.0, NAN]})
    assert math.isnan(diverged["loss"]) and math.isnan(diverged["sd/loss"])


def test_spreads_read_back_what_summary_made() -> None:
    columns = {"loss": [1.0, 2.0, 6.0], "error": [0.5]}
    spreads = metric_spreads(summarize(columns), 9)
    assert spreads.keys() == columns.keys()
    assert (spreads["loss"]["mean"], spreads["loss"]["n"], spreads["error"]["n"]) == (3.0, 3, 1)
    assert (spreads["loss"]["ci_low"], spreads["loss"]["ci_high"]) == mean_interval(columns["loss"])
    assert spreads["error"]["sd"] is spreads["error"]["ci_low"] is None
    assert metric_spreads({"error": 0.5}, 1)["error"]["n"] == 1


def test_the_best_arm_must_meet_the_limit() -> None:
    limit = LearningLimit(("a", "b"), at_most=27.0)
    assert limit.is_met({"a": [90.0, 90.0], "b": [26.0, 28.0]})
    assert not limit.is_met({"a": [90.0, 90.0], "b": [27.0, 28.0]})
    assert not limit.is_met({"other": [1.0]})
    assert limit.state({"a": [57.25, 57.35], "b": [60.0, 60.0]}) == "no, 57.3, limit 27"


@pytest.mark.parametrize(
    ("mean", "sd", "said"),
    [
        (432.4, 178.0, "432 ± 180"),
        (0.4678, 0.0372, "0.468 ± 0.037"),
        (5.04, 1.62, "5.0 ± 1.6"),
        (9.96, 0.0996, "9.96 ± 0.10"),  # its first digit moves when it is rounded
        (115_272.0, 0.0, "115,272"),
        (2.408e-9, 1.34e-9, "2.4e-09 ± 1.3e-09"),
        (0.0, 2e-17, "0.0e+00 ± 2.0e-17"),
        (3.0, 1e-9, "3 ± 1e-09"),
        (math.nan, math.nan, "nan"),
    ],
)
def test_a_mean_is_rounded_to_the_second_digit_of_its_deviation(
    mean: float, sd: float, said: str
) -> None:
    assert format_mean({"mean": mean, "sd": sd}) == said


@pytest.mark.parametrize(
    ("value", "interval", "said"),
    [
        (-1.9777, (-5.37, 1.412), ("-2.0", "-5.4 to +1.4")),
        (85.0, (81.3, 88.7), ("+85.0", "+81.3 to +88.7")),
        (-0.0657, (-0.124, -0.00758), ("-0.066", "-0.124 to -0.008")),
        (2e-9, (1e-9, 3e-9), ("+2e-09", "+1e-09 to +3e-09")),
        (1.5, (1.5, 1.5), ("+1.5", "+1.5 to +1.5")),
        (500.0, (-300.0, 1300.0), ("+500", "-300 to +1,300")),
    ],
)
def test_a_difference_and_the_ends_of_its_interval_have_the_same_digits(
    value: float, interval: tuple[float, float], said: tuple[str, str]
) -> None:
    assert format_difference(value, *interval) == said
