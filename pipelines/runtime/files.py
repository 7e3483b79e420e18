"""Files that are there whole or not at all, wherever the process that writes them is killed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HALF = "half."  # begins the name of a file or folder that is being written; its ending stays


@contextmanager
def replace_whole(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield a place beside `path` to write a file or a folder to, which is then moved to `path`.

    Nothing is left there if the block raises. Processes that may write a `shared` file at the same
    time get places of their own; what a kill leaves of any other is written over.
    """
    half = path.with_name(f"{HALF}{os.getpid()}.{path.name}" if shared else f"{HALF}{path.name}")
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
