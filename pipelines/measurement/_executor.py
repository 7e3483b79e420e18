"""Cells measured and recorded: theorems by joblib's workers, experiments on a bench here.

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
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from pipelines.errors import Unavailable, foreign_worker
from pipelines.measurement import claim, claim_catalog, claim_code, grid
from pipelines.measurement.grid import Cell, Cells, Curves, Measured
from pipelines.measurement.plan import Order
from pipelines.runtime import signals, subcommands
from pipelines.tracking import bulk, history, mlflow_ui, store, tracked_run

MOST_NAMED = 10  # cells in a sentence
ALONE = threading.Lock()  # of a worker with threads: BLAS is set for the whole process


def measured(order: Order, todo: Sequence[Cell], run: tracked_run.Run) -> Generator[Measured]:
    """Measure and record the cells, a few at a time; closing it ends the processes that do it."""
    if isinstance(order.claim, claim.Experiment):
        yield from (_trained(order, order.claim, cell, run) for cell in todo)
    else:
        lethal: list[Cell] = []
        batches = list(grid.batches(todo, order.claim.apart, order.claim.batch))
        for done in _computed(order, batches, lethal) if batches else ():
            yield from _written(order, done, run)
        if lethal:
            raise _failure(order, lethal, run)


def _tags(order: Order, cell: Cell) -> dict[str, str]:
    return {
        "claim": order.name,
        "code": order.code,
        "fingerprint": order.cell_fingerprint(cell),
    }


def _trained(order: Order, found: claim.Experiment, cell: Cell, run: tracked_run.Run) -> Measured:
    """One cell of an experiment: a child run, whose children are its trainings.

    A child that was interrupted goes on, and so does its training.
    """
    tags = _tags(order, cell)
    below = history.rows(None, **{store.PARENT: run.id, "fingerprint": tags["fingerprint"]})
    with tracked_run.tracked(
        grid.title(cell, order.axes),
        experiment=run.experiment,
        kind="setting",
        params=cell.params,
        tags=tags,
        parent=run,
        resume=below[0].id if below and below[0].status in ("KILLED", "FAILED") else None,
    ) as child:
        bench = claim.Bench(child, order.run_options, order.training_tags)
        steps, curves = found.measure(order.setting(cell), cell.seed, bench)
        for i, step in enumerate(steps):
            child.log({key: float(values[i]) for key, values in curves.items()}, int(step))
        chart = mlflow_ui.children_chart(child.id)
        child.tag(store.NOTE, f"[The curves of its runs in one chart]({chart})")
    return Measured(cell, np.asarray(steps), curves, child.id)


@dataclass(frozen=True)
class Done:
    """Cells with their curves, and when they were measured."""

    cells: Cells
    curves: Curves
    start_ms: int
    end_ms: int


def _computed(order: Order, batches: Sequence[Cells], lethal: list[Cell]) -> Iterator[Done]:
    """Yield results as they come.

    What was under way when a worker was killed is measured again, one batch at a time, after all
    others; of a batch that then kills its worker each cell by itself. Cells that do so alone are
    added to `lethal`.
    """
    with _workers(order, batches) as killed:
        suspects = yield from _results(order, batches, killed)
        if suspects:
            print(
                "A worker was killed, often for want of memory; the "
                f"{sum(map(len, suspects))} settings under way are measured again, one at a time.",
                file=sys.stderr,
            )
        while suspects:
            cells = suspects.pop()
            if not (yield from _results(order, [cells], killed)):
                continue
            if len(cells) > 1:
                suspects += [Cells((cell,)) for cell in cells.cells]
            else:
                lethal += cells.cells


def _results(
    order: Order, batches: Sequence[Cells], killed: type[Exception]
) -> Generator[Done, None, list[Cells]]:
    """Yield results as they come; return what was under way whenever a worker was killed."""
    code, left, suspects = claim_code.of_claim(order.name), dict(enumerate(batches)), []
    while left:
        calls = [joblib.delayed(_compute)(order.name, code, *numbered) for numbered in left.items()]
        numbers, pool = list(left), joblib.Parallel(return_as="generator_unordered")
        try:
            for number, done in pool(calls):
                del left[number]
                yield done
        except killed:
            begun = numbers[: pool.n_dispatched_tasks]
            suspects += [left.pop(number) for number in begun if number in left]
    return suspects


def _workers(
    order: Order, batches: Sequence[Cells]
) -> contextlib.AbstractContextManager[type[Exception]]:
    """Return what lets joblib use a cluster's workers or processes of this machine.

    It yields the error that joblib raises when one of them is killed.
    """
    # said of a worker that has grown and of a sweep that is interrupted: nothing is lost
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")
    warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully|which were still)")
    if order.scheduler is None:
        return _processes(order, batches)
    from pipelines.measurement import _dask_cluster

    return _dask_cluster.connect(order.scheduler, order.name)


@contextmanager
def _processes(order: Order, batches: Sequence[Cells]) -> Iterator[type[Exception]]:
    """Let joblib use up to `order.workers` processes, or this one where one batch is all there is.

    What is left of an interrupted sweep may kill its process, and is measured in another.
    """
    whole = len(batches) == 1 and len(batches[0]) == len(order.cells)
    with joblib.parallel_config(
        "loky",
        n_jobs=min(order.workers, 1 if whole else max(2, len(batches))),
        inner_max_num_threads=1,
        initializer=_follow,
        initargs=(os.getpid(),),
    ):
        yield TerminatedWorkerError


def _follow(parent: int) -> None:
    """Make a worker leave Ctrl-C to its parent, and end when its parent has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subcommands.end_with_parent(parent, lambda: os._exit(1))


