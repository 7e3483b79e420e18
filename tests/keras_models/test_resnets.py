"""Sizes, shapes and shortcuts of the residual networks, as their papers state them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_models
from keras_models.resnet import normalized_convolution
from tests.keras_models.networks import (
    IMAGE,
    features,
    images,
    layers_of,
    reloaded,
    trainable_parameters,
    weight_layers,
    with_zero_blocks,
)

# TensorFlow's arrays do not know NumPy 2's `copy` keyword; Keras's convert_to_numpy runs into it.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

IMAGENET: dict[str, Any] = {"input_shape": (224, 224, 3), "classes": 1000, "stem": "imagenet"}
RESNET_34 = {"blocks_per_stage": (3, 4, 6, 3), "widths": (64, 128, 256, 512)}
RESNET_152 = RESNET_34 | {"blocks_per_stage": (3, 8, 36, 3), "block": "bottleneck"}
ALLCONV_34 = {"blocks_per_stage": (3, 4, 6, 3), "widths": (80, 168, 328, 672), "stem_width": 64}
RESNET_164 = {"blocks_per_stage": 18, "block": "bottleneck", "shortcut": "projection"}
FOOTNOTE5 = {"leak": 0.1, "outer_relus": True, "zeros": "around", "logits_bias": True}
VARIANTS = ("two-layer", "single", "vanilla")


def cifar(name: str, **kw: Any) -> keras.Model:
    return keras_models.build(name, (32, 32, 3), 10, **kw)


def tiny(name: str, **kw: Any) -> keras.Model:
    """Two stages of two blocks, from seed 0."""
    keras.utils.set_random_seed(0)
    narrow = {"stem_width": 4} if name == "allconv_resnet" else {}
    arguments = IMAGE | {"blocks_per_stage": 2, "widths": (4, 8)} | narrow
    return keras_models.build(name, **arguments | kw)


def weighted_layers(model: keras.Model) -> int:
    """Convolutions and dense layers, as papers count depth: shortcuts not among them."""
    return sum("projection" not in layer.name for layer in weight_layers(model))


def shape(model: keras.Model, layer: str) -> tuple[int, ...]:
    """Symbolic output shape of a layer without the batch."""
    return tuple(model.get_layer(layer).output.shape[1:])


# He et al. 2016, section 4.2, Table 6, print 0.27, 0.46, 0.66, 0.85 and 1.7 million.
@pytest.mark.parametrize(
    ("n", "depth", "millions"),
    [(3, 20, "0.27"), (5, 32, "0.46"), (7, 44, "0.66"), (9, 56, "0.85"), (18, 110, "1.7")],
)
def test_cifar_resnets_have_the_published_size(n: int, depth: int, millions: str) -> None:
    model = cifar("resnet", blocks_per_stage=n)
    assert weighted_layers(model) == depth
    digits = len(millions.partition(".")[2])
    assert f"{trainable_parameters(model) / 1e6:.{digits}f}" == millions


# He et al. 2016 (arXiv 1603.05027), Table 4. The original unit normalizes after every convolution,
# projections included; the other one ahead of every convolution of a branch, and after the last.
@pytest.mark.parametrize("unit", ["original", "preactivation"])
def test_resnet_164_has_the_published_size(unit: str) -> None:
    model = keras_models.build("resnet", (32, 32, 3), 100, **RESNET_164, unit=unit)
    assert weighted_layers(model) == 164
    assert f"{trainable_parameters(model) / 1e6:.1f}" == "1.7"
    norms = layers_of(model, keras.layers.BatchNormalization)
    assert len(norms) == 1 + 3 * 54 + (3 if unit == "original" else 0)
    assert shape(model, "stage3_block18_add") == (8, 8, 256)
    narrow = keras_models.build(
        "resnet", (32, 32, 3), 100, **RESNET_164 | {"blocks_per_stage": 1}, unit=unit
    )
    assert np.isfinite(narrow(images(2, 32, 32, 3))).all()


def test_a_preactivated_block_rectifies_ahead_of_its_convolutions_and_not_its_sum() -> None:
    model = tiny("resnet", block="bottleneck", shortcut="projection", unit="preactivation")
    block = "stage1_block2"
    before, branch, after = features(model, "stage1_block1_add", f"{block}_conv3", f"{block}_add")
    assert np.array_equal(after, before + branch)
    assert after.min() < 0
    for i in (1, 2, 3):
        history = model.get_layer(f"{block}_conv{i}").input._keras_history.operation
        assert history.name == f"{block}_pre{i}_relu"
    projection = model.get_layer("stage2_block1_projection")
    assert projection.input is model.get_layer("stage2_block1_conv1").input
    assert layers_of(model, keras.layers.ReLU)[-1].name == "head_relu"
    assert model.get_layer("pool").input is model.get_layer("head_relu").output


# The numbers of weights of torchvision's resnet34 and resnet152.
@pytest.mark.parametrize(
    ("arguments", "depth", "parameters", "channels"),
    [
        (RESNET_34, 34, 21_797_672, 1),
        pytest.param(RESNET_152, 152, 60_192_808, 4, marks=pytest.mark.slow),
    ],
)
def test_imagenet_resnets_have_the_published_size_and_shapes(
    arguments: dict[str, Any], depth: int, parameters: int, channels: int
) -> None:
    model = keras_models.build("resnet", shortcut="projection", **IMAGENET, **arguments)
    assert weighted_layers(model) == depth
    assert trainable_parameters(model) == parameters
    assert shape(model, "stem") == (112, 112, 64)
    assert shape(model, "stem_pool") == (56, 56, 64)
    for stage, (size, width) in enumerate([(56, 64), (28, 128), (14, 256), (7, 512)], 1):
        assert shape(model, f"stage{stage}_block3_out") == (size, size, channels * width)


def test_half_a_stem_leaves_every_stage_twice_the_pixels_of_imagenets() -> None:
    arguments = ALLCONV_34 | {"widths": (4, 6, 8, 10), "stem_width": 4}
    sizes = []
    for stem in ("half", "imagenet"):
        model = keras_models.build("allconv_resnet", (64, 64, 3), 5, **arguments | {"stem": stem})
        sizes.append([shape(model, f"stage{i}_block1_add")[0] for i in range(1, 5)])
    assert sizes == [[32, 16, 8, 4], [16, 8, 4, 2]]
    half = keras_models.build("allconv_resnet", (64, 64, 3), 5, **arguments | {"stem": "half"})
    assert half.get_layer("stem").kernel_size == (3, 3)
    assert weighted_layers(half) == 34


def test_imagenet_allconv_has_the_reported_size_and_shapes() -> None:
    model = keras_models.build("allconv_resnet", **IMAGENET, **ALLCONV_34)
    assert weighted_layers(model) == 34
    assert trainable_parameters(model) / 1e6 == pytest.approx(35.69, abs=0.005)
    assert layers_of(model, keras.layers.MaxPooling2D) == []
    assert shape(model, "stem") == (112, 112, 64)
    for stage, (size, width) in enumerate([(56, 80), (28, 168), (14, 328), (7, 672)], 1):
        assert shape(model, f"stage{stage}_block1_add") == (size, size, width)


def test_skip56_variants_have_the_same_weights_and_other_skips() -> None:
    models = []
    for variant in VARIANTS:
        keras.utils.set_random_seed(0)
        models.append(cifar("skip56", variant=variant))
    assert [weighted_layers(model) for model in models] == [56, 56, 56]
    assert [len(layers_of(model, keras.layers.Add)) for model in models] == [27, 54, 0]
    assert {trainable_parameters(model) for model in models} == {853_018}
    for weights in zip(*(model.get_weights() for model in models), strict=True):
        assert all(np.array_equal(weights[0], other) for other in weights[1:])


def test_batch_norm_follows_each_convolution_of_a_branch() -> None:
    plain, normalized = tiny("allconv_resnet"), tiny("allconv_resnet", batch_norm=True)
    norms = layers_of(normalized, keras.layers.BatchNormalization)
    assert len(norms) == weighted_layers(plain) - 2  # neither stem nor logits
    assert {layer.input._keras_history.operation.name for layer in norms} == {
        layer.name for layer in layers_of(plain, keras.layers.Conv2D) if "block" in layer.name
    }
    channels = sum(layer.output.shape[-1] for layer in norms)
    assert trainable_parameters(normalized) == trainable_parameters(plain) + 2 * channels


def test_dropout_stands_between_the_convolutions_of_every_branch() -> None:
    plain, model = tiny("allconv_resnet"), tiny("allconv_resnet", dropout=0.3)
    dropouts = layers_of(model, keras.layers.Dropout)
    first = [each for each in layers_of(plain, keras.layers.ReLU) if "block" in each.name]
    assert {each.input._keras_history.operation.name for each in dropouts} == {
        layer.name for layer in first
    }
    assert {each.rate for each in dropouts} == {0.3}
    assert not layers_of(plain, keras.layers.Dropout)


def test_batch_norm_standardizes_even_small_weights() -> None:
    model = tiny("allconv_resnet", batch_norm=True, init="small")
    norm = model.get_layer("stage2_block2_norm2")
    y = np.asarray(keras.Model(model.input, norm.output)(images(64, 8, 8, 3), training=True))
    np.testing.assert_allclose(y.mean(axis=(0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(y.var(axis=(0, 1, 2)), 1, rtol=0.05)


@pytest.mark.parametrize(("block", "last"), [("basic", "conv2"), ("bottleneck", "conv3")])
def test_zero_branch_passes_the_input_of_its_block(block: str, last: str) -> None:
    model = tiny("resnet", block=block)
    norm = model.get_layer(f"stage1_block2_{last}_norm")
    norm.set_weights([np.zeros_like(weight) for weight in norm.get_weights()])
    before, after = features(model, "stage1_block1_out", "stage1_block2_out")
    assert np.array_equal(after, before)
    assert np.any(before != 0)


def test_the_network_of_footnote_5_leaks_at_every_relu_behind_the_stem_and_ahead_of_the_pool() -> (
    None
):
    plain, model = tiny("allconv_resnet"), tiny("allconv_resnet", **FOOTNOTE5)
    relus = layers_of(model, keras.layers.ReLU)
    assert len(relus) == len(layers_of(plain, keras.layers.ReLU)) + 2
    for layer, after in (("stem", "stem_relu"), ("stage2_block2_add", "pool_relu")):
        before, found = features(model, layer, after)
        assert before.min() < 0
        np.testing.assert_allclose(found, np.where(before < 0, 0.1 * before, before), rtol=1e-6)
    assert {relu.negative_slope for relu in relus} == {0.1}
    assert model.get_layer("pool").input is model.get_layer("pool_relu").output


def test_zeros_stand_half_before_and_half_after_the_channels() -> None:
    model = with_zero_blocks(tiny("allconv_resnet", zeros="around"))
    before, after = features(model, "stage2_block1_pool", "stage2_block1_add")
    assert np.array_equal(after[..., 2:6], before)
    assert np.array_equal(after[..., [0, 1, 6, 7]], np.zeros((8, 4, 4, 4)))


def test_a_fixed_projection_may_have_a_bias_which_alone_is_trained() -> None:
    from pipelines.training.optimizer import add_weight_decay

    plain, model = tiny("allconv_resnet"), tiny("allconv_resnet", logits_bias=True)
    extra = {variable.path for variable in model.trainable_variables}
    extra -= {variable.path for variable in plain.trainable_variables}
    assert extra == {"logits/bias"}
    logits = model.get_layer("logits")
    assert add_weight_decay(model, 0.1) == add_weight_decay(plain, 0.1)
    assert logits.kernel.regularizer is None
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(True))
    kernel = np.array(logits.kernel)
    model.train_on_batch(images(8, 8, 8, 3), np.arange(8) % 4)
    assert np.array_equal(kernel, logits.kernel)
    assert np.any(np.asarray(logits.bias) != 0)


def test_zero_layer_of_the_single_skip_passes_its_input() -> None:
    model = with_zero_blocks(tiny("skip56", variant="single"))
    names = [f"stage1_block{block}_layer{layer}_out" for block in (1, 2) for layer in (1, 2)]
    stem, *outputs = features(model, "stem_relu", *names)
    assert np.any(stem != 0)
    assert all(np.array_equal(y, stem) for y in outputs)


def test_zero_layer_of_the_vanilla_net_passes_nothing() -> None:
    model = with_zero_blocks(tiny("skip56", variant="vanilla"))
    stem, after = features(model, "stem_relu", "stage1_block1_out")
    assert np.any(stem != 0)
    assert np.array_equal(after, np.zeros_like(after))


@pytest.mark.parametrize("name", ["resnet", "skip56"])
def test_padded_shortcut_keeps_every_second_pixel_and_appends_zero_channels(name: str) -> None:
    model = with_zero_blocks(tiny(name, input_shape=(7, 8, 3)))
    before, after = features(model, "stage1_block2_out", "stage2_block1_out")
    assert np.array_equal(after[..., :4], before[:, ::2, ::2])
    assert np.array_equal(after[..., 4:], np.zeros((8, 4, 4, 4)))


@pytest.mark.parametrize("kernel_size", [1, 3, 7])
@pytest.mark.parametrize("size", [8, 9])
def test_strided_convolution_is_centred_where_a_strided_shortcut_looks(
    kernel_size: int, size: int
) -> None:
    inputs = keras.Input((size, size, 2))
    outputs = normalized_convolution(inputs, 2, kernel_size, 2, name="conv")
    model = keras.Model(inputs, outputs)
    delta = np.zeros((kernel_size, kernel_size, 2, 2))
    delta[kernel_size // 2, kernel_size // 2] = np.eye(2)
    model.get_layer("conv").set_weights([delta])
    x = images(3, size, size, 2)
    np.testing.assert_allclose(model(x), x[:, ::2, ::2], rtol=1e-4)  # up to BN's epsilon


def test_one_number_of_blocks_stands_for_the_same_in_every_stage() -> None:
    for name in ("resnet", "allconv_resnet", "skip56"):
        one, listed = tiny(name, blocks_per_stage=2), tiny(name, blocks_per_stage=[2, 2])
        for first, second in zip(one.get_weights(), listed.get_weights(), strict=True):
            assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resnet", {"stem": "imagenet", "shortcut": "projection", "block": "bottleneck"}),
        ("resnet", {"shortcut": "none"}),
        ("resnet", {"unit": "preactivation", "shortcut": "projection", "block": "bottleneck"}),
        ("resnet", {"unit": "preactivation"}),
        ("allconv_resnet", {"stem": "imagenet", "batch_norm": True}),
        ("allconv_resnet", FOOTNOTE5),
        *[("skip56", {"variant": variant}) for variant in VARIANTS],
        *[("allconv_resnet", {"shortcut": s}) for s in ("identity", "projection", "none")],
        *[("allconv_resnet", {"shortcut": s, "use_bias": True}) for s in ("projection", "none")],
        ("allconv_resnet", {"use_bias": True}),
    ],
)
def test_every_form_reloads_at_an_odd_size(
    name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny(name, input_shape=(13, 15, 3), **arguments)
    assert model.output_shape == (None, 4)
    reloaded(model, tmp_path, n=2)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("resnet", {"block": "wide"}, r"block must be one of: basic, bottleneck. .*'wide'"),
        ("resnet", {"unit": "double"}, r"unit must be one of: original, preactivation"),
        ("resnet", {"stem": "mnist"}, r"stem must be one of: cifar, imagenet"),
        ("resnet", {"shortcut": "identity"}, r"one of: pad, projection, none"),
        ("resnet", {"widths": (8, 4)}, r"shortcut='pad' no stage may be narrower.*\(8, 4\)"),
        ("resnet", {"widths": 16}, r"widths must be one or more integers > 0. .*widths=16"),
        ("resnet", {"blocks_per_stage": (2, 2, 2)}, r"blocks_per_stage must be 2 integers"),
        ("resnet", {"blocks_per_stage": (2, 0)}, r"blocks_per_stage\[1\]=0"),
        ("resnet", {"blocks_per_stage": 1.5}, r"integer > 0. Received: blocks_per_stage=1.5"),
        ("resnet", {"input_shape": (8, 8)}, r"input_shape must be 3 integers"),
        ("resnet", {"classes": 0}, r"classes=0"),
        ("skip56", {"variant": "double"}, r"one of: two-layer, single, vanilla. .*'double'"),
        ("skip56", {"variant": "single", "widths": (8, 4)}, r"variant='single' no stage"),
        ("allconv_resnet", {"stem": "mnist"}, r"stem must be one of: cifar, half, imagenet"),
        ("allconv_resnet", {"blocks_per_stage": ()}, r"blocks_per_stage must be 2 integers"),
        ("allconv_resnet", {"batch_norm": True, "use_bias": True}, r"batch_norm excludes use_bias"),
        ("allconv_resnet", {"leak": 1.0}, r"leak must be in \[0, 1\)\. Received: leak=1\.0"),
        ("allconv_resnet", {"zeros": "before"}, r"zeros must be one of: after, around"),
        (
            "allconv_resnet",
            {"logits_bias": True, "fixed_projection": False},
            r"logits_bias is for a fixed projection",
        ),
    ],
)
def test_error_sentences(name: str, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny(name, **arguments)
