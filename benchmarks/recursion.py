"""What does the eigenvalue recursion cost for many settings at once, over one after the other?

100,000 iterations of gradient descent in one eigenvalue, at 200 targets and depths from 2 to 64:
`eigenvalue_recursion` for all of them together, beside the same function called for every setting,
and beside a loop of plain Python numbers. They take turns; a ratio is the median over rounds. The
two slow ways run fewer iterations, and are counted per iteration.

    python -m benchmarks.recursion      about 1 minute
"""

import time
from functools import partial
from statistics import median
from timeit import timeit

import numpy as np
from numpy.typing import NDArray

from pipelines.runtime import provenance
from pipelines.tracking import tracked_run
from theory.descent import eigenvalue_recursion

# Processor time, which other work on a busy machine does not add to.
seconds = partial(timeit, number=1, timer=time.process_time)

SETTINGS, STEPS, FEWER = 200, 100_000, 1_000
ROUNDS = 5


def main() -> None:
    """Measure, print the ratios and record them."""
    tags = provenance.tags()
    print(f"{tags['cpu']}; {SETTINGS} settings x {STEPS} iterations, over together: median (range)")
    rng = np.random.default_rng(0)
    phi, depth = rng.uniform(0.1, 2, SETTINGS), rng.integers(2, 65, SETTINGS)
    params = {"settings": SETTINGS, "steps": STEPS, "rounds": ROUNDS}
    with tracked_run.tracked(
        "recursion", experiment="benchmarks", kind="benchmark", params=params
    ) as run:
        for row, ratios in compare(phi, depth, 1 / (5 * depth)).items():
            print(f"{row:>24}  {median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})")
            run.log({row: median(ratios)})


def compare(
    phi: NDArray[np.float64], depth: NDArray[np.int64], rate: NDArray[np.float64]
) -> dict[str, list[float]]:
    """Seconds an iteration of the slow ways over those of all settings together; one a round."""
    settings = list(zip(phi, depth, rate, strict=True))

    def together() -> None:
        eigenvalue_recursion(phi, depth, rate, STEPS, every=1_000)

    def one_by_one() -> None:
        for one in settings:
            eigenvalue_recursion(*one, FEWER, every=FEWER)

    def python() -> None:
        for one in settings:
            plain(*map(float, one))

    rounds = []
    for _ in range(ROUNDS):
        base = seconds(together) / STEPS
        rounds.append(
            {
                "one_by_one_over_together": seconds(one_by_one) / FEWER / base,
                "python_over_together": seconds(python) / FEWER / base,
            }
        )
    return {row: [r[row] for r in rounds] for row in rounds[0]}


def plain(phi: float, depth: float, rate: float) -> float:
    """The recursion in Python numbers."""
    lam = 1.0
    for _ in range(FEWER):
        power = lam ** (depth - 1)
        lam += rate * power * (phi - power * lam)
    return lam


if __name__ == "__main__":
    main()
