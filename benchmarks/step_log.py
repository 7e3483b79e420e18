"""What does writing down a training's step cost a step of 5 ms?

Steps of 5 ms of matrix products, with and without two metrics logged after each, take turns of
1,000; the thread that sends them to MLflow works beside them, on the same cores. Two numbers: the
whole cost, as the ratio of both turns' processor time, and what the training itself waits for, the
time within `log` over that of its step. On SQLite in a database of its own.

    python -m benchmarks.step_log      about 2 minutes on 2 cores
"""

import time
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.recording import temporary_database
from pipelines.runtime import provenance
from pipelines.tracking import tracked_run

STEP_S, STEPS, ROUNDS = 0.005, 1_000, 9


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; steps of {1e3 * STEP_S:.0f} ms")
    with threadpool_limits(1), temporary_database():
        products = calibrated()
        rounds = [measure(products) for _ in range(ROUNDS + 1)][1:]
    with tracked_run.tracked(
        "step_log", experiment="benchmarks", kind="benchmark", params={"steps": STEPS}
    ) as run:
        for way in rounds[0]:
            pcts = [100 * found[way] for found in rounds]
            run.log({f"{way}_pct": median(pcts)})
            print(
                f"{way:<8} {median(pcts):+.2f} % of a step ({min(pcts):+.2f} to {max(pcts):+.2f})"
            )


def calibrated() -> int:
    """How many products of two matrices take about a step."""
    took = [step(50) / 50 for _ in range(20)]
    return max(1, round(STEP_S / median(took)))


def step(products: int) -> float:
    """Seconds of a step's work."""
    A = np.full((128, 128), 1 / 128)
    start = time.perf_counter()
    for _ in range(products):
        A = A @ A
    return time.perf_counter() - start


def measure(products: int) -> dict[str, float]:
    """`whole`: more processor time with tracking than without; `waiting`: share of `log`."""
    start = time.process_time()
    for _ in range(STEPS):
        step(products)
    bare, waited = time.process_time() - start, 0.0
    with tracked_run.tracked("steps", experiment="test", kind="training") as run:
        opened = time.process_time()
        began = time.perf_counter()
        for i in range(STEPS):
            step(products)
            before = time.perf_counter()
            run.log({"batch_loss": 1 / (i + 1), "learning_rate": 0.1}, i)
            waited += time.perf_counter() - before
        took = time.perf_counter() - began
        run.flush()
        tracked = time.process_time() - opened
    return {"whole": tracked / bare - 1, "waiting": waited / took}


if __name__ == "__main__":
    main()
