"""What is to be written into a run: in its journal at once, in MLflow as soon as it takes it.

A thread sends what waits every few seconds, so that a training never waits for the store, and gives
the run's sign of life. A store that is locked, full or away loses nothing: numbers, tags and files
wait, on disk, for it or for the next command (settle.py).
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import alive, live, store
from pipelines.errors import UserError

BATCH = 1_000  # metrics a request; MLflow's limit
TAGS = 100  # tags a request
GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # trying again is of no use
FLUSH_S = 5.0  # the UI lags behind a running run by no more than this
HALF = "half."  # begins the name of a file that is being written
PATIENCE_S = 600.0  # for room on a full disk, when a run ends


class Outbox:
    """Numbers, tags and files of one run on their way to MLflow; `close` ends it."""

    def __init__(self, run_id: str, name: str, journal: live.Journal) -> None:
        self.run_id, self.name, self.journal = run_id, name, journal
        self._numbers: list[live.Number] = []
        self._tags: dict[str, str] = {}
        self._unwritten = False  # whether the disk did not take what waits
        self._refused: Exception | None = None
        self._away_until = 0.0
        self._beaten = time.monotonic()
        self._lock = threading.Lock()  # of what waits; never held while the store is asked
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"outbox {run_id}")
        self._thread.start()

    def add(self, numbers: Sequence[live.Number]) -> None:
        """Numbers, to be sent within seconds; raises what MLflow refused of earlier ones."""
        with self._lock:
            self._numbers += numbers
            self._write(numbers=numbers)
        self._raise_refused()

    def tag(self, tags: Mapping[str, str]) -> None:
        """Tags, sent at once where the store takes them."""
        with self._lock:
            self._tags |= tags
            self._write(tags=tags)
        self.flush()

    @contextmanager
    def file(self, path: str) -> Iterator[Path]:
        """Where to write the file that becomes the run's artifact of that path."""
        place = self.journal.spool / path
        place.parent.mkdir(parents=True, exist_ok=True)
        half = place.with_name(f"{HALF}{place.name}")  # the ending names the format
        yield half
        half.replace(place)
        self.flush()

    def flush(self) -> None:
        """Send what waits, if the store is not known to be away; raises what it refuses."""
        if time.monotonic() >= self._away_until:
            self._deliver()
        self._raise_refused()

    def close(self, status: str) -> None:
        """Send the rest and end the run; what the store does not take, the next command delivers.

        Raises what MLflow refused; the run is then FAILED.
        """
        self._closing.set()
        self._thread.join()
        delivered = False
        try:
            delivered = self._deliver() or self._wait_for_room()
            delivered = delivered and self._terminate("FAILED" if self._refused else status)
        finally:
            if not delivered:
                place = self.journal.path
                print(f"{self.name}: kept in {place} for the next command", file=sys.stderr)
            with contextlib.suppress(OSError):
                self.journal.close(status, delivered)
        self._raise_refused()

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
        while not self._closing.wait(FLUSH_S):
            if time.monotonic() - self._beaten > alive.BEAT_S:
                self._beat()
            self._deliver()

    def _beat(self) -> None:
        """Give a sign of life; a run that was taken for dead meanwhile says RUNNING again."""
        with contextlib.suppress(OSError, store.unavailable()):
            self.journal.touch()
            store.client().set_tag(self.run_id, alive.BEAT, alive.beat())
            if time.monotonic() - self._beaten > alive.LOST_S:
                store.client().update_run(self.run_id, status="RUNNING")
            self._beaten = time.monotonic()

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
                    self._away_until = time.monotonic() + FLUSH_S
                    self._journal_again()
                    return False
                self._refused = error  # a name MLflow refuses, or a deleted run
                with self._lock:
                    self._numbers.clear()
                    self._tags.clear()
            self._unwritten = False
        return True

    def _send(self) -> None:
        """The oldest first; what is added meanwhile too."""
        while some := self._numbers[:BATCH]:
            send(self.run_id, some)
            with self._lock:
                del self._numbers[: len(some)]
        while tags := dict(self._tags):
            send_tags(self.run_id, tags)
            with self._lock:
                self._tags = {k: v for k, v in self._tags.items() if tags.get(k) != v}
        send_files(self.run_id, self.journal.spool)

    def _journal_again(self) -> None:
        """Write down what waits in memory alone, where there is room again."""
        if self._unwritten:
            with self._lock, contextlib.suppress(OSError):
                self.journal.write(numbers=self._numbers, tags=self._tags)
                self._unwritten = False

    def _wait_for_room(self) -> bool:
        """Wait until the store, or the disk at least, takes all; whether the store did.

        UserError where neither does: what waits in memory is lost.
        """
        end = time.monotonic() + PATIENCE_S
        while self._unwritten:
            if time.monotonic() > end:
                raise UserError(
                    "A run needs room to end. Received: a full disk, and a store that does not "
                    f"answer; {len(self._numbers)} numbers of {self.name} are lost. Make room in "
                    f"{self.journal.path.parent} and repeat the command."
                )
            print(f"{self.name} waits for room on the disk.", file=sys.stderr)
            time.sleep(FLUSH_S)
            if self._deliver():
                return True
        return False


def send(run_id: str, numbers: Sequence[live.Number]) -> None:
    """Write numbers into a run; at most BATCH of them."""
    from mlflow.entities import Metric

    metrics = [Metric(key, value, when, step) for key, value, step, when in numbers]
    store.client().log_batch(run_id, metrics=metrics)


def send_tags(run_id: str, tags: Mapping[str, str]) -> None:
    """Write tags into a run."""
    from mlflow.entities import RunTag

    rows = [RunTag(key, value) for key, value in tags.items()]
    for start in range(0, len(rows), TAGS):
        store.client().log_batch(run_id, tags=rows[start : start + TAGS])


def send_files(run_id: str, spool: Path) -> None:
    """Move the files of a folder, by their paths in it, to the artifacts of a run."""
    for path in sorted(spool.rglob("*")):
        if path.is_file() and not path.name.startswith(HALF):
            folder = path.parent.relative_to(spool).as_posix()
            store.client().log_artifact(run_id, str(path), None if folder == "." else folder)
            path.unlink()
