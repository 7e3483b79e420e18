"""All-convolutional residual network without normalization: 6.38 % test error on CIFAR-10.

Source: HM Table 2; network of Table 1, training of section 4.1.

Residual blocks of two 3x3 convolutions, 13.5 million weights, and neither batch normalization,
dropout, pooling nor a trained last layer come close to ResNet-110, as long as the residual weights
start small.

Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval.

Run: python -m pipelines run allconv-cifar10 --scale paper
     (on a borrowed GPU in slices: --max-minutes 9)
Cost of a seed: paper: 2 GPU hours; cpu: 1 minute on 2 cores. On 2 cores the paper's scale would
take 4 days: it was not run yet, for want of a GPU.
Expect at cpu scale: a narrower network of 2 blocks a stage for 400 steps, far from the reported
error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell(
    "allconv-cifar10",
    says="An all-convolutional residual network without normalization reaches 6.38 % "
    "test error on CIFAR-10",
)
