"""What does the balanced factorization cost over the linear algebra it cannot do without?

One singular value decomposition, one Schur decomposition and 4 l d^3 flops at the rate of matrix
products, all measured under one BLAS thread. They take turns with `balanced`, so that a busy
machine slows them alike; a ratio is the median over rounds, after one round to warm up.

    python -m benchmarks.factorization      about 40 seconds
"""

import time
from functools import partial
from statistics import median
from timeit import timeit

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import schur
from threadpoolctl import threadpool_limits

from pipelines.runtime import provenance
from pipelines.tracking import tracked_run
from theory.factorization import balanced

# Processor time of this thread, which other work on a busy machine does not add to.
seconds = partial(timeit, number=1, timer=time.thread_time)

SIZES = ((64, 32), (256, 128), (512, 32))  # (d, l)
ROUNDS = 7


def main() -> None:
    """Measure every size; print the ratios and record them."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, one BLAS thread; balanced over its parts: median (least-most)")
    for d, depth in SIZES:
        params = {"d": d, "depth": depth, "rounds": ROUNDS}
        with tracked_run.tracked(
            f"factorization d={d} l={depth}",
            experiment="benchmarks",
            kind="benchmark",
            params=params,
        ) as run:
            with threadpool_limits(1, user_api="blas"):
                ratios = compare(d, depth)
            spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"d={d:<4} l={depth:<4} {spread}")
            run.log({"balanced_over_parts": median(ratios)})


def compare(d: int, depth: int) -> list[float]:
    """Seconds of `balanced` over those of its unavoidable parts; one ratio a round."""
    R = np.random.default_rng(0).normal(size=(d, d)) / np.sqrt(d)
    R[0] *= np.linalg.slogdet(R)[0]
    rounds = [seconds(lambda: balanced(R, depth)) / parts(R, depth) for _ in range(ROUNDS + 1)]
    return rounds[1:]


def parts(R: NDArray[np.float64], depth: int) -> float:
    """Seconds of one SVD, one Schur decomposition and 2 l products of d x d matrices."""
    U, _, Vt = np.linalg.svd(R)
    Q = U @ Vt
    return (
        seconds(lambda: np.linalg.svd(R))
        + seconds(lambda: schur(Q, output="real"))
        + seconds(lambda: [Q @ R for _ in range(2 * depth)])
    )


if __name__ == "__main__":
    main()
