"""All-CNN, DenseNet and AlexNet: published sizes, and what is particular to each.

What they share with every architecture is tested in test_models.py.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import keras_models
from keras_models.alexnet import response_normalization, two_towers
from tests.keras_models.networks import (
    batch,
    features,
    layers_of,
    tiny,
    trainable_parameters,
    weight_layers,
)

# TensorFlow's arrays do not know NumPy 2's `copy` keyword; Keras's convert_to_numpy runs into it.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = ("allcnn", "alexnet", "densenet")
CIFAR: dict[str, Any] = {"input_shape": (32, 32, 3), "classes": 10}
IMAGENET: dict[str, Any] = {"input_shape": (224, 224, 3), "classes": 1000}
PLAIN: dict[str, Any] = {"bottleneck": False, "compression": 1.0}
DROPOUT: dict[str, dict[str, Any]] = {
    "allcnn": {"dropout": True},
    "alexnet": {"dropout": 0.5},
    "densenet": {"dropout": 0.2},
    "allconv_resnet": {"dropout": 0.3},
}


def sides(model: keras.Model, *names: str) -> list[int]:
    """Pixels along one side of the named layers' outputs."""
    return [model.get_layer(name).output.shape[1] for name in names]


def test_allcnn_c_is_the_published_network() -> None:
    model = keras_models.build("allcnn", **CIFAR)
    assert trainable_parameters(model) == 1_369_738
    assert len(weight_layers(model)) == 9
    assert sides(model, "conv2", "conv3", "conv6", "conv7", "conv9") == [32, 16, 8, 6, 6]
    rates = [layer.rate for layer in layers_of(model, keras.layers.Dropout)]
    assert rates == [0.2, 0.5, 0.5]


def test_allcnn_for_imagenet_is_the_published_network() -> None:
    model = keras_models.build("allcnn", form="imagenet", **IMAGENET)
    assert trainable_parameters(model) == 9_372_840  # "less than 10 million"
    assert len(weight_layers(model)) == 12
    assert sides(model, "conv2", "conv3", "conv6", "conv9", "conv12") == [56, 27, 13, 6, 6]


def test_allcnn_averages_the_last_maps() -> None:
    model = tiny("allcnn", last_relu=True)
    parts = keras.Model(model.input, [model.get_layer("conv9").output, model.output])
    maps, outputs = (np.asarray(part) for part in parts(batch(model)[0]))
    np.testing.assert_allclose(outputs, maps.mean(axis=(1, 2)), rtol=1e-5)
    assert maps.min() == 0 < maps.max()


@pytest.mark.parametrize(("form", "side"), [("cifar", 9), ("imagenet", 57)])
def test_smallest_image_of_allcnn_is_one_pixel_at_the_end(form: str, side: int) -> None:
    model = tiny("allcnn", form=form, input_shape=(side, side, 3))
    assert model.layers[-2].output.shape[1:3] == (1, 1)


def densenet_size(layers_per_block: int, growth: int, bottleneck: bool) -> int:
    depth = (6 if bottleneck else 3) * layers_per_block + 4
    kind = {} if bottleneck else PLAIN
    model = keras_models.build("densenet", depth=depth, growth=growth, **kind, **CIFAR)
    assert len(weight_layers(model)) == depth
    return trainable_parameters(model)


@pytest.mark.parametrize(
    ("growth", "bottleneck", "depth", "size"),
    [(12, True, 100, 769_162), (40, True, 190, 25_624_430), (24, False, 100, 27_249_082)],
)
def test_densenet_grows_to_the_published_size(
    growth: int, bottleneck: bool, depth: int, size: int
) -> None:
    """Widths are linear in the layers per block n, the size quadratic: three builds tell all."""
    one, two, three = (densenet_size(n, growth, bottleneck) for n in (1, 2, 3))
    n = (depth - 4) // (6 if bottleneck else 3)
    slope, curvature = two - one, three - 2 * two + one
    assert one + (n - 1) * slope + (n - 1) * (n - 2) // 2 * curvature == size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "growth", "bottleneck", "size"),
    [(16, 12, True, 769_162), (31, 40, True, 25_624_430), (32, 24, False, 27_249_082)],
)
def test_deep_densenets_have_the_published_size(
    n: int, growth: int, bottleneck: bool, size: int
) -> None:
    assert densenet_size(n, growth, bottleneck) == size


def test_densenet_halves_images_and_compresses_channels() -> None:
    model = tiny("densenet", depth=16, growth=4, **CIFAR)
    shapes = [
        model.get_layer(name).output.shape[1:]
        for name in ("block1_layer2_concat", "transition1_pool", "transition2_pool", "last_relu")
    ]
    assert shapes == [(32, 32, 16), (16, 16, 8), (8, 8, 8), (8, 8, 16)]


