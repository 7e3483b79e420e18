"""ResNet-152: 19.38 % test error on ImageNet.

Source: HM Table 2, from He et al. 2015 (arXiv 1512.03385) Table 4.

152 layers in bottleneck blocks with batch normalization, tested by He et al. on pictures of several
sizes. Our test takes the centre crop alone, for which a few points more are to be expected.

Verdict: at most 1.05 times the reported error. One seed, the default, is `inconclusive`: the
interval needs --seeds 2 or more, each at the full cost.

Run: python -m pipelines run resnet-imagenet --scale paper
Cost of a seed: paper: 200 GPU hours; cpu: 30 s on 2 cores for 240 pictures.
Expect at cpu scale: a tiny network for 20 steps, which shows that the path works: 100 % error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell(
    "resnet-imagenet",
    says="ResNet-152 reaches 19.38 % test error on ImageNet",
    seeds=1,
)
