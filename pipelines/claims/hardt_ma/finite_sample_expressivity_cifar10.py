"""CIFAR-10's 50,000 training images with any labels, too, are fitted by O(n log n + r^2) weights.

Source: HM Theorem 3.2. As `finite-sample-expressivity`, whose card says what is measured, with the
images on which HM train; in float64, because two of these images are so near each other that in
float32 the bound on rounding refuses 1,000 labels from 20,000 images on.

Run: python -m pipelines run finite-sample-expressivity-cifar10  # needs cifar10
Expect: 0 errors of 50,000, three seeds alike, all with k = 4: 9.2 weights a point for 10 labels,
9.5 for 100 and 29.3 for 1,000; constant at most 3.06; error_over_bound 0.68 ± 0.19, and 1.005 once
on another number of threads, so that our estimate of rounding is no bound. The paper counts 6,334
weights a point with A_0 = I; its own k is 37,571,305, and 235,336 where noise moves rho from 0.0017
to 0.021.
"""

import dataclasses

from pipelines.claims.hardt_ma import finite_sample_expressivity
from pipelines.claims.hardt_ma.finite_sample_expressivity import Setting, state
from pipelines.recipes.cost import minutes

__all__ = ["CLAIM"]

CLAIM = dataclasses.replace(
    finite_sample_expressivity.CLAIM,
    says="A residual ReLU network with O(n log n + r^2) weights fits any labels of the 50,000 "
    "training images of CIFAR-10",
    formula=state(r"x_1, \dots, x_n \text{ the } n = 50{,}000 \text{ training images of CIFAR-10}"),
    scales={
        "smoke": Setting("digits", (100,)),
        "cpu": Setting("cifar10", (1_000, 5_000, 20_000, 50_000), "float64"),
    },
    costs={"cpu": minutes(6)},
    printed=(),
)
