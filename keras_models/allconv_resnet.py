"""All-convolutional residual network without normalization, HM Table 1 (Hardt & Ma 2016).

A block is x + C2(ReLU(C1 x)): two 3x3 convolutions, no batch normalization, no bias. Where the
shape changes, the identity shortcut averages 2x2 pixels and appends channels of zeros. Global
average pooling and a fixed random projection, which is not trained, give the logits.

At its defaults: 55 convolutions, 13,538,736 trainable weights; with projections and biases
13,589,248, the 13.59 million that HM print. The scale of the random projection is not stated: its
entries have deviation 1/sqrt(width), as in the public code of HM's footnote 5, which also has
`leak=0.1`, `outer_relus`, `zeros="around"` and `logits_bias`. The ImageNet form, HM section 4.2, is
in pipelines/recipes/imagenet.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any, Literal

import keras
from keras import layers

from ._blocks import blocks_of_stages, convolution, drop, logits, normalize, pad_channels, stages

TINY = {"blocks_per_stage": 2, "widths": (8, 12), "stem_width": 4}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    blocks_per_stage: int | Sequence[int] = 9,
    widths: Sequence[int] = (64, 128, 256),
    stem_width: int = 16,
    stem: Literal["cifar", "half", "imagenet"] = "cifar",
    shortcut: Literal["identity", "projection", "none"] = "identity",
    use_bias: bool = False,
    batch_norm: bool = False,
    dropout: float = 0.0,
    fixed_projection: bool = True,
    init: Literal["small", "standard", "he"] = "small",
    standardize: bool = False,
    leak: float = 0.0,
    outer_relus: bool = False,
    zeros: Literal["after", "around"] = "after",
    logits_bias: bool = False,
) -> keras.Model:
    """Return the network of HM Table 1; images [n, height, width, channels] -> logits [n, classes].

    `blocks_per_stage`: residual blocks, one number for all stages or one for each.
    `widths`: channels of the stages.
    `stem_width`: channels of the stem.
    `stem`: "cifar", a 3x3 convolution; "half", the same of stride 2, ours for 64x64 pixels; or
    "imagenet", 7x7 of stride 2 without pooling: the first block of stage 1 takes the second one.
    `shortcut`: "identity"; "projection", a 1x1 convolution wherever the shape changes; or "none",
    the plain twin: the same convolutions and as many weights, without `x +`. A plain block is
    ReLU(C2(ReLU(C1 x))): without its outer ReLU, C2 and the next C1 would be one linear map.
    At full depth its signal survives with init="he" only; "small" fades to 0 in float32.
    `use_bias`: whether convolutions and trained logits have biases.
    `batch_norm`: whether both convolutions of every branch are normalized, BN C2(ReLU(BN C1 x)),
    and nothing else: stem, shortcuts and logits stay as they are. It excludes `use_bias`.
    `dropout`: rate at which entries are dropped between the convolutions of every branch,
    C2(drop(ReLU(C1 x))): where Zagoruyko & Komodakis 2016 have it; HM and R state no place.
    `fixed_projection`: whether the logits are a fixed random projection, else a trained layer.
    `init`: standard deviation in the blocks' convolutions of kernel size k with c output channels:
    "small" 1/(k² c), "standard" 1/(k sqrt c), "he" sqrt(2)/(k sqrt c); elsewhere "standard".
    `standardize`: whether `standardize_each` comes first, for pixels that are given in [0, 1].
    `leak`: slope of every ReLU on negative numbers.
    `outer_relus`: whether there is a ReLU behind the stem, and one ahead of the pooling.
    `zeros`: where an identity shortcut puts its channels of zeros: "after" the others, or "around"
    them, half before and half after.
    `logits_bias`: whether the logits of a fixed projection have a bias, which is trained.
    """
    blocks = blocks_of_stages(blocks_per_stage, widths)
    inputs = keras.Input(tuple(input_shape), name="image")
    kernel_size, stride, first_stride = STEMS[stem]
    x = standardize_each(inputs) if standardize else inputs
    x = convolution(x, stem_width, kernel_size, stride, use_bias=use_bias, name="stem")
    x = layers.ReLU(negative_slope=leak, name="stem_relu")(x) if outer_relus else x
    block = partial(
        residual_block,
        join=partial(join_branch, shortcut=shortcut, use_bias=use_bias, zeros=zeros, leak=leak),
        leak=leak,
        init=init,
        use_bias=use_bias,
        batch_norm=batch_norm,
        dropout=dropout,
    )
    x = stages(x, widths, blocks, block, first_stride)
    x = layers.ReLU(negative_slope=leak, name="pool_relu")(x) if outer_relus else x
    x = layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
    has_bias = logits_bias or (use_bias and not fixed_projection)
    outputs = logits(x, classes, not fixed_projection or logits_bias, has_bias)
    model = keras.Model(inputs, outputs, name="allconv_resnet")
    if logits_bias:
        model.get_layer("logits").kernel.trainable = False
    return model


def standardize_each(x: Any) -> Any:
    """Bring each image, pixels in [0, 1], to mean 0 and deviation 1 over pixels and channels.

    As TensorFlow's `per_image_standardization` does with pixels in 0, ..., 255, where no deviation
    counts less than 1/sqrt(N), for N numbers in an image.
    """
    axes = (1, 2, 3)
    least = 1 / (255 * sqrt(prod(x.shape[1:])))
    deviation = keras.ops.maximum(keras.ops.std(x, axis=axes, keepdims=True), least)
    return (x - keras.ops.mean(x, axis=axes, keepdims=True)) / deviation


def residual_block(
    x: Any,
    width: int,
    stride: int,
    *,
    join: Callable[..., Any],
    leak: float,
    init: str,
    use_bias: bool,
    batch_norm: bool,
    dropout: float,
    name: str,
) -> Any:
    """Apply a block x + C2(ReLU(C1 x)) of HM Table 1; the stride is the first convolution's."""
    convolve = partial(convolution, channels=width, init=init, use_bias=use_bias)
    y = convolve(x, stride=stride, name=f"{name}_conv1")
    y = normalize(y, f"{name}_norm1") if batch_norm else y
    y = layers.ReLU(negative_slope=leak, name=f"{name}_relu")(y)
    y = drop(y, dropout, f"{name}_dropout")
    y = convolve(y, name=f"{name}_conv2")
    y = normalize(y, f"{name}_norm2") if batch_norm else y
    return join(x, y, stride, name=name)


def join_branch(
    x: Any,
    y: Any,
    stride: int,
    *,
    shortcut: str,
    use_bias: bool,
    zeros: str,
    leak: float,
    name: str,
) -> Any:
    """Return a block's output from its input x and its residual branch y."""
    if shortcut == "none":
        return layers.ReLU(negative_slope=leak, name=f"{name}_out")(y)
    if shortcut == "identity":
        if stride > 1:
            x = layers.AveragePooling2D(
                stride, padding="same", data_format="channels_last", name=f"{name}_pool"
            )(x)
        x = pad_channels(x, y.shape[-1], around=zeros == "around")
    elif x.shape != y.shape:
        x = convolution(x, y.shape[-1], 1, stride, use_bias=use_bias, name=f"{name}_projection")
    return layers.Add(name=f"{name}_add")([x, y])


# Kernel size and stride of the stem, stride of the first stage.
STEMS = {"cifar": (3, 1, 1), "half": (3, 2, 1), "imagenet": (7, 2, 2)}
