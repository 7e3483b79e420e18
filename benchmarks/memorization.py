"""What does it cost to memorize 50,000 real pictures, over the arithmetic that it needs?

All training pictures of CIFAR-10 with random labels, the width found by `memorize`, in float32:
its time and that of the forward pass of all of them, over 5 n^2 k flops at the rate of matrix
products and 3 n^2 operations at the rate of memory, all under one BLAS thread.

    TFDS_DATA_DIR=FOLDER python -m benchmarks.memorization [DATA]      about 5 minutes, 3 GiB
"""

import resource
import sys
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import side_by_side
from pipelines.claims.hardt_ma.finite_sample_expressivity import LABELS, load_images, random_labels
from pipelines.cli.shell import run_command_safely
from theory.memorization import memorize

ROUNDS = 3


def main(arguments: list[str]) -> None:
    """Measure, print the ratios and record them."""
    name = arguments[0] if arguments else "cifar10"
    X = load_images(name)
    y = random_labels(LABELS[0], len(X), 0)
    side_by_side.print_title(f"{len(X)} pictures of {name}, one BLAS thread, processor seconds")
    with threadpool_limits(1, user_api="blas"):
        numbers = measure(X, y)
    side_by_side.report(f"memorization {name}", numbers, data=name, n=len(X), rounds=ROUNDS)


def measure(X: Any, y: Any) -> dict[str, Any]:
    """Return the seconds of the build, the forward pass and the floor; errors, width and memory."""
    network = memorize(X, y, dtype="float32")
    square = np.random.default_rng(0).random((2048, 2048), np.float32)
    long, out = np.ones(2**26, np.float32), np.ones(2**26, np.float32)
    ways = {
        "build_s": lambda: memorize(X, y, dtype="float32"),
        "forward_s": lambda: network.predict(X),
        "products": lambda: [square @ square for _ in range(4)],
        "operations": lambda: [np.maximum(long, 0.5, out=out) for _ in range(4)],
    }
    seconds = side_by_side.processor_seconds(ways, ROUNDS)
    n, k = len(X), network.width
    floor = 5 * n**2 * k * seconds.pop("products") / (8 * 2048**3)
    floor += 3 * n**2 * seconds.pop("operations") / (4 * len(long))
    return {
        "ratio": (seconds["build_s"] + seconds["forward_s"]) / floor,
        **seconds,
        "floor_s": floor,
        "errors": np.sum(network.predict(X) != y),
        "width": k,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


if __name__ == "__main__":
    sys.exit(run_command_safely(main, sys.argv[1:]))
