"""Commands of ours in processes of their own: started, read, told to end, ended with their parent.

`tuning` builds on `pipelines`, not the other way: what needs a study runs a command.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.errors import Ended, Unavailable
from pipelines.runtime import places

PARENT = "PARENT_PROCESS"  # environment variable: the process with which the command ends
GRACE_S = 30.0  # time that a process has to end
KEPT_BYTES = 10_000  # kept of what a command prints: its error is at the end


def start(
    words: Sequence[str], environment: Mapping[str, str], **streams: Any
) -> subprocess.Popen[bytes]:
    """Start `python -m WORDS`; a command of ours ends soon after this process is killed.

    It finds this code and this home, whatever else is in the current folder, which it shares.
    """
    folders = [str(places.ROOT)] * places.is_checkout() + [os.environ.get("PYTHONPATH", "")]
    told = {"PYTHONPATH": os.pathsep.join(filter(None, folders)), places.HOME: str(places.home())}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", *words],
        env={**os.environ, **told, **environment, PARENT: str(os.getpid())},
        **streams,
    )


def end(*processes: subprocess.Popen[bytes], grace_s: float | None = GRACE_S) -> None:
    """Tell processes to end, with what they have started; kill the group of one that does not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # one that leads no group
            process.wait()


def end_with_parent(parent: int | None = None, end: Callable[[], None] | None = None) -> None:
    """Call `end` once the parent of this process is gone: by default, send ourselves SIGTERM.

    Without `parent` the process that `start` was called in, if this one was started so.
    """
    named = os.environ.pop(PARENT, "")  # what we start has another parent
    expected = parent or (int(named) if named.isdecimal() else 0)
    if not expected:
        return

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(1)
        (end or (lambda: os.kill(os.getpid(), signal.SIGTERM)))()

    threading.Thread(target=watch, daemon=True).start()


def run_study(name: str, *options: str) -> dict[str, Any]:
    """Return the document of `python -m tuning run NAME ...`; a study that is finished is found.

    Raise Unavailable where it comes back unfinished.
    """
    document = run_json("tuning", "run", name, *options)
    if document["status"] != "FINISHED":
        raise Unavailable(
            f"What is read must be a finished study. Received: {name}, which is "
            f"{document['status']}. Go on with it: python -m tuning resume {name}; then repeat the "
            "command."
        )
    return document


def run_json(*words: str) -> dict[str, Any]:
    """Return the JSON document of a command, which is given the time to close its runs.

    Raise Ended where it fails, with its code, its error and what it printed, and Unavailable where
    it is killed.
    """
    terminal = dict.fromkeys(("TTY_COMPATIBLE", "TTY_INTERACTIVE"), str(int(sys.stderr.isatty())))
    with (
        tempfile.TemporaryFile() as file,
        # rich draws its bars through a pipe, too, if it is told to
        start([*words, "--json"], terminal, stdout=file, stderr=subprocess.PIPE) as child,
    ):
        try:
            errors = _pass_on(child.stderr)
        except BaseException:
            child.terminate()
            _pass_on(child.stderr)
            raise
        child.wait()
        file.seek(0)
        printed = file.read()
    _raise_for_exit_code(child.returncode, words, errors, printed)
    document: dict[str, Any] = json.loads(printed)
    return document


@contextlib.contextmanager
def run_json_beside(*words: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Run a command beside the body, which gets what waits for its document, as of `run_json`.

    The command is told to end where the body fails. What it writes on standard error comes out
    when it has ended.
    """
    with (
        tempfile.TemporaryFile() as file,
        tempfile.TemporaryFile() as messages,
        start([*words, "--json"], {}, stdout=file, stderr=messages) as child,
    ):

        def wait() -> dict[str, Any]:
            child.wait()
            for each in (file, messages):
                each.seek(0)
            _raise_for_exit_code(child.returncode, words, _pass_on(messages))
            document: dict[str, Any] = json.load(file)
            return document

        try:
            yield wait
        except BaseException:
            end(child)
            raise


def _pass_on(pipe: Any) -> str:
    """Write what comes out of a pipe on standard error; return the latest of it."""
    latest = b""
    while chunk := pipe.read1():
        latest = (latest + chunk)[-KEPT_BYTES:]
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
    return latest.decode(errors="replace")


def _raise_for_exit_code(
    code: int, words: tuple[str, ...], errors: str, printed: bytes = b""
) -> None:
    """Raise what the exit code of a command means: it failed, was told to stop, or was killed."""
    if code < 0:
        raise Unavailable(
            f"A command that another needs must live to its end. Received: {shlex.join(words)}, "
            f"killed by signal {-code}. Repeat the command: what was measured is kept."
        )
    if code >= 128:
        raise SystemExit(code)
    if code:
        document = None  # where what was printed is none
        with contextlib.suppress(ValueError):
            document = json.loads(printed)
        reason = find_error(errors) or f"exit code {code}"
        raise Ended(f"{shlex.join(words)}: {reason}", code, document)


def find_error(text: str) -> str:
    """Return the last `error: ...` of what a command has printed, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return [*lines, *errors][-1] if lines else ""
