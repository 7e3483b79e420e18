"""Journals of the runs that are being written: what a killed process leaves behind.

One file a run, in the tracking home: a header with the store it belongs to, then every number, tag
and param as it was logged, then how the run ended; beside it a folder of
files that the store has not taken. Both are deleted when MLflow has it all. The writer holds a lock
on its file for as long as it lives, so that a journal nobody holds is a dead process's. Imports no
MLflow: every command can look for such journals at the cost of a directory listing.
"""

import contextlib
import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.errors import without_password
from pipelines.runtime import files
from pipelines.runtime.heartbeat import JOURNAL_LOST_S
from pipelines.tracking.database import SQLITE, database_path

Number = tuple[str, float, int, int]  # metric, value, step, milliseconds since 1970
Fact = tuple[str, Any]  # one of FACTS, and what a line says of it
FACTS = ("tags", "params", "dataset")


@dataclass(frozen=True)
class Content:
    """The contents of a run's journal, in the order in which they were written."""

    numbers: list[Number] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    status: str = "KILLED"
    """The run's end; KILLED, where its writer did not come to say so."""


class Journal:
    """A file of one run that grows; a line is in the system's hands when `write` returns.

    `undelivered` is what an earlier journal of the same run holds.
    """

    def __init__(self, folder: Path, run_id: str, uri: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{run_id}.jsonl"
        self._file = _open_locked(self.path)
        written = self._file.read()
        self.undelivered = parse_content(_parse_lines(written))
        self._torn = bool(written)  # a kill may have torn the last line
        self._end = len(written)
        self._header = {"uri": without_password(uri), "host": socket.gethostname()}
        with contextlib.suppress(OSError):  # a full disk: the first numbers will say so
            self._write_header()

    @property
    def spool(self) -> Path:
        """Return the folder of files, by artifact path, that the store has yet to take."""
        return spool_of(self.path)

    def write(self, **content: Any) -> None:
        """Append one line; OSError, and nothing but a torn line written, on a full disk."""
        self._write_header()
        self._append(content)

    def _write_header(self) -> None:
        """Write what comes first, unless it is written."""
        if self._header:
            self._append(self._header)
            self._header = {}

    def _append(self, content: Mapping[str, Any]) -> None:
        line = b"\n" * self._torn + json.dumps(content).encode() + b"\n"
        self._torn = True
        self._file.seek(self._end)
        count = self._file.write(line)
        self._end += count
        if count != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._torn = False

    def close(self, delivered: bool) -> None:
        """Let go of the file, which stays where MLflow does not have it all."""
        if delivered:
            delete(self.path)
        self._file.close()


def _open_locked(path: Path) -> BinaryIO:
    """Return the file, locked; a new one if it was deleted, as delivered, while we waited."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0)
        with contextlib.ExitStack() as opened:
            opened.enter_context(file)
            files.take_lock(file, path, wait=True)
            if os.fstat(file.fileno()).st_nlink:
                opened.pop_all()
                return file


def has_header(path: Path) -> bool:
    """Return whether a journal is there that says of which store it is; no other holds numbers."""
    try:
        return any("uri" in line for line in _parse_lines(path.read_bytes()))
    except FileNotFoundError:
        return False


def spool_of(path: Path) -> Path:
    """Return the folder of files, by artifact path, that belongs to a journal."""
    return path.with_suffix("")


def delete(path: Path) -> None:
    """Delete a journal and its folder of files."""
    path.unlink(missing_ok=True)
    shutil.rmtree(spool_of(path), ignore_errors=True)


def find_stale(folder: Path, uri: str) -> list[Path]:
    """Return the journals of that store whose process has ended."""
    stale = []
    for path in sorted(folder.glob("*.jsonl")):
        with claim_stale(path, uri) as lines:
            stale += [path] if lines else []
    return stale


@contextmanager
def claim_stale(path: Path, uri: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of a dead process's journal, locked meanwhile; of any other none.

    A torn last line is left out; a file that cannot be read is said so.
    """
    lines: list[dict[str, Any]] = []
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(path.open("r+b"))
            if files.take_lock(file, path, wait=False):  # else its process lives
                lines = _parse_lines(file.read())
                silent_s = time.time() - os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:  # delivered meanwhile
            pass
        except OSError as error:
            print(f"{path} cannot be read: {error.strerror}", file=sys.stderr)
        # a copied or moved database keeps its name; one without a header is being made
        stores = {_store_name(str(line["uri"])) for line in lines if "uri" in line}
        is_here = {str(line["host"]) for line in lines if "host" in line} <= {socket.gethostname()}
        is_dead = is_here or silent_s > JOURNAL_LOST_S  # another host's lock is not seen
        yield lines if stores == {_store_name(uri)} and is_dead else []


def _store_name(uri: str) -> str:
    """Return what tells stores apart: not the password, which may be changed."""
    is_file = uri.startswith(SQLITE)
    return database_path(uri).name if is_file else without_password(uri)


def parse_content(lines: list[dict[str, Any]]) -> Content:
    """Return what a journal says. Raise TypeError if it is no journal of ours."""
    begun = max((i for i, line in enumerate(lines) if "uri" in line), default=0)
    return Content(
        [tuple(row) for line in lines for row in line.get("numbers", [])],
        [(key, line[key]) for line in lines for key in FACTS if key in line],
        next((line["end"] for line in reversed(lines[begun:]) if "end" in line), "KILLED"),
    )


def _parse_lines(written: bytes) -> list[dict[str, Any]]:
    """Return the lines of a journal but those that a kill has torn: a resumed run writes on."""
    lines = []
    for text in written.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict)]
