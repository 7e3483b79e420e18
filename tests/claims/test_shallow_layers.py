"""Shallow blocks for Henon's layers: two and four units by hand, and what would refute."""

import numpy as np
import pytest

from pipelines.claims.bartlett import shallow_layers_suffice as shallow
from pipelines.measurement.grid import Cell
from tests.claims.measured import measure, values_of


def at(u: float) -> np.ndarray:
    return np.array([[u, 0.3, 1.0]])


def test_two_units_are_the_multiple_of_the_absolute_value_that_is_right_at_the_ends() -> None:
    A, B = shallow.parabola_block(0.5, 2)
    for u in (-1.0, -0.5, 0.0, 0.25, 1.0):
        np.testing.assert_allclose(shallow.apply_block(A, B, at(u)), [[u, 0.3 - 0.5 * abs(u), 1]])


def test_four_units_meet_the_parabola_at_its_knots_and_miss_it_between() -> None:
    A, B = shallow.parabola_block(1.0, 4)
    for u in (-1.0, -0.5, 0.0, 0.5, 1.0):
        np.testing.assert_allclose(shallow.apply_block(A, B, at(u)), [[u, 0.3 - u**2, 1]])
    missed = shallow.apply_block(A, B, at(0.75))[0, 1] - (0.3 - 0.75**2)
    assert missed == pytest.approx(-1 / 16)  # a chord of length 1/2: below by its square over 4


@pytest.mark.parametrize("k", [2, 4, 32, 128])
def test_norms_are_below_four_times_the_bend(k: int) -> None:
    A, B = shallow.parabola_block(0.1, k)
    assert 0.2 * (1 - 1e-12) <= np.linalg.norm(A, 2) * np.linalg.norm(B, 2) < 0.4


def verdict(*units: int) -> str:
    cells = [Cell({"k": k, "m": (2, 4, 8), "samples": 30}, 0) for k in units]
    values = values_of(shallow.CLAIM, *measure(shallow.CLAIM, *cells))
    assert values["without_thresholds"][0] == pytest.approx(3 - 2 * np.sqrt(2), abs=1e-3)
    return shallow.CLAIM.verdict(values, "cpu")


def test_blocks_hold_and_others_refute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(4, 8) == "holds"
    original = shallow.parabola_block
    monkeypatch.setattr(shallow, "parabola_block", lambda bend, k: original(1.01 * bend, k))
    assert verdict(4, 8) == "refuted"  # another parabola
    monkeypatch.setattr(shallow, "parabola_block", lambda bend, k: original(bend, 4))
    assert verdict(4, 8) == "refuted"  # more units that do no better


def test_a_block_of_larger_norms_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    original = shallow.parabola_block

    def with_idle_units(bend: float, k: int) -> tuple[np.ndarray, np.ndarray]:
        A, B = original(bend, k)
        return np.hstack([A, -A, A]), np.vstack([B, B, B])  # the same map

    monkeypatch.setattr(shallow, "parabola_block", with_idle_units)
    assert verdict(4, 8) == "refuted"
