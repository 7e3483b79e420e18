"""Files that processes share: replaced whole or not at all, and locks on them."""

import contextlib
import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipelines.errors import UserError, disk_error

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


def user_path(text: str) -> Path:
    """Return a path that a person typed, where `~` is a home; UserError for an unknown one."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(
            f"A path must not begin with a home that is not known. Received: {text!r}. Write the "
            "whole path."
        ) from error


@contextmanager
def lock(folder: Path, name: str, waiting: str = "") -> Iterator[IO[str]]:
    """Let one process at a time into the block; print `waiting` where another one is in it.

    Yields the lock's file, which keeps what is written into it. Raise UserError if the folder
    cannot be written or has no locks, Unavailable on a full disk.
    """
    path = folder / f"{name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        raise disk_error(error)(
            f"The folder must be writable. Received: {path if path.exists() else folder}: "
            f"{error.strerror}. Change its permissions or owner, or choose another folder with "
            "MLRUNS_HOME (runs) or --data-dir (data)."
        ) from error
    with handle:
        if not take_lock(handle, path, wait=False):
            if waiting:
                print(waiting, file=sys.stderr)
            take_lock(handle, path, wait=True)
        yield handle


def take_lock(file: IO[Any], path: Path, wait: bool) -> bool:
    """Lock an open file until it is closed; without `wait` return False where another holds it.

    Raise UserError where the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"Files must be on a file system with locks. Received: {path}: {error.strerror}. Set "
            "MLRUNS_HOME (runs) or --data-dir (data) to a folder on a local disk."
        ) from error
    return True
