"""Parts that two or more architectures share: standard deviations, output layer, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from typing import Any

import keras

# Standard deviation of the residual weights at the start, from kernel size k and channels c.
# HM section 4.1 starts its residual convolutions at "small" where "standard" is usual. That c
# counts the OUTPUT channels is our reading. "he" keeps variance through a ReLU (He et al. 2015).
INITIAL_STD: dict[str, Callable[[int, int], float]] = {
    "small": lambda k, c: 1 / (k**2 * c),
    "standard": lambda k, c: 1 / (k * sqrt(c)),
    "he": lambda k, c: sqrt(2) / (k * sqrt(c)),
}


def normal(init: str, kernel_size: int, channels: int) -> keras.initializers.Initializer:
    """Fresh Gaussian initializer: a reused object would repeat its values in the next layer."""
    return keras.initializers.RandomNormal(stddev=INITIAL_STD[init](kernel_size, channels))


def logits(x: Any, classes: int, trainable: bool = True, use_bias: bool = False) -> Any:
    """Map to the classes, entries of std 1/sqrt(width); full precision also in mixed precision."""
    return keras.layers.Dense(
        classes,
        use_bias=use_bias,
        kernel_initializer=keras.initializers.RandomNormal(stddev=1 / sqrt(x.shape[-1])),
        trainable=trainable,
        dtype=keras.config.floatx(),
        name="logits",
    )(x)


def check_positive(**sizes: object) -> None:
    """Reject sizes that are not positive integers."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be an integer > 0. Received: {name}={size!r}.")


def check_shape(name: str, shape: Sequence[int], dimensions: int | None = None) -> None:
    """Reject anything but a sequence of positive integers, `dimensions` long where it is given."""
    wanted = "one or more" if dimensions is None else str(dimensions)
    sentence = f"{name} must be {wanted} integers > 0. Received: {name}={shape!r}."
    if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) == 0:
        raise ValueError(sentence)
    if dimensions is not None and len(shape) != dimensions:
        raise ValueError(sentence)
    check_positive(**{f"{name}[{i}]": size for i, size in enumerate(shape)})


def check_choice(choices: Iterable[str], **received: object) -> None:
    """Reject an argument that is none of its choices."""
    choices = list(choices)
    for name, value in received.items():
        if value not in choices:
            raise ValueError(
                f"{name} must be one of: {', '.join(choices)}. Received: {name}={value!r}."
            )
