"""Locks: where there are none, or the file is another's, that is said."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UserError
from pipelines.runtime import files
from pipelines.tracking import journals


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_with_the_way_out(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / f"{'0' * 32}.jsonl"
    journal.write_text('{"uri": "sqlite:////x.db"}\n')

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said = f"file system with locks. Received: .*{os.strerror(number)}. Set MLRUNS_HOME"
    with pytest.raises(UserError, match=said), files.lock(tmp_path, "settle"):
        pass
    with pytest.raises(UserError, match=said):  # not: its process lives
        journals.find_stale(tmp_path, "sqlite:////x.db")
    with pytest.raises(UserError, match=said):
        journals.Journal(tmp_path, "1" * 32, "sqlite:////x.db")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's file")
def test_a_lock_file_of_another_user_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "popen", "test")):
            folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "settle.lock").touch(mode=0o600)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.seteuid(12345)
            with files.lock(tmp_path, "settle"):
                pass
        except UserError as error:
            named = f"Received: {tmp_path}/settle.lock: Permission denied" in str(error)
            code = 0 if named and "owner" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
