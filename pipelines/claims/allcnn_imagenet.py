"""All-CNN, upscaled: 41.2 % test error on ImageNet.

Source: HM Table 2, from Springenberg et al. 2014 (arXiv 1412.6806) Table 6.

Twelve convolutions without pooling or fully connected layers, with a sixth of AlexNet's weights,
err about as much as AlexNet.

Verdict: at most 1.05 times the reported error. One seed, the default, is `inconclusive`: the
interval needs --seeds 2 or more, each at the full cost.

Run: python -m pipelines run allcnn-imagenet --scale paper
Cost of a seed: paper: 10 GPU hours; cpu: 30 s on 2 cores for 240 pictures.
Expect at cpu scale: a tiny network for 20 steps, which shows that the path works: 100 % error.
"""

from pipelines.table_cell import table_cell

CLAIM = table_cell(
    "allcnn-imagenet",
    says="An upscaled All-CNN reaches 41.2 % test error on ImageNet",
    seeds=1,
)
