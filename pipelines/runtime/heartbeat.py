"""Which process writes a run, and whether it still lives: so that no live run is closed.

A process is known by its machine, its number and its start: numbers are given again. A machine is
one boot of one kernel, and there one space of process numbers, for containers have their own. What
another machine's process does cannot be seen from here: of that, only its last heartbeat is known.

A run that has a journal here is judged by the journal's lock (tracking/journals.py), any other by
`reason_dead`. A run's heartbeats are sent by tracking/outbox.py, a study's by
tuning/storage/leader.py.
"""

import functools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

BEAT_S = 60.0  # between two heartbeats
# Without a sign of life for so long, another machine's process is taken for dead:
LOST_S = 3_600.0  # a process that writes a run, by the run's tags
JOURNAL_LOST_S = 300.0  # the same, by a journal in a shared folder, whose lock is not seen
STUDY_LOST_S = 600.0  # a process that leads a study or trains a trial
PROCESS, MACHINE, HEARTBEAT = "process", "machine", "heartbeat"  # tags of a run
SETTLED = "settled"  # tag of a run whose process was found dead: why


def tags() -> dict[str, str]:
    """Return the tags of a run that this process writes now."""
    return {PROCESS: process_name(os.getpid()), MACHINE: machine(), HEARTBEAT: timestamp()}


def process_name(number: int) -> str:
    """Return the name of the process of that number, as no later one will be called."""
    return f"{number} {_start_time(number)}"


def timestamp() -> str:
    """Return a heartbeat: the seconds since 1970, by this machine's clock."""
    return f"{time.time():.0f}"


@functools.cache
def machine() -> str:
    """Return host name, boot and space of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    parts = [boot.read_text().strip()[:13] if boot.exists() else ""]
    parts += [str(space.readlink())] if space.is_symlink() else []
    return " ".join([socket.gethostname(), *filter(None, parts)])


def reason_dead(run: Mapping[str, str], lost_s: float = LOST_S) -> str | None:
    """Return why the process that wrote a run with these tags has ended; None if it may live.

    That of another machine after `lost_s` seconds without a heartbeat. A run without the tags, or
    with others than `tags` gives, is not ours and may always live.
    """
    number, _, started = run.get(PROCESS, "").partition(" ")
    try:
        process, beat = int(number), float(run.get(HEARTBEAT, "inf"))
    except ValueError:
        return None
    if MACHINE not in run or not 0 < process < 1 << 31:
        return None
    if run[MACHINE] == machine():
        dead = _start_time(process) != started
        return f"process {number} of this machine has ended" if dead else None
    silent_s = time.time() - beat
    host = run[MACHINE].partition(" ")[0]
    return f"no sign of life from {host} for {silent_s:.0f} s" if silent_s > lost_s else None


def _start_time(number: int) -> str:
    """Return when a process started, in seconds after its machine; empty if there is none.

    Not a time of day: setting the clock would change it.
    """
    import psutil

    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return f"{process.create_time() - psutil.boot_time():.2f}"
    except psutil.NoSuchProcess:
        return ""
