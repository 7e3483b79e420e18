"""Samples of a teacher: the target's properties, moments, noise, and what depends on what."""

from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets, generated
from pipelines.data.datasets import Splits
from pipelines.data.splits import Split
from pipelines.errors import UserError
from theory.factorization import conditioning

DRAWN = {"train_size": 300, "val_size": 200, "test_size": 100}
PARTS = ("train", "val", "test")


def load(train_examples: int | None = None, **arguments: Any) -> Splits:
    return datasets.load("linear-teacher", train_examples, DRAWN | arguments)


def same(one: Split, other: Split) -> tuple[bool, bool]:
    """Whether the inputs are equal, and whether the targets are."""
    return np.array_equal(one.x, other.x), np.array_equal(one.y, other.y)


@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
def test_target_has_the_conditioning_and_a_positive_determinant(d: int, gamma: float) -> None:
    for seed in range(5):
        R = generated.linear_target(d, gamma, seed)
        assert R.shape == (d, d)
        assert conditioning(R) == pytest.approx(gamma, abs=1e-12)
        assert np.linalg.det(R) > 0


def test_targets_are_stable_and_seeds_have_their_own() -> None:
    # Recorded runs name the target by these arguments alone.
    R = generated.linear_target(2, 0.5, 0)
    np.testing.assert_allclose(
        R, [[1.573457525, -0.427384582], [0.098233517, 1.075023673]], rtol=2e-8
    )
    assert not np.allclose(R, generated.linear_target(2, 0.5, 1))


@pytest.mark.parametrize("condition", [1.0, 10.0])
def test_covariance_has_the_condition_and_largest_eigenvalue_1(condition: float) -> None:
    spectrum = np.linalg.eigvalsh(generated.covariance(6, condition, 0))
    np.testing.assert_allclose(spectrum, condition ** -np.linspace(1, 0, 6), rtol=1e-12)


def test_inputs_are_gaussian_with_that_covariance() -> None:
    n, d = 100_000, 4
    x = load(dimension=d, condition=10.0, train_size=n).train.x.astype(np.float64)
    sigma = generated.covariance(d, 10.0, 0)
    # Entries of x^T x / n have standard deviations of at most sqrt(2 / n) of ||Sigma|| = 1.
    assert np.abs(x.T @ x / n - sigma).max() < 5 * np.sqrt(2 / n)
    assert np.abs(x.mean(axis=0)).max() < 5 / np.sqrt(n)
    z = np.linalg.solve(np.linalg.cholesky(sigma), x.T)
    assert np.mean(z**4) == pytest.approx(3, abs=5 * np.sqrt(96 / (n * d)))


def test_targets_without_noise_are_the_teachers() -> None:
    drawn = load(dimension=5, noise=0.0, gamma=1.0, data_seed=7)
    R = generated.linear_target(5, 1.0, 7)
    for part in (drawn.train, drawn.val, drawn.test):
        np.testing.assert_allclose(part.y, part.x @ R.T, rtol=1e-5, atol=1e-5)


def test_noise_has_its_level_and_is_independent_of_inputs_and_parts() -> None:
    n = 50_000
    noisy = load(noise=0.5, train_size=n, val_size=n)
    R = generated.linear_target(8, 0.5, 0)
    xi = [(part.y - part.x @ R.T) / 0.5 for part in (noisy.train, noisy.val)]  # [n, 8] each
    limit = 5 / np.sqrt(n)
    assert np.abs(xi[0].T @ xi[0] / n - np.eye(8)).max() < np.sqrt(2) * limit
    assert np.abs(xi[0].T @ noisy.train.x / n).max() < limit
    assert np.abs(xi[0].T @ xi[1] / n).max() < limit
    assert np.abs(noisy.train.x.T @ noisy.val.x / n).max() < limit


def test_parts_have_their_sizes_types_and_task() -> None:
    drawn = load()
    assert [len(getattr(drawn, part)) for part in PARTS] == [300, 200, 100]
    assert (drawn.input_shape, drawn.classes, drawn.task.watched) == ((8,), 8, "loss")
    assert {a.dtype for part in PARTS for a in getattr(drawn, part).take(slice(2))} == {
        np.dtype("float32")
    }


def test_everything_is_a_function_of_the_arguments() -> None:
    one, again, other = load(), load(), load(data_seed=1)
    for part in PARTS:
        assert same(getattr(one, part), getattr(again, part)) == (True, True)
        assert same(getattr(one, part), getattr(other, part)) == (False, False)
    assert one.digest == again.digest != other.digest


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"noise": 0.2}, (True, False)),
        ({"gamma": 0.6}, (True, False)),
        ({"condition": 2.0}, (False, False)),
    ],
)
def test_an_argument_changes_what_it_names(
    changed: dict[str, float], kept: tuple[bool, bool]
) -> None:
    assert same(load().val, load(**changed).val) == kept


def test_fewer_training_examples_are_the_first_ones() -> None:
    whole = load()
    for few in (load(100), load(train_size=100), load(100, train_size=200)):
        assert same(few.train, Split(whole.train.x[:100], whole.train.y[:100])) == (True, True)
        assert same(few.val, whole.val) == (True, True)
        assert same(few.test, whole.test) == (True, True)
    assert same(load(5_000).train, whole.train) == (True, True)


def test_a_teacher_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def relu(dimension: int, data_seed: int, *, hidden: int = 3) -> generated.Map:
        W = np.random.default_rng(data_seed).standard_normal((dimension, hidden))
        return lambda x: np.maximum(x @ W, 0).sum(axis=1, keepdims=True)

    monkeypatch.setitem(generated.TEACHERS, "relu", relu)
    assert datasets.get("relu-teacher").start({})["hidden"] == 3
    drawn = datasets.load("relu-teacher", data_args=DRAWN | {"noise": 0.0, "hidden": 2})
    W = np.random.default_rng(0).standard_normal((8, 2))
    assert drawn.classes == 1
    np.testing.assert_allclose(
        drawn.val.y[:, 0], np.maximum(drawn.val.x @ W, 0).sum(axis=1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("dimension", 0), ("train_size", 0), ("val_size", -1), ("test_size", 0)],
        *[
            ("noise", -0.1),
            ("noise", float("nan")),
            ("condition", 0.5),
            ("condition", float("inf")),
        ],
        *[("gamma", -1.0), ("gamma", float("nan")), ("data_seed", -1)],
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(name: str, value: float) -> None:
    with pytest.raises(UserError) as caught:
        load(**{name: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} must be ")
    assert f"Received: {name}={value!r}. Set --{name.replace('_', '-')}" in sentence
