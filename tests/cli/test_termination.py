"""A command that is told to end ends at every moment, and says nothing."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

STUDY = ("tuning", "run", "mine", "--recipe", "mlp-digits", "--scale", "smoke", "--trials", "2")
TRAINING = ("pipelines", "run", "mlp-digits", "--scale", "smoke")
# Of pandas, which MLflow imports, a module in C imports pandas while it is being imported, and
# makes an ImportError of whatever is raised there.
IN_C = """
import os, signal, sys, traceback
from pipelines.cli.shell import run_command_safely

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may have started the tests, ignores it

def kill(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_lock_unlock_module":
        specs = [each.f_locals.get("spec") for each, _ in traceback.walk_stack(frame)]
        if "pandas._libs.pandas_parser" in [getattr(spec, "name", "") for spec in specs]:
            sys.setprofile(None)
            os.kill(os.getpid(), int(sys.argv[1]))

def command(_):
    sys.setprofile(kill)
    import pandas
    print("imported", flush=True)
    while True:
        pass

sys.exit(run_command_safely(command, [], recovers_runs=False))
"""

CUT_SHORT = """
import logging, os, signal, sys
from pipelines.cli.shell import run_command_safely

signal.signal(signal.SIGHUP, signal.SIG_DFL)

def command(_):
    try:
        os.kill(os.getpid(), int(sys.argv[1]))
    except BaseException:
        logging.getLogger("sqlalchemy.pool").error("Error closing cursor", exc_info=True)
        raise

sys.exit(run_command_safely(command, [], recovers_runs=False))
"""
IN_FINALIZER = """
import os, signal, sys, time
from pipelines.cli.shell import run_command_safely

signal.signal(signal.SIGHUP, signal.SIG_DFL)

class Last:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0.1)

def command(_):
    Last()
    time.sleep(20)
    print("went on", file=sys.stderr)

sys.exit(run_command_safely(command, [], recovers_runs=False))
"""
SWALLOWED = """
import os, signal, sys
from pipelines.cli.shell import run_command_safely

signal.signal(signal.SIGHUP, signal.SIG_DFL)

def command(_):
    try:  # as TensorFlow's code in C may
        os.kill(os.getpid(), int(sys.argv[1]))
        gradient = 0.0
    except BaseException:
        gradient = None
    1.0 - gradient

sys.exit(run_command_safely(command, [], recovers_runs=False))
"""
ENDS = [(signal.SIGTERM, 143, ""), (signal.SIGHUP, 129, ""), (signal.SIGINT, 130, "Stopped")]


def exit_of(words: Sequence[str], after_s: float | None = None) -> tuple[int, str]:
    """The exit code of Python with these words and its errors; SIGTERM comes after so long."""
    command = [sys.executable, *words]
    kept = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **kept) as process:
        try:
            if after_s is not None:
                time.sleep(after_s)
                process.terminate()
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, errors


@pytest.mark.parametrize("program", [IN_C, CUT_SHORT, IN_FINALIZER, SWALLOWED])
@pytest.mark.parametrize(("number", "code", "message"), ENDS)
def test_a_signal_is_neither_lost_nor_another_error_and_nothing_is_said_of_it(
    number: signal.Signals, code: int, message: str, program: str
) -> None:
    found, errors = exit_of(["-c", program, str(int(number))])
    assert found == code, errors
    assert len(errors.splitlines()) == bool(message)
    assert errors.startswith(message)


def check(words: Sequence[str], after_s: float) -> None:
    code, errors = exit_of(["-m", *words], after_s)
    assert code in (143, -signal.SIGTERM), errors  # before our handler is there, Python's own ends
    begun = errors.splitlines()  # at most the line that says what begins
    assert [line for line in begun if " at smoke scale" not in line] == []


@pytest.mark.parametrize("after_s", [1.0])
def test_a_command_is_silent_that_is_told_to_end_while_it_starts(
    home: Path, after_s: float
) -> None:
    check(STUDY, after_s)


@pytest.mark.slow
@pytest.mark.stress
@pytest.mark.parametrize("words", [STUDY, TRAINING])
def test_a_command_is_silent_at_every_moment_of_its_start(home: Path, words: Sequence[str]) -> None:
    for tenth in range(0, 31, 3):
        check(words, tenth / 10)
