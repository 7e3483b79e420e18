"""AlexNet: 40.7 % test error on ImageNet.

Source: HM section 4.2, from Krizhevsky, Sutskever and Hinton 2012 Table 2, one network.

Five convolutions and three fully connected layers, 61 million weights; what HM's network on
ImageNet is measured against. The authors average ten crops of a picture, we test on one.

Verdict: at most 1.05 times the reported error. One seed, the default, is `inconclusive`: the
interval needs --seeds 2 or more, each at the full cost.

Run: python -m pipelines run alexnet-imagenet --scale paper
Cost of a seed: paper: 10 GPU hours; cpu: 30 s on 2 cores for 240 pictures.
Expect at cpu scale: a tiny network for 20 steps, which shows that the path works: 100 % error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell(
    "alexnet-imagenet",
    says="AlexNet reaches 40.7 % test error on ImageNet",
    seeds=1,
)
