"""Journals of the runs that are being written: what a killed process leaves behind.

One file a run, in the tracking home: a header that says whose it is, then every number as it was
logged, then how the run ended. It is deleted when MLflow has it all. Imports no MLflow, so that
every command can look for journals of dead processes at the cost of a directory listing.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import provenance
from pipelines.errors import UserError

Number = tuple[str, float, int, int]  # metric, value, step, milliseconds since 1970


class Journal:
    """An append-only file of one run; a line is in the system's hands when `write` returns."""

    def __init__(self, folder: Path, run_id: str, uri: str) -> None:
        self.path = folder / f"{run_id}.jsonl"
        self._file = self.path.open("a", buffering=1)
        self._line({"run": run_id, "uri": uri, **provenance.process()})

    def _line(self, content: Any) -> None:
        self._file.write(json.dumps(content) + "\n")

    def write(self, numbers: list[Number]) -> None:
        self._line({"numbers": numbers})

    def end(self, status: str) -> None:
        self._line({"end": status})

    def close(self, delivered: bool) -> None:
        """Close the file; it stays for the next command where MLflow does not have it all."""
        self._file.close()
        if delivered:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Leftover:
    """What the journal of a dead process says."""

    path: Path
    run_id: str
    uri: str
    numbers: list[Number]
    status: str


def leftovers(folder: Path) -> list[Leftover]:
    """Journals whose process has ended, oldest first; a torn last line is left out."""
    found = [_read(path) for path in sorted(folder.glob("*.jsonl"), key=_age)]
    return [leftover for leftover in found if leftover]


def _age(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _read(path: Path) -> Leftover | None:
    lines = []
    try:
        for line in path.read_text().splitlines():
            lines.append(json.loads(line))
    except FileNotFoundError:  # another command has settled it meanwhile
        return None
    except json.JSONDecodeError:
        pass
    if not lines or not provenance.is_dead(lines[0]):
        return None
    numbers = [tuple(row) for line in lines[1:] for row in line.get("numbers", [])]
    status = next((line["end"] for line in lines if "end" in line), "KILLED")
    return Leftover(path, lines[0]["run"], lines[0]["uri"], numbers, status)


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """One process at a time. UserError when the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise UserError(
            f"The folder must be writable. Received: {folder}: {error.strerror}. Change its "
            "permissions, or choose another with MLFLOW_TRACKING_URI (runs) or --data-dir (data)."
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
