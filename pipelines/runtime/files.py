"""Files that processes share: replaced whole or not at all, and locks on them."""

import contextlib
import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import disk_error

HALF = "half."  # begins the name of a file or folder that is being written; its ending stays


@contextmanager
def replace_whole(path: Path) -> Iterator[Path]:
    """Yield a place beside `path` to write a file or a folder to, which is then moved to `path`.

    Nothing is left there if the block raises; what a kill leaves is written over by the next.
    """
    half = path.with_name(f"{HALF}{path.name}")
    try:
        remove(half)
        yield half
        if half.is_dir():
            remove(path)  # a folder cannot be replaced by another
        half.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(half)
        raise


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def lock(folder: Path, name: str, waiting: str = "") -> Iterator[None]:
    """Let one process at a time into the block; print `waiting` where another one is in it.

    Raise UserError if the folder cannot be written, Unavailable if its disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise disk_error(error)(
            f"The folder must be writable. Received: {folder}: {error.strerror}. Change its "
            "permissions, or choose another with MLRUNS_HOME (runs) or --data-dir (data)."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
