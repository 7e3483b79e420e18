"""AlexNet of Krizhevsky, Sutskever and Hinton 2012, HM section 4.2: 60,965,224 weights.

Five convolutions, the second, fourth and fifth in two towers that see half of the channels each
(the paper's two GPUs), local response normalization, overlapping 3x3 max pooling of stride 2, and
three fully connected layers with dropout after the first two. Its 11x11 convolution of stride 4
must give 55x55 pixels, which 224x224 images do not without padding: zeros fill them up to 227x227.

A tower is a convolution of its own between a split and a concatenation: the same function as a
grouped convolution, which TensorFlow runs on the CPU through XLA only. Dropout divides by its keep
rate in training, where the paper multiplies by it in the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import layers, ops

TINY = {"input_shape": (64, 64, 3), "width": 0.05, "dropout": 0.0, "init": "he"}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    width: float = 1.0,
    dropout: float = 0.5,
    init: Literal["published", "he"] = "published",
) -> keras.Model:
    """Return AlexNet; images [n, height, width, channels] -> logits [n, classes].

    `width`: multiple of the channels and units of every layer but the last.
    `dropout`: rate at which units are dropped in both hidden fully connected layers.
    `init`: "published", N(0, 0.01²) and biases 1 in convolutions 2, 4, 5 and both hidden fully
    connected layers; or "he", He et al. 2015 with biases 0, for narrow networks, in which 0.01 lets
    the signal fade.
    """
    inputs = keras.Input(tuple(input_shape), name="image")
    x = features(pad_to_windows(inputs), width, init)
    x = layers.Flatten(name="flatten")(x)
    for i in (6, 7):
        dense = layers.Dense(
            _nearest_even(4096 * width),
            activation="relu",
            name=f"fc{i}",
            **_initializers(init, bias=1),
        )
        x = layers.Dropout(dropout, name=f"dropout{i}")(dense(x))
    full = keras.config.floatx()  # full precision also in mixed precision
    outputs = layers.Dense(classes, dtype=full, name="logits", **_initializers(init, bias=0))(x)
    return keras.Model(inputs, outputs, name="alexnet")


def features(x: Any, width: float, init: str) -> Any:
    """Return the five convolutions: images of 227x227 pixels -> 6x6 pixels of 256 channels."""
    c96, c256, c384 = (_nearest_even(width * channels) for channels in (96, 256, 384))
    x = convolution(x, c96, 11, stride=4, init=init, bias=0, name="conv1")
    x = pool(response_normalization(x), "pool1")
    x = two_towers(x, c256, 5, init=init, name="conv2")
    x = pool(response_normalization(x), "pool2")
    x = convolution(x, c384, 3, init=init, bias=0, name="conv3")
    x = two_towers(x, c384, 3, init=init, name="conv4")
    x = two_towers(x, c256, 3, init=init, name="conv5")
    return pool(x, "pool5")


def two_towers(x: Any, channels: int, kernel_size: int, *, init: str, name: str) -> Any:
    """Convolve in two groups: each half of the channels out sees one half of those in."""
    towers = [
        convolution(half, channels // 2, kernel_size, init=init, bias=1, name=f"{name}_tower{i}")
        for i, half in enumerate(ops.split(x, 2, axis=-1), 1)
    ]
    return layers.Concatenate(name=name)(towers)


def convolution(
    x: Any, channels: int, kernel_size: int, stride: int = 1, *, init: str, bias: int, name: str
) -> Any:
    """Apply a convolution with bias and a ReLU; stride 1 keeps the image size."""
    return layers.Conv2D(
        channels,
        kernel_size,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        activation="relu",
        data_format="channels_last",
        name=name,
        **_initializers(init, bias),
    )(x)


def response_normalization(x: Any) -> Any:
    """Return x / (2 + 1e-4 S)^0.75, S: sum of squares over five adjacent channels (section 3.3)."""
    channels = x.shape[-1]
    squares = ops.pad(ops.square(0.01 * x), ((0, 0), (0, 0), (0, 0), (2, 2)))
    windows = sum(squares[..., i : i + channels] for i in range(5))
    return x / ops.power(2.0 + windows, 0.75)


def pool(x: Any, name: str) -> Any:
    """Return the maximum over windows of 3x3 pixels that overlap by one."""
    return layers.MaxPooling2D(3, strides=2, data_format="channels_last", name=name)(x)


def pad_to_windows(x: Any) -> Any:
    """Pad with zeros until windows of 11 pixels, 4 apart, leave no pixel over."""
    missing = [-(size - 11) % 4 for size in x.shape[1:3]]
    borders = tuple((extra // 2, extra - extra // 2) for extra in missing)
    return layers.ZeroPadding2D(borders, data_format="channels_last", name="padding")(x)


def _initializers(init: str, bias: int) -> dict[str, Any]:
    """Return new initializers of a layer's kernel and bias."""
    if init == "he":
        return {"kernel_initializer": "he_normal", "bias_initializer": "zeros"}
    return {
        "kernel_initializer": keras.initializers.RandomNormal(stddev=0.01),
        "bias_initializer": keras.initializers.Constant(bias),
    }


def _nearest_even(channels: float) -> int:
    """Return the nearest even number, half of it for each tower."""
    return 2 * max(1, round(channels / 2))
