"""The claims of HM Theorem 3.2: what is measured, and doctored networks that they refute."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.claims.hardt_ma import finite_sample_expressivity as expressivity
from pipelines.claims.hardt_ma.finite_sample_expressivity import (
    CLAIM,
    FAR,
    LABELS,
    NOISE,
    Setting,
    add_noise,
    collect_worst,
    count_errors,
    own_construction,
)
from pipelines.measurement import claim_catalog
from tests.claims.measured import made, values_of
from tests.quoted import grades
from theory import memorization
from theory.unit_vectors import normalize_rows


def verdict(own: Any = None, fit: Any = None) -> str:
    """The verdict on numbers that hold but for those given, of 10 labels and HM's own network."""
    good = {"errors": 0, "output_error": 1e-3, "error_over_bound": 0.1, "constant": 2}
    fits = {r: dict(good) for r in LABELS} | {LABELS[1]: good | (fit or {})}
    row = collect_worst(fits) | {"own_errors": 0, "own_printed_errors": 40} | (own or {})
    return CLAIM.outcome(values_of(CLAIM, made(row, steps=[300])), "cpu")


def test_one_number_that_is_wrong_refutes() -> None:
    assert verdict() == "holds"
    for fit in ({"errors": 1}, {"constant": 5.1}):
        assert verdict(fit=fit) == "broken"
    assert verdict(own={"own_errors": 1}) == "broken"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_network_of_other_labels_is_refuted(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = memorization.memorize
    monkeypatch.setattr(expressivity, "LABELS", LABELS[:1])

    def last_label_wrong(X: Any, y: Any, dtype: str) -> Any:
        return right(X, np.append(y[:-1], (y[-1] + 1) % LABELS[0]), dtype=dtype)

    setting = Setting("digits", (100,))
    _, curves = expressivity.measure(setting, 1, None)  # type: ignore[arg-type]
    assert (curves["errors"], curves["own_errors"]) == (0, 0)
    monkeypatch.setattr(expressivity, "memorize", last_label_wrong)
    _, curves = expressivity.measure(setting, 1, None)  # type: ignore[arg-type]
    assert curves["errors"] == 1


def test_a_construction_that_cannot_be_built_errs_everywhere() -> None:
    X, y = normalize_rows(np.random.default_rng(0).standard_normal((20, 8))), np.arange(20) % 3
    assert count_errors(memorization.printed, X, y, 8) == 0
    assert count_errors(memorization.printed, 2 * X, y, 8) == 20  # no unit points
    assert count_errors(lambda X, y, width: memorization.memorize(X, y[::-1]), X, y, 8) > 0


def test_the_printed_width_is_too_small_for_the_premise_of_its_lemma() -> None:
    X = normalize_rows(np.random.default_rng(1).random((50, 8)))
    numbers = own_construction(X, seed=1)
    assert numbers["own_errors"] == 0
    far = normalize_rows(np.random.default_rng(1).standard_normal(FAR))
    gaps = np.linalg.norm(far[:, None] - far, axis=2)[np.triu_indices(FAR[0], 1)] ** 2
    k = memorization.paper_width(FAR[0], gaps.min())
    A0 = np.random.default_rng([0, k]).standard_normal((k, FAR[1])) / np.sqrt(k)
    squares = np.sum((far @ A0.T) ** 2, axis=1)
    assert np.abs(squares - 1).max() > gaps.min() / 6  # not even by the unprojected distances
    assert numbers["own_condition_ratio"] >= 2 * numbers["own_fitting_ratio"] > 2


def test_the_constant_and_the_step_of_the_proof_fail_as_printed_and_the_theorem_holds() -> None:
    numbers = own_construction(normalize_rows(np.random.default_rng(1).random((50, 8))), seed=1)
    values = {"errors": [0.0]} | {key: [value] for key, value in numbers.items()}
    values |= {"constant": [2.0], "preserved_share": [0.1]}
    theorem, width, distance = CLAIM.printed
    step = "constant or step of a proof"
    assert [each.judge(values).grade for each in CLAIM.printed] == ["holds", step, step]
    assert width.judge(values).reason.startswith("preserved_share 0.1, not >= 0.5")
    assert distance.judge(values).reason.startswith("neighbour_move 0.5")
    fixed = values | {"preserved_share": [1.0], "neighbour_move": [0.0]}
    assert set(grades(CLAIM, fixed).values()) == {"holds"}
    assert theorem.judge(fixed | {"errors": [1.0]}).grade == "not tested"


def test_distances_are_kept_within_a_third_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((1_201, 6))
    monkeypatch.setattr(expressivity, "BLOCK", 500)
    whole = np.concatenate([expressivity.distances_from(points, i) for i in (0, 500, 1000)])
    expected = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    # of 40 points k = 54: some 0.6 of 820 pairs are expected outside of a third, by chi squared
    monkeypatch.setattr(expressivity, "PROJECTED", (40, 200))
    assert 0.3 < expressivity.preserved_share(rng) < 0.9
    monkeypatch.setattr(expressivity, "ROUNDING", 10.0)
    assert expressivity.preserved_share(rng) == 1


def test_the_printed_network_is_right_where_the_premise_holds() -> None:
    X, y = normalize_rows(np.random.default_rng(0).standard_normal((20, 512))), np.arange(20) % 3
    right = memorization.printed(X, y, 512)
    literal = memorization.printed(X, y, 512, share=1 / 6, check=False)
    np.testing.assert_allclose(literal.units.V, right.units.V, atol=1e-12)
    assert np.array_equal(literal.predict(X), y)
    assert literal.error == np.inf  # nothing is certified
    with pytest.raises(ValueError, match="squared norms within rho'"):
        memorization.printed(2 * X, y, 512)


def test_a_neighbour_is_moved_up_to_six_rho() -> None:
    # <a, b> = 1.1 - 0.15 passes 1 - 0.2 by 0.15, half of what a itself does
    assert memorization.neighbour_move(3.0) == pytest.approx(0.5)
    assert memorization.neighbour_move(5.0) == pytest.approx(1 / 6)
    assert memorization.neighbour_move(6.01) == 0


def test_noise_moves_equal_images_apart_by_its_own_norm() -> None:
    X = np.ones((2, 3000), np.float32)
    moved = add_noise(X) - X
    assert np.linalg.norm(moved, axis=1) == pytest.approx(NOISE * np.sqrt(3000), rel=0.05)
    apart = np.diff(normalize_rows(add_noise(X)), axis=0)
    assert np.sum(apart**2) == pytest.approx(2 * NOISE**2, rel=0.1)
    assert np.array_equal(add_noise(X), add_noise(X))


def test_cifar10_is_measured_on_all_its_images() -> None:
    other = claim_catalog.load("finite-sample-expressivity-cifar10")
    assert (other.scales["cpu"].data, max(other.scales["cpu"].n)) == ("cifar10", 50_000)
    assert "50,000" in other.says
