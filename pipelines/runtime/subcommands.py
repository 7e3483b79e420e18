"""Commands of ours in processes of their own: `tuning` builds on `pipelines`, not the other way."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from typing import Any

from pipelines.errors import Ended, Unavailable
from pipelines.runtime.provenance import ROOT


def study(name: str, *options: str) -> dict[str, Any]:
    """The document of `python -m tuning run NAME ...`; a study that is finished is found.

    Unavailable where it comes back unfinished.
    """
    found = answer("tuning", "run", name, *options)
    if found["status"] != "FINISHED":
        raise Unavailable(
            f"What is read must be a finished study. Received: {name}, which is {found['status']}. "
            f"Go on with it: python -m tuning resume {name}; then repeat the command."
        )
    return found


def answer(*words: str) -> dict[str, Any]:
    """The JSON document of a command; it is given the time to settle its runs.

    Raises Ended where it fails, with its code, its error and what it printed, and Unavailable
    where it is killed.
    """
    seen = dict.fromkeys(("TTY_COMPATIBLE", "TTY_INTERACTIVE"), str(int(sys.stderr.isatty())))
    with (
        tempfile.TemporaryFile() as document,
        subprocess.Popen(
            [sys.executable, "-m", *words, "--json"],
            cwd=ROOT,
            env=os.environ | seen,  # rich draws its bars through a pipe, too, if it is told to
            stdout=document,
            stderr=subprocess.PIPE,
        ) as child,
    ):
        try:
            said = _passed_on(child.stderr)
        except BaseException:
            child.terminate()
            _passed_on(child.stderr)
            raise
        child.wait()
        document.seek(0)
        printed = document.read()
    _check(child.returncode, words, said, _parsed(printed) if child.returncode else None)
    found: dict[str, Any] = json.loads(printed)
    return found


def _parsed(printed: bytes) -> Any:
    """What a command that failed has printed; None where that is no JSON document."""
    try:
        return json.loads(printed)
    except ValueError:
        return None


def _passed_on(pipe: Any) -> str:
    """Write what comes out of a pipe on standard error; the latest of it."""
    said = b""
    while chunk := pipe.read1():
        said = (said + chunk)[-LATEST:]
        with contextlib.suppress(OSError, ValueError):  # of a standard error that is closed
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
    return said.decode(errors="replace")


def _check(code: int, words: tuple[str, ...], said: str, document: Any = None) -> None:
    """Raise what the end of a command means: it failed, was told to stop, or was killed."""
    if code < 0:
        raise Unavailable(
            f"A command that another needs must live to its end. Received: {shlex.join(words)}, "
            f"killed by signal {-code}. Repeat the command: what was measured is kept."
        )
    if code >= 128:
        raise SystemExit(code)
    if code:
        last = error_in(said) or f"exit code {code}"
        raise Ended(f"{shlex.join(words)}: {last}", code, document)


LATEST = 10_000  # bytes of what a command has said, in which its error is found


def error_in(text: str) -> str:
    """Return the last `error: ...` of what a command has said, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return [*lines, *errors][-1] if lines else ""
