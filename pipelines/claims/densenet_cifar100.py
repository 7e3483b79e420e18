"""DenseNet: 19.25 % test error on CIFAR-100.

Source: HM Table 2, from Huang et al. 2016 (arXiv 1608.06993) Table 2: L=100, k=24, no bottlenecks.

The network and the training for CIFAR-10, unchanged but for 100 classes. DenseNet-BC of L=190, k=40
errs 17.18 %.

Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval.

Run: python -m pipelines run densenet-cifar100 --scale paper
Cost of a seed: paper: 15 GPU hours; cpu: 2 minutes on 2 cores.
Expect at cpu scale: depth 22 and growth 8 for 400 steps, far from the reported error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell("densenet-cifar100", says="DenseNet reaches 19.25 % test error on CIFAR-100")
