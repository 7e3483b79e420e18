"""ResNet-110: 25.16 % test error on CIFAR-100.

Source: HM Table 2. He et al. 2015 (arXiv 1512.03385) have no CIFAR-100: that the number is of
ResNet-110 is our reading.

The network and the training for CIFAR-10, unchanged but for 100 classes.

Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval.

Run: python -m pipelines run resnet-cifar100 --scale paper
Cost of a seed: paper: 2 GPU hours; cpu: 1 minute on 2 cores.
Expect at cpu scale: ResNet-8 for 400 steps, far from the reported error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell("resnet-cifar100", says="ResNet-110 reaches 25.16 % test error on CIFAR-100")
