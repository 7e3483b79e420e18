"""What is to be written into a run: in its journal at once, in MLflow as soon as it takes it.

A thread sends what waits every few seconds, so that a training never waits for the store, and gives
the run's sign of life. A store that is locked, full or away loses nothing: numbers, tags, params
and files wait, on disk, for it or for the next command (settle.py).
"""

import contextlib
import errno
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import alive, live, store
from pipelines.errors import Unavailable
from pipelines.sending import BATCH, HALF, check_name, remove, send, send_fact, send_files

GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # trying again is of no use
FLUSH_S = 5.0  # the UI lags behind a running run by no more than this
PATIENCE_S = 600.0  # for room on a full disk
REST_S = 30.0  # before a store is asked again that did not take what a run ended with
FULL = (errno.ENOSPC, errno.EDQUOT)


class Outbox:
    """Numbers, facts and files of one run on their way to MLflow; `close` ends it."""

    given_up = -REST_S  # when a run of this process last ended without its store

    def __init__(self, run_id: str, name: str, journal: live.Journal) -> None:
        self.run_id, self.name, self.journal = run_id, name, journal
        self._numbers: list[live.Number] = list(journal.left.numbers)
        self._facts: list[live.Fact] = list(journal.left.facts)
        self._unwritten = False  # whether the disk did not take what waits
        self._refused: Exception | None = None
        self._beaten = time.time()
        self._lock = threading.Lock()  # of what waits; never held while the store is asked
        self._sending = threading.Lock()
        self._closing, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"outbox {run_id}")
        self._thread.start()

    def add(self, numbers: Sequence[live.Number]) -> None:
        """Numbers, to be sent within seconds. Raises for a name that MLflow refuses."""
        for number in numbers:
            check_name(number[0])
        with self._lock:
            self._numbers += numbers
            self._write(numbers=numbers)
        self._raise_refused()

    def tell(self, kind: str, value: Any) -> None:
        """A fact, to be sent at once: one of live.FACTS, as JSON has it."""
        with self._lock:
            self._facts.append((kind, value))
            self._write(**{kind: value})
        self._wake.set()
        self._raise_refused()

    def file(self, path: str, write: Callable[[Path], Any]) -> None:
        """Have a file or a folder written that becomes the run's artifact of that path.

        On a full disk it waits for room, PATIENCE_S at most or until a signal comes; what the run
        has logged is safe meanwhile. Unavailable where there is none: the file is lost.
        """
        place = self.journal.spool / path
        half = place.with_name(f"{HALF}{place.name}")  # the ending names the format
        for _ in self._tries(f"{path} of {self.name}"):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                write(half)
                remove(place)
                half.replace(place)
                break
            except OSError as error:
                remove(half)
                if error.errno not in FULL:
                    raise
        self._wake.set()

    def flush(self) -> None:
        """Send what waits, now; what the store cannot take waits on. Raises what it refuses."""
        self._deliver()
        self._raise_refused()

    def close(self, status: str) -> None:
        """Send the rest and end the run; what the store does not take, the next command delivers.

        Raises what MLflow refused, which makes the run FAILED, and Unavailable where a run that has
        FINISHED is not all in the store: what reads it there would read half of it.
        """
        delivered = False
        try:
            self._closing = True
            self._end(status)
            self._wake.set()
            self._thread.join()
            if time.monotonic() - Outbox.given_up > REST_S:
                delivered = self._deliver() or self._wait_for_room()
                delivered = delivered and self._terminate("FAILED" if self._refused else status)
                Outbox.given_up = Outbox.given_up if delivered else time.monotonic()
        finally:
            if not delivered:
                self._end(status)
            self.journal.close(delivered)
        self._raise_refused()
        if not delivered:
            kept = f"{self.name} is kept in {self.journal.path}: the next command delivers it."
            if status == "FINISHED":
                raise Unavailable(f"The tracking store does not take what has ended. {kept}")
            print(kept, file=sys.stderr)

    def _end(self, status: str) -> None:
        with contextlib.suppress(OSError):
            self.journal.write(end="FAILED" if self._refused else status)

    def _terminate(self, status: str) -> bool:
        try:
            store.client().set_terminated(self.run_id, status)
        except store.unavailable():
            return False
        return True

    def _raise_refused(self) -> None:
        refused, self._refused = self._refused, None
        if refused:
            raise refused

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            if self._closing:
                return
            if time.time() - self._beaten > alive.BEAT_S:
                self._beat()
            self._deliver()

    def _beat(self) -> None:
        """Give a sign of life; a run that was taken for dead meanwhile says RUNNING again."""
        with contextlib.suppress(OSError, store.unavailable()):
            self.journal.touch()
            store.client().set_tag(self.run_id, alive.BEAT, alive.beat())
            if time.time() - self._beaten > alive.LOST_S:
                store.client().update_run(self.run_id, status="RUNNING")
                store.client().delete_tag(self.run_id, alive.SETTLED)
            self._beaten = time.time()

    def _write(self, **content: Any) -> None:
        """To the journal; a disk that is full is said so once, and tried again with the store."""
        try:
            self.journal.write(**content)
        except OSError as error:
            if not self._unwritten:
                place = self.journal.path.parent
                print(f"{place}: {error.strerror}. {self.name} waits in memory.", file=sys.stderr)
            self._unwritten = True

    def _deliver(self) -> bool:
        """Send all that waits; False where something must wait on."""
        with self._sending:
            try:
                self._send()
            except (OSError, store.unavailable()) as error:
                if getattr(error, "error_code", "") not in GONE:
                    self._journal_again()
                    return False
                self._refused = error  # a deleted run
                with self._lock:
                    self._numbers.clear()
                    self._facts.clear()
            with self._lock:
                self._unwritten = self._unwritten and bool(self._numbers or self._facts)
        return True

    def _send(self) -> None:
        """The oldest first; what is added meanwhile too."""
        while some := self._numbers[:BATCH]:
            send(self.run_id, some)
            with self._lock:
                del self._numbers[: len(some)]
        while self._facts:
            send_fact(self.run_id, *self._facts[0])
            with self._lock:
                del self._facts[0]
        send_files(self.run_id, self.journal.spool)

    def _journal_again(self) -> None:
        """Write down what waits in memory alone, where there is room again."""
        if self._unwritten:
            with self._lock, contextlib.suppress(OSError):
                self.journal.write(numbers=self._numbers)
                for kind, value in self._facts:
                    self.journal.write(**{kind: value})
                self._unwritten = False

    def _wait_for_room(self) -> bool:
        """Wait until the store, or the disk at least, takes all; whether the store did.

        Only for what waits in memory alone, as the reserve of the journal is used up.
        """
        for _ in self._tries(f"{len(self._numbers)} numbers of {self.name}"):
            if not self._unwritten:
                return False
            if self._deliver():
                return True
        return False

    def _tries(self, what: str) -> Iterator[None]:
        """Try at once, then every few seconds while the disk is full; say so, and what is lost."""
        place, end = self.journal.path.parent, time.monotonic() + PATIENCE_S
        yield
        print(f"{place} is full: waiting up to {PATIENCE_S:.0f} s for {what}.", file=sys.stderr)
        try:
            while time.monotonic() < end:
                time.sleep(FLUSH_S)
                yield
        except (KeyboardInterrupt, SystemExit):
            print(f"The disk was full. Lost: {what}.", file=sys.stderr)
            raise
        raise Unavailable(
            f"A run needs room to be written. Received: a full disk. Lost: {what}. Make room in "
            f"{place} and repeat the command."
        )