def _compute(name: str, code: str, number: int, cells: Cells) -> tuple[int, Done]:
    """Measure cells in one vectorized call; return the number with the result.

    With one BLAS thread: on small matrices more threads cost, not gain. UserError where this
    process has other code.
    """
    import scipy.linalg  # noqa: F401 - loads its BLAS, so that the limit below finds it

    if (own := claim_code.of_claim(name)) != code:
        raise foreign_worker(platform.node(), f"with code {own} instead of {code}")
    found, start = cast("claim.Theorem", claim_catalog.load(name)), _now_ms()
    with ALONE, threadpool_limits(1, user_api="blas"):
        curves = found.measure(cells)
    return number, Done(cells, curves, start, _now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


def _written(order: Order, done: Done, run: tracked_run.Run) -> list[Measured]:
    """Record measured cells as finished children, all of them or, if killed now, none."""
    steps, arrays = np.asarray(done.curves[0]), done.curves[1]
    cells = [
        (cell, {key: rows[i] for key, rows in arrays.items()})
        for i, cell in enumerate(done.cells.cells)
    ]
    finished = [
        bulk.Finished(
            name=grid.title(cell, order.axes),
            params=cell.params,
            tags=_tags(order, cell) | _premise(curves),
            steps=steps.tolist(),
            curves=curves,
            start_ms=done.start_ms,
            end_ms=done.end_ms,
        )
        for cell, curves in cells
    ]
    with signals.held():  # a transaction cut off in the middle would lock the database
        ids = bulk.record(run.experiment, finished, run.id)
    return [
        Measured(cell, steps, {k: np.asarray(v, float) for k, v in curves.items()}, run_id)
        for (cell, curves), run_id in zip(cells, ids, strict=True)
    ]


def _failure(order: Order, lethal: Sequence[Cell], run: tracked_run.Run) -> Unavailable:
    """Record the cells that have killed their workers as FAILED; the error that names them."""
    titles = [grid.title(cell, order.axes) for cell in lethal]
    for cell, title in zip(lethal, titles, strict=True):
        with (
            contextlib.suppress(Unavailable),
            tracked_run.tracked(
                title,
                experiment=run.experiment,
                kind="setting",
                params=cell.params,
                tags=_tags(order, cell),
                parent=run,
            ),
        ):
            raise Unavailable(f"{order.name} {title}: it has killed its workers.")
    more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
    return Unavailable(
        "A setting must leave its worker alive. Received: workers were killed, often for want of "
        "memory, also while nothing else was measured, by each of: "
        f"{'; '.join(titles[:MOST_NAMED])}{more}. Everything else is recorded. Choose smaller "
        "sizes or free memory; the same command measures these again."
    )


def _premise(curves: Mapping[str, Any]) -> dict[str, str]:
    """Whether the theorem's premise is in force: True, False or `at some steps`."""
    if grid.ASSUMPTION not in curves:
        return {}
    holds = np.asarray(curves[grid.ASSUMPTION], bool)
    word = str(bool(holds.all())) if holds.all() or not holds.any() else "at some steps"
    return {grid.ASSUMPTION: word}
