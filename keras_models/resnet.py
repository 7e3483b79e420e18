"""Residual networks with batch normalization, He, Zhang, Ren & Sun 2016 (arXiv 1512.03385).

A block is ReLU(x + branch), the branch convolutions with batch normalization and ReLUs between:
two 3x3 ("basic") or 1x1, 3x3 and 1x1 ("bottleneck"). The same authors' second paper (arXiv
1603.05027) moves normalization and ReLU ahead of each convolution: x + branch, nothing behind the
sum. Trainable parameters at 10 and 1000 classes:

    CIFAR, section 4.2: n = blocks_per_stage, 6n + 2 layers
        n = 3, 5, 7, 9, 18 -> ResNet-20, 32, 44, 56, 110: 0.27, 0.46, 0.66, 0.85, 1.7 M
    CIFAR, 1603.05027 Table 4: block="bottleneck", shortcut="projection", 9n + 2 layers
        n = 18 -> ResNet-164: 1.7 M
    ImageNet, Table 1: stem="imagenet", shortcut="projection", widths=(64, 128, 256, 512)
        blocks_per_stage=(3, 4, 6, 3)                        -> ResNet-34: 21.8 M
        blocks_per_stage=(3, 8, 36, 3), block="bottleneck"   -> ResNet-152: 60.2 M
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Literal

import keras
from keras import layers

from ._blocks import blocks_of_stages, convolution, logits, normalize, pad_channels, stages

TINY = {"blocks_per_stage": 1, "widths": (8, 16)}

Unit = Callable[..., Any]  # (x, convolutions, *, shortcut, name) -> the block's output
Convolve = Callable[..., Any]


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    blocks_per_stage: int | Sequence[int] = 18,
    widths: Sequence[int] = (16, 32, 64),
    block: Literal["basic", "bottleneck"] = "basic",
    stem: Literal["cifar", "imagenet"] = "cifar",
    shortcut: Literal["pad", "projection", "none"] = "pad",
    unit: Literal["original", "preactivation"] = "original",
) -> keras.Model:
    """Return a ResNet, by default ResNet-110; images [n, h, w, channels] -> logits [n, classes].

    `blocks_per_stage`: residual blocks, one number for all stages or one for each.
    `widths`: channels of the stages; a bottleneck block gives out four times as many.
    `block`: "basic", two 3x3 convolutions, or "bottleneck", 1x1, 3x3 and 1x1.
    `stem`: "cifar", a 3x3 convolution, or "imagenet", 7x7 of stride 2 and 3x3 maximum of stride 2.
    `shortcut`: where the shape changes "pad", every second pixel and channels of zeros (option A),
    or "projection", a 1x1 convolution (option B); "none" everywhere: the plain twin without `x +`.
    `unit`: "original", or "preactivation", whose stem for CIFAR is the convolution alone and whose
    last sum is normalized and rectified.
    """
    ahead = unit == "preactivation"
    bare = ahead and stem == "cifar"
    return network(
        input_shape,
        classes,
        blocks_per_stage=blocks_per_stage,
        widths=widths,
        block=partial(BLOCKS[block], shortcut=shortcut, unit=UNITS[unit]),
        stem=partial(centred_convolution, name="stem") if bare else STEMS[stem],
        head=partial(activate, name="head") if ahead else None,
        name="resnet",
    )


def network(
    input_shape: Sequence[int],
    classes: int,
    *,
    blocks_per_stage: int | Sequence[int],
    widths: Sequence[int],
    block: Callable[..., Any],
    stem: Callable[[Any, int], Any],
    head: Callable[[Any], Any] | None = None,
    name: str,
) -> keras.Model:
    """Return stem, stages of `block(x, width, stride, name=...)`, head, average pooling, logits."""
    blocks = blocks_of_stages(blocks_per_stage, widths)
    inputs = keras.Input(tuple(input_shape), name="image")
    x = stages(stem(inputs, widths[0]), widths, blocks, block)
    x = head(x) if head else x
    x = layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
    return keras.Model(inputs, logits(x, classes, use_bias=True), name=name)


def residual(
    x: Any, convolutions: Sequence[tuple[int, int, int]], *, shortcut: str, name: str
) -> Any:
    """Return ReLU(x + branch) with a branch of convolutions (channels, kernel size, stride)."""
    y = x
    for i, (channels, kernel_size, stride) in enumerate(convolutions, 1):
        y = layers.ReLU(name=f"{name}_relu{i - 1}")(y) if i > 1 else y
        y = normalized_convolution(y, channels, kernel_size, stride, name=f"{name}_conv{i}")
    stride = prod(stride for _, _, stride in convolutions)
    y = _join(x, y, stride, shortcut=shortcut, convolve=normalized_convolution, name=name)
    return layers.ReLU(name=f"{name}_out")(y)


def preactivated_residual(
    x: Any, convolutions: Sequence[tuple[int, int, int]], *, shortcut: str, name: str
) -> Any:
    """Return x + branch, normalized and rectified ahead of each convolution of the branch.

    Where the shape changes, ahead of the shortcut too, as in the authors' public code.
    """
    y = first = activate(x, f"{name}_pre1")
    for i, (channels, kernel_size, stride) in enumerate(convolutions, 1):
        y = activate(y, f"{name}_pre{i}") if i > 1 else y
        y = centred_convolution(y, channels, kernel_size, stride, name=f"{name}_conv{i}")
    x = first if x.shape != y.shape else x
    stride = prod(stride for _, _, stride in convolutions)
    return _join(x, y, stride, shortcut=shortcut, convolve=centred_convolution, name=name)


def basic(
    x: Any, width: int, stride: int, *, shortcut: str, name: str, unit: Unit = residual
) -> Any:
    """Apply a block of two 3x3 convolutions; the stride is the first one's."""
    return unit(x, [(width, 3, stride), (width, 3, 1)], shortcut=shortcut, name=name)


