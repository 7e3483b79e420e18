"""The leader of a study: one process, which queues its trials, writes its run and sums it up."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pipelines.runtime import heartbeat
from pipelines.runtime.heartbeat import BEAT_S, STUDY_LOST_S

LEADER = "leader"  # attribute of a study: the process that leads it
SETTLE_S = 1.0  # another machine may take the lead at the same moment


def living_leader(study: Any) -> Mapping[str, str] | None:
    """Return the tags of the process that leads the study; None where none does."""
    tags: Mapping[str, str] = study.user_attrs.get(LEADER) or {}
    return tags if tags and heartbeat.reason_dead(tags, STUDY_LOST_S) is None else None


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
    """Return whether this process was the last to take the lead."""
    leader, ours = study.user_attrs.get(LEADER) or {}, heartbeat.tags()
    return all(leader.get(key) == ours[key] for key in (heartbeat.PROCESS, heartbeat.MACHINE))


@contextmanager
def lead(study: Any) -> Iterator[None]:
    """Write the leader's heartbeat for as long as the block lasts; then none leads.

    A leader that was silent for so long that another took its place leaves that one alone.
    """

    def write(tags: Mapping[str, str] | None) -> None:
        if is_leader(study):
            study.set_user_attr(LEADER, tags)

    try:
        with beat_regularly(lambda: write(heartbeat.tags()), BEAT_S):
            yield
    finally:
        with contextlib.suppress(Exception):  # the storage may be what has failed
            write(None)


@contextmanager
def beat_regularly(beat: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `beat` that often, in a thread, for as long as the block lasts."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(every_s):
            with contextlib.suppress(Exception):  # a storage that is away may take the next one
                beat()

    thread = threading.Thread(target=work, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
