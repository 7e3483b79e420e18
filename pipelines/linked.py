"""The run that the runs of this process belong to, where another process of ours started it.

An attempt at a scheduled job, or a pipeline, starts a command at once and opens its own run
meanwhile; a file, which the environment names, tells the command which one that is. Every run of
the command that has no parent in it becomes a child of that run. It stays in its own experiment,
and MLflow's UI nests runs within one experiment only: the page of the parent links its children.
"""

import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path

PARENT_RUN = "PARENT_RUN"  # names the file
WAIT_S, POLL_S = 60.0, 0.02  # for a store that is slow to take a run


def parent() -> tuple[str, str] | None:
    """The id and the experiment of that run, which we may have to wait for; None without one."""
    path = os.environ.get(PARENT_RUN)
    said = _awaited(path) if path else {}
    if not said or said["store"] != _store():
        return None
    return said["id"], said["experiment"]


def give(path: Path, run: tuple[str, str] | None) -> None:
    """Tell a command that is started with this path its run, by id and experiment; None: none."""
    said = {"id": run[0], "experiment": run[1], "store": _store()} if run else {}
    half = path.with_name(f"{path.name}.half")
    half.write_text(json.dumps(said))
    half.replace(path)


def given(path: Path) -> str | None:
    """The id of the run that a command was told; None where it was not, or there was none.

    Nor where the file has lost what was in it, as when the power fails.
    """
    try:
        found: str | None = json.loads(path.read_text()).get("id")
    except (FileNotFoundError, ValueError):
        return None
    return found


@functools.cache
def _awaited(path: str) -> dict[str, str]:
    """What the file says, once it is there; nothing where nobody comes to write it."""
    starter, end = os.getppid(), time.monotonic() + WAIT_S
    while True:
        if Path(path).exists():
            said: dict[str, str] = json.loads(Path(path).read_text())
            return said
        if os.getppid() != starter:
            why = "the process that started this one has ended"
        elif time.monotonic() > end:
            why = f"{path} was not written within {WAIT_S:.0f} s"
        else:
            time.sleep(POLL_S)
            continue
        print(f"The runs of this command have no parent: {why}.", file=sys.stderr)
        return {}


def _store() -> str:
    """Which store, without its password: a command may write into another than its starter."""
    from pipelines import store

    return hashlib.sha256(store.uri().encode()).hexdigest()[:16]
