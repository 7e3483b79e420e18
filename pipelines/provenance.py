"""Where a run came from: commit, uncommitted diff, packages, machine and process."""

import functools
import getpass
import os
import platform
import shlex
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("RESULTS.md", "figures")  # written by `report`; a new one does not dirty a commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""  # no git, or a copy without history: tags then say "unknown"
    return done.stdout.strip()


@functools.cache
def diff() -> str:
    """The uncommitted changes of tracked files, as a patch; empty when there are none."""
    return _git("diff", "HEAD", "--", ".", *(f":!{name}" for name in GENERATED))


@functools.cache
def packages() -> str:
    """Every installed package as name==version, one a line."""
    found = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return "\n".join(sorted(found)) + "\n"


@functools.cache
def tags() -> dict[str, str]:
    """Tags that every run carries; those named mlflow.* fill the columns of the UI."""
    commit = _git("rev-parse", "HEAD") or "unknown"
    keys = ("tensorflow", "keras", "mlflow", "numpy", "optuna")
    return {
        "commit": commit[:12] + ("+changes" if diff() else ""),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        **{f"version.{key}": metadata.version(key) for key in keys},
        "mlflow.source.name": _command(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit,
        "mlflow.user": getpass.getuser(),
    }


def _command() -> str:
    """What was typed: `pipelines run gradient-formula`, without the interpreter."""
    words = sys.orig_argv[1:]
    return shlex.join(words[1:] if words[:1] == ["-m"] else words)


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def process() -> dict[str, str | int | float]:
    """What tells this process from every other: host, process id and start time."""
    own = psutil.Process()
    return {"host": socket.gethostname(), "pid": own.pid, "started": own.create_time()}


def is_dead(identity: dict[str, str | int | float]) -> bool:
    """Whether that process has ended; of another host's processes we do not know, so False."""
    if identity["host"] != socket.gethostname():
        return False
    try:
        found = psutil.Process(int(identity["pid"]))
        another = abs(found.create_time() - float(identity["started"])) > 1
        return bool(another or found.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
