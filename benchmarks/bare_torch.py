"""The training step of HM's network in PyTorch, without the product, on this process's cores.

Three stages of BLOCKS residual blocks, with as many 3x3 convolutions as `keras_models` makes of the
same numbers; SGD with momentum, batches of 128 random pictures of 32x32. Prints images/s, without
the first step. PRECISION is float32, or bfloat16 by autocast.

    python -m benchmarks.bare_torch BLOCKS WIDTH PRECISION
"""

import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH, STEPS, CLASSES = 128, 6, 10


class Block(nn.Module):
    """x + C2(ReLU(C1 x)); where the shape changes, x is averaged and gets channels of zeros."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride, self.more = (1 if before == after else 2), after - before
        self.first = nn.Conv2d(before, after, 3, self.stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output [n, channels, height, width]."""
        change = self.second(torch.relu(self.first(x)))
        if self.more:
            x = functional.pad(functional.avg_pool2d(x, 2), (0, 0, 0, 0, 0, self.more))
        return x + change


def main(blocks: int, width: int, precision: str) -> None:
    """Train some steps, and print the images/s."""
    torch.manual_seed(0)
    widths = [width * 2 ** (index // blocks) for index in range(3 * blocks)]
    network = nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        *map(Block, [width, *widths], widths),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], CLASSES, bias=False),
    ).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9)
    pictures = torch.randn(BATCH, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (BATCH,))
    ends = []
    for _ in range(STEPS):
        sgd.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = functional.cross_entropy(network(pictures), labels)
        loss.backward()
        sgd.step()
        ends.append(time.perf_counter())
    print(BATCH * (STEPS - 1) / (ends[-1] - ends[0]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