def bottleneck(
    x: Any, width: int, stride: int, *, shortcut: str, name: str, unit: Unit = residual
) -> Any:
    """Apply a block that narrows to `width` for its 3x3 convolution; the stride is in the first."""
    convolutions = [(width, 1, stride), (width, 3, 1), (4 * width, 1, 1)]
    return unit(x, convolutions, shortcut=shortcut, name=name)


def activate(x: Any, name: str) -> Any:
    """Normalize over the batch, then rectify."""
    return layers.ReLU(name=f"{name}_relu")(normalize(x, f"{name}_norm"))


def normalized_convolution(
    x: Any, channels: int, kernel_size: int = 3, stride: int = 1, *, name: str
) -> Any:
    """Convolve, then normalize over the batch."""
    return normalize(
        centred_convolution(x, channels, kernel_size, stride, name=name), f"{name}_norm"
    )


def centred_convolution(
    x: Any, channels: int, kernel_size: int = 3, stride: int = 1, *, name: str
) -> Any:
    """Convolve with "he" initial weights.

    A strided convolution is padded alike on all sides and so is centred on the pixels that a
    strided shortcut keeps; Keras's "same" would centre it between them at even sizes.
    """
    padding = "same"
    if stride > 1 and kernel_size > 1:
        x, padding = _frame(x, kernel_size // 2, f"{name}_frame"), "valid"
    return convolution(x, channels, kernel_size, stride, init="he", padding=padding, name=name)


def cifar_stem(x: Any, width: int) -> Any:
    """Apply a 3x3 convolution, batch normalization and ReLU; the image size is kept."""
    return layers.ReLU(name="stem_relu")(normalized_convolution(x, width, name="stem"))


def imagenet_stem(x: Any, width: int) -> Any:
    """Apply a 7x7 convolution of stride 2, batch normalization, ReLU, 3x3 maximum of stride 2."""
    x = layers.ReLU(name="stem_relu")(normalized_convolution(x, width, 7, 2, name="stem"))
    x = _frame(x, 1, "stem_pool_frame")  # after a ReLU no maximum changes by zeros
    return layers.MaxPooling2D(3, 2, data_format="channels_last", name="stem_pool")(x)


def _frame(x: Any, pixels: int, name: str) -> Any:
    """Return a border of zeros."""
    return layers.ZeroPadding2D(pixels, data_format="channels_last", name=name)(x)


def _join(x: Any, y: Any, stride: int, *, shortcut: str, convolve: Convolve, name: str) -> Any:
    """Return the sum of a block's input x and its branch y, or y alone without a shortcut."""
    if shortcut == "none":
        return y
    if shortcut == "pad":
        if stride > 1:
            x = layers.AveragePooling2D(
                1, stride, data_format="channels_last", name=f"{name}_subsample"
            )(x)
        x = pad_channels(x, y.shape[-1])
    elif x.shape != y.shape:
        x = convolve(x, y.shape[-1], 1, stride, name=f"{name}_projection")
    return layers.Add(name=f"{name}_add")([x, y])


BLOCKS: dict[str, Callable[..., Any]] = {"basic": basic, "bottleneck": bottleneck}

STEMS: dict[str, Callable[[Any, int], Any]] = {"cifar": cifar_stem, "imagenet": imagenet_stem}

UNITS: dict[str, Unit] = {"original": residual, "preactivation": preactivated_residual}
