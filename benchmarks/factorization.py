"""What does the balanced factorization cost over the linear algebra it cannot do without?

One singular value decomposition, one Schur decomposition and 4 l d^3 flops at the rate of matrix
products, all under one BLAS thread.

    python -m benchmarks.factorization      about 40 seconds
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import schur
from threadpoolctl import threadpool_limits

from benchmarks import side_by_side
from theory.factorization import balanced

SIZES = ((64, 32), (256, 128), (512, 32))  # (d, l)
ROUNDS = 7


def main() -> None:
    """Measure every size; print the ratios and record them."""
    side_by_side.print_title("Processor seconds of balanced over those of its parts")
    for d, depth in SIZES:
        with threadpool_limits(1, user_api="blas"):
            ratios = {"balanced_over_parts": compare(d, depth)}
        side_by_side.report(
            f"factorization d={d} l={depth}", ratios, d=d, depth=depth, rounds=ROUNDS
        )


def compare(d: int, depth: int) -> NDArray[np.float64]:
    """Return the seconds of `balanced` over those of its unavoidable parts; [rounds]."""
    R = np.random.default_rng(0).normal(size=(d, d)) / np.sqrt(d)
    R[0] *= np.linalg.slogdet(R)[0]
    U, _, Vt = np.linalg.svd(R)
    Q = U @ Vt
    ways = {
        "balanced": lambda: balanced(R, depth),
        "svd": lambda: np.linalg.svd(R),
        "schur": lambda: schur(Q, output="real"),
        "products": lambda: [Q @ R for _ in range(2 * depth)],
    }
    seconds = side_by_side.processor_seconds(ways, ROUNDS, warm_up=1)
    return seconds["balanced"] / (seconds["svd"] + seconds["schur"] + seconds["products"])


if __name__ == "__main__":
    main()
