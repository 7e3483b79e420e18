"""The remark on random unit vectors: dimensions by hand, and what would decide otherwise."""

import numpy as np
import pytest

from pipelines.claims.hardt_ma import random_vectors_nearly_orthogonal as vectors
from pipelines.measurement.grid import Cell
from pipelines.measurement.quotation import STEP
from pipelines.measurement.verdict import HOLDS
from tests.claims.measured import measure, values_of


def values(setting: vectors.Setting) -> dict[str, list[float]]:
    """Return what the claim makes of a setting with the seed 0."""
    cell = Cell({"r": setting.r, "failure": setting.failure, "draws": setting.draws}, 0)
    return values_of(vectors.CLAIM, *measure(vectors.CLAIM, cell))


def test_the_smallest_whole_number_above_4_log_r() -> None:
    assert vectors.printed_dimension(1000, np.e) == 28  # 27.6
    assert vectors.printed_dimension(1000, 2) == 40  # 39.9
    assert vectors.printed_dimension(16, 2) == 17  # 16 is not above 16


def test_4_log_r_are_too_few_and_the_needed_dimensions_enough() -> None:
    found = values(vectors.Setting((20, 50), draws=40))
    assert vectors.CLAIM.verdict(found, "cpu") == "holds as corrected"
    [(_, grade)] = vectors.CLAIM.grades(found, "cpu")
    assert grade.grade == STEP
    assert found["fewest_pairs"][0] > 1


def test_the_remark_would_hold_where_no_pair_reaches_one_half() -> None:
    found = values(vectors.Setting((20, 50), draws=40)) | {"fewest_pairs": [0.0]}
    assert vectors.CLAIM.verdict(found, "cpu") == "holds"
    [(_, grade)] = vectors.CLAIM.grades(found, "cpu")
    assert grade.grade == HOLDS


def test_too_few_dimensions_refute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "needed_dimension", lambda r, failure: 10)
    found = values(vectors.Setting((20, 50), draws=40))
    assert found["failing_p"][0] < 1e-12
    assert vectors.CLAIM.verdict(found, "cpu") == "refuted"


def test_another_probability_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = vectors.expected_pairs
    monkeypatch.setattr(vectors, "expected_pairs", lambda r, k: 1.2 * exact(r, k))
    found = values(vectors.Setting((20, 100), draws=100))
    assert found["z"][0] > 5
    assert vectors.CLAIM.verdict(found, "cpu") == "refuted"
