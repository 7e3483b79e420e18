"""Every architecture at its TINY arguments, then what is particular to each.

The first half runs for every module of keras_models: a new one is tested without an edit here.
Its TINY may hold `input_shape` and `classes` where 8x8 images in four classes do not suit it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_models
from tests.keras_models.networks import (
    IMAGE,
    batch,
    features,
    layers_of,
    reloaded,
    tiny,
    trainable_parameters,
    with_zero_blocks,
)
from theory.factorization import balanced

# TensorFlow's arrays do not know NumPy 2's `copy` keyword; Keras's convert_to_numpy runs into it.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

every_architecture = pytest.mark.parametrize("name", keras_models.names())
LINEAR: dict[str, Any] = {"name": "linear_resnet", "input_shape": (8,), "classes": 8}


def compile_for_labels(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])


def kernels(model: keras.Model, part: str) -> np.ndarray:
    """All entries of the kernels of the layers with `part` in their names, as one vector."""
    weights = [weight for weight in model.weights if part in weight.path and weight.ndim > 1]
    return np.concatenate([np.asarray(weight).ravel() for weight in weights])


@every_architecture
def test_output_shape(name: str) -> None:
    model = tiny(name)
    x, _ = batch(model, n=3)
    assert model(x).shape == (3, model.output_shape[-1])


@every_architecture
def test_gradient_reaches_every_trainable_variable(name: str) -> None:
    model = tiny(name)
    x, y = batch(model)
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        losses = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
        loss = keras.ops.mean(losses)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.all(np.isfinite(gradient)), variable.path
        assert np.any(gradient != 0), variable.path


@every_architecture
def test_saved_model_gives_the_same_outputs(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    found = reloaded(model, tmp_path)
    assert len(found.trainable_variables) == len(model.trainable_variables)


@pytest.fixture
def mixed() -> Iterator[None]:
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy("float32")


@every_architecture
def test_outputs_are_in_full_precision_where_the_rest_is_mixed(name: str, mixed: None) -> None:
    types = get_type_hints(importlib.import_module(f"keras_models.{name}").build)
    for kw in [{"variant": variant} for variant in get_args(types.get("variant"))] or [{}]:
        model = tiny(name, **kw)
        assert "bfloat16" in {layer.compute_dtype for layer in model.layers}
        assert model.output.dtype == "float32", kw


DEEP = ("alexnet", "allcnn", "densenet", "resnet", "skip56")  # these take long to trace


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in DEEP)) for n in keras_models.names()]
)
def test_overfits_eight_examples(name: str) -> None:
    model = tiny(name)
    x, y = batch(model)
    compile_for_labels(model, keras.optimizers.Adam(0.01))
    steps = [np.concatenate([array] * 60) for array in (x, y)]  # in one epoch, which is quicker
    model.fit(*steps, batch_size=8, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy == 1.0


@every_architecture
def test_same_seed_same_weights(name: str) -> None:
    for first, second in zip(tiny(name).get_weights(), tiny(name).get_weights(), strict=True):
        assert np.array_equal(first, second)


@every_architecture
def test_no_two_layers_share_initial_values(name: str) -> None:
    matrices = [weight for weight in tiny(name).get_weights() if weight.ndim > 1]
    firsts = [weight.ravel()[:4] / weight.std() for weight in matrices if weight.std() > 0]
    distances = [np.abs(a - b).max() for i, a in enumerate(firsts) for b in firsts[:i]]
    assert min(distances, default=1.0) > 1e-3


@pytest.mark.parametrize("name", keras_models.names())
def test_every_argument_is_described(name: str) -> None:
    build = importlib.import_module(f"keras_models.{name}").build
    assert set(keras_models.describe(name)) == set(build.__kwdefaults__)


def test_names_are_found_without_imports() -> None:
    program = (
        "import sys, keras_models; found = keras_models.names(); "
        "sys.exit('keras' in sys.modules or found != sorted(found) or 'mlp' not in found)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert not [name for name in keras_models.names() if name.startswith("_")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "allconv_resnt"}, r"'allconv_resnt'.*Choose one of: allconv_resnet, .*mlp"),
        ({"name": "_blocks"}, r"Received: name='_blocks'"),
        ({"name": "mlp", "wdth": 3}, r"'wdth'.*It accepts: width, .*input_shape, classes, .*init"),
        ({"name": "mlp", "depth": 0}, r"integer > 0. Received: depth=0"),
        ({"name": "mlp", "width": 2.5}, r"width=2.5"),
        ({"name": "mlp", "classes": True}, r"classes=True"),
        ({"name": "mlp", "init": "large"}, r"init must be one of: small, standard, he. .*'large'"),
        ({"name": "mlp", "input_shape": ()}, r"input_shape must be one or more"),
        ({"name": "allconv_resnet", "input_shape": (8, 8)}, r"must be 3 .*input_shape=\(8, 8\)"),
        ({"name": "allconv_resnet", "input_shape": (8, None, 3)}, r"input_shape\[1\]=None"),
        ({"name": "allconv_resnet", "widths": ()}, r"widths=\(\)"),
        ({"name": "allconv_resnet", "widths": (16, 8)}, r"narrower.*shortcut='projection'"),
        ({"name": "allconv_resnet", "shortcut": "skip"}, r"one of: identity, projection, none"),
        ({"name": "linear_resnet"}, r"input_shape must be 1 integers > 0"),
        (LINEAR | {"classes": 4}, r"as many outputs as inputs. .*\(8,\) and classes=4"),
        (LINEAR | {"depth": 0}, r"depth=0"),
        (LINEAR | {"init": "one"}, r"one of: zeros, small, standard, he. .*'one'"),
    ],
)
def test_error_sentences(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        keras_models.build(**IMAGE | arguments)


def test_paper_network_has_the_reported_size() -> None:
    model = keras_models.build("allconv_resnet", input_shape=(32, 32, 3), classes=10)
    assert len(layers_of(model, keras.layers.Conv2D)) == 55
    assert trainable_parameters(model) == 13_538_736
    assert [tuple(variable.shape) for variable in model.non_trainable_variables] == [(256, 10)]


def test_projection_shortcuts_and_biases_have_the_size_printed_in_section_4_1() -> None:
    model = keras_models.build(
        "allconv_resnet", (32, 32, 3), 10, shortcut="projection", use_bias=True
    )
    assert len(layers_of(model, keras.layers.Conv2D)) == 58
    assert trainable_parameters(model) == 13_589_248  # HM: 13.59 million; Table 1: 13.5M


@pytest.mark.parametrize(
    ("name", "plain"), [("allconv_resnet", {"shortcut": "none"}), ("mlp", {"identity": False})]
)
def test_plain_twin_differs_only_in_the_shortcut(name: str, plain: dict[str, Any]) -> None:
    residual, twin = tiny(name), tiny(name, **plain)
    assert len(layers_of(residual, keras.layers.Add)) > 0
    assert len(layers_of(twin, keras.layers.Add)) == 0
    for first, second in zip(residual.get_weights(), twin.get_weights(), strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("init", "std"), [("small", 1 / 288), ("standard", 32**-0.5 / 3), ("he", 2**0.5 * 32**-0.5 / 3)]
)
def test_initial_std_of_residual_convolutions(init: str, std: float) -> None:
    arguments: dict[str, Any] = {"widths": (32,), "stem_width": 16, "init": init}
    model = tiny("allconv_resnet", **arguments)
    assert kernels(model, "conv1").std() == pytest.approx(std, rel=0.04)
    assert kernels(model, "conv2").std() == pytest.approx(std, rel=0.04)
    assert kernels(model, "block").mean() == pytest.approx(0, abs=std / 20)


def test_stem_and_projections_start_at_the_standard_std() -> None:
    arguments: dict[str, Any] = {"widths": (128,), "stem_width": 64, "shortcut": "projection"}
    model = tiny("allconv_resnet", classes=50, **arguments)
    assert kernels(model, "stem").std() == pytest.approx(1 / 24, rel=0.06)
    assert kernels(model, "projection").std() == pytest.approx(128**-0.5, rel=0.04)
    assert kernels(model, "logits").std() == pytest.approx(128**-0.5, rel=0.04)


@pytest.mark.parametrize(
    ("init", "std"), [("small", 1 / 64), ("standard", 1 / 8), ("he", 2**0.5 / 8)]
)
def test_initial_std_of_fully_connected_blocks(init: str, std: float) -> None:
    assert kernels(tiny("mlp", width=64, init=init), "block").std() == pytest.approx(std, rel=0.04)
    linear = tiny("linear_resnet", input_shape=(64,), classes=64, init=init)
    assert kernels(linear, "A").std() == pytest.approx(std, rel=0.04)


def test_fixed_projection_is_not_trained() -> None:
    model = tiny("allconv_resnet")
    before, stem = kernels(model, "logits"), kernels(model, "stem")
    compile_for_labels(model, keras.optimizers.SGD(0.1))
    model.fit(*batch(model), epochs=2, verbose=0)
    assert np.array_equal(kernels(model, "logits"), before)
    assert not np.array_equal(kernels(model, "stem"), stem)


def test_trained_last_layer_on_request() -> None:
    fixed, trained = tiny("allconv_resnet"), tiny("allconv_resnet", fixed_projection=False)
    assert trainable_parameters(trained) == trainable_parameters(fixed) + 12 * 4


def test_pictures_are_standardized_one_by_one_as_tensorflow_does(tmp_path: Path) -> None:
    model = tiny("allconv_resnet", standardize=True)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype("float32")
    pixels[4], pixels[5] = 7, 0  # of one colour
    pixels[3] = 7
    pixels[3, 0, 0, 0] = 8  # a deviation below 1/sqrt(192)
    before = keras.Model(model.input, model.get_layer("stem").input)
    expected = tf.image.per_image_standardization(pixels)
    np.testing.assert_allclose(before(pixels / 255), expected, rtol=1e-4, atol=1e-5)
    assert model.count_params() == tiny("allconv_resnet").count_params()
    reloaded(model, tmp_path)


def test_zero_convolution_block_is_the_identity() -> None:
    model = with_zero_blocks(tiny("allconv_resnet"))
    before, after = features(model, "stage1_block1_add", "stage1_block2_add")
    assert np.array_equal(after, before)
    assert np.any(before != 0)


def test_zero_fully_connected_block_is_the_identity() -> None:
    before, after = features(with_zero_blocks(tiny("mlp")), "stem", "block2_add")
    assert np.array_equal(after, before)


def test_identity_shortcut_averages_pixels_and_appends_zero_channels() -> None:
    model = with_zero_blocks(tiny("allconv_resnet"))
    stem, wide, narrow, half = features(
        model, "stem", "stage1_block1_add", "stage1_block2_add", "stage2_block1_add"
    )
    assert np.array_equal(wide[..., :4], stem)
    assert np.array_equal(wide[..., 4:], np.zeros((8, 8, 8, 4)))
    averages = narrow.reshape(8, 4, 2, 4, 2, 8).mean(axis=(2, 4))
    np.testing.assert_allclose(half[..., :8], averages, rtol=1e-5, atol=1e-7)
    assert np.array_equal(half[..., 8:], np.zeros((8, 4, 4, 4)))


def test_block_adds_its_branch_to_its_input() -> None:
    names = ("stage1_block1_add", "stage1_block2_conv2", "stage1_block2_add")
    x, branch, y = features(tiny("allconv_resnet"), *names)
    assert np.array_equal(y, x + branch)
    assert np.any(branch != 0)


def target(d: int) -> np.ndarray:
    """A matrix [d, d] with det > 0 and no symmetry."""
    R = np.eye(d) + np.random.default_rng(d).standard_normal((d, d)) / 2
    R[0] *= np.sign(np.linalg.det(R))
    return R


def test_linear_network_of_given_layers_is_their_product() -> None:
    A = balanced(target(6), 9)
    model = tiny("linear_resnet", input_shape=(6,), classes=6, depth=9)
    model.set_weights(list(A.mT))  # Keras multiplies from the right, x A^T
    x = np.random.default_rng(0).standard_normal((20, 6))
    expected = x @ target(6).T
    np.testing.assert_allclose(model(x), expected, atol=1e-5 * np.abs(expected).max())


def test_linear_network_of_zeros_is_the_identity() -> None:
    model = tiny("linear_resnet", init="zeros", depth=50)
    x, _ = batch(model)
    assert np.array_equal(model(x), x)
    assert all(np.all(weight == 0) for weight in model.get_weights())


def test_linear_network_sums_in_full_precision_where_it_multiplies_in_half(mixed: None) -> None:
    model = tiny("linear_resnet", init="zeros")
    x, _ = batch(model)
    assert np.array_equal(model(x), x)  # bfloat16 would keep 8 bits of x
    assert {layer.compute_dtype for layer in model.layers if layer.name[0] == "A"} == {"bfloat16"}
