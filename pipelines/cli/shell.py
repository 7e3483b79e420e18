"""The frame of every command line: signals, exit codes, answers."""

import atexit
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pipelines.errors import (
    Diverged,
    Ended,
    Paused,
    Unavailable,
    UserError,
    check_words,
    hide_passwords,
    short,
)
from pipelines.runtime import places, subcommands
from pipelines.tracking import recovery, store

UNWRITABLE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
OBJECTS_BETWEEN_COLLECTIONS = 200_000
_stops: list[int] = []  # signals for which the command was ended by an exception


def run_process(command: Callable[[list[str]], None], recovers_runs: bool = True) -> int:
    """Run the command that this process was started with, and return its exit code.

    Libraries make a million objects when they are loaded, which stay: Python's collector looks for
    garbage among them less often than by default, and not at all when the process ends. That is a
    third of the time of a command that reads from MLflow.
    """
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
    atexit.register(gc.freeze)  # registered first, so that it is called last
    return run_command_safely(command, sys.argv[1:], recovers_runs)


def run_command_safely(
    command: Callable[[list[str]], None], arguments: list[str], recovers_runs: bool = True
) -> int:
    """Close the runs of killed processes, run the command, and return its exit code.

    A user's mistake is one sentence and code 2, for it would come again; a diverged training, and
    what a repetition may fix, one and code 1; a pause one and code 0; Ctrl-C gives 130, a
    termination signal 143, a closed terminal 129.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks us to go on
            signal.signal(number, _raise_for_signal)
    try:
        Path.home()
    except RuntimeError:  # MLflow ends there, and Keras makes a folder "~"
        os.environ["HOME"] = os.devnull  # no folder can be made there
    sys.unraisablehook = _resend_lost_signal
    subcommands.end_with_parent()
    try:
        check_words(arguments)
        for run_id in recovery.deliver_journals() if recovers_runs else ():
            print(f"Settled run {run_id}, which an earlier process had left.", file=sys.stderr)
        with _stop_after_all():
            command(arguments)
    except (UserError, Unavailable, Diverged, Ended) as error:
        if not isinstance(error, Ended):  # whose process has printed its error
            print(f"error: {hide_passwords(str(error))}", file=sys.stderr)
        return error.code
    except Paused as paused:
        print(paused, file=sys.stderr)
    except BrokenPipeError:  # `| head` has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError as error:
        print(f"error: The memory is full: {error} Choose smaller sizes.", file=sys.stderr)
        return 1
    except Exception as error:
        message = _describe_failure(error)
        if not message:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; what was logged is kept and the run is marked KILLED.", file=sys.stderr)
        return 130
    return 0


def _describe_failure(error: Exception) -> str:
    """Return the sentence for a store or disk that fails or no TensorFlow; else an empty one."""
    if store.is_away(error):
        return (
            f"The tracking store must answer. Received: {store.display_uri()}: {short(error)} What "
            "was measured is kept: repeat the command when the store is back."
        )
    sqlalchemy = sys.modules.get("sqlalchemy")
    if sqlalchemy and isinstance(error, sqlalchemy.exc.OperationalError):  # locked, full, away
        return (
            f"A database must answer and have room. Received: {short(error)}. Repeat the command "
            "when it does."
        )
    if isinstance(error, OSError) and error.errno in UNWRITABLE_ERRNOS:
        return (
            f"What is recorded must be written. Received: {error}. Make room, or allow it to be "
            "written, and repeat the command."
        )
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow and isinstance(
        error, (tensorflow.errors.NotFoundError, tensorflow.errors.DataLossError)
    ):
        return (
            f"Every file of a data set must be readable. Received: {short(error)}. Which one is "
            "damaged, and what to do: python -m pipelines data check"
        )
    if isinstance(error, ModuleNotFoundError) and str(error).endswith("'tensorflow'"):
        install = places.tensorflow_installation()
        return f"This command needs TensorFlow. Received: none. Install it: {install}"
    return ""


def _raise_for_signal(number: int, frame: FrameType | None) -> None:
    """End the command by an exception; during an import, as soon as that has ended.

    What is raised during an import may be lost: libraries in C make an ImportError of it. What
    libraries log from here on is that they were interrupted, which the user knows.
    """
    logging.disable()
    callers = (each.f_globals.get("__name__") for each, _ in traceback.walk_stack(frame))
    if "importlib._bootstrap" in callers:
        _resend_soon(number)
        return
    _stops.append(number)
    _stop(number)


def _stop(number: int) -> NoReturn:
    """Raise what a signal is to Python."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _stop_after_all() -> Iterator[None]:
    """Stop where a signal has come and the block ends by another error, which came of it.

    TensorFlow's code in C may swallow what a signal raises, and return None.
    """
    _stops.clear()
    try:
        yield
    except Exception:
        if _stops:
            _stop(_stops[0])
        raise


def _resend_soon(number: int) -> None:
    """Send this process a signal in a moment."""
    threading.Timer(0.05, os.kill, (os.getpid(), number)).start()


def _resend_lost_signal(dropped: Any) -> None:
    """Send a signal once more that came in a finalizer, where Python drops what is raised.

    Print nothing of a pool of threads that is collected after its pipes, as TensorFlow's may be at
    the exit, and everything else as usual.
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
    """Print the one JSON document of a command, with null for NaN and the infinities."""
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(document, inf_nan_mode="null", fallback=str)
    print(json.dumps(plain, indent=2, allow_nan=False))


def print_answer(document: Any, json: bool, show: Callable[[Any], object]) -> None:
    """Print the JSON document of a command, or what `show` prints of it."""
    (print_json if json else show)(document)


def exit_with_error(message: str, code: int = 1) -> NoReturn:
    """End a command that has printed its answer with a sentence and an exit code."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
