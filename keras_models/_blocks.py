"""Parts that two or more architectures share: initial weights, layers, stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import keras
from keras import layers

# Standard deviation of the residual weights at the start, from kernel size k and channels c.
# HM section 4.1 starts its residual convolutions at "small" where "standard" is usual. That c
# counts the OUTPUT channels is our reading, as in the code of their footnote 5. "he" keeps variance
# through a ReLU (He et al. 2015).
INITIAL_STD: dict[str, Callable[[int, int], float]] = {
    "small": lambda k, c: 1 / (k**2 * c),
    "standard": lambda k, c: 1 / (k * sqrt(c)),
    "he": lambda k, c: sqrt(2) / (k * sqrt(c)),
}


def normal_initializer(
    init: str, kernel_size: int, channels: int
) -> keras.initializers.Initializer:
    """Return a new Gaussian initializer: a reused one would repeat its values in the next layer."""
    return keras.initializers.RandomNormal(stddev=INITIAL_STD[init](kernel_size, channels))


def convolution(
    x: Any,
    channels: int,
    kernel_size: int = 3,
    stride: int = 1,
    *,
    init: str = "standard",
    use_bias: bool = False,
    padding: str = "same",
    name: str,
) -> Any:
    """Convolve with Gaussian initial weights; the image size is kept, up to the stride."""
    return layers.Conv2D(
        channels,
        kernel_size,
        strides=stride,
        padding=padding,
        use_bias=use_bias,
        kernel_initializer=normal_initializer(init, kernel_size, channels),
        data_format="channels_last",
        name=name,
    )(x)


def normalize(x: Any, name: str) -> Any:
    """Normalize over the batch, momentum 0.9 and epsilon 1e-5, which He et al. 2016 do not state.

    They are those of the public re-implementation fb.resnet.torch. Keras's epsilon, 1e-3, is about
    the variance that weights of "small" standard deviation leave, and would damp their outputs.
    """
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def drop(x: Any, rate: float, name: str) -> Any:
    """Drop entries at that rate in training, those that stay divided by 1 - rate; at 0 none."""
    return layers.Dropout(rate, name=name)(x) if rate else x


def pad_channels(x: Any, channels: int, around: bool = False) -> Any:
    """Append channels of zeros until there are `channels`; `around`: half of them ahead."""
    extra = channels - x.shape[-1]
    ahead = extra // 2 if around else 0
    return keras.ops.pad(x, ((0, 0), (0, 0), (0, 0), (ahead, extra - ahead))) if extra else x


def stages(
    x: Any,
    widths: Sequence[int],
    blocks: Sequence[int],
    block: Callable[..., Any],
    first_stride: int = 1,
) -> Any:
    """Apply `block(x, width, stride, name=...)` blocks[i] times at widths[i] for every stage i.

    A stage's first block takes its stride: 2, in the first stage `first_stride`.
    """
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True), 1):
        for i in range(1, count + 1):
            stride = 1 if i > 1 else 2 if stage > 1 else first_stride
            x = block(x, width, stride, name=f"stage{stage}_block{i}")
    return x


def logits(x: Any, classes: int, trainable: bool = True, use_bias: bool = False) -> Any:
    """Map to the classes, entries of std 1/sqrt(width); full precision also in mixed precision."""
    return layers.Dense(
        classes,
        use_bias=use_bias,
        kernel_initializer=keras.initializers.RandomNormal(stddev=1 / sqrt(x.shape[-1])),
        trainable=trainable,
        dtype=keras.config.floatx(),
        name="logits",
    )(x)


def blocks_of_stages(blocks_per_stage: int | Sequence[int], widths: Sequence[int]) -> list[int]:
    """Return the number of blocks in every stage; an integer stands for the same number in each."""
    if isinstance(blocks_per_stage, Sequence):
        return list(blocks_per_stage)
    return [blocks_per_stage] * len(widths)
