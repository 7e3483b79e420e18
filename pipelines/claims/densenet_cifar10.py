"""DenseNet: 3.74 % test error on CIFAR-10.

Source: HM Table 2, from Huang et al. 2016 (arXiv 1608.06993) Table 2: L=100, k=24, 27.2 million
weights, no bottlenecks.

Every layer sees the outputs of all layers before it in its block: the least error in HM's table.
The later DenseNet-BC of L=190, k=40 errs 3.46 %: run with --bottleneck --compression 0.5 --depth
190 --growth 40.

Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval.

Run: python -m pipelines run densenet-cifar10 --scale paper
Cost of a seed: paper: 15 GPU hours; cpu: 2 minutes on 2 cores.
Expect at cpu scale: depth 22 and growth 8 for 400 steps, far from the reported error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell("densenet-cifar10", says="DenseNet reaches 3.74 % test error on CIFAR-10")
