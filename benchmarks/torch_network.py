"""The network of HM Table 1 in plain PyTorch, to be timed beside ours.

Imports PyTorch at the top: import this module inside the functions that time it.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, pad


class Block(nn.Module):
    """x + C2(ReLU(C1 x)); between shapes the shortcut averages pixels and appends zeros."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.stride, self.extra = stride, width - before
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=1 / (9 * width))

    def forward(self, x: Any) -> Any:
        y = self.second(torch.relu(self.first(x)))
        if self.stride > 1:
            x = avg_pool2d(x, self.stride)
        return pad(x, (0, 0, 0, 0, 0, self.extra)) + y


class AllConv(nn.Module):
    """55 convolutions, and a fixed last layer."""

    def __init__(self, blocks: int = 9, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        shapes = [
            (before if number == 0 else width, width, stride if number == 0 else 1)
            for before, width, stride in ((16, 64, 1), (64, 128, 2), (128, 256, 2))
            for number in range(blocks)
        ]
        self.blocks = nn.Sequential(*(Block(*shape) for shape in shapes))
        self.register_buffer("projection", torch.randn(256, classes) / 16)

    def forward(self, x: Any) -> Any:
        return self.blocks(self.stem(x)).mean((2, 3)) @ self.projection
