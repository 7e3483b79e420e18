"""Our own commands run for others: what they print, how they end, and that it is said once."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.cli.shell import run_command_safely
from pipelines.errors import Ended, Unavailable
from pipelines.runtime import subcommands
from pipelines.tracking import history, tracked_run


def test_a_command_that_fails_fails_who_asked_for_it_and_is_said_once(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(_: list[str]) -> None:
        with tracked_run.track("claim", experiment="tuning", kind="scheduled"):
            subcommands.run_json("tuning", "run")

    assert run_command_safely(ask, []) == 2
    said = capsys.readouterr().err
    assert said.count("name must stand before the options") == 1
    assert "Traceback" not in said
    (row,) = history.rows("FAILED", kind="scheduled")
    assert "name must stand before the options" in row.tags[tracked_run.FAILURE]


@pytest.mark.parametrize(
    ("code", "said", "error", "reason"),
    [
        (1, "error: first\nerror: The loss diverged.\nmore\n", Ended, "The loss diverged."),
        (1, "Traceback:\nOSError: no device\n", Ended, "OSError: no device"),
        (2, "", Ended, "exit code 2"),
        (-9, "half a li", Unavailable, "killed by signal 9"),
        (143, "", SystemExit, "143"),
    ],
)
def test_the_end_of_a_command_says_what_happened(
    code: int, said: str, error: type[BaseException], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        subcommands._raise_for_exit_code(code, ("tuning", "run", "s"), said)


class Broken(io.BytesIO):
    def write(self, _: Any) -> int:
        raise BrokenPipeError


def test_a_command_is_read_to_its_end_where_nobody_hears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (closed := io.BytesIO()).close()
    for nobody in (Broken(), closed):
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(buffer=nobody))
        said = io.BytesIO(b"error: one\n" + 60_000 * b"x" + b"\nerror: last\n")
        assert subcommands._pass_on(said).endswith("error: last\n")


def test_a_command_beside_others_is_read_when_it_is_waited_for(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with subcommands.run_json_beside("tuning", "list") as wait:
        assert wait() == []
    with (
        pytest.raises(Ended, match="name must stand before the options"),
        subcommands.run_json_beside("tuning", "run") as wait,
    ):
        wait()
    assert capfd.readouterr().err.count("name must stand before the options") == 1


def test_a_command_beside_that_does_not_end_is_killed() -> None:
    """It leads no process group, so that Ctrl-C of a terminal reaches it."""
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        subcommands.end(process, grace_s=0.1)
        assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["x", "", "-1", "1.5"])
def test_a_parent_that_another_program_names_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(subcommands.PARENT, name)
    assert run_command_safely(lambda _: None, [], recovers_runs=False) == 0
    assert subcommands.PARENT not in os.environ


@pytest.mark.parametrize("name", ["x", "[]", "1", '{"store": 1}', "{}", ""])
def test_a_run_that_another_program_names_is_no_parent(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tracked_run.PARENT_VARIABLE, name)
    assert tracked_run.inherited_parent() is None
