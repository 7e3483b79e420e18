"""Who leads a study: one process, which queues its trials, writes its run and sums it up."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pipelines.runtime import heartbeat

LEADER = "leader"  # attribute of a study: the process that leads it
BEAT_S = 60.0  # between two signs of life
DEAD_AFTER_S = 600.0  # without one: a process on another machine is taken for dead
SETTLE_S = 1.0  # for another machine that takes the lead at the same moment


def living_leader(study: Any) -> Mapping[str, str] | None:
    """Return the process that leads the study, as alive.py has it; None where none does."""
    found: Mapping[str, str] = study.user_attrs.get(LEADER) or {}
    return found if found and heartbeat.reason_dead(found, DEAD_AFTER_S) is None else None


def take_lead(study: Any, several: bool) -> bool:
    """Lead the study, unless another living process does.

    Call it under the study's lock, which keeps other processes of this machine out. Where `several`
    machines may take the lead, the last one that says so has it.
    """
    if living_leader(study) and not is_leader(study):
        return False
    study.set_user_attr(LEADER, heartbeat.tags())
    if several:
        time.sleep(SETTLE_S)
    return is_leader(study)


def is_leader(study: Any) -> bool:
    """Whether this process was the last to take the lead."""
    held, own = study.user_attrs.get(LEADER) or {}, heartbeat.tags()
    return all(held.get(key) == own[key] for key in (heartbeat.PROCESS, heartbeat.MACHINE))


@contextmanager
def lead(study: Any) -> Iterator[None]:
    """Give the leader's sign of life for as long as the block lasts; then none leads.

    A leader that was silent for so long that another took its place leaves that one alone.
    """

    def say(what: Mapping[str, str] | None) -> None:
        if is_leader(study):
            study.set_user_attr(LEADER, what)

    try:
        with beat_regularly(lambda: say(heartbeat.tags())):
            yield
    finally:
        with contextlib.suppress(Exception):  # the storage may be what has failed
            say(None)


@contextmanager
def beat_regularly(beat: Callable[[], None]) -> Iterator[None]:
    """Have a sign of life given now and then, in a thread, for as long as the block lasts."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(BEAT_S):
            with contextlib.suppress(Exception):  # a storage that is away may take the next one
                beat()

    thread = threading.Thread(target=work, daemon=True, name="sign of life")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
