"""Provenance of a run: commit, uncommitted diff, packages, machine and process."""

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

from pipelines import __version__
from pipelines.errors import without_password
from pipelines.runtime import places
from pipelines.runtime.places import ROOT

CHANGES = "+changes"  # ends a commit from which the code differs
COMMANDS = ("pipelines", "tuning")  # packages whose commands are `python -m PACKAGE ...`
MOST_BYTES = 50_000_000  # largest file whose digest is taken
GENERATED = (
    "RESULTS.md",
    "results.json",
    "figures",
    "mlruns/evidence",
)  # published: they dirty no commit


def _git(*arguments: str) -> str:
    """Return Git's answer; empty without git or without a history, where tags say "unknown".

    A project that is not a repository of its own has no history, whatever is above its folder.
    """
    # a hook's commands are told of its repository by variables: they would name that for ours
    told = {key for key in os.environ if key.startswith("GIT_") and "CONFIG" not in key}
    environment = {key: value for key, value in os.environ.items() if key not in told}
    if not (ROOT / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def diff() -> str:
    """Return the uncommitted changes as a patch; empty without any.

    Files that Git does not track are named with their SHA-256, below the patch: they may hold
    secrets.
    """
    paths = (".", *(f":!{name}" for name in GENERATED))
    patch = _git("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", *paths)
    names = _git("ls-files", "-z", "--others", "--exclude-standard", "--", *paths).split("\0")
    untracked = []
    for name in filter(None, names):
        path, shown = ROOT / name, name if name.isprintable() else repr(name)
        if path.is_file() and path.stat().st_size <= MOST_BYTES and os.access(path, os.R_OK):
            digest_of = hashlib.sha256(path.read_bytes()).hexdigest()
        else:  # a link to nowhere, a device
            digest_of = f"not read, {path.stat().st_size:,} bytes" if path.is_file() else "no file"
        untracked.append(f"# not tracked: {shown}  {digest_of}")
    return "\n".join(filter(None, [patch, *untracked]))


@functools.cache
def packages() -> str:
    """Return every installed package as name==version, one a line."""
    pins = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return "\n".join(sorted(pins)) + "\n"


@functools.cache
def tags() -> dict[str, str]:
    """Return the tags that every run has; those named mlflow.* fill the columns of the UI."""
    commit, changed, _ = _find_commit().partition(CHANGES)
    keys = ("tensorflow", "jax", "torch", "keras", "mlflow", "numpy", "optuna")
    words = [without_password(word) if "://" in word else word for word in _list_words()]
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the system knows no name for it
        user = str(os.getuid())
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "commit": commit[:12] + (CHANGES if changed or diff() else ""),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": str(count_cores()),
        **{f"version.{key}": installed for key in keys if (installed := version(key))},
        "mlflow.source.name": shlex.join(words),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit,
        "mlflow.user": user,
    }


def _find_commit() -> str:
    """Return the commit of this code, else the version of an installed package, else "unknown".

    Git knows that of a checkout. setup.py has written down that of a wheel, with CHANGES if its
    checkout had any, and GIT_COMMIT may name that of a copy.
    """
    file = places.published_folder() / "COMMIT"
    built_of = file.read_text() if file.is_file() else ""
    named = os.environ.get("GIT_COMMIT") or ("unknown" if places.is_checkout() else __version__)
    return _git("rev-parse", "HEAD") or built_of or named


def _list_words() -> list[str]:
    """Return the words of this process's command as they stand after `python -m`."""
    words = [word for word in sys.orig_argv[1:3] if word != "-P"] + sys.orig_argv[3:]
    if words and Path(words[0]).name == places.NAME:
        return ["pipelines", *words[1:]]
    return words[1:] if words[:1] == ["-m"] else words


def version(package: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def count_cores() -> int:
    """Return how many cores of the processor this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest(settings: Any) -> str:
    """Return twelve hexadecimal digits of the SHA-256 of `settings` as sorted JSON."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
