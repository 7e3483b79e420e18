"""What every command line of the project does around its command."""

import errno
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines.errors import Diverged, Ended, Paused, Unavailable, UserError, check_words, short
from pipelines.runtime import subcommands
from pipelines.tracking import recovery, store

UNWRITABLE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def run_command_safely(
    command: Callable[[list[str]], None], arguments: list[str], recovers_runs: bool = True
) -> int:
    """Settle the runs of killed processes, run the command, and return its exit code.

    A user's mistake is one sentence and code 2, for it would come again; a diverged training, and
    what a repetition may mend, one and code 1; a pause one and code 0; Ctrl-C gives 130, a
    termination signal 143, a closed terminal 129.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks us to go on
            signal.signal(number, _raise_for_signal)
    sys.unraisablehook = _resend_lost_signal
    subcommands.end_with_parent()
    try:
        check_words(arguments)
        for run_id in recovery.deliver_journals() if recovers_runs else ():
            print(f"Settled run {run_id}, whose process was killed.", file=sys.stderr)
        command(arguments)
    except (UserError, Unavailable, Diverged, Ended) as error:
        return _report_error(error)
    except Paused as paused:
        print(paused, file=sys.stderr)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError as error:
        print(f"error: The memory is full: {error} Choose smaller sizes.", file=sys.stderr)
        return 1
    except Exception as error:
        said = _describe_failure(error)
        if said is None:
            raise
        print(f"error: {said}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; what was logged is kept and the run is marked KILLED.", file=sys.stderr)
        return 130
    return 0


def _report_error(error: UserError | Unavailable | Diverged | Ended) -> int:
    """Say what was wrong, unless another process has said it; the exit code."""
    if isinstance(error, Ended):
        return error.code
    print(f"error: {error}", file=sys.stderr)
    return 2 if isinstance(error, UserError) else 1


def _describe_failure(error: Exception) -> str | None:
    """What a person is told of a store or a disk that fails; None of any other error."""
    if store.is_away(error):
        return (
            f"The tracking store must answer. Received: {store.display_uri()}: {short(error)} What "
            "was measured is kept: repeat the command when the store is back."
        )
    if _is_database_error(error):
        return (
            f"A database must answer and have room. Received: {short(error)}. Repeat the command "
            "when it does."
        )
    if isinstance(error, OSError) and error.errno in UNWRITABLE_ERRNOS:
        return (
            f"What is recorded must be written. Received: {error}. Make room, or allow it to be "
            "written, and repeat the command."
        )
    return None


def _is_database_error(error: Exception) -> bool:
    """Whether an error is one of SQLAlchemy's: a database that is locked, full, read-only, away."""
    library = sys.modules.get("sqlalchemy")
    return library is not None and isinstance(error, library.exc.OperationalError)


def _raise_for_signal(number: int, frame: FrameType | None) -> None:
    """End the command by an exception; during an import, when that is over.

    What is raised during an import may be lost: libraries in C make an ImportError of it. What
    libraries log from here on is that they were cut short, which the user knows.
    """
    logging.disable()
    callers = (each.f_globals.get("__name__") for each, _ in traceback.walk_stack(frame))
    if "importlib._bootstrap" in callers:
        _resend_soon(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        raise SystemExit(128 + number)


def _resend_soon(number: int) -> None:
    """Send this process a signal in a moment."""
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()


def _resend_lost_signal(dropped: Any) -> None:
    """Send a signal once more that came in a finalizer, where Python drops what is raised.

    Says nothing of a pool of threads that is collected after its pipes, as TensorFlow's may be at
    the exit. Everything else is printed as usual.
    """
    error = dropped.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = int(signal.SIGINT)
    elif isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128:
        number = error.code - 128
    else:
        if getattr(dropped.object, "__qualname__", "") != "Pool.__del__":
            sys.__unraisablehook__(dropped)
        return
    _resend_soon(number)


def use_data_dir(folder: Path | None) -> None:
    """Make --data-dir the folder of prepared data, for this process and those it starts."""
    if folder is not None:
        os.environ["TFDS_DATA_DIR"] = str(folder)


def print_json(document: Any) -> None:
    """The one JSON document of a command, on standard output; null for NaN and the infinities."""
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(document, inf_nan_mode="null", fallback=str)
    print(json.dumps(plain, indent=2, allow_nan=False))
