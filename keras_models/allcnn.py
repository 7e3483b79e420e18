"""All-convolutional networks of Springenberg et al. 2015 (arXiv 1412.6806), HM Table 2.

"cifar" is All-CNN-C: nine convolutions, 1,369,738 weights for ten classes. "imagenet" is its form
for 224x224 pixels, an upscaled All-CNN-B of twelve convolutions and 9,372,840 weights. Convolutions
of stride 2 stand in for pooling; every convolution has a bias and a ReLU, the last one too, and
the average of its maps over the image gives the logits.

The paper averages over 6x6 pixels: we read that as no zero padding at the 3x3 convolution after
the last dropout ("cifar") and at those of stride 2 ("imagenet"). How weights start is
ours: as in He et al. 2015 (normal, variance 2/inputs), biases 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import keras
from keras import layers

from ._blocks import drop

TINY = {"input_shape": (12, 12, 3), "width": 0.1, "dropout": False, "last_relu": False}


class Row(NamedTuple):
    """One line of the paper's tables: a convolution and the dropout after it."""

    channels: int
    kernel_size: int
    stride: int = 1
    padding: str = "same"
    dropout: float = 0.0


class Form(NamedTuple):
    """Convolutions before the one to the classes, dropout on the image."""

    rows: tuple[Row, ...]
    input_dropout: float


FORMS: dict[str, Form] = {
    "cifar": Form(  # Table 1, model C, and Table 2, All-CNN-C
        (
            Row(96, 3),
            Row(96, 3),
            Row(96, 3, 2, dropout=0.5),
            Row(192, 3),
            Row(192, 3),
            Row(192, 3, 2, dropout=0.5),
            Row(192, 3, padding="valid"),
            Row(192, 1),
        ),
        input_dropout=0.2,
    ),
    "imagenet": Form(  # the network for ILSVRC-2012 in the appendix
        (
            Row(96, 11, 4),
            Row(96, 1),
            Row(96, 3, 2, "valid"),
            Row(256, 5),
            Row(256, 1),
            Row(256, 3, 2, "valid"),
            Row(384, 3),
            Row(384, 1),
            Row(384, 3, 2, "valid", dropout=0.5),
            Row(1024, 3),
            Row(1024, 1),
        ),
        input_dropout=0.0,
    ),
}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    form: Literal["cifar", "imagenet"] = "cifar",
    width: float = 1.0,
    dropout: bool = True,
    last_relu: bool = True,
) -> keras.Model:
    """Return All-CNN; images [n, height, width, channels] -> logits [n, classes].

    `form`: "cifar", All-CNN-C, or "imagenet", its upscaled form.
    `width`: multiple of the channels of every convolution but the last.
    `dropout`: whether there is the published dropout.
    `last_relu`: whether a ReLU precedes the average: with it a step that is too large can set a
    class's map to 0 everywhere, where it has no gradient.
    """
    inputs = keras.Input(tuple(input_shape), name="image")
    x = drop(inputs, FORMS[form].input_dropout * dropout, "input_dropout")
    for i, row in enumerate(FORMS[form].rows, 1):
        channels = max(1, round(width * row.channels))
        x = convolution(x, row._replace(channels=channels), name=f"conv{i}")
        x = drop(x, row.dropout * dropout, f"dropout{i}")
    full = keras.config.floatx()  # full precision also in mixed precision
    activation = "relu" if last_relu else None
    last = Row(classes, 1)
    x = convolution(x, last, activation, dtype=full, name=f"conv{len(FORMS[form].rows) + 1}")
    pool = layers.GlobalAveragePooling2D(data_format="channels_last", dtype=full, name="logits")
    return keras.Model(inputs, pool(x), name="allcnn")


def convolution(
    x: Any, row: Row, activation: str | None = "relu", *, name: str, dtype: str | None = None
) -> Any:
    """Apply a convolution with bias, and the ReLU after it."""
    return layers.Conv2D(
        row.channels,
        row.kernel_size,
        strides=row.stride,
        padding=row.padding,
        activation=activation,
        kernel_initializer="he_normal",
        data_format="channels_last",
        dtype=dtype,
        name=name,
    )(x)
