"""LY Lemma 2.5: processes that keep to its premise, the worst of them, and what would refute."""

import numpy as np
import pytest

from pipelines.claims.li_yuan import stochastic_descent_rate as descent
from pipelines.measurement.grid import Cell, Measured
from tests.claims.measured import measure, values_of


def cell(process: str, **changed: object) -> Cell:
    point = {"process": process, "d": 2, "alpha": 0.0, "runs": 300, "longest": 60}
    return Cell(point | changed, 0)


def measured(process: str, **changed: object) -> Measured:
    [found] = measure(descent.CLAIM, cell(process, **changed))
    return found


def verdict(*cells: Measured) -> str:
    return descent.CLAIM.verdict(values_of(descent.CLAIM, *cells), "cpu")


@pytest.mark.parametrize("process", descent.PROCESSES)
def test_every_process_keeps_to_the_premise_within_its_ball(process: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 4))
    reach = 1 / np.sqrt(2) if process == "turning" else 1.0
    x *= reach * rng.uniform(size=(2000, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    b = descent.mean_gradient(process, x)
    assert np.all(np.sum(b * x, axis=1) >= (1 - 1e-12) * np.sum(x**2, axis=1))
    assert np.all(np.sum(b**2, axis=1) <= 1 + 1e-12)


def test_mean_gradients_by_hand() -> None:
    x = np.array([[0.1, 0.0], [0.0, 0.5]])
    np.testing.assert_allclose(descent.mean_gradient("steep", x), [[0.5, 0], [0, 1]])
    np.testing.assert_allclose(descent.mean_gradient("turning", x), [[0.1, 0.1], [-0.5, 0.5]])
    half_wave = np.array([[1 / 16, 0.0]])  # where the sine squared is 1
    np.testing.assert_allclose(descent.mean_gradient("wavy", half_wave), [[1.0, 0.0]])
    for process in descent.PROCESSES:
        assert np.all(descent.mean_gradient(process, np.zeros((1, 2))) == 0)


@pytest.mark.parametrize("process", descent.PROCESSES)
def test_the_premise_is_measured_along_the_paths(process: str) -> None:
    m = measured(process)
    assert m.holds.all()
    assert np.all(m.curves["largest_gradient"] == pytest.approx(1))
    assert verdict(m) == "holds"


def test_a_path_that_leaves_the_premise_is_not_judged() -> None:
    assert not measured("turning", alpha=1.0).holds[0]


def test_descents_farther_than_the_lemma_allows_refute(monkeypatch: pytest.MonkeyPatch) -> None:
    original = descent.mean_gradient
    monkeypatch.setattr(descent, "ROUNDING", np.inf)  # so that nothing is left out
    monkeypatch.setattr(descent, "mean_gradient", lambda process, x: original(process, x) / 4)
    assert verdict(measured("fading", runs=50), measured("wavy", runs=50)) == "refuted"


def test_a_worst_process_beside_its_exact_value_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "worst_share", lambda T, alpha: np.full(len(T), 0.7))
    m = measured("worst")
    assert np.max(m.curves["worst_z"]) > 5
    assert verdict(m) == "refuted"
