"""All-convolutional residual network without normalization, HM Table 1 (Hardt & Ma 2016).

A block is x + C2(ReLU(C1 x)): two 3x3 convolutions, no batch normalization, no bias. Where the
shape changes, the identity shortcut averages 2x2 pixels and appends channels of zeros. Global
average pooling and a fixed random projection, which is not trained, give the logits.

At its defaults: 55 convolutions, 13,538,736 trainable weights. The paper does not state the scale
of its random projection; we take entries of standard deviation 1/sqrt(width), which keeps logits
of the size of the features (entries of standard deviation 1 make training at rate 0.05 diverge).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import keras
from keras import layers

from ._blocks import INITIAL_STD, check_choice, check_positive, check_shape, logits, normal

TINY = {"blocks_per_stage": 2, "widths": (8, 12), "stem_width": 4}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    blocks_per_stage: int = 9,
    widths: Sequence[int] = (64, 128, 256),
    stem_width: int = 16,
    shortcut: str = "identity",
    use_bias: bool = False,
    fixed_projection: bool = True,
    init: str = "small",
) -> keras.Model:
    """Network of HM Table 1; images [n, height, width, channels] -> logits [n, classes].

    `shortcut`: "identity"; "projection", a 1x1 convolution wherever the shape changes; or "none",
    the plain twin: the same convolutions and as many weights, without `x +`. A plain block is
    ReLU(C2(ReLU(C1 x))): without its outer ReLU, C2 and the next C1 would be one linear map.
    At full depth its signal survives with init="he" only; "small" fades to 0 in float32.
    `init`: standard deviation in the blocks' convolutions of kernel size k with c output channels:
    "small" 1/(k² c), "standard" 1/(k sqrt c), "he" sqrt(2)/(k sqrt c); elsewhere "standard".
    """
    check_shape("input_shape", input_shape, dimensions=3)
    check_shape("widths", widths)
    check_positive(classes=classes, blocks_per_stage=blocks_per_stage, stem_width=stem_width)
    check_choice(SHORTCUTS, shortcut=shortcut)
    check_choice(INITIAL_STD, init=init)
    _check_padding(stem_width, widths, shortcut)
    inputs = keras.Input(tuple(input_shape), name="image")
    x = convolution(inputs, stem_width, use_bias=use_bias, name="stem")
    block_of = partial(residual_block, shortcut=shortcut, init=init, use_bias=use_bias)
    for stage, width in enumerate(widths, 1):
        for block in range(1, blocks_per_stage + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            name = f"stage{stage}_block{block}"
            x = block_of(x, width, stride, name=name)
    x = layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
    outputs = logits(x, classes, not fixed_projection, use_bias and not fixed_projection)
    return keras.Model(inputs, outputs, name="allconv_resnet")


def residual_block(
    x: Any, width: int, stride: int, *, shortcut: str, init: str, use_bias: bool, name: str
) -> Any:
    """Block x + C2(ReLU(C1 x)) of HM Table 1; the stride is the first convolution's."""
    y = convolution(x, width, stride=stride, init=init, use_bias=use_bias, name=f"{name}_conv1")
    y = layers.ReLU(name=f"{name}_relu")(y)
    y = convolution(y, width, init=init, use_bias=use_bias, name=f"{name}_conv2")
    return SHORTCUTS[shortcut](x, y, stride, use_bias, name)


def convolution(
    x: Any,
    channels: int,
    kernel_size: int = 3,
    stride: int = 1,
    *,
    init: str = "standard",
    use_bias: bool,
    name: str,
) -> Any:
    """Convolution that keeps the image size, up to its stride, with Gaussian initial weights."""
    return layers.Conv2D(
        channels,
        kernel_size,
        strides=stride,
        padding="same",
        use_bias=use_bias,
        kernel_initializer=normal(init, kernel_size, channels),
        data_format="channels_last",
        name=name,
    )(x)


def pool_and_pad(x: Any, channels: int, stride: int, name: str) -> Any:
    """Identity between shapes: average over stride x stride pixels, then channels of zeros."""
    if stride > 1:
        x = layers.AveragePooling2D(
            stride, padding="same", data_format="channels_last", name=f"{name}_pool"
        )(x)
    extra = channels - x.shape[-1]
    return keras.ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, extra))) if extra else x


def _identity(x: Any, y: Any, stride: int, use_bias: bool, name: str) -> Any:
    return layers.Add(name=f"{name}_add")([pool_and_pad(x, y.shape[-1], stride, name), y])


def _projection(x: Any, y: Any, stride: int, use_bias: bool, name: str) -> Any:
    if x.shape != y.shape:
        x = convolution(x, y.shape[-1], 1, stride, use_bias=use_bias, name=f"{name}_projection")
    return layers.Add(name=f"{name}_add")([x, y])


def _plain(x: Any, y: Any, stride: int, use_bias: bool, name: str) -> Any:
    return layers.ReLU(name=f"{name}_out")(y)


# How a block's input x joins its residual branch y.
SHORTCUTS: dict[str, Callable[[Any, Any, int, bool, str], Any]] = {
    "identity": _identity,
    "projection": _projection,
    "none": _plain,
}


def _check_padding(stem_width: int, widths: Sequence[int], shortcut: str) -> None:
    """Zero padding can only add channels."""
    steps = pairwise((stem_width, *widths))
    if shortcut == "identity" and any(before > after for before, after in steps):
        raise ValueError(
            "With shortcut='identity' no stage may be narrower than the one before it. Received: "
            f"stem_width={stem_width}, widths={tuple(widths)}. Widen it, or take "
            "shortcut='projection'."
        )
