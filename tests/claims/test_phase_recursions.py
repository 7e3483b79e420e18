"""The recursions of LY's phases: by hand, against dense descent, and what would refute."""

import numpy as np
import pytest

from pipelines.claims.li_yuan import phase_recursions as recursions
from pipelines.measurement.grid import Cell, Measured
from tests.claims.measured import measure, values_of
from theory.circulant import circulant_matrix, circulant_start
from theory.relu_population import gradient, potential


def cell(d: int, **changed: object) -> Cell:
    point = {"d": d, "frobenius": 2.0, "steps": 12, "second_steps": 30_000}
    return Cell(point | changed, 0)


def test_an_exact_recursion_leaves_nothing() -> None:
    d, eta = 10, recursions.STEP / 10
    g, s = [3.0], [0.2]
    for _ in range(5):
        s.append(s[-1] * (1 - np.pi / 2 * 11 * eta) - eta * 0.9 * g[-1])
        g.append(0.9 * g[-1])
    errors = recursions.recursion_errors(np.array(g), np.array(s), d)
    assert max(np.max(each) for each in errors.values()) < 1e-12
    slow = recursions.recursion_errors(np.array([1.0, 0.95]), np.array([0.0, -0.09 * eta]), d)
    assert slow["g_error"] == pytest.approx([0.5])  # half of 1 - d eta
    assert slow["s_error"] == pytest.approx([0.9])  # a tenth of the pull


def test_potential_and_row_sums_are_those_of_dense_descent() -> None:
    d, rate = 30, recursions.STEP / 30
    found = recursions.first_phase(cell(d, steps=4))
    column = circulant_start(d, 2.0, recursions.TRACE * 4.0, np.random.default_rng(0))
    W, zero = circulant_matrix(column), np.zeros((d, d))
    for step in range(4):
        assert found["potential"][step] == pytest.approx(float(potential(W, zero)))
        np.testing.assert_allclose(-W.sum(axis=1), found["row_sum"][step], atol=1e-12)
        W = W - rate * gradient(W, zero, "printed")


def test_the_second_phase_starts_near_and_stays() -> None:
    found = recursions.second_phase(cell(200, second_steps=30_000))
    assert found["second_distance"][0] == pytest.approx(0.1, rel=0.02)
    assert found["second_distance"][-1] < 0.1
    assert 0 < found["second_phase_share"][0] < 1e-4
    assert found["gradient_share"][0] < 0.1


def measured(d: int, **changed: object) -> Measured:
    [found] = measure(recursions.CLAIM, cell(d, **changed))
    return found


def verdict(*cells: Measured) -> str:
    return recursions.CLAIM.verdict(values_of(recursions.CLAIM, *cells), "cpu")


@pytest.fixture(scope="module")
def pair() -> tuple[Measured, Measured]:
    return measured(200, frobenius=4.2), measured(400, frobenius=4.2)


def test_wide_networks_hold_and_descent_at_another_rate_refutes(
    pair: tuple[Measured, Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, wide = pair
    assert verdict(narrow, wide) == "holds"
    monkeypatch.setattr(recursions, "STEP", 2 * recursions.STEP)
    g, s = (narrow.curves[key] for key in ("potential", "row_sum"))
    wrong = recursions.recursion_errors(g, s, 200)  # of descent at half the rate
    assert np.all(wrong["s_error"] > 0.05)
    curves = dict(narrow.curves) | {"s_error": np.append(wrong["s_error"], 0.0)}
    assert verdict(Measured(narrow.cell, narrow.steps, curves, ""), wide) == "refuted"


@pytest.mark.parametrize("metric", ["second_phase_share", "gradient_share", "g_error"])
def test_what_is_above_its_bound_refutes(pair: tuple[Measured, Measured], metric: str) -> None:
    narrow, wide = pair
    curves = dict(narrow.curves) | {metric: np.full(len(narrow.steps), 1.1)}
    assert verdict(Measured(narrow.cell, narrow.steps, curves, ""), wide) == "refuted"


def test_errors_that_do_not_fall_with_the_width_refute(pair: tuple[Measured, Measured]) -> None:
    narrow, wide = pair
    same = Measured(wide.cell, wide.steps, narrow.curves, "")
    assert verdict(narrow, same) == "refuted"
