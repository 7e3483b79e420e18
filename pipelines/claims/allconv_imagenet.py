"""All-convolutional residual network without normalization: 35.29 % test error on ImageNet.

Source: HM section 4.2.

A wider relative of ResNet-34 without normalization or pooling, of 35.7 million weights, underfits,
yet errs less than AlexNet and All-CNN: 35.29 % top-1 and 14.17 % top-5. HM trained on six machines
of eight GPUs that did not wait for each other. The recipe is synchronous; --asynchronous under
TF_CONFIG is theirs.

Verdict: at most 1.05 times the reported error. One seed, the default, is `inconclusive`: the
interval needs --seeds 2 or more, each at the full cost.

Run: python -m pipelines run allconv-imagenet --scale paper
Cost of a seed: paper: 120 GPU hours; cpu: 30 s on 2 cores for 240 pictures.
Expect at cpu scale: a tiny network for 20 steps, which shows that the path works: 100 % error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell(
    "allconv-imagenet",
    says="An all-convolutional residual network without normalization reaches 35.29 % "
    "test error on ImageNet",
    seeds=1,
)
