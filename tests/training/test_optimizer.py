"""Momentum by hand, the rate table, and weight decay as a term of the loss.

The numbers are sums of powers of 2 and so exact in float32.
"""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_models
from pipelines.recipes.catalog import get_recipe
from pipelines.training.optimizer import (
    AccumulatedSGD,
    MomentumSGD,
    RateTable,
    add_weight_decay,
    build_optimizer,
)

RATES = np.array([0.5, 0.5, 0.125, 0.125])
GRADIENTS = [1.0, 2.0, -1.0, 4.0]


def path(optimizer: keras.optimizers.Optimizer, gradients: list[float]) -> list[float]:
    """The weight after every step, from 0."""
    weight = keras.Variable(0.0)
    weights = []
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        weights.append(float(weight.value))
    return weights


BY_HAND = {
    # v = 1, 2.5, 0.25, 4.125 with momentum 1/2; each step subtracts rate * v.
    "momentum": ({"momentum": 0.5}, [-0.5, -1.75, -1.78125, -2.296875]),
    # v as above; each step subtracts rate * (g + v/2): 1.5, 3.25, -0.875, 6.0625.
    "Nesterov": (
        {"momentum": 0.5, "nesterov": True},
        [-0.75, -2.375, -2.265625, -3.0234375],
    ),
    # v holds the rate, as Keras's does: 0.5, 1.25, 0.5, 0.75; each step subtracts it.
    "rate in v": ({"momentum": 0.5, "rate_in_velocity": True}, [-0.5, -1.75, -2.25, -3.0]),
    # Gradient descent: -1/2, -1/2 - 2/2, + 1/8, - 4/8.
    "none": ({"momentum": 0.0}, [-0.5, -1.5, -1.375, -1.875]),
}


@pytest.mark.parametrize("form", BY_HAND)
def test_momentum_by_hand(form: str) -> None:
    settings, expected = BY_HAND[form]
    assert path(MomentumSGD(RateTable(RATES), **settings), GRADIENTS) == expected


@pytest.mark.parametrize("nesterov", [False, True])
def test_at_one_rate_and_with_the_rate_in_the_velocity_it_is_keras_sgd(nesterov: bool) -> None:
    settings = {"momentum": 0.5, "nesterov": nesterov}
    for rates, inside in (([0.25], False), (RATES, True)):
        table = RateTable(np.array(rates))
        own = path(MomentumSGD(table, rate_in_velocity=inside, **settings), GRADIENTS)
        assert own == path(keras.optimizers.SGD(table, **settings), GRADIENTS)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_pieces_make_the_steps_of_their_mean_gradients(
    momentum: float, nesterov: bool, inside: bool
) -> None:
    settings: dict[str, Any] = {"momentum": momentum, "nesterov": nesterov and momentum > 0}
    settings["rate_in_velocity"] = inside
    gradients = np.random.default_rng(0).integers(-4, 5, 8) / 2  # exact in binary
    pieces = AccumulatedSGD(RateTable(np.repeat(RATES, 2)), pieces=2, **settings)
    along = path(pieces, gradients.tolist())
    means = gradients.reshape(4, 2).mean(axis=1)
    assert along[1::2] == path(MomentumSGD(RateTable(RATES), **settings), means.tolist())
    assert along[::2] == [0.0, *along[1:-1:2]]  # nothing moves between


def test_all_weights_decay_where_they_are_to() -> None:
    arguments = {"input_shape": (8, 8, 3), "classes": 4, "depth": 10, "growth": 4}
    model = keras_models.build("densenet", **arguments)
    kernels = add_weight_decay(model, 0.25)
    assert kernels == sum(len(v.shape) > 1 for v in model.trainable_variables)
    model = keras_models.build("densenet", **arguments)
    assert add_weight_decay(model, 0.25, all_of_them=True) == len(model.trainable_variables)
    squares = sum(float(np.sum(np.square(v))) for v in model.trainable_variables)
    assert float(sum(model.losses)) == pytest.approx(0.125 * squares, rel=1e-5)


def test_the_recipes_choose_the_form_of_the_velocity_and_what_decays() -> None:
    forms = {
        name: build_optimizer(get_recipe(name, "paper"), RATES).rate_in_velocity
        for name in ("allconv-cifar10", "resnet-cifar10", "resnet-cifar100", "densenet-cifar10")
    }
    assert [*forms.values()] == [False, True, False, False]


