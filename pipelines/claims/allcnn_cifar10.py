"""All-CNN-C: 7.25 % test error on CIFAR-10.

Source: HM Table 2, from Springenberg et al. 2014 (arXiv 1412.6806) section 3.1.

The best all-convolutional network before HM: nine convolutions, of which two of stride 2 replace
pooling, with dropout.

Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval.

Run: python -m pipelines run allcnn-cifar10 --scale paper
Cost of a seed: paper: 1 GPU hour; cpu: 1 minute on 2 cores.
Expect at cpu scale: a quarter of the width for 400 steps, far from the reported error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell("allcnn-cifar10", says="All-CNN-C reaches 7.25 % test error on CIFAR-10")
