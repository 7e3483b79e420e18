"""DenseNets for CIFAR of Huang et al. 2017 (arXiv 1608.06993), HM Table 2.

Each layer sees the channels of all layers before it in its block and appends `growth` of its own;
three blocks of equal depth, and between them transitions that halve the image. DenseNet-BC has
1x1 bottlenecks of 4 `growth` channels and transitions that keep the share `compression` of their
channels. Convolutions have no bias and start at He et al. 2015 by their output channels.

Sizes for ten classes, and published error on augmented CIFAR-10 and CIFAR-100:
  BC, depth 100, growth 12        769,162    4.51  22.27 %
  BC, depth 190, growth 40     25,624,430    3.46  17.18 %
  plain, depth 100, growth 24  27,249,082    3.74  19.25 %   the DenseNet of HM Table 2
The plain one is `bottleneck=False, compression=1.0`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

from ._blocks import convolution, logits, normalize

TINY = {"depth": 10, "growth": 4}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    depth: int = 100,
    growth: int = 12,
    bottleneck: bool = True,
    compression: float = 0.5,
    dropout: float = 0.0,
) -> keras.Model:
    """Return DenseNet-BC, or DenseNet; images [n, height, width, channels] -> logits [n, classes].

    `depth`: how many convolutions, and the last layer: 6n + 4 with bottlenecks, 3n + 4 without.
    `growth`: channels that every layer adds.
    `bottleneck`: whether a 1x1 convolution precedes every 3x3 one.
    `compression`: share of the channels that are left between two blocks.
    `dropout`: rate after every convolution but the first; published: 0.2 without augmentation.
    """
    per_block = (depth - 4) // (6 if bottleneck else 3)  # four: stem, two transitions, last layer
    inputs = keras.Input(tuple(input_shape), name="image")
    stem = 2 * growth if bottleneck else 16
    x = convolution(inputs, stem, init="he", name="stem_conv")
    for block in (1, 2, 3):
        for layer in range(1, per_block + 1):
            name = f"block{block}_layer{layer}"
            x = dense_layer(x, growth, bottleneck=bottleneck, dropout=dropout, name=name)
        if block < 3:
            x = transition(x, compression, dropout=dropout, name=f"transition{block}")
    x = norm_relu(x, "last")
    x = layers.GlobalAveragePooling2D(data_format="channels_last", name="pool")(x)
    return keras.Model(inputs, logits(x, classes, use_bias=True), name="densenet")


def dense_layer(x: Any, growth: int, *, bottleneck: bool, dropout: float, name: str) -> Any:
    """Return the input's channels and `growth` new ones after them."""
    y = x
    if bottleneck:
        y = norm_relu_conv(y, 4 * growth, 1, dropout=dropout, name=f"{name}_bottleneck")
    y = norm_relu_conv(y, growth, 3, dropout=dropout, name=name)
    return layers.Concatenate(name=f"{name}_concat")([x, y])


def transition(x: Any, compression: float, *, dropout: float, name: str) -> Any:
    """Reduce the channels by a 1x1 convolution, then average over 2x2 pixels."""
    channels = max(1, int(compression * x.shape[-1]))
    x = norm_relu_conv(x, channels, 1, dropout=dropout, name=name)
    return layers.AveragePooling2D(
        2, padding="same", data_format="channels_last", name=f"{name}_pool"
    )(x)


def norm_relu_conv(x: Any, channels: int, kernel_size: int, *, dropout: float, name: str) -> Any:
    """Convolve the normalized and rectified input, then drop out."""
    x = convolution(norm_relu(x, name), channels, kernel_size, init="he", name=f"{name}_conv")
    return layers.Dropout(dropout, name=f"{name}_dropout")(x) if dropout else x


def norm_relu(x: Any, name: str) -> Any:
    """Normalize over the batch, then rectify."""
    return layers.ReLU(name=f"{name}_relu")(normalize(x, f"{name}_norm"))
