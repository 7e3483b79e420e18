"""Journals of the runs that are being written: what a killed process leaves behind.

One file a run, in the tracking home: a header with the store it belongs to, then every number and
tag as it was logged, then how the run ended; beside it a folder of files that the store has not
taken. Both are deleted when MLflow has it all. The writer holds a lock on its file for as long as
it lives, so that a journal nobody holds is a dead process's. Imports no MLflow: every command can
look for such journals at the cost of a directory listing.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import UserError

Number = tuple[str, float, int, int]  # metric, value, step, milliseconds since 1970
SILENT_S = 300.0  # another host's journal, its lock free, untouched for so long: its process ended


class Journal:
    """An append-only file of one run; a line is in the system's hands when `write` returns."""

    def __init__(self, folder: Path, run_id: str, uri: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{run_id}.jsonl"
        self._file = self.path.open("ab", buffering=0)
        self._torn = self.path.stat().st_size > 0  # by a kill, it may be
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # a full disk: the first numbers will say so
            self.write(uri=uri, host=socket.gethostname())

    @property
    def spool(self) -> Path:
        """The folder of files, by the path of their artifact, that the store has yet to take."""
        return self.path.with_suffix("")

    def write(self, **content: Any) -> None:
        """Append one line; OSError, and nothing but a torn line written, on a full disk."""
        line = b"\n" * self._torn + json.dumps(content).encode() + b"\n"
        self._torn = True
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._torn = False

    def touch(self) -> None:
        """Show hosts that do not see the lock that the writer lives."""
        os.utime(self.path)

    def close(self, status: str, delivered: bool) -> None:
        """Write how the run ended; the file stays where MLflow does not have it all."""
        if delivered:
            discard(self.path)
        else:
            self.write(end=status)
        self._file.close()


def discard(path: Path) -> None:
    """Delete a journal and its folder of files."""
    path.unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)


@dataclass(frozen=True)
class Leftover:
    """What the journal of a dead process says."""

    path: Path
    numbers: list[Number]
    tags: dict[str, str]
    status: str

    @property
    def run_id(self) -> str:
        return self.path.stem

    @property
    def spool(self) -> Path:
        return self.path.with_suffix("")


def leftovers(folder: Path, uri: str) -> list[Leftover]:
    """Journals of that store whose process has ended; a torn last line is left out."""
    found = [_read(path, uri) for path in sorted(folder.glob("*.jsonl"))]
    return [leftover for leftover in found if leftover]


def _read(path: Path, uri: str) -> Leftover | None:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = list(_whole_lines(file.read()))
            touched = os.fstat(file.fileno()).st_mtime
    except (FileNotFoundError, BlockingIOError):  # settled meanwhile, or its process lives
        return None
    if any(line.get("uri", uri) != uri for line in lines):
        return None
    hosts = {line["host"] for line in lines if "host" in line}
    if hosts - {socket.gethostname()} and time.time() - touched < SILENT_S:
        return None  # a shared folder need not share locks
    numbers = [tuple(row) for line in lines for row in line.get("numbers", [])]
    tags = {key: value for line in lines for key, value in line.get("tags", {}).items()}
    ends = [line["end"] for line in lines if "end" in line]
    return Leftover(path, numbers, tags, ends[-1] if ends else "KILLED")


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    """Every line that is whole JSON: a kill can tear one, and a resumed run writes on after it."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


@contextmanager
def locked(folder: Path, name: str, waiting: str = "") -> Iterator[None]:
    """One process at a time; the others may say that they wait. UserError: no folder to write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise UserError(
            f"The folder must be writable. Received: {folder}: {error.strerror}. Change its "
            "permissions, or choose another with MLFLOW_TRACKING_URI (runs) or --data-dir (data)."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
