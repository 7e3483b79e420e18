"""What is to be written into a run: in its journal at once, in MLflow as soon as it takes it.

A thread sends what waits every few seconds, so that a training never waits for the store, and gives
the run's sign of life. A store that is locked, full or away loses nothing: numbers, tags, params
and files wait, on disk, for it or for the next command (settle.py). A disk that is full ends the
run: its command, repeated, goes on from the last checkpoint.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import Unavailable
from pipelines.runtime import heartbeat
from pipelines.tracking import journals, store
from pipelines.tracking.writer import BATCH, HALF, check_name, remove, send, send_fact, send_files

GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # trying again is of no use
FLUSH_S = 5.0  # the UI lags behind a running run by no more than this
REST_S = 30.0  # before a store is asked again that did not take what a run ended with


class Outbox:
    """Numbers, facts and files of one run on their way to MLflow; `close` ends it."""

    given_up = -REST_S  # when a run of this process last ended without its store

    def __init__(self, run_id: str, name: str, journal: journals.Journal) -> None:
        self.run_id, self.name, self.journal = run_id, name, journal
        self._numbers: list[journals.Number] = list(journal.left.numbers)
        self._facts: list[journals.Fact] = list(journal.left.facts)
        self._refused: Exception | None = None
        self._beaten = time.time()
        self._lock = threading.Lock()  # of what waits; never held while the store is asked
        self._sending = threading.Lock()
        self._closing, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"outbox {run_id}")
        self._thread.start()

    def add(self, numbers: Sequence[journals.Number]) -> None:
        """Send numbers within seconds; raise for a name MLflow refuses, and for a full disk."""
        for number in numbers:
            check_name(number[0])
        with self._lock:
            self._numbers += numbers
            self.journal.write(numbers=numbers)
        self._raise_refused()

    def tell(self, kind: str, value: Any) -> None:
        """A fact, to be sent at once: one of live.FACTS, as JSON has it."""
        with self._lock:
            self._facts.append((kind, value))
            self.journal.write(**{kind: value})
        self._wake.set()
        self._raise_refused()

    def file(self, path: str, write: Callable[[Path], Any]) -> None:
        """Have a file or a folder written that becomes the run's artifact of that path."""
        place = self.journal.spool / path
        half = place.with_name(f"{HALF}{place.name}")  # the ending names the format
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write(half)
            remove(place)
            half.replace(place)
        except OSError:
            remove(half)
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
                ended = "FAILED" if self._refused else status
                delivered = self._deliver() and self._terminate(ended)
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
            if time.time() - self._beaten > heartbeat.BEAT_S:
                self._beat()
            self._deliver()

    def _beat(self) -> None:
        """Give a sign of life; a run that was taken for dead meanwhile says RUNNING again."""
        with contextlib.suppress(OSError, store.unavailable()):
            self.journal.touch()
            store.client().set_tag(self.run_id, heartbeat.BEAT, heartbeat.beat())
            if time.time() - self._beaten > heartbeat.LOST_S:
                store.client().update_run(self.run_id, status="RUNNING")
                store.client().delete_tag(self.run_id, heartbeat.SETTLED)
            self._beaten = time.time()

    def _deliver(self) -> bool:
        """Send all that waits; False where something must wait on."""
        with self._sending:
            try:
                self._send()
            except (OSError, store.unavailable()) as error:
                if getattr(error, "error_code", "") not in GONE:
                    return False
                self._refused = error  # a deleted run
                with self._lock:
                    self._numbers.clear()
                    self._facts.clear()
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