@pytest.mark.parametrize(("ema", "pieces", "steps"), [
    (0.75, 1, 40), (0.75, 2, 40), (0.9999, 64, 10_000), (0.9999, 8, 10_000),
    (0.99999, 64, 4_000), (0.99999, 8, 10_000), (0.99999, 1, 10_000),
])  # fmt: skip
def test_averages_are_those_of_float64_however_many_pieces_a_step_has(
    ema: float, pieces: int, steps: int
) -> None:
    settings = {"ema": ema, "accumulate": pieces, "batch_size": 64, "momentum": 0.0}
    recipe = get_recipe("mlp-digits", "smoke").override(**settings)
    optimizer = build_optimizer(recipe, np.full(steps, 2.0**-20))
    weight = keras.Variable(np.array([1.0, -3.0, 0.5, 0.0], np.float32))
    optimizer.build([weight])
    along = np.array([-4.0, -64.0, 1.0, -32.0])  # the first: from 1.0 to 1.038 in 10,000 steps

    @tf.function(jit_compile=True)
    def train() -> None:
        for _ in tf.range(steps * pieces):
            optimizer.apply([tf.constant(along, tf.float32)], [weight])

    train()
    first = np.array([1.0, -3.0, 0.5, 0.0]) - 2.0**-20 * along
    average = first
    for step in range(1, steps):
        average = ema * average + (1 - ema) * (first - step * 2.0**-20 * along)
    last = weight.numpy().copy()
    np.testing.assert_array_equal(last, first - (steps - 1) * 2.0**-20 * along)
    optimizer.finalize_variable_values([weight])  # as Keras does at the end of every fit
    np.testing.assert_array_equal(weight.numpy(), last)
    optimizer.put_averages([weight])
    np.testing.assert_allclose(weight.numpy(), average, rtol=2.0**-23)


def test_averages_stand_still_between_the_pieces_of_a_step() -> None:
    recipe = get_recipe("mlp-digits", "smoke").override(ema=0.5, accumulate=2, momentum=0.0)
    optimizer, weight = build_optimizer(recipe, np.full(4, 1.0)), keras.Variable(1.0)
    found = []
    for gradient in (1.0, 1.0, -2.0, -2.0):  # weights 1, 0, 0, 2
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weight])
        now = float(weight.value)
        optimizer.put_averages([weight])
        found.append(float(weight.value))
        weight.assign(now)
    assert found[1:] == [0.0, 0.0, 1.0]


def test_momentum_is_kept_for_every_weight_apart() -> None:
    optimizer = MomentumSGD(RateTable(RATES), momentum=0.5)
    one, two = keras.Variable([0.0, 8.0]), keras.Variable([[4.0]])
    for gradient in GRADIENTS[:2]:
        grads = [keras.ops.array([gradient, 0.0]), keras.ops.array([[2 * gradient]])]
        optimizer.apply(grads, [one, two])
    np.testing.assert_array_equal(one, [-1.75, 8.0])
    np.testing.assert_array_equal(two, [[0.5]])


def test_training_follows_the_same_path() -> None:
    # The loss mean(w x) has gradient x on one example: fit, in a compiled graph, as by hand.
    inputs = keras.Input((1,))
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Model(inputs, layer(inputs))
    model.compile(MomentumSGD(RateTable(RATES), momentum=0.5), loss=lambda _, y: y)
    x = np.array(GRADIENTS, np.float32)[:, None]
    model.fit(x, x, batch_size=1, shuffle=False, verbose=0)
    assert float(layer.kernel.value[0, 0]) == -2.296875


