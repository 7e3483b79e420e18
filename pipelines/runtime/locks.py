"""Locks on files: one process at a time."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import disk_error


@contextmanager
def lock(folder: Path, name: str, waiting: str = "") -> Iterator[None]:
    """One process at a time; the others may say that they wait. UserError: no folder to write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise disk_error(error)(
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
