"""Critical points beyond norm 1: layers of -I by hand, made ones, and what would refute."""

import dataclasses

import numpy as np
import pytest

from pipelines.claims.hardt_ma import no_spurious_optima_beyond_norm_one as optima
from pipelines.measurement.grid import Cell
from tests.claims.measured import measure, values_of
from theory.factorization import compose
from theory.linear_resnet import excess_risk, gradient


def make(broken: int, rank: int, **changed: object) -> optima.CriticalPoint:
    point = {"frames": "random", "d": 3, "l": 4} | changed
    return optima.critical_point(np.random.default_rng(0), point, broken, rank)


def test_with_equal_frames_broken_layers_are_minus_the_identity_among_zeros() -> None:
    at = make(2, 0, frames="identity")
    distances = [np.linalg.norm(A + shift) for shift in (np.eye(3), 0) for A in at.layers]
    assert np.sum(np.array(distances) < 1e-12) == 4  # two of each
    assert np.linalg.norm(at.layers[0] + np.eye(3)) < 1e-12


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("frames", optima.FRAMES)
def test_the_product_is_a_projection_of_r_of_that_rank(rank: int, frames: str) -> None:
    at = make(2, rank, frames=frames)
    P = compose(at.layers) @ np.linalg.inv(at.R)
    np.testing.assert_allclose(P @ P, P, atol=1e-12)
    np.testing.assert_allclose(P, P.T, atol=1e-12)
    assert np.trace(P) == pytest.approx(rank, abs=1e-12)
    assert np.linalg.norm(gradient(at.layers, at.R, at.sigma)) < 1e-12


def test_one_broken_layer_is_no_critical_point() -> None:
    at = make(1, 0)
    assert np.linalg.norm(gradient(at.layers, at.R, at.sigma)) > 0.1


def test_the_curve_ends_where_one_more_coordinate_is_learned() -> None:
    at = make(3, 1)
    before, after = (excess_risk(at.layers + t * at.direction, at.R, at.sigma) for t in (0, 1))
    assert before - after == pytest.approx(at.lost)
    more = compose(at.layers + at.direction)
    assert np.linalg.matrix_rank(more, tol=1e-9) == 2


def values() -> dict[str, list[float]]:
    cell = Cell({"frames": "random", "d": 2, "l": 3, "instances": 3}, 0)
    return values_of(optima.CLAIM, *measure(optima.CLAIM, cell))


def test_the_points_are_saddles_and_fewer_directions_or_critical_points_refute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert optima.CLAIM.verdict(values(), "cpu") == "holds"
    original = optima.critical_point

    def without_direction(*args: object) -> optima.CriticalPoint:
        at = original(*args)
        return dataclasses.replace(at, direction=0 * at.direction)

    monkeypatch.setattr(optima, "critical_point", without_direction)
    found = values()
    assert found["fall"] == [0.0]
    assert optima.CLAIM.verdict(found, "cpu") == "refuted"
    monkeypatch.setattr(
        optima, "critical_point", lambda rng, point, broken, rank: original(rng, point, 1, rank)
    )
    found = values()
    assert found["gradient_norm"][0] > 1e-3
    assert optima.CLAIM.verdict(found, "cpu") == "refuted"


def test_a_hessian_that_shows_no_saddle_where_it_must_refutes() -> None:
    found = values()
    for metric, value in (("strict_curvature", 0.0), ("flat_curvature", -0.1), ("excess", 0.0)):
        assert optima.CLAIM.verdict(found | {metric: [value]}, "cpu") == "refuted"