def test_rates_are_looked_up_and_the_last_one_holds() -> None:
    table = RateTable(np.array([0.1, 0.2, 0.3]))
    found = [float(table(step)) for step in (0, 1, 2, 3, 1_000_000)]
    assert found == [float(np.float32(rate)) for rate in (0.1, 0.2, 0.3, 0.3, 0.3)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rates_are_looked_up_in_a_graph(dtype: str) -> None:
    table = tf.function(RateTable(np.array([0.5, 0.25, 0.125])))
    assert [float(table(tf.constant(step, dtype))) for step in (0, 1, 2, 9)] == [
        0.5, 0.25, 0.125, 0.125,
    ]  # fmt: skip


def test_a_rate_table_survives_its_configuration() -> None:
    rates = np.geomspace(1, 1e-6, 50)
    again = RateTable.from_config(RateTable(rates).get_config())
    assert [float(again(i)) for i in range(50)] == [float(np.float32(rate)) for rate in rates]


def network() -> keras.Model:
    """Convolutions of kernels 2, -1 and 1, the last not trained, and two such dense layers of 1."""
    inputs = keras.Input((4, 4, 1))
    two, minus_one = keras.initializers.Constant(2.0), keras.initializers.Constant(-1.0)
    x = keras.layers.Conv2D(3, 3, kernel_initializer=two, bias_initializer="ones")(inputs)
    x = keras.layers.Conv2D(2, 1, kernel_initializer=minus_one)(x)
    x = keras.layers.Conv2D(2, 1, kernel_initializer="ones", trainable=False)(x)
    x = keras.layers.Dense(2, kernel_initializer="ones")(keras.layers.Flatten()(x))
    x = keras.layers.Dense(2, kernel_initializer="ones", trainable=False)(x)
    return keras.Model(inputs, x)


# |kernel|^2 of what is trained: 3 * 9 * 2^2 = 108, 2 * 3 * (-1)^2 = 6, and 2 * 2 * 2 * 2 ones.
SQUARES = 108 + 6 + 16


@pytest.mark.parametrize("decay", [0.5, 2.0**-10])
def test_the_loss_grows_by_half_the_decay_times_the_squares(decay: float) -> None:
    x, y = np.zeros((2, 4, 4, 1), np.float32), np.zeros((2, 2), np.float32)
    losses = []
    for each in (0.0, decay):
        model = network()
        assert add_weight_decay(model, each) == 3
        model.compile(loss=keras.losses.MeanSquaredError())
        losses.append(model.evaluate(x, y, verbose=0))
    assert losses[1] - losses[0] == decay / 2 * SQUARES


def test_its_gradient_is_the_decay_times_the_kernel() -> None:
    model = network()
    add_weight_decay(model, 0.5)
    with tf.GradientTape() as tape:
        penalty = sum(model.losses)
    weights = model.trainable_variables
    gradients = tape.gradient(penalty, [weight.value for weight in weights])
    decayed = {weight.path for weight in weights if weight.path.endswith("/kernel")}
    for weight, gradient in zip(weights, gradients, strict=True):
        if weight.path in decayed:
            np.testing.assert_array_equal(gradient, 0.5 * weight.numpy())
        else:  # biases
            assert gradient is None
    assert (len(weights), len(decayed)) == (6, 3)


def test_one_step_shrinks_kernels_and_leaves_the_rest() -> None:
    # Where the loss itself has no gradient, w <- w - rate * decay * w.
    model = network()
    add_weight_decay(model, 0.5)
    before = [weight.numpy() for weight in model.weights]
    model.compile(MomentumSGD(RateTable(RATES), momentum=0.5), loss=lambda _, y: 0 * y)
    model.fit(np.ones((1, 4, 4, 1)), np.ones((1, 2)), verbose=0)
    shrunk = [0.75, 1, 0.75, 1, 1, 1, 0.75, 1, 1, 1]  # kernel and bias of each layer in turn
    for factor, old, weight in zip(shrunk, before, model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), factor * old)


def test_hm_table_1_decays_every_convolution_and_not_its_projection() -> None:
    small = {"blocks_per_stage": 2, "widths": (8, 16), "stem_width": 4}
    model = keras_models.build("allconv_resnet", (8, 8, 3), 10, **small)
    assert add_weight_decay(model, 1e-4) == 1 + 2 * 2 * 2  # the stem, then two a block
    kernels = [weight for weight in model.weights if len(weight.shape) == 4]
    squares = sum(float((weight.numpy().astype(np.float64) ** 2).sum()) for weight in kernels)
    assert len(kernels) == 9
    assert float(sum(model.losses)) == pytest.approx(0.5e-4 * squares, rel=1e-5)


def test_dense_layers_decay_and_normalization_does_not() -> None:
    inputs = keras.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(3, use_bias=False)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    assert add_weight_decay(model, 1e-4) == 2
    assert len(model.losses) == 2


def test_a_network_without_kernels_has_nothing_to_decay() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.BatchNormalization()(inputs))
    assert add_weight_decay(model, 1e-4) == 0
    assert model.losses == []
