"""Cells measured and recorded: theorems in other processes, experiments on a bench here."""

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import joblib
import numpy as np
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pipelines import bulk, claim, grid, history, interrupts, remote, store, tracking, ui
from pipelines.errors import Unavailable
from pipelines.grid import Cell, Cells, Curves, Measured, Suspect
from pipelines.order import Order

KILLS = 3  # workers that a cell may kill
MOST_NAMED = 10  # cells in a sentence


def measured(order: Order, todo: Sequence[Cell], run: tracking.Run) -> Generator[Measured]:
    """Measure and record the cells, a few at a time; closing it ends the processes that do it."""
    if isinstance(order.claim, claim.Experiment):
        yield from (_trained(order, order.claim, cell, run) for cell in todo)
    else:
        lethal: list[Cell] = []
        for some in _computed(order, order.claim, todo, lethal):
            yield from _written(order, some, run)
        if lethal:
            raise _failure(order, lethal, run)


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


def _computed(
    order: Order, found: claim.Theorem, todo: Sequence[Cell], lethal: list[Cell]
) -> Iterator[list[Done]]:
    """Yield results as they come: from here, from processes, from a cluster.

    Cells that were under way when a worker was killed are measured again, one at a time, after all
    others; those that have killed KILLS workers are added to `lethal`.
    """
    batches = list(grid.batches(todo, found.apart, found.batch))
    if not batches:
        return
    whole = len(batches) == 1 and len(todo) == len(order.cells)
    if order.engine == "local" and (order.workers == 1 or whole):
        yield from ([_compute(order.name, cells)] for cells in batches)
        return
    engine = remote.engine if order.engine == "dask" else _processes
    with engine(order, _compute, len(batches)) as results:
        suspects = yield from results(batches)
        if suspects:
            count = sum(len(cells) for cells, _ in suspects)
            print(
                f"A worker was killed, often for want of memory; {count} settings that were under "
                "way are measured again, one at a time.",
                file=sys.stderr,
            )
        for cells, kills in suspects:
            for cell in cells.cells:
                if not (yield from _alone(results, cell, kills)):
                    lethal.append(cell)


def _alone(results: grid.Engine[Done], cell: Cell, kills: int) -> Generator[list[Done], None, bool]:
    """Measure a cell while nothing else is; False where it has killed KILLS workers."""
    while suspects := (yield from results([Cells((cell,))])):
        kills += suspects[0][1]
        if kills >= KILLS:
            return False
    return True


@contextmanager
def _processes(
    order: Order, compute: remote.Compute[Done], most: int
) -> Iterator[grid.Engine[Done]]:
    """Up to `order.workers` processes for `most` batches, started anew when one is killed."""
    # loky says so when it replaces a worker that has grown; nothing is lost
    warnings.filterwarnings("ignore", "A worker stopped while some jobs")
    with joblib.parallel_config(
        "loky",
        n_jobs=max(2, min(order.workers, most)),  # with one job joblib starts none
        inner_max_num_threads=1,
        initializer=_follow,
        initargs=(os.getpid(),),
    ):
        yield lambda batches: _from_processes(functools.partial(compute, order.name), batches)


def _from_processes(
    compute: Callable[[Cells], Done], batches: Sequence[Cells]
) -> Generator[list[Done], None, list[Suspect]]:
    """The results of processes; returns what was under way whenever one of them was killed."""
    left, suspects = dict(enumerate(batches)), []
    while left:
        begun: list[int] = []
        pool = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        try:
            for number, done in pool(_calls(compute, left, begun)):
                del left[number]
                yield [done]
        except TerminatedWorkerError:
            suspects += [(left.pop(number), 1) for number in list(begun) if number in left]
    return suspects


def _calls(
    compute: Callable[[Cells], Done], left: Mapping[int, Cells], begun: list[int]
) -> Iterator[Any]:
    """The calls for batches by number, which are noted in `begun` when joblib takes them."""
    for number, cells in list(left.items()):
        begun.append(number)
        yield joblib.delayed(_numbered)(number, compute, cells)


def _numbered(number: int, compute: Callable[[Cells], Done], cells: Cells) -> tuple[int, Done]:
    return number, compute(cells)


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


def _failure(order: Order, lethal: Sequence[Cell], run: tracking.Run) -> Unavailable:
    """Record the cells that have killed their workers as FAILED; the error that names them."""
    titles = [grid.title(cell, order.axes) for cell in lethal]
    for cell, title in zip(lethal, titles, strict=True):
        with (
            contextlib.suppress(Unavailable),
            tracking.tracked(
                title,
                experiment=run.experiment,
                kind="setting",
                params=cell.params,
                tags=_tags(order, cell),
                parent=run,
            ),
        ):
            raise Unavailable(f"{order.name} {title}: it has killed {KILLS} workers.")
    more = f" and {len(titles) - MOST_NAMED} more" if len(titles) > MOST_NAMED else ""
    return Unavailable(
        f"A setting must leave its worker alive. Received: {KILLS} workers were killed, often for "
        f"want of memory, by each of: {'; '.join(titles[:MOST_NAMED])}{more}. Everything else is "
        "recorded. Choose smaller sizes or free memory; the same command measures these again."
    )


def _premise(curves: Mapping[str, Any]) -> dict[str, str]:
    """Whether the theorem's premise is in force: True, False or `at some steps`."""
    if grid.ASSUMPTION not in curves:
        return {}
    holds = np.asarray(curves[grid.ASSUMPTION], bool)
    word = str(bool(holds.all())) if holds.all() or not holds.any() else "at some steps"
    return {grid.ASSUMPTION: word}
