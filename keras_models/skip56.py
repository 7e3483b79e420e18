"""Three 56-layer networks that differ in their skip connections, LY Table 1 (Li & Yuan 2017).

All are He et al.'s CIFAR network of 6n + 2 layers (module resnet) with the same 853,018 trainable
parameters at the defaults: shortcuts have none. A layer is a 3x3 convolution with batch
normalization, then ReLU. A skip adds the input of two layers or of one ahead of the last ReLU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import keras

from .resnet import basic, cifar_stem, network, residual

TINY = {"blocks_per_stage": 1, "widths": (8, 16), "variant": "single"}


def build(
    input_shape: Sequence[int],
    classes: int,
    *,
    variant: Literal["two-layer", "single", "vanilla"] = "two-layer",
    blocks_per_stage: int | Sequence[int] = 9,
    widths: Sequence[int] = (16, 32, 64),
) -> keras.Model:
    """Return the network; images [n, height, width, channels] -> logits; two layers are a block.

    `variant`: "two-layer", ResNet-56; "single", every layer ReLU(x + BN(C x)); "vanilla",
    every layer ReLU(BN(C x)). Where the shape changes, skips keep every second pixel and append
    channels of zeros.
    `blocks_per_stage`: blocks, one number for all stages or one for each.
    `widths`: channels of the stages.
    """
    return network(
        input_shape,
        classes,
        blocks_per_stage=blocks_per_stage,
        widths=widths,
        block=VARIANTS[variant],
        stem=cifar_stem,
        name="skip56",
    )


def single(x: Any, width: int, stride: int, *, name: str) -> Any:
    """Return two layers, each with its own skip."""
    x = residual(x, [(width, 3, stride)], shortcut="pad", name=f"{name}_layer1")
    return residual(x, [(width, 3, 1)], shortcut="pad", name=f"{name}_layer2")


VARIANTS: dict[str, Callable[..., Any]] = {
    "two-layer": partial(basic, shortcut="pad"),
    "single": single,
    "vanilla": partial(basic, shortcut="none"),
}
