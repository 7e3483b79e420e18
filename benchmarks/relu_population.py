"""What does a step of the population gradient cost at d = 1500, circulant and dense?

The gradient of the two-layer ReLU network in closed form, in float64 on one thread of BLAS, with a
random teacher and with W* = 0, over the floor of each: bare matrix products (4, or 2) and inverse
cosines of 2 d^2 numbers. Beside it a step of descent on circulant weights, of which the dense
gradient with W* = 0 is a multiple.

    python -m benchmarks.relu_population      about 1 minute
"""

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import side_by_side
from theory.circulant import circulant_descent, circulant_matrix, circulant_start
from theory.relu_population import gradient

D, FROBENIUS, TRACE, RATE = 1500, 5.0, -18.75, 1e-4
STEPS, ROUNDS = 200, 7


def main() -> None:
    """Measure, print the ratios and record them."""
    side_by_side.print_title(f"d = {D}, one thread, ratios of processor seconds")
    with threadpool_limits(1):
        ratios = compare()
    side_by_side.report("relu_population", ratios, d=D, steps=STEPS, rounds=ROUNDS)


def compare() -> side_by_side.Rounds:
    """Return the seconds of the dense gradients over their floors and over a circulant step."""
    column = circulant_start(D, FROBENIUS, TRACE)
    W, zero = circulant_matrix(column), np.zeros((D, D))
    teacher = np.random.default_rng(0).normal(size=(D, D)) / 20 / np.sqrt(D)
    ways = {
        "steps": lambda: circulant_descent(column, RATE, STEPS),
        "dense": lambda: gradient(W, teacher),
        "at_zero": lambda: gradient(W, zero),
        "dense_floor": lambda: floor(W, 4),
        "at_zero_floor": lambda: floor(W, 2),
    }
    seconds = side_by_side.processor_seconds(ways, ROUNDS, warm_up=1)
    return {
        "dense_over_circulant": STEPS * seconds["at_zero"] / seconds["steps"],
        "dense_over_floor": seconds["dense"] / seconds["dense_floor"],
        "at_zero_over_floor": seconds["at_zero"] / seconds["at_zero_floor"],
    }


def floor(W: NDArray[np.float64], products: int) -> None:
    """Compute as many matrix products as the closed form has, and its inverse cosines."""
    for _ in range(products):
        W @ W
    for _ in range(2):
        np.arccos(W)


if __name__ == "__main__":
    main()
