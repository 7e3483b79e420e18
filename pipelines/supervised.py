"""The process of a command that is supervised: started, told to end, killed, waited for.

Imports the standard library only: nothing comes between a tick and its command.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipelines.attempted import FAILED, KILLED, RAN, Outcome

ROOT = Path(__file__).resolve().parents[1]
ATTEMPT = "SCHEDULED_ATTEMPT"  # in the environment of all processes of an attempt: its folder
GRACE_S = 30.0  # for a command that is told to end
LEFT_S = 5.0  # for what one has left behind, at each of two signals
LATEST = 10_000  # bytes of a log, in which the error is found
PR_SET_PDEATHSIG = 1


class Command:
    """A command of ours in a process group of its own, from its start on.

    `environment` is added to ours; what it writes goes where we write, line by line. On Linux it is
    told to end when this process is killed.
    """

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        self.ending: Outcome | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_ends_with_us(),  # noqa: PLW1509 - it takes no lock
        )
        self._timers: list[threading.Timer] = []

    def limit(self, seconds: float) -> None:
        """End it after so long; it has failed then."""
        why = f"it took longer than its timeout of {seconds:g} s"
        self._later(seconds, self.end, Outcome(FAILED, why), signal.SIGTERM)

    def end(self, outcome: Outcome, number: int) -> None:
        """Send it a signal, and kill its group when that has not ended it within GRACE_S.

        The first outcome that is given counts, whatever exit code the command then has; none does
        of a command that has ended before.
        """
        if self.process.poll() is None:
            self.ending = self.ending or outcome
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)  # it ends what it has started
            self._later(GRACE_S, self._kill)

    def _kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _later(self, seconds: float, what: Callable[..., None], *given: Any) -> None:
        timer = threading.Timer(seconds, what, given)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def wait(self, log: Path) -> Outcome:
        """How it ended, when it has; its error is the last one of the log."""
        code = self.process.wait()
        for timer in self._timers:
            timer.cancel()
        if self.ending:
            return Outcome(self.ending.state, self.ending.why, code)
        return judged(code, log)


def _ends_with_us() -> Callable[[], None] | None:
    """What the child does before it becomes the command: ask for a signal when we are killed."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def judged(code: int, log: Path) -> Outcome:
    """What an exit code means; 128 and more stand for a signal, as in a shell."""
    if code == 0:
        return Outcome(RAN, code=0)
    number = -code if code < 0 else code - 128
    if number > 0:
        names = {each.value: each.name for each in signal.Signals}
        why = f"its command was ended by {names.get(number, f'signal {number}')}"
        return Outcome(KILLED, why, code)
    return Outcome(FAILED, last_error(log) or f"exit code {code}", code)


def last_error(log: Path) -> str:
    """What the end of a log says of the error; empty where it says nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LATEST))
            said = file.read().decode(errors="replace")
    except OSError:
        return ""
    return error_in(said)


def error_in(said: str) -> str:
    """The last `error: ...` of what a command has said, else its last line; empty without one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return [*lines, *errors][-1] if lines else ""


def members(attempt: str) -> list[Any]:
    """The processes of an attempt other than this one, as psutil has them."""
    import psutil

    found = psutil.process_iter(["environ"])
    return [
        each
        for each in found
        if (each.info["environ"] or {}).get(ATTEMPT) == attempt and each.pid != os.getpid()
    ]


def end_members(attempt: str) -> int:
    """End what is left of an attempt, kill what does not end; how many processes there were."""
    import psutil

    left = members(attempt)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for each in members(attempt):
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)
        end = time.monotonic() + LEFT_S
        while members(attempt) and time.monotonic() < end:
            time.sleep(0.1)
    return len(left)
