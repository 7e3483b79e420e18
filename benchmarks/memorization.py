"""What does it cost to memorize 50,000 real pictures, over the arithmetic that it needs?

All training pictures of CIFAR-10 with random labels, the width found by `memorize`, in float32:
its time and that of the forward pass of all of them, over 5 n^2 k flops at the rate of matrix
products and 3 n^2 operations at the rate of memory, all under one BLAS thread. They take turns; a
ratio is the median over rounds. The Keras model's `predict`, on all cores, is timed beside them.

    TFDS_DATA_DIR=FOLDER python -m benchmarks.memorization [DATA]      about 5 minutes, 3 GiB
"""

import resource
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipelines.claims.hardt_ma.finite_sample_expressivity import (
    BATCH,
    LABELS,
    images,
    random_labels,
)
from pipelines.errors import UserError
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run
from theory.memorization import memorize

ROUNDS = 3


def main() -> None:
    """Measure, print the ratios and record them."""
    name = sys.argv[1] if len(sys.argv) > 1 else "cifar10"
    X = images(name)
    y = random_labels(LABELS[0], len(X), 0)
    params = {"data": name, "n": len(X), "rounds": ROUNDS}
    print(f"{provenance.tags()['cpu']}, one BLAS thread; {len(X)} pictures of {name}")
    with tracked_run.tracked(
        f"memorization {name}", experiment="benchmarks", kind="benchmark", params=params
    ) as run:
        with threadpool_limits(1, user_api="blas"):
            rounds = [measured(X, y) for _ in range(ROUNDS)]
        rounds = [row | {"peak_gib": peak_gib()} for row in rounds]
        found = {key: [row[key] for row in rounds] for key in rounds[0]} | keras(X, y)
        for key, values in found.items():
            print(f"{key:>18}  {median(values):.4g} ({min(values):.4g}-{max(values):.4g})")
            run.log({key: median(values)})


def measured(X: Any, y: Any) -> dict[str, float]:
    """Processor seconds of the build, the forward pass and the floor; errors and width."""
    build, network = seconds(lambda: memorize(X, y, dtype="float32"))
    forward, labels = seconds(lambda: network.predict(X))
    least = floor(len(X), network.width)
    return {
        "ratio": (build + forward) / least,
        "build_s": build,
        "forward_s": forward,
        "floor_s": least,
        "errors": float(np.sum(labels != y)),
        "width": float(network.width),
    }


def floor(n: int, k: int) -> float:
    """Seconds of 5 n^2 k flops in large products and of 3 n^2 operations on arrays in memory."""
    square = np.random.default_rng(0).random((2048, 2048), np.float32)
    flops, _ = seconds(lambda: [square @ square for _ in range(4)])
    long, out = np.ones(2**26, np.float32), np.ones(2**26, np.float32)
    operations, _ = seconds(lambda: [np.maximum(long, 0.5, out=out) for _ in range(4)])
    return 5 * n**2 * k * flops / (8 * 2048**3) + 3 * n**2 * operations / (4 * len(long))


def keras(X: Any, y: Any) -> dict[str, list[float]]:
    """Seconds of the clock of Keras's `predict`, whose first call compiles."""
    backend.keras()
    network = memorize(X, y, dtype="float32")
    model = network.keras_model()
    took = []
    for _ in range(2):
        start = time.perf_counter()
        labels = model.predict(X, batch_size=BATCH, verbose=0).argmax(axis=1)
        took.append(time.perf_counter() - start)
    errors = float(np.sum(network.labels[labels] != y))
    return {"keras_predict_s": took, "keras_errors": [errors]}


def peak_gib() -> float:
    """The most memory that this process has held, the pictures included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of this thread, which other work does not add to; what the call returned."""
    start = time.thread_time()
    found = call()
    return time.thread_time() - start, found


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error)
