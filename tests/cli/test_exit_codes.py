"""Code 2 is kept for mistakes, which come again; what a repetition may fix ends with code 1.

Schedules try again after 1, and not after 2.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.cli import shell
from pipelines.errors import Unavailable, UserError, disk_error
from tests.conftest import free_port
from tuning.__main__ import dispatch as tune

SWEEP = "sweep small-norm-factorization --scale smoke --grid d=2 --seeds 1"
ENDS = [
    (dispatch, "run gradient-formul", 2, "Did you mean gradient-formula"),
    pytest.param(
        *(dispatch, f"{SWEEP} --scheduler tcp://127.0.0.1:PORT"),
        *(1, "scheduler must ans"),
        marks=pytest.mark.slow,  # for ten seconds it is given time to answer
    ),
    (dispatch, "schedule list --storage nonsense", 2, "needs a database"),
    (dispatch, "schedule list --storage sqlite:////proc/none/x.db", 2, "needs a database"),
    (tune, "list --storage sqlite://", 2, "A storage must be"),
]


@pytest.mark.parametrize(("command", "words", "code", "said"), ENDS)
def test_what_a_repetition_may_mend_is_no_mistake(
    command: Callable[[list[str]], None], words: str, code: int, said: str, *, home: Path, capsys
) -> None:
    assert (
        shell.run_command_safely(command, words.replace("PORT", str(free_port())).split()) == code
    )
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


def test_a_store_that_does_not_answer_may_answer_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    assert shell.run_command_safely(dispatch, ["compare", "a", "b"]) == 1
    assert "error: The tracking store must be reachable." in capsys.readouterr().err


def test_a_store_of_a_wrong_address_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    for address in ("nonsense://x", f"sqlite:///{tmp_path}/text"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert shell.run_command_safely(dispatch, ["compare", "a", "b"]) == 2
        assert "error: The tracking store must be reachable." in capsys.readouterr().err


def test_a_package_that_lacks_may_be_there_later(capsys) -> None:
    def compute_gradient(_: list[str]) -> None:
        raise ModuleNotFoundError("No module named 'tensorflow'")

    assert shell.run_command_safely(compute_gradient, [], recovers_runs=False) == 1
    assert capsys.readouterr().err.startswith(
        "error: This command needs TensorFlow. Received: none"
    )


def test_a_full_disk_may_have_room_later_and_a_wrong_folder_stays_wrong() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        assert disk_error(OSError(number, os.strerror(number))) is Unavailable
    for number in (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.EROFS):
        assert disk_error(OSError(number, os.strerror(number))) is UserError
