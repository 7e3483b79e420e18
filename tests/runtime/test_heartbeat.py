"""Whether the process that writes a run lives: by its start here, by its silence elsewhere."""

import os
import time

import pytest

from pipelines.runtime import heartbeat

ELSEWHERE = {heartbeat.MACHINE: "elsewhere 8c2f pid:[1]", heartbeat.PROCESS: "1 1.00"}


def silent_for(seconds: float, **tags: str) -> dict[str, str]:
    """Return the tags of a run whose last heartbeat is so long ago."""
    return heartbeat.tags() | {heartbeat.HEARTBEAT: str(time.time() - seconds)} | tags


def test_this_process_lives_however_long_it_was_silent() -> None:
    assert heartbeat.reason_dead(silent_for(10 * heartbeat.LOST_S)) is None


def test_a_process_number_that_was_given_again_is_another_process() -> None:
    why = heartbeat.reason_dead(silent_for(0, process=f"{os.getpid()} 1.00"))
    assert why == f"process {os.getpid()} of this machine has ended"


@pytest.mark.parametrize(("seconds", "dead"), [(3_500, False), (3_700, True)])
def test_a_process_of_another_machine_is_dead_after_an_hour(seconds: float, dead: bool) -> None:
    assert (heartbeat.reason_dead(silent_for(seconds, **ELSEWHERE)) is not None) == dead


@pytest.mark.parametrize("name", ["x", "", "x 1.00", "-1 1.00", "0", f"{2**70} 1.00", "1.5"])
@pytest.mark.parametrize("machine", [heartbeat.machine(), "elsewhere 8c2f pid:[1]"])
def test_a_process_that_no_program_of_ours_named_may_always_live(name: str, machine: str) -> None:
    tags = silent_for(10 * heartbeat.LOST_S, process=name, machine=machine)
    assert heartbeat.reason_dead(tags) is None
    assert heartbeat.reason_dead(tags | {heartbeat.HEARTBEAT: "x"}) is None
