"""Where a run came from: commit, uncommitted diff, packages, machine and process."""

import functools
import getpass
import hashlib
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.errors import without_password

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("RESULTS.md", "figures", "mlruns/evidence")  # published: they dirty no commit


def _git(*arguments: str, accept: tuple[int, ...] = (0,)) -> str:
    """Return Git's answer; empty without git or without a history, where tags say "unknown"."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode in accept else ""


@functools.cache
def diff() -> str:
    """Return the uncommitted changes, new files among them, as a patch; empty without any."""
    paths = (".", *(f":!{name}" for name in GENERATED))
    new = _git("ls-files", "-z", "--others", "--exclude-standard", "--", *paths).split("\0")
    added = [
        _git("diff", "--no-index", "--", os.devnull, name, accept=(0, 1)) for name in new if name
    ]
    return "\n".join(filter(None, [_git("diff", "HEAD", "--", *paths), *added]))


@functools.cache
def packages() -> str:
    """Return every installed package as name==version, one a line."""
    pins = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return "\n".join(sorted(pins)) + "\n"


@functools.cache
def tags() -> dict[str, str]:
    """Return the tags that every run has; those named mlflow.* fill the columns of the UI."""
    commit = _git("rev-parse", "HEAD") or os.environ.get("GIT_COMMIT", "unknown")
    keys = ("tensorflow", "jax", "torch", "keras", "mlflow", "numpy", "optuna")
    return {
        "commit": commit[:12] + ("+changes" if diff() else ""),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "cores": str(count_cores()),
        **{f"version.{key}": installed for key in keys if (installed := version(key))},
        "mlflow.source.name": _command(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit,
        "mlflow.user": _user(),
    }


def version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def count_cores() -> int:
    """Return how many cores of the processor this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _user() -> str:
    """Return the user's name; the number if the system knows no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _command() -> str:
    """Return what was typed: `pipelines run gradient-formula`, without interpreter or password."""
    words = [without_password(word) if "://" in word else word for word in sys.orig_argv[1:]]
    return shlex.join(words[1:] if words[:1] == ["-m"] else words)


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def digest(settings: Any) -> str:
    """Return twelve hexadecimal digits of the SHA-256 of `settings` as sorted JSON."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
