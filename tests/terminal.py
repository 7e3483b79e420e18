"""A pseudo-terminal of some width: what a command writes where a person looks at it."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from tests.conftest import ROOT

IN_TURN = """
import contextlib, sys
from pipelines.__main__ import dispatch
from pipelines.cli.shell import run_command_safely
for line in sys.stdin.read().splitlines():
    print("==", line, flush=True)
    with contextlib.suppress(SystemExit):  # --help ends with it
        run_command_safely(dispatch, line.split())
    sys.stdout.flush()
"""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def output(*arguments: str, typed: str = "", columns: int = 80) -> str:
    """What `python ARGUMENTS` writes, without colours; `typed` is its standard input."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | {"TERM": "xterm-256color"},
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=writer,
    ) as child:
        os.close(writer)
        assert child.stdin
        child.stdin.write(typed.encode())
        child.stdin.close()
        written = b""
        with contextlib.suppress(OSError):  # the terminal closes with the program
            while chunk := os.read(reader, 65_536):
                written += chunk
    os.close(reader)
    return COLOURS.sub("", written.decode()).replace("\r\n", "\n")


def commands(*lines: str, columns: int = 80) -> dict[str, str]:
    """What these commands of `pipelines` write, one after the other in one process, by command."""
    written = output("-c", IN_TURN, typed="\n".join(lines), columns=columns)
    parts = [part.partition("\n") for part in re.split(r"^== ", written, flags=re.M)[1:]]
    assert [line for line, _, _ in parts] == [*lines]
    return {line: text for line, _, text in parts}
