"""Random unit vectors: the circle and the sphere by hand, moments of the count, the least k."""

import numpy as np
import pytest

from theory.unit_vectors import (
    count_pairs,
    expected_pairs,
    logarithm_factor,
    needed_dimension,
    random_unit_vectors,
    reaching_probability,
)


def test_probabilities_by_hand():
    # on a circle the angle is uniform: within 60 degrees of 180; on a sphere <u, v> is uniform
    assert reaching_probability(2) == pytest.approx(1 / 3)
    assert reaching_probability(3) == pytest.approx(1 / 4)
    np.testing.assert_allclose(reaching_probability([2, 5, 50], 0.0), 1 / 2)
    # R^4 has density 2/pi sqrt(1 - x^2) of the inner product
    x = np.linspace(0.3, 1, 200_001)
    area = np.trapezoid(2 / np.pi * np.sqrt(1 - x**2), x)
    assert reaching_probability(4, 0.3) == pytest.approx(area, abs=1e-8)


def test_three_vectors_are_three_pairs():
    assert expected_pairs(3, 3) == pytest.approx(3 / 4)
    q = np.array([[1, 0], [np.sqrt(3) / 2, 0.5], [0.5, np.sqrt(3) / 2]])
    assert count_pairs(q, 0.49) == 3
    assert count_pairs(q, 0.6) == 2
    assert count_pairs(q, 0.9) == 0
    assert count_pairs(-np.eye(3)) == 0


def test_counts_have_the_mean_and_the_variance_of_independent_pairs():
    rng, r, k, draws = np.random.default_rng(0), 20, 6, 4000
    counts = [count_pairs(random_unit_vectors(rng, r, k)) for _ in range(draws)]
    p, pairs = float(reaching_probability(k)), 190
    variance = pairs * p * (1 - p)
    assert np.mean(counts) == pytest.approx(pairs * p, abs=4.5 * np.sqrt(variance / draws))
    assert np.var(counts) == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("r", [2, 10, 1000, 10**6])
@pytest.mark.parametrize("failure", [0.5, 0.01, 1e-6])
@pytest.mark.parametrize("level", [0.3, 0.5])
def test_the_needed_dimension_is_the_least(r, failure, level):
    k = needed_dimension(r, failure, level)
    assert expected_pairs(r, k, level) <= failure
    assert k == 2 or expected_pairs(r, k - 1, level) > failure


def test_the_needed_dimension_grows_as_its_factor_times_the_logarithm():
    assert logarithm_factor() == pytest.approx(4 / np.log(4 / 3))
    for level in (0.3, 0.5, 0.8):
        grown = needed_dimension(1e60, 0.01, level) - needed_dimension(1e50, 0.01, level)
        assert grown == pytest.approx(logarithm_factor(level) * 10 * np.log(10), rel=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reaching_probability(1), "k >= 2 and a level"),
        (lambda: reaching_probability(3, 1.0), r"levels from 1 to 1"),
        (lambda: needed_dimension(1), "r must be >= 2 .* r=1"),
        (lambda: needed_dimension(10, 0.0), "failure=0.0"),
        (lambda: needed_dimension(10, 0.01, 0.0), "Choose a larger level"),
    ],
)
def test_what_has_no_answer_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
