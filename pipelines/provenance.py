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

from pipelines import quiet
from pipelines.errors import without_password
from pipelines.recipes import digest

ROOT = Path(__file__).resolve().parents[1]
MEASURING = (  # not the recipes that have a name: a run's settings tell them apart
    "asynchronous",
    "batches",
    "calls",
    "cluster",
    "curves",
    "data",
    "devices",
    "embedded",
    "feed",
    "grid",
    "lr",
    "optimizer",
    "packed",
    "photographs",
    "recipes",
    "records",
    "resident",
    "resuming",
    "samples",
    "shuffled",
    "stored",
    "synchronous",
    "tasks",
    "train",
    "training_job",
)
GENERATED = ("RESULTS.md", "figures")  # written by `report`: a new one does not dirty a commit


def _git(*arguments: str, accept: tuple[int, ...] = (0,)) -> str:
    """Git's answer; empty without git or in a copy without history, where tags say "unknown"."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode in accept else ""


@functools.cache
def diff() -> str:
    """The uncommitted changes, new files among them, as a patch; empty when there are none."""
    ours = (".", *(f":!{name}" for name in GENERATED))
    new = _git("ls-files", "--others", "--exclude-standard", "--", *ours).splitlines()
    added = [_git("diff", "--no-index", "--", os.devnull, name, accept=(0, 1)) for name in new]
    return "\n".join(filter(None, [_git("diff", "HEAD", "--", *ours), *added]))


@functools.cache
def code(*more: Path) -> str:
    """Digest of the code that measured numbers depend on: networks, theory, training, and `more`.

    Part of what makes two runs the same: a change of this code, or another backend of Keras, makes
    every result a new one.
    """
    named = [ROOT / "pipelines" / f"{name}.py" for name in MEASURING]
    paths = [*(ROOT / "theory").glob("*.py"), *(ROOT / "keras_models").glob("*.py"), *named, *more]
    texts = {f"{path.parent.name}/{path.name}": path.read_text() for path in paths}
    return digest(texts | {"backend": quiet.backend()})


@functools.cache
def packages() -> str:
    """Every installed package as name==version, one a line."""
    found = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return "\n".join(sorted(found)) + "\n"


@functools.cache
def tags() -> dict[str, str]:
    """Tags that every run carries; those named mlflow.* fill the columns of the UI."""
    commit = _git("rev-parse", "HEAD") or "unknown"
    keys = ("tensorflow", "jax", "torch", "keras", "mlflow", "numpy", "optuna")
    return {
        "commit": commit[:12] + ("+changes" if diff() else ""),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        **{f"version.{key}": found for key in keys if (found := version(key))},
        "mlflow.source.name": _command(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": commit,
        "mlflow.user": _user(),
    }


def version(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _user() -> str:
    """The user's name; the number alone where the system knows no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _command() -> str:
    """What was typed: `pipelines run gradient-formula`, without the interpreter or a password."""
    words = [without_password(word) if "://" in word else word for word in sys.orig_argv[1:]]
    return shlex.join(words[1:] if words[:1] == ["-m"] else words)


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
