"""Batches measured by the workers of a Dask cluster, on this machine or on many.

A task is a few batches; its results come back to this process, which alone records them. Workers
share no file with it: they need the same code and the same packages. With dask_cluster.py the only
door to Dask.
"""

import contextlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pipelines import measuring_code, provenance
from pipelines.dask_cluster import answering, connected, foreign
from pipelines.grid import Cells, Engine, Suspect
from pipelines.order import Order

T = TypeVar("T")
Compute = Callable[[str, Cells], T]
AHEAD = 2  # tasks a worker: one that it does, one that waits there
TASK_S = 0.5  # of a task at most: Dask's own share, some ms, is then little
TASK_BYTES = 8_000_000  # of its results
LOOK_S = 5.0  # between two looks at which workers are there
ALONE = threading.Lock()  # of a worker with threads: BLAS is set for the whole process


@contextmanager
def engine(order: Order, compute: Compute[T], most: int) -> Iterator[Engine[T]]:
    """Connect to the order's scheduler, or start `order.workers` processes, `most` at most.

    Unavailable for a scheduler that does not answer, UserError for a worker with other code. Close
    what the engine returns: what is under way is then cancelled, and processes end.
    """
    with connected(order.scheduler, min(order.workers, most)) as client:
        yield lambda batches: _results(_Work(client, order, compute, batches))


def _results(work: "_Work[T]") -> Generator[list[T], None, list[Suspect]]:
    try:
        while work.underway():
            if done := work.take():
                yield done
    finally:
        with contextlib.suppress(Exception):  # a scheduler that has gone has nothing to cancel
            work.client.cancel(list(work.waiting), force=True)
    return work.suspects


def size(left: int, workers: int, batch_s: float, batch_bytes: float) -> int:
    """How many of the batches that are left make the next task, at least 1.

    A batch takes `batch_s` seconds and its results `batch_bytes`. Tasks become shorter towards the
    end, so that all workers stay busy until then.
    """
    most = left / (2 * AHEAD * max(workers, 1))
    return max(1, int(min(most, TASK_S / batch_s, TASK_BYTES / batch_bytes)))


def identity(name: str) -> dict[str, str]:
    """What the numbers of a claim depend on in this process: code and versions."""
    return {"code": measuring_code.of_claim(name), **_versions()}


def _versions() -> dict[str, str]:
    names = ("numpy", "scipy")
    return {name: provenance.version(name) or "unknown" for name in names}


def _task(name: str, wanted: Mapping[str, str]) -> Callable[[bytes], tuple[Any, ...]]:
    """What a worker does with packed batches: its address, who it is, seconds, packed results.

    A function within a function is sent as code, not as a name: a worker that lacks this project,
    which would end at an unknown name, can say so.
    """

    def measured(packed: bytes) -> tuple[Any, ...]:
        import importlib
        import pickle
        import time

        import distributed

        address = distributed.get_worker().address
        try:
            remote = importlib.import_module("pipelines.remote")
            found = remote.identity(name)
        except Exception:  # whatever is there by that name is not this project
            found = {}
        if found != wanted:
            return address, found, 0.0, b""
        compute, batches = pickle.loads(packed)  # noqa: S301 - our own
        start = time.perf_counter()
        with remote.ALONE:
            done = [compute(name, cells) for cells in batches]
        return address, found, time.perf_counter() - start, pickle.dumps(done)

    return measured


@dataclass
class _Work(Generic[T]):
    """The batches of an order: those to be sent, and the tasks that workers have."""

    client: Any
    order: Order
    compute: Compute[T]
    batches: Sequence[Cells]
    sent: int = 0
    waiting: dict[Any, Sequence[Cells]] = field(default_factory=dict)
    """Futures, and the batches that each holds: not more than workers soon come to."""
    suspects: list[Suspect] = field(default_factory=list)
    workers: int = 0
    looked: float = 0.0
    alone_since: float = field(default_factory=time.monotonic)
    said: bool = False
    batch_s: float = TASK_S
    """Of the last task; the first are of one batch."""
    batch_bytes: float = 1.0

    def __post_init__(self) -> None:
        self.wanted = identity(self.order.name)
        self.task = _task(self.order.name, self.wanted)

    def underway(self) -> bool:
        """Whether anything is left; sends as much of it as keeps the workers busy."""
        with answering(self.client):
            self._look()
            while self.sent < len(self.batches) and len(self.waiting) < AHEAD * (self.workers or 1):
                self._send()
        return bool(self.waiting)

    def _send(self) -> None:
        count = size(len(self.batches) - self.sent, self.workers, self.batch_s, self.batch_bytes)
        some = self.batches[self.sent : self.sent + count]
        future = self.client.submit(self.task, pickle.dumps((self.compute, some)), pure=False)
        self.waiting[future] = some
        self.sent += len(some)

    def take(self) -> list[T]:
        """The results of the tasks that are done; none after LOOK_S seconds without one."""
        import distributed

        found = []
        with answering(self.client):
            with contextlib.suppress(TimeoutError):
                distributed.wait(list(self.waiting), LOOK_S, "FIRST_COMPLETED")
            for future in [future for future in self.waiting if future.done()]:
                try:
                    if answer := _answer(future):
                        found += self._unpacked(answer, len(self.waiting.pop(future)))
                except distributed.KilledWorker as error:
                    kills = error.allowed_failures + 1  # by the scheduler's own settings
                    self.suspects += [(cells, kills) for cells in self.waiting.pop(future)]
        return found

    def _unpacked(self, answer: tuple[Any, ...], count: int) -> list[T]:
        address, who, seconds, packed = answer
        if who != self.wanted:
            raise foreign(address, who, self.wanted)
        self.batch_s = max(seconds / count, 1e-6)
        self.batch_bytes = max(len(packed) / count, 1.0)
        found: list[T] = pickle.loads(packed)  # noqa: S301 - our own
        return found

    def _look(self) -> None:
        """Count the workers now and then; say it where there has been none for some time."""
        now = time.monotonic()
        if self.workers and now - self.looked < LOOK_S:
            return
        self.workers, self.looked = len(self.client.nthreads()), now
        if self.workers:
            self.alone_since, self.said = now, False
        elif not self.said and now - self.alone_since >= LOOK_S:
            self.said = True
            print(
                "No worker is there; waiting for one. Start it in a checkout of the same commit: "
                f"python -m dask worker {self.client.scheduler.address} --nthreads 1",
                file=sys.stderr,
            )


def _answer(future: Any) -> Any:
    """What a task has answered; None where that was lost with its worker: it is done once more."""
    try:
        return future.result(LOOK_S)
    except TimeoutError:
        if future.status == "error":  # the task's own
            raise
        return None
