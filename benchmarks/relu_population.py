"""What does a step of the population gradient cost at d = 1500, circulant and dense?

The gradient of the two-layer ReLU network in closed form, in float64 on one thread of BLAS, with a
random teacher and with W* = 0, over the floor of each: bare matrix products (4, or 2) and inverse
cosines of 2 d^2 numbers. Beside it a step of descent on circulant weights, of which the dense
gradient with W* = 0 is a multiple. They take turns; a ratio is the median over rounds.

    python -m benchmarks.relu_population      about 1 minute
"""

import time
from functools import partial
from statistics import median
from timeit import timeit

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipelines.runtime import provenance
from pipelines.tracking import tracked_run
from theory.circulant import circulant_descent, circulant_matrix, circulant_start
from theory.relu_population import gradient

# Processor time, which other work on a busy machine does not add to.
seconds = partial(timeit, number=1, timer=time.process_time)

D, FROBENIUS, TRACE, RATE = 1500, 5.0, -18.75, 1e-4
STEPS = 200
ROUNDS = 7


def main() -> None:
    """Measure, print the ratios and record them."""
    tags = provenance.tags()
    print(f"{tags['cpu']}; d = {D}, one thread, processor seconds: median (range)")
    params = {"d": D, "steps": STEPS, "rounds": ROUNDS}
    with (
        tracked_run.tracked(
            "relu_population", experiment="benchmarks", kind="benchmark", params=params
        ) as run,
        threadpool_limits(1),
    ):
        for row, ratios in compare().items():
            print(f"{row:>26}  {median(ratios):.3g} ({min(ratios):.3g}-{max(ratios):.3g})")
            run.log({row: median(ratios)})


def compare() -> dict[str, list[float]]:
    """Seconds of the dense gradients over their floors and over a circulant step; one a round."""
    column = circulant_start(D, FROBENIUS, TRACE)
    W, zero = circulant_matrix(column), np.zeros((D, D))
    teacher = np.random.default_rng(0).normal(size=(D, D)) / 20 / np.sqrt(D)
    for star in (teacher, zero):
        gradient(W, star)  # once before it counts
    rounds = []
    for _ in range(ROUNDS):
        step = seconds(lambda: circulant_descent(column, RATE, STEPS)) / STEPS
        dense, at_zero = seconds(lambda: gradient(W, teacher)), seconds(lambda: gradient(W, zero))
        rounds.append(
            {
                "dense_over_circulant": at_zero / step,
                "dense_over_floor": dense / seconds(lambda: floor(W, 4)),
                "at_zero_over_floor": at_zero / seconds(lambda: floor(W, 2)),
            }
        )
    return {row: [r[row] for r in rounds] for row in rounds[0]}


def floor(W: NDArray[np.float64], products: int) -> None:
    """As many matrix products as the closed form has, and its inverse cosines."""
    for _ in range(products):
        W @ W
    for _ in range(2):
        np.arccos(W)


if __name__ == "__main__":
    main()
