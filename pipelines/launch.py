"""Attempts at ticks: processes that outlive who started them; what is done after a kill.

An attempt is a supervisor (attempt.py) in a session of its own, with the command it runs. It begins
when it is told to, once the table of ticks says that it runs: a kill at any moment before leaves a
supervisor that ends without having done anything.
SQLAlchemy at the top: import this module inside the functions that need it.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import alive, linked, provenance, store, supervised, ticks, timetable
from pipelines.attempted import LOG, PARENT
from pipelines.timetable import KILLED, Tick


@dataclass(frozen=True)
class Supervisor:
    """A process that waits for its order, and the folder of the attempt that it is for."""

    process: subprocess.Popen[bytes]
    folder: Path

    def dismiss(self) -> None:
        """Let it end without an order: it has done nothing."""
        _tell(self.process, None)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def supervisor(job: str) -> Supervisor:
    """A process for an attempt at a job: while it waits, it loads what recording needs."""
    _home().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{job}-", dir=_home()))
    return Supervisor(_process(folder), folder)


def start(
    engine: Any, storage: str, tick: Tick, waiting: Supervisor | None = None
) -> subprocess.Popen[bytes] | None:
    """Start an attempt that is queued; None where another process does, or its job still runs."""
    found, begun = waiting or supervisor(tick.job.name), False
    try:
        process = alive.process(found.process.pid)
        begun = ticks.begin(engine, tick, process, found.folder)
        if begun:
            _tell(found.process, order(storage, tick, found.folder))
    finally:
        if not begun:
            found.dismiss()
    return found.process if begun else None


def _home() -> Path:
    return store.home() / "scheduled"


def folders() -> list[Path]:
    """Those of attempts that have a run and are not over, or not tidied up."""
    return [path.parent for path in _home().glob(f"*/{PARENT}") if linked.given(path)]


def order(storage: str, tick: Tick, folder: Path, **more: Any) -> dict[str, Any]:
    """What a supervisor is told."""
    job = tick.job
    return {
        "id": tick.id,
        "storage": storage,
        "job": {
            "name": job.name,
            "words": job.at(tick.tick),
            "timeout_s": job.timeout_s,
            "notify": job.notify,
        },
        "tick": job.local(tick.tick).isoformat(),
        "attempt": tick.attempt,
        "folder": str(folder),
        **more,
    }


def _process(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.attempt", *words],
            cwd=provenance.ROOT,
            env=os.environ | {supervised.ATTEMPT: str(folder)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _tell(child: subprocess.Popen[bytes], order: dict[str, Any] | None) -> None:
    """Give a supervisor its order, or none at all; one that was killed will be found dead."""
    if child.stdin:
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(b"" if order is None else json.dumps(order).encode() + b"\n")


def dead(engine: Any, tick: Tick) -> str | None:
    """Why the supervisor of an attempt must have ended; None where it may live.

    A schedule in SQLite is one machine's.
    """
    return tick.dead(one_machine=engine.dialect.name == "sqlite")


def killed(engine: Any, storage: str, tick: Tick, why: str) -> subprocess.Popen[bytes] | None:
    """End an attempt whose supervisor was killed; the process that tidies up after it, if any.

    What is left of its command is ended first: a later attempt must not run beside it.
    """
    folder = Path(tick.folder or "")
    if tick.folder:
        supervised.end_members(tick.folder)
    result = {"why": f"its supervisor was killed: {why}", "run_id": linked.given(folder / PARENT)}
    if not ticks.end(engine, tick, KILLED, result) or not tick.folder:
        return None
    folder.mkdir(parents=True, exist_ok=True)  # its supervisor had no order yet, and took it away
    return bury(storage, timetable.get(engine, tick.id))


def bury(storage: str, tick: Tick) -> subprocess.Popen[bytes]:
    """Start the process that closes the runs of a killed attempt and keeps its log in MLflow."""
    folder = Path(tick.folder or "")
    child = _process(folder, "bury")
    _tell(child, order(storage, tick, folder, state=tick.state, why=tick.why))
    return child


def reap() -> subprocess.Popen[bytes]:
    """Start the process that settles the runs of processes that have died."""
    words = [sys.executable, "-m", "pipelines", "reap"]
    return subprocess.Popen(words, cwd=provenance.ROOT, stdout=subprocess.DEVNULL)
