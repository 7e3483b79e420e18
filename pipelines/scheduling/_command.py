"""The process of a command that is run for someone: started, told to end, killed, waited for.

On Linux it is told to end when the process that started it is killed. What it leaves behind is
found by a variable of its environment.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.runtime.provenance import ROOT
from pipelines.runtime.subcommands import LATEST, error_in

ATTEMPT = "SCHEDULED_ATTEMPT"  # in the environment of all processes of an attempt: its folder
TICK = "SCHEDULED_TICK"  # in the environment of the commands of a tick: which one it is
GRACE_S = 30.0  # for a process that is told to end
PR_SET_PDEATHSIG = 1


def start(words: Sequence[str], environment: Mapping[str, str], log: Path) -> Any:
    """Start `python -m WORDS` in a process group of its own; what it says goes into the log."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - it takes no lock
        )


def _end_with_parent() -> Callable[[], None] | None:
    """Return what the child does before it becomes the command: ask for a signal when we die."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def end(process: Any) -> None:
    """Tell a process to end, which ends what it has started; kill its group if it does not."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_members(attempt: str) -> None:
    """End what is left of an attempt, and kill what does not end."""
    import psutil

    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        for each in _members(attempt):
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)
        while _members(attempt) and time.monotonic() < deadline:
            time.sleep(0.1)


def _members(attempt: str) -> list[Any]:
    """Return the processes of an attempt other than this one, as psutil has them."""
    import psutil

    return [
        each
        for each in psutil.process_iter(["environ"])
        if (each.info["environ"] or {}).get(ATTEMPT) == attempt and each.pid != os.getpid()
    ]


def last_error(log: Path) -> str:
    """Return what the end of a log says of the error; empty where it says nothing."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LATEST))
        return error_in(file.read().decode(errors="replace"))
    return ""
