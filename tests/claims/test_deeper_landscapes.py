"""Depth and landscape: the factor by hand, steps of a known descent, and what would refute."""

import numpy as np
import pytest

from pipelines.claims.hardt_ma import deeper_landscapes as deeper
from pipelines.measurement.grid import Cell
from pipelines.measurement.quotation import NOT_TESTED
from pipelines.measurement.verdict import HOLDS
from tests.claims.measured import made, values_of
from theory.factorization import polar_angle


def cell(**changed: object) -> Cell:
    point = {"target": "turned", "covariance": "random", "d": 3, "gamma": 0.5}
    return Cell(point | {"l": (1, 2, 16, 32), "most_steps": 500} | changed, 0)


@pytest.mark.parametrize("target", deeper.TARGETS)
def test_targets_have_the_stated_norms_and_angles(target: str) -> None:
    R, sigma = deeper.random_problem(np.random.default_rng(1), cell(target=target))
    assert np.linalg.det(R) > 0
    assert np.abs(np.log(np.linalg.svdvals(R))).max() == pytest.approx(0.5)
    assert np.linalg.eigvalsh(sigma)[0] > 0
    if target != "random":
        angle = {"positive": 0.0, "turned": deeper.ANGLE}[target]
        assert polar_angle(R) == pytest.approx(angle, abs=1e-7)


def test_the_factor_by_hand() -> None:
    assert deeper.least_factor(1, 5.0) == 4  # one layer is convex, whatever the ball
    assert deeper.least_factor(2, 1.0) == 0
    assert deeper.least_factor(3, 0.5) == pytest.approx(12 / 16)


def test_the_factor_is_attained_for_equal_layers_and_white_inputs() -> None:
    rng = np.random.default_rng(2)
    R, _ = deeper.random_problem(rng, cell())
    found = deeper.quotients(rng, R, np.eye(3), 6, 0.4) / deeper.least_factor(6, 0.4)
    assert found[0] == pytest.approx(1)
    assert found.min() >= 1 - 1e-12


def test_a_single_layer_arrives_in_one_step_where_inputs_are_white() -> None:
    R = np.diag([2.0, 3.0])
    assert deeper.steps_to_arrive(R, np.eye(2), 1, 50) == (1.0, 1.0)


def test_a_single_layer_takes_the_steps_of_its_slower_coordinate() -> None:
    # R - I has the entries 1 and 2, Sigma 1 and 1/2: the errors shrink by 1 - f and 1 - f/2 a step
    R, sigma = np.diag([2.0, 3.0]), np.diag([1.0, 0.5])
    factors = deeper.FACTORS[deeper.FACTORS < 2][:, None]  # for others one error grows
    n = np.arange(200)
    risks = (1 - factors) ** (2 * n) + 2 * (1 - factors / 2) ** (2 * n)
    fewest = np.min(np.argmax(risks <= 3e-6, axis=1))
    assert deeper.steps_to_arrive(R, sigma, 1, 200)[0] == fewest


def test_what_never_arrives_takes_one_more_than_the_most() -> None:
    assert deeper.steps_to_arrive(np.diag([-1.0, 1.0]), np.eye(2), 2, 30) == (31.0, 0.0)


def values(**curves: list[float]) -> dict[str, list[float]]:
    given = {
        "printed_radius": [20.0, 10.0, 0.9, 0.5],
        "printed_least": [4.0, 0.0, 1e-9, 1e-3],
        "balanced_radius": [3.0, 1.5, 0.2, 0.1],
        "balanced_least": [4.0, 0.0, 0.1, 0.2],
        "least_ratio": [1.0] * 4,
        "attained_gap": [0.0] * 4,
        "steps": [1.0, 10.0, 30.0, 40.0],
        "rate_factor": [1.0] * 4,
    } | curves
    return values_of(deeper.CLAIM, made(given, cell().point, steps=[1, 2, 16, 32]))


def test_numbers_by_hand() -> None:
    found = values()
    assert found["growth"] == [pytest.approx(2)]  # of the balanced radius, the only two below 1
    assert found["printed_single_layer_share"] == [pytest.approx(1e-3 / 4)]
    assert found["balanced_single_layer_share"] == [pytest.approx(0.05)]
    assert found["steps_growth"] == [4.0]
    assert found["fewer_pct"] == [0.0]


@pytest.mark.parametrize(
    ("curves", "verdict", "grade"),
    [
        ({}, "holds", HOLDS),
        ({"balanced_least": [4.0, 0.0, 0.3, 0.2]}, "refuted", NOT_TESTED),
        ({"least_ratio": [1.0, 1.0, 0.9, 1.0]}, "refuted", HOLDS),
        ({"attained_gap": [0.0, 0.0, 0.1, 0.0]}, "refuted", HOLDS),
        ({"steps": [1.0, 40.0, 30.0, 10.0]}, "holds", HOLDS),  # shown, and not judged
    ],
)
def test_what_decides(curves: dict[str, list[float]], verdict: str, grade: str) -> None:
    found = values(**curves)
    assert deeper.CLAIM.verdict(found, "cpu") == verdict
    assert [each.grade for _, each in deeper.CLAIM.grades(found, "cpu")] == [grade]
