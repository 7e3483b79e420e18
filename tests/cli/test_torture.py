"""The torture: killed commands end as if they had not been; its studies take too long here."""

import pytest

from tests.conftest import command

SHORT = ("storing", "sweep", "import", "export")


@pytest.mark.slow
@pytest.mark.stress
def test_killed_commands_end_as_if_they_had_not_been_killed() -> None:
    kills = ("--kills", str(len(SHORT)), "--only", *SHORT)
    done = command("tests.torture", *kills, timeout=1_500)
    assert done.returncode == 0, done.stdout + done.stderr
