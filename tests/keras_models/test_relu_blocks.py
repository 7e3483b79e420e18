"""Blocks relu(x + W x): what zeros do with the identity, and that nothing moves without it."""

from typing import Any

import keras
import numpy as np
import pytest

import keras_models
from pipelines.claims.li_yuan import zero_init


def network(**arguments: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras_models.build("relu_blocks", (2, 1, 1), 2, **{"depth": 2} | arguments)


def test_outputs_by_hand() -> None:
    # x = (1, -1): x + W1 x = (1 - 2, -1 + 3) -> (0, 2); then (0 + 2, 2 + 2); logits (4, 2 - 4).
    W1, W2, last = [[0, 1], [2, -2]], [[0, 0], [1, 1]], [[0, 1], [1, -1]]
    model = network()
    model.set_weights([np.array(weight, float) for weight in (W1, W2, last)])
    x = np.array([1.0, -1.0]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(model.predict(x, verbose=0), [[4, -2]])


@pytest.mark.parametrize("identity", [True, False])
def test_zeros_are_left_with_the_identity_only(identity: bool) -> None:
    model = network(identity=identity, init="zeros")
    assert not any(np.any(weight) for weight in model.get_weights())
    x = np.abs(np.random.default_rng(0).standard_normal((20, 2, 1, 1)))
    y = (x[:, 0, 0, 0] > x[:, 1, 0, 0]).astype(int)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(x, y, batch_size=10, epochs=2, shuffle=False, verbose=0)
    moved = [bool(np.any(weight)) for weight in model.get_weights()]
    assert moved == [identity] * 3


def test_random_weights_fill_the_interval_of_their_width() -> None:
    weights = keras_models.build("relu_blocks", (16, 16, 1), 10, depth=2).get_weights()
    assert not np.array_equal(*weights[:2])
    for weight in weights:
        assert np.abs(weight).max() == pytest.approx(1 / 16, rel=0.01)
        assert np.abs(weight).max() <= 1 / 16
        assert weight.std() == pytest.approx(1 / 16 / np.sqrt(3), rel=0.05)


EQUAL = [-0.1, 0.0, 0.02, 0.06, 0.1]  # differences of five seeds


@pytest.mark.parametrize(
    ("difference", "error", "verdict"),
    [
        (EQUAL, 1.45, "holds"),
        ([each + 0.3 for each in EQUAL], 1.45, "broken"),
        ([each - 0.3 for each in EQUAL], 1.45, "broken"),  # better is not equal
        ([4 * each for each in EQUAL], 1.45, "inconclusive"),
        (EQUAL, 90.2, "inconclusive"),  # both have learned nothing
    ],
)
def test_the_starts_are_shown_equal(difference: list[float], error: float, verdict: str) -> None:
    values = dict.fromkeys(zero_init.REPORTED, [error] * 5)
    values |= {"zeros_minus_random_pct": difference, "plain_zeros_test_error_pct": [90.2] * 5}
    assert zero_init.CLAIM.outcome(values, "paper") == verdict
    learned = values | {"plain_zeros_test_error_pct": [1.5] * 5}
    assert zero_init.CLAIM.outcome(learned, "paper") != "holds"


def test_the_published_network_has_five_blocks_of_784_units() -> None:
    for recipe in zero_init.recipes(zero_init.Setting(), seed=0).values():
        model = keras_models.build(recipe.model, (28, 28, 1), 10, **recipe.model_args)
        assert model.count_params() == 5 * 784**2 + 10 * 784
        assert (recipe.data, recipe.batch_size, recipe.learning_rate) == ("mnist", 256, 0.1)
        assert recipe.data_args == {"standardized": False}
