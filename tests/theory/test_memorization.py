"""Memorizers: any labels of distinct points, HM Theorem 3.2; weights, margins and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import keras_models
from theory.memorization import memorize, paper_width, parameter_count, printed
from theory.memorizer import Layer, Memorizer
from theory.pairs import following_products, nearest_pair


def sample(n: int, d: int, labels: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian points [n, d] with random labels [n]."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(labels, size=n)


def unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def one_hot(found: Memorizer, y: np.ndarray) -> np.ndarray:
    return (y[:, None] == found.labels).astype(float)


def block_by_block(found: Memorizer, X: np.ndarray) -> np.ndarray:
    """The network as it is written down: every block at every point."""
    h = X.astype(found.projection.dtype) @ found.projection.T
    for block in found.blocks():
        h = h + np.maximum(h @ block.U.T - block.t, 0) @ block.V
    return np.maximum(h @ found.readout.U.T - found.readout.t, 0) @ found.readout.V


@pytest.mark.parametrize("width", [1, 2, 3, 8, 40, None])
@pytest.mark.parametrize("labels", [1, 2, 10])
def test_every_label_is_fitted(width: int | None, labels: int) -> None:
    X, y = sample(301, 20, labels)
    found = memorize(X, y, width)
    assert np.array_equal(found.predict(X), y)
    assert np.abs(found.outputs(X) - one_hot(found, y)).max() < (1e-8 if width == 1 else 1e-10)


@pytest.mark.parametrize("seed", range(40))
def test_any_points_and_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, width = rng.integers(1, 60), rng.integers(1, 9), int(rng.integers(2, 6))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, 2)
    y = rng.choice(["cat", "dog", "owl"], size=n)
    assert np.array_equal(memorize(X, y, width, seed=seed).predict(X), y)


@pytest.mark.parametrize(("width", "dtype"), [(8, "float32"), (3, "float64")])
def test_outputs_are_those_of_the_network_written_down(width: int, dtype: str) -> None:
    X, y = sample(60, 12)
    found = memorize(X, y, width, dtype)
    other = sample(400, 12, seed=1)[0]  # several blocks fire at one point
    for points in (X, other):
        expected = block_by_block(found, points)
        assert np.abs(found.outputs(points) - expected).max() < 1e-3 * np.abs(expected).max()


def test_blocks_move_their_points_and_no_other() -> None:
    X, y = sample(50, 6)
    found = memorize(X, y, 4)
    Z = X @ found.projection.T
    h, codes = Z.copy(), set()
    for number, block in enumerate(found.blocks(), 1):
        before, h = h, h + block(h)
        moved = np.any(h != before, axis=1)
        assert moved.sum() == len(block.t)
        codes |= set(np.flatnonzero(moved).tolist())
        assert len(codes) == min(4 * number, 50)
    assert np.allclose(h, found.readout.U[np.searchsorted(found.labels, y)])


def test_margin_is_the_least_gap_of_all_units() -> None:
    X, y = sample(80, 6)
    found = memorize(X, y, 5)
    Z = X @ found.projection.T
    order = np.argsort(-np.sum(Z**2, axis=1))
    gaps = [
        Z[i] @ Z[i] - max([*(Z[order[place + 1 :]] @ Z[i]), *(found.readout.U @ Z[i])])
        for place, i in enumerate(order)
    ]
    q = found.readout.U
    readout = min(q[s] @ q[s] - max([0.0, *(q[s + 1 :] @ q[s])]) for s in range(len(q)))
    assert found.margin == pytest.approx(min(*gaps, readout) / np.max(np.sum(Z**2, axis=1)))
    near = pdist(Z, "sqeuclidean").min()
    least = min(near, np.sum(Z**2, axis=1).min()) / 2  # inequality (1), and the codes
    assert min(gaps) >= least * (1 - 1e-12)


def test_by_hand() -> None:
    X, y = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([5, 7])
    found = memorize(X, y)  # width 2 = d: A_0 = I; codes (1/2, 0) and (-1/2, 0)
    assert np.allclose(found.units.U, X)
    assert np.allclose(found.units.t, [2.5, 0.5])  # |z|^2 = 4 and 1, largest products 1 and 0
    assert np.allclose(found.units.V, [[-1, 0], [-1, -2]])  # (q - z) / (|z|^2 - t)
    assert found.margin == pytest.approx(1 / 16)  # of the readout, |q|^2 = 1/4 over 4


def test_a_second_label_of_width_one_keeps_its_order() -> None:
    found = memorize(np.array([[1.0], [2.0], [3.0], [-2.0]]), np.array([0, 1, 2, 3]), width=1)
    assert list(found.predict(np.array([[2.0], [3.0], [1.0], [-2.0]]))) == [1, 2, 0, 3]


@pytest.mark.parametrize(("n", "d", "labels", "width"), [(301, 20, 10, 8), (7, 5, 3, 2)])
def test_parameters_are_counted_exactly(n: int, d: int, labels: int, width: int) -> None:
    X, _ = sample(n, d)
    found = memorize(X, np.arange(n) % labels, width)
    expected = n * (2 * width + 1) + width * d + labels * width + labels**2 + labels
    assert found.parameter_count == parameter_count(n, d, labels, width) == expected


def test_equal_points_count_once() -> None:
    X, y = sample(20, 5)
    twice = memorize(np.vstack([X, X[3:6], -0.0 * X[:1] + X[:1]]), np.array([*y, *y[3:6], y[0]]), 4)
    assert len(twice.units.t) == 20
    assert np.array_equal(twice.predict(X), y)


def test_width_grows_until_the_margin_is_ample() -> None:
    X, y = sample(6000, 16)
    found = memorize(X, y, dtype="float32")
    assert found.margin >= 1e-4
    assert found.width > 4
    assert memorize(X, y, 4, "float32", seed=0).margin < 1e-4


def test_points_equal_in_single_precision_count_once() -> None:
    X, y = sample(20, 5)
    found = memorize(np.vstack([X, X[:1] * (1 + 1e-12)]), np.array([*y, y[0]]), 4, "float32")
    assert len(found.units.t) == 20


def test_near_points_pass_in_double_precision_only() -> None:
    X, y = sample(500, 20)
    X[7], y[7], y[3] = X[3] + 1e-6 / np.sqrt(20), 1, 2
    assert np.array_equal(memorize(X, y, 16).predict(X), y)
    with pytest.raises(
        ValueError, match=r"points 3 and 7, labels 2 and 1, at squared distance 1e-12"
    ):
        memorize(X, y, 16, "float32")
    with pytest.raises(ValueError, match=r"Use dtype='float64' or a larger width"):
        memorize(X, y, 16, "float32")


REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    (
        [[1.0, 2], [3, 4], [1, 2]],
        [0, 1, 1],
        {},
        r"points 0 and 2, which are equal, with labels 0 an",
    ),
    ([[1.0, 2], [0, 0]], [0, 1], {}, r"Points must not be 0.*point 1.*constant column"),
    ([[0.0, 0], [0, 0]], [0, 0], {}, r"largest entry between 1e-12 and 1e\+12.*Received: 0"),
    ([[1e-160, 0], [0, 1e-160]], [0, 1], {}, r"Received: 1e-160. Divide X by a number of that si"),
    ([[1e150, 0], [0, 1]], [0, 1], {"dtype": "float32"}, r"Received: 1e\+150. Divide X"),
    ([[1.0], [1 + 1e-12]], [0, 1], {"dtype": "float32"}, r"points 0 and 1, which are equal in flo"),
    ([[1 + 1j], [2]], [0, 1], {}, r"Points must be real numbers.*arrays of complex128 and int64"),
    ([[1.0], [2]], [0, np.nan], {}, r"Labels must be finite. Received: that of 1"),
    (np.ones((2, 1), object), [0, 1], {}, r"Points must be real numbers.*arrays of object"),
    ([[1e-12, 0], [0, 1.0]], [0, 1], {}, r"point 0, whose \|z\|\^2 is 1e-24 of the largest"),
    ([[1.0, np.nan]], [0], {}, r"finite. Received: point 0"),
    ([1.0, 2], [0, 1], {}, r"\[n, d\] with labels \[n\].*shapes \(2,\) and \(2,\)"),
    ([[1.0], [2]], [0], {}, r"shapes \(2, 1\) and \(1,\)"),
    ([[1.0], [2]], [0, 1], {"dtype": "float16"}, r"one of float32, float64. Received: 'float16'"),
    ([[1.0], [2]], [0, 1], {"width": 0}, r"width must be an integer >= 1. Received: width=0"),
    ([[1.0], [2]], [0, 1], {"width": True}, r"width must be an integer >= 1. Received: width=True"),
    ([[1.0], [2]], [0, 1], {"width": 2.5}, r"width must be an integer >= 1. Received: width=2.5"),
]


@pytest.mark.parametrize(("X", "y", "how", "sentence"), REFUSED)
def test_what_is_refused(X: Any, y: Any, how: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        memorize(X, y, **how)


def test_labels_too_many_for_a_width_are_named() -> None:
    X = 10.0 + np.arange(300)[:, None]
    with pytest.raises(ValueError, match=r"Received: 300 labels, whose codes are too near"):
        memorize(X, np.arange(300), 1, "float32")


def walk(frames: int, d: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """A random walk, whose neighbours are near each other, with random labels."""
    rng = np.random.default_rng(0)
    return np.cumsum(step * rng.normal(size=(frames, d)), axis=0), rng.integers(10, size=frames)


@pytest.mark.parametrize("width", [4, 32, 256])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_not_refused_is_right_also_where_blocks_lose_digits(width: int, dtype: str) -> None:
    X, y = walk(600, 50, 0.3)
    try:
        found = memorize(X, y, width, dtype)
    except ValueError as error:
        assert "points of one block are too near" in str(error)
        assert dtype == "float32"
    else:
        assert np.array_equal(found.predict(X), y)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_near_pairs_by_the_dozen(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 300))
    X = np.vstack([X, X + 10 ** rng.uniform(-1, 0) / np.sqrt(300) * rng.normal(size=X.shape)])
    y = rng.integers(10, size=len(X))
    found = memorize(X, y, dtype=dtype)
    assert np.array_equal(found.predict(X), y)
    assert np.abs(found.outputs(X) - one_hot(found, y)).max() <= found.error


@pytest.mark.parametrize("width", [4, 16, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_error_bounds_that_of_the_outputs(width: int, dtype: str) -> None:
    X, y = sample(200, 20)
    found = memorize(X, y, width, dtype)
    actual = np.abs(found.outputs(X) - one_hot(found, y)).max()
    assert actual <= found.error <= 1e4 * actual


def test_points_of_another_width_are_refused() -> None:
    X, y = sample(20, 5)
    with pytest.raises(ValueError, match=r"rows \[n, 5\].*shape \(20, 4\)"):
        memorize(X, y).predict(X[:, :4])
    assert memorize(X, y).predict(X[:0]).shape == (0,)


@pytest.mark.parametrize("width", [64, 1024])
def test_the_papers_construction(width: int) -> None:
    X, y = sample(300, 64)
    found = printed(unit(X), y, width)
    assert np.array_equal(found.predict(unit(X)), y)
    assert len(np.unique(found.units.t)) == 1
    assert np.abs(found.outputs(unit(X)) - one_hot(found, y)).max() < 1e-9


def test_the_papers_construction_needs_its_premise() -> None:
    X, y = sample(300, 64)
    with pytest.raises(ValueError, match=r"Lemma B.1.*point \d+ of squared norm .* at width 32"):
        printed(unit(X), y, 32)
    with pytest.raises(ValueError, match=r"Lemma B.1"):
        printed(X, y, 64)
    assert np.array_equal(memorize(unit(X), y, 32).predict(unit(X)), y)  # ours does not


@pytest.mark.parametrize("apart", [1e-6, 1e-2])
def test_the_papers_construction_is_refused_where_it_loses_digits(apart: float) -> None:
    X, y = np.vstack([np.eye(8)[:6], np.eye(8)[0]]), np.arange(7)
    X[6, 7] = apart
    for dtype in ("float32", "float64"):
        try:
            found = printed(unit(X), y, 8, dtype)
        except ValueError as error:
            assert any(words in str(error) for words in ("rounding", "too near", "equal in"))
        else:
            assert np.array_equal(found.predict(unit(X)), y)


def test_width_of_the_theorem() -> None:
    assert paper_width(5000, 0.021) == pytest.approx(10 * np.log(5000) / 0.021**2, abs=1)


def test_a_gaussian_projection_keeps_a_tenth_of_all_squared_distances_at_the_width_stated() -> None:
    n, d, k = 400, 50, int(2.9 * np.log(400) + 1.43 * np.log(1 / 0.02))  # docs/found.md, delta 1 %
    X = np.random.default_rng(0).normal(size=(n, d))
    A0 = np.random.default_rng(1).normal(size=(k, d)) / np.sqrt(k)
    assert (pdist(X @ A0.T) ** 2 >= 0.1 * pdist(X) ** 2).all()


@pytest.mark.parametrize(("n", "d"), [(2, 1), (700, 3), (1500, 70)])
def test_pairs(n: int, d: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, d)) + 3
    i, j, distance = nearest_pair(X)
    assert distance == pytest.approx(pdist(X, "sqeuclidean").min())
    assert np.sum((X[i] - X[j]) ** 2) == pytest.approx(distance)
    assert i < j
    after = np.where(np.triu(np.ones((n, n)), 1) > 0, X @ X.T, -np.inf).max(axis=1)
    assert np.allclose(following_products(X), after)


def test_one_point_has_no_nearest_pair() -> None:
    with pytest.raises(ValueError, match=r"two or more rows.*\(1, 3\)"):
        nearest_pair(np.ones((1, 3)))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(("n", "dtype"), [(101, "float32"), (101, "float64"), (3, "float32")])
def test_keras_model_is_the_same_network(n: int, dtype: str, tmp_path: Path) -> None:
    import keras

    X, y = sample(n, 12)
    X = X.astype(dtype)
    found = memorize(X, y, 8, dtype)
    model = found.keras_model()
    assert model.count_params() == found.parameter_count
    other = np.vstack([X, sample(50, 12, seed=1)[0].astype(dtype)])
    scale = np.abs(found.outputs(other)).max()
    close = 1e-4 if dtype == "float32" else 1e-9
    outputs = keras.ops.convert_to_numpy(model(other))
    assert outputs.dtype == dtype
    assert np.abs(outputs - found.outputs(other)).max() < close * scale
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras").predict(X, verbose=0)
    assert np.array_equal(found.labels[again.argmax(axis=1)], y)


def test_thousands_of_blocks_are_few_layers() -> None:
    model = keras_models.build("memorizer", (12,), 10, width=8, depth=2_500)
    assert model.count_params() == parameter_count(20_000, 12, 10, 8)
    assert len(model.operations) < 40
    assert len(model.to_json()) < 400_000


def test_a_layer_is_its_formula() -> None:
    U, t, V = np.array([[1.0, 2], [0, 1]]), np.array([1.0, 5]), np.array([[3.0], [4]])
    assert np.allclose(Layer(U, t, V)(np.array([[1.0, 1]])), [[3 * 2.0]])
