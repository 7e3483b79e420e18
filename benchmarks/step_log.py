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

from benchmarks import side_by_side
from pipelines.tracking import tracked_run

STEP_S, STEPS, ROUNDS = 0.005, 1_000, 9


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title(f"Percent of a step of {1e3 * STEP_S:.0f} ms")
    with threadpool_limits(1), side_by_side.temporary_database():
        products = max(1, round(STEP_S / median(step(50) / 50 for _ in range(20))))
        rounds = [measure(products) for _ in range(ROUNDS + 1)][1:]
    pcts = {f"{way}_pct": [100 * each[way] for each in rounds] for way in rounds[0]}
    side_by_side.report("step_log", pcts, steps=STEPS)


def step(products: int) -> float:
    """Return the seconds of a step's work."""
    A = np.full((128, 128), 1 / 128)
    start = time.perf_counter()
    for _ in range(products):
        A = A @ A
    return time.perf_counter() - start


def measure(products: int) -> dict[str, float]:
    """Return `whole`: more processor time with tracking than without; `waiting`: share of `log`."""
    start = time.process_time()
    for _ in range(STEPS):
        step(products)
    bare, waited = time.process_time() - start, 0.0
    with tracked_run.track("steps", experiment="test", kind="training") as run:
        start, began = time.process_time(), time.perf_counter()
        for i in range(STEPS):
            step(products)
            before = time.perf_counter()
            run.log({"batch_loss": 1 / (i + 1), "learning_rate": 0.1}, i)
            waited += time.perf_counter() - before
        took = time.perf_counter() - began
        run.flush()
        tracked = time.process_time() - start
    return {"whole": tracked / bare - 1, "waiting": waited / took}


if __name__ == "__main__":
    main()
