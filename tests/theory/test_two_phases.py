"""LY's two phases in numbers: Lemma 2.5 on a recursion that it must bound, Theorem 3.1 by hand."""

import numpy as np
import pytest

from theory.two_phases import (
    descent_error,
    descent_rate,
    first_phase,
    gradient_sizes,
    least_steps,
    second_phase_error,
    worst_share,
)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("start", [0.1, 3.0])
def test_stochastic_descent_ends_within_the_bound_of_lemma_2_5(alpha, start):
    # the worst that one-point convexity allows: E D^2 <- (1 - 2 rate delta) E D^2 + rate^2 G^2
    delta, G = 0.5, 2.0
    T = int(least_steps(start, alpha, delta, G)) + 50
    rate, distance2 = descent_rate(T, alpha, delta), start**2
    for _ in range(T):
        distance2 = (1 - 2 * rate * delta) * distance2 + rate**2 * G**2
    assert 0 < distance2 <= descent_error(T, alpha, delta, G)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("T", [2, 4, 50, 3000])
def test_the_share_of_the_worst_process_is_that_of_its_recursion(alpha, T):
    rate, square = descent_rate(T, alpha, 1.0), 1.0
    for _ in range(T):
        square = (1 - 2 * rate) * square + rate**2
    assert worst_share(T, alpha) == pytest.approx(square / descent_error(T, alpha, 1.0, 1.0))
    assert worst_share(T, alpha) <= 1


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_least_steps_is_the_first_that_satisfies_its_condition(alpha):
    for start in (0.5, 4.0, 9.0):
        T = least_steps(start, alpha, 0.3, 1.0)
        needed = (start * 0.3) ** 2 / (1 + alpha)
        assert T**alpha * np.log(T) >= needed
        assert T == 2 or (T - 1) ** alpha * np.log(T - 1) < needed
    assert least_steps(100.0, 0.0, 1.0, 1.0) == np.inf


def test_theorem_3_1_by_hand():
    # d = 100, gamma = 1/100: G_2 = 6, G_F = 60; rate (1/600)^2, 1/(16 rate) = 22,500 steps
    np.testing.assert_allclose(gradient_sizes(100, 0.01), (6, 60))
    np.testing.assert_allclose(gradient_sizes(100, 0.01, 0.5), (6.5, 60.5))
    np.testing.assert_allclose(first_phase(100, 0.01), (1 / 360_000, 22_500, 0.0197))
    # 100^2 (1 + alpha) log T G_F^2 / (9 T)
    expected = 1e4 * 1.5 * np.log(1e9) * 3600 / 9e9
    assert second_phase_error(100, 0.01, 1e9, 0.5) == pytest.approx(expected)


def test_the_second_phase_promises_nothing_before_its_least_steps():
    least = least_steps(np.sqrt(100) / 50, 0.0, 0.03, gradient_sizes(100, 3e-7)[1])
    assert 10_000 < least < 100_000
    found = second_phase_error(100, 3e-7, [least - 1, least], 0.0)
    assert np.isinf(found[0])
    assert np.isfinite(found[1])


@pytest.mark.parametrize("bad", [(0, 0.1, 0), (3, 0, 0), (3, 0.1, -1)])
def test_sizes_out_of_range_are_rejected(bad):
    for function in (gradient_sizes, first_phase):
        with pytest.raises(ValueError, match=r"> 0 and noise >= 0\. Received: least values"):
            function(*bad)


@pytest.mark.parametrize("bad", [(1, 0, 1), (10, -1, 1), (10, 0, 0)])
def test_a_lemma_out_of_its_range_is_rejected(bad):
    with pytest.raises(ValueError, match=r"T >= 2, alpha >= 0 and delta > 0\. Received: .* Take"):
        descent_rate(*bad)