def test_densenet_layer_keeps_the_channels_before_it() -> None:
    model = tiny("densenet")
    x, y = features(model, "stem_conv", "block1_layer1_concat")
    assert np.array_equal(y[..., : x.shape[-1]], x)
    assert y.shape[-1] == x.shape[-1] + 4


def test_alexnet_is_the_published_network() -> None:
    model = keras_models.build("alexnet", **IMAGENET)
    assert trainable_parameters(model) == 60_965_224
    assert len(weight_layers(model)) == 8 + 3  # three of the eight are two towers
    stages = ("conv1", "pool1", "conv2", "pool2", "conv5", "pool5")
    assert sides(model, *stages) == [55, 27, 27, 13, 13, 6]
    assert model.get_layer("conv2_tower1").kernel.shape == (5, 5, 48, 128)
    kernel = np.asarray(model.get_layer("conv3").kernel)
    assert kernel.std() == pytest.approx(0.01, rel=0.01)
    ones = {layer.name for layer in weight_layers(model) if np.all(np.asarray(layer.bias) == 1)}
    towers = {f"conv{i}_tower{tower}" for i in (2, 4, 5) for tower in (1, 2)}
    assert ones == towers | {"fc6", "fc7"}
    assert all(layer.name in ones or not np.any(layer.bias) for layer in weight_layers(model))


@pytest.mark.parametrize(("side", "padded"), [(64, 67), (67, 67), (224, 227), (227, 227)])
def test_alexnet_pads_up_to_its_windows(side: int, padded: int) -> None:
    model = tiny("alexnet", input_shape=(side, side, 3))
    assert sides(model, "padding", "conv1") == [padded, (padded - 11) // 4 + 1]


def test_response_normalization_is_the_papers_sum() -> None:
    x = 50 * np.random.default_rng(0).standard_normal((2, 3, 3, 7)).astype("float32")
    expected = np.empty_like(x)
    for i in range(7):
        near = x[..., max(0, i - 2) : min(6, i + 2) + 1]
        expected[..., i] = x[..., i] / (2 + 1e-4 * np.sum(near**2, axis=-1)) ** 0.75
    y = response_normalization(keras.ops.convert_to_tensor(x))
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_a_tower_sees_its_half_of_the_channels() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 5, 4))
    model = keras.Model(inputs, two_towers(inputs, 6, 3, init="he", name="conv"))
    x = batch(model)[0]
    other = x.copy()
    other[..., 2:] += 1
    y, changed = np.asarray(model(x)), np.asarray(model(other))
    assert np.array_equal(y[..., :3], changed[..., :3])
    assert np.any(y[..., 3:] != changed[..., 3:])


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_acts_in_training_only_and_follows_the_seed(name: str) -> None:
    model = tiny(name, **DROPOUT[name])
    x = batch(model)[0]
    first, second = np.asarray(model(x, training=True)), np.asarray(model(x, training=True))
    assert np.any(first != second)
    again = tiny(name, **DROPOUT[name])
    assert np.array_equal(again(x, training=True), first)
    without = tiny(name)
    without.set_weights(again.get_weights())
    assert np.array_equal(again(x), without(x))


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_goes_on_from_its_saved_state(name: str) -> None:
    model = tiny(name, **DROPOUT[name])
    x = batch(model)[0]
    before = [np.array(variable) for variable in model.variables]
    expected = np.asarray(model(x, training=True))
    model(x, training=True)
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)
    assert np.array_equal(model(x, training=True), expected)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "allcnn", "form": "mnist"}, r"form must be one of: cifar, imagenet. .*'mnist'"),
        ({"name": "allcnn", "width": 0}, r"width must be > 0. Received: width=0"),
        ({"name": "allcnn", "input_shape": (8, 32, 3)}, r"9x9 pixels or larger. .*\(8, 32, 3\)"),
        ({"name": "allcnn", "form": "imagenet"}, r"57x57 pixels or larger"),
        ({"name": "densenet", "depth": 101}, r"6n \+ 4, .*bottleneck=True. Received: depth=101"),
        ({"name": "densenet", "depth": 4}, r"Received: depth=4"),
        ({"name": "densenet", "depth": 12, **PLAIN}, r"3n \+ 4.*depth=12"),
        ({"name": "densenet", "compression": 0}, r"in \(0, 1\]. Received: compression=0"),
        ({"name": "densenet", "dropout": 1.0}, r"in \[0, 1\). Received: dropout=1.0"),
        ({"name": "alexnet"}, r"64x64 pixels or larger. .*\(32, 32, 3\)"),
        ({"name": "alexnet", "init": "small"}, r"init must be one of: published, he"),
        ({"name": "alexnet", "width": -1}, r"width=-1"),
        ({"name": "alexnet", "dropout": -0.1}, r"dropout=-0.1"),
        ({"name": "allconv_resnet", "dropout": 1.0}, r"in \[0, 1\). Received: dropout=1.0"),
    ],
)
def test_error_sentences(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        keras_models.build(**CIFAR | arguments)
