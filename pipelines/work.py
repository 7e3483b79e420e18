"""Cells measured and recorded: theorems in other processes, experiments on a bench here."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipelines import bulk, claim, grid, history, interrupts, remote, store, tracking, ui
from pipelines.errors import UserError
from pipelines.grid import Cell, Cells, Curves, Measured
from pipelines.order import Order


def measured(order: Order, todo: Sequence[Cell], run: tracking.Run) -> Generator[Measured]:
    """Measure and record the cells, a few at a time; closing it ends the processes that do it."""
    if isinstance(order.claim, claim.Experiment):
        yield from (_trained(order, order.claim, cell, run) for cell in todo)
    else:
        for some in _computed(order, order.claim, todo):
            yield from _written(order, some, run)


def _tags(order: Order, cell: Cell) -> dict[str, str]:
    return {
        "claim": order.name,
        "code": order.code,
        "fingerprint": order.cell_fingerprint(cell),
    }


def _trained(order: Order, found: claim.Experiment, cell: Cell, run: tracking.Run) -> Measured:
    """One cell of an experiment: a child run, whose children are its trainings.

    A child that was interrupted goes on, and so does its training.
    """
    tags = _tags(order, cell)
    below = history.rows(None, **{store.PARENT: run.id, "fingerprint": tags["fingerprint"]})
    with tracking.tracked(
        grid.title(cell, order.axes),
        experiment=run.experiment,
        kind="setting",
        params=cell.params,
        tags=tags,
        parent=run,
        resume=below[0].id if below and below[0].status in ("KILLED", "FAILED") else None,
    ) as child:
        bench = claim.Bench(child, order.habits, order.training_tags)
        steps, curves = found.measure(order.setting(cell), cell.seed, bench)
        for i, step in enumerate(steps):
            child.log({key: float(values[i]) for key, values in curves.items()}, int(step))
        chart = ui.children_chart(child.id)
        child.tag(store.NOTE, f"[The curves of its runs in one chart]({chart})")
    return Measured(cell, np.asarray(steps), curves, child.id)


@dataclass(frozen=True)
class Done:
    """Cells with their curves, and when they were measured."""

    cells: Cells
    curves: Curves
    start_ms: int
    end_ms: int

    @property
    def steps(self) -> NDArray[np.int64]:
        return np.asarray(self.curves[0])

    def each(self) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """Every cell with its own curves [k]."""
        for i, cell in enumerate(self.cells.cells):
            yield cell, {key: rows[i] for key, rows in self.curves[1].items()}


def _computed(order: Order, found: claim.Theorem, todo: Sequence[Cell]) -> Iterator[list[Done]]:
    """Results in the order in which they come: from here, from processes, from a cluster."""
    batches = list(grid.batches(todo, found.apart, found.batch))
    if order.engine == "dask":
        yield from remote.results(order, _compute, batches)
        return
    workers = min(order.workers, len(batches))
    if workers <= 1:
        yield from ([_compute(order.name, cells)] for cells in batches)
        return
    # loky says so when it replaces a worker that has grown; nothing is lost
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")
    with joblib.parallel_config(
        "loky",
        n_jobs=workers,
        inner_max_num_threads=1,
        initializer=_follow,
        initargs=(os.getpid(),),
    ):
        pool = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        try:
            calls = (joblib.delayed(_compute)(order.name, cells) for cells in batches)
            yield from ([done] for done in pool(calls))
        except TerminatedWorkerError as error:
            raise UserError(
                "Every worker process must live to the end. Received: one was killed, often for "
                "want of memory. Lower --workers or the sizes; the same command then goes on."
            ) from error


def _follow(parent: int) -> None:
    """Make a worker leave Ctrl-C to its parent, and end when its parent has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _compute(name: str, cells: Cells) -> Done:
    """One vectorized call. One BLAS thread: on small matrices more threads cost, not gain."""
    import scipy.linalg  # noqa: F401 - loads its BLAS, so that the limit below finds it

    found, start = cast("claim.Theorem", claim.load(name)), _now_ms()
    with threadpool_limits(1, user_api="blas"):
        curves = found.measure(cells)
    return Done(cells, curves, start, _now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


def _written(order: Order, some: Sequence[Done], run: tracking.Run) -> list[Measured]:
    """Record measured cells as finished children, all of them or, if killed now, none."""
    rows = [(done, cell, curves) for done in some for cell, curves in done.each()]
    finished = [
        bulk.Finished(
            name=grid.title(cell, order.axes),
            params=cell.params,
            tags=_tags(order, cell) | _premise(curves),
            steps=done.steps.tolist(),
            curves=curves,
            start_ms=done.start_ms,
            end_ms=done.end_ms,
        )
        for done, cell, curves in rows
    ]
    with interrupts.held():  # a transaction cut off in the middle would lock the database
        ids = bulk.record(run.experiment, finished, run.id)
    return [
        Measured(cell, done.steps, {k: np.asarray(v, float) for k, v in curves.items()}, i)
        for (done, cell, curves), i in zip(rows, ids, strict=True)
    ]


def _premise(curves: Mapping[str, Any]) -> dict[str, str]:
    """Whether the theorem's premise is in force: True, False or `at some steps`."""
    if grid.ASSUMPTION not in curves:
        return {}
    holds = np.asarray(curves[grid.ASSUMPTION], bool)
    word = str(bool(holds.all())) if holds.all() or not holds.any() else "at some steps"
    return {grid.ASSUMPTION: word}
