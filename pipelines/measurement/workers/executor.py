"""Measure cells: theorems by joblib's workers, what trains networks here.

The workers are processes of this machine or, with a scheduler, those of a Dask cluster.
"""

import contextlib
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from pipelines.errors import Unavailable, foreign_worker
from pipelines.measurement import claim, claim_catalog, claim_code, grid
from pipelines.measurement.grid import Cell, Cells, Curves, Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.runtime import subcommands
from pipelines.tracking.tracked_run import Run

MAX_CELLS_NAMED = 10  # an error names so many
BLAS_LOCK = threading.Lock()  # a worker may have threads, and BLAS is set for the whole process


def measure_cells(
    plan: MeasurementPlan, todo: Sequence[Cell], run: Run
) -> Generator[list[Measured]]:
    """Yield cells as they are measured, a few at a time.

    Closing it ends the processes that measure. `run` is what trainings become children of.
    """
    if not isinstance(plan.claim, claim.Theorem):
        yield from ([plan.claim.measure_cell(plan, cell, run)] for cell in todo)
        return
    lethal: list[Cell] = []
    batches = list(grid.split_batches(todo, plan.claim.batch_by, plan.claim.batch))
    yield from _measure_batches(plan, batches, lethal) if batches else ()
    if lethal:
        raise _lethal_error(plan, lethal)


def _measure_batches(
    plan: MeasurementPlan, batches: Sequence[Cells], lethal: list[Cell]
) -> Iterator[list[Measured]]:
    """Yield cells as they are measured.

    What was under way when a worker was killed is measured again, one batch at a time, after all
    others; of a batch that then kills its worker each cell by itself. Cells that do so alone are
    added to `lethal`.
    """
    with _connect_workers(plan, batches) as killed:
        suspects = yield from _run_batches(plan, batches, killed)
        if suspects:
            print(
                "A worker was killed, often for want of memory; the "
                f"{sum(map(len, suspects))} settings under way are measured again, one at a time.",
                file=sys.stderr,
            )
        while suspects:
            cells = suspects.pop()
            if not (yield from _run_batches(plan, [cells], killed)):
                continue
            if len(cells) > 1:
                suspects += [Cells((cell,)) for cell in cells.cells]
            else:
                lethal += cells.cells


def _run_batches(
    plan: MeasurementPlan, batches: Sequence[Cells], killed: type[Exception]
) -> Generator[list[Measured], None, list[Cells]]:
    """Yield cells as they are measured; return what was under way whenever a worker was killed."""
    code, remaining, suspects = claim_code.of_claim(plan.name), dict(enumerate(batches)), []
    while remaining:
        calls = [
            joblib.delayed(_measure_batch)(plan.name, code, *numbered)
            for numbered in remaining.items()
        ]
        numbers, pool = list(remaining), joblib.Parallel(return_as="generator_unordered")
        try:
            for number, *result in pool(calls):
                yield _split(plan, remaining.pop(number), *result)
        except killed:
            begun = numbers[: pool.n_dispatched_tasks]
            suspects += [remaining.pop(number) for number in begun if number in remaining]
    return suspects


def _connect_workers(
    plan: MeasurementPlan, batches: Sequence[Cells]
) -> contextlib.AbstractContextManager[type[Exception]]:
    """Return what lets joblib use a cluster's workers or processes of this machine.

    It yields the error that joblib raises when one of them is killed.
    """
    # warnings about a worker that has grown and a sweep that is interrupted: nothing is lost
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")
    warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully|which were still)")
    if plan.scheduler is None:
        return _start_processes(plan, batches)
    from pipelines.measurement.workers import dask_cluster

    return dask_cluster.connect(plan.scheduler, plan.name)


@contextmanager
def _start_processes(plan: MeasurementPlan, batches: Sequence[Cells]) -> Iterator[type[Exception]]:
    """Let joblib use up to `plan.workers` processes, or this one where one batch is all there is.

    What is left of an interrupted sweep may kill its process, and is measured in another.
    """
    is_one_batch = len(batches) == 1 and len(batches[0]) == len(plan.cells)
    with joblib.parallel_config(
        "loky",
        n_jobs=min(plan.workers, 1 if is_one_batch else max(2, len(batches))),
        inner_max_num_threads=1,
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    ):
        yield TerminatedWorkerError


def _end_with_parent(parent: int) -> None:
    """Make a worker leave Ctrl-C to its parent, and end when its parent has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subcommands.end_with_parent(parent, lambda: os._exit(1))


def _measure_batch(name: str, code: str, number: int, cells: Cells) -> tuple[int, Curves, int, int]:
    """Measure cells in one vectorized call; return the number, the curves, and begin and end in ms.

    One BLAS thread is used: on small matrices more cost, not gain. Raise UserError where this
    process has other code.
    """
    import scipy.linalg  # noqa: F401 - loads its BLAS, so that the limit below finds it

    if (code_here := claim_code.of_claim(name)) != code:
        raise foreign_worker(platform.node(), f"with code {code_here} instead of {code}")
    theorem, start = cast("claim.Theorem", claim_catalog.load(name)), _now_ms()
    with BLAS_LOCK, threadpool_limits(1, user_api="blas"):
        curves = theorem.measure(cells)
    return number, curves, start, _now_ms()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _split(
    plan: MeasurementPlan, cells: Cells, measured: Curves, start_ms: int, end_ms: int
) -> list[Measured]:
    """Return what was measured in one call, cell by cell."""
    steps = np.asarray(measured[0], np.int64)
    curves = {name: np.asarray(values, float) for name, values in measured[1].items()}
    for name, values in curves.items():
        if values.shape != (len(cells), len(steps)):
            raise ValueError(
                "A curve must have one value a cell and step. Received: "
                f"{name} of shape {values.shape} for {len(cells)} cells and {len(steps)} "
                f"steps, of {plan.name}. Return an array of shape [n, k]."
            )
    return [
        Measured(
            cell,
            steps,
            {name: values[i] for name, values in curves.items()},
            plan.code,
            start_ms=start_ms,
            end_ms=end_ms,
        )
        for i, cell in enumerate(cells.cells)
    ]


def _lethal_error(plan: MeasurementPlan, lethal: Sequence[Cell]) -> Unavailable:
    """Return the error that names cells which have killed their workers."""
    titles = [grid.cell_title(cell, plan.axes) for cell in lethal]
    more = f" and {len(titles) - MAX_CELLS_NAMED} more" if len(titles) > MAX_CELLS_NAMED else ""
    return Unavailable(
        "A setting must leave its worker alive. Received: workers were killed, often for want of "
        "memory, also while nothing else was measured, by each of: "
        f"{'; '.join(titles[:MAX_CELLS_NAMED])}{more}. Everything else is kept. Choose smaller "
        "sizes or free memory; the same command measures these again."
    )
