"""Where the project is, and the folders that it reads and writes.

In a checkout all of them are in it. A wheel holds a copy of what a checkout publishes, which
setup.py puts there; an installed package writes into the current folder, never beside its code.
"""

import functools
import os
from pathlib import Path

from pipelines import __version__
from pipelines.errors import UserError
from pipelines.runtime import files

NAME = "near-identity"  # of the project and of its command
ROOT = Path(__file__).resolve().parents[2]  # a checkout, or the folder of installed packages
SHIPPED = ROOT / "pipelines" / "shipped"  # in a wheel: files by their places in a checkout
HOME = "MLRUNS_HOME"  # environment variable


@functools.cache
def is_checkout() -> bool:
    """Return whether the code is in a source tree of the project, with or without Git."""
    project = ROOT / "pyproject.toml"
    return project.is_file() and f'name = "{NAME}"' in project.read_text()


def require_checkout(command: str) -> None:
    """Raise UserError for a command that writes what Git keeps, if this is no checkout."""
    if not is_checkout():
        raise UserError(
            f"`{command}` writes what Git keeps, so it needs a checkout of the project. Received: "
            f"the package installed in {ROOT}. Run it in a checkout."
        )


def tensorflow_installation() -> str:
    """Return the command that installs the project with TensorFlow."""
    wheel = f"{NAME.replace('-', '_')}-{__version__}-py3-none-any.whl"
    return "make setup" if is_checkout() else f"pip install '{wheel}[tensorflow]'"


def restore_published() -> str:
    """Return the command that brings back what the project publishes, where it is damaged."""
    return "git checkout -- results.json mlruns" if is_checkout() else "install the package anew"


def published_folder() -> Path:
    """Return the folder of results.json, RESULTS.md and, in mlruns/evidence/, the evidence."""
    return ROOT if is_checkout() else SHIPPED


def home() -> Path:
    """Return the folder of runs: MLRUNS_HOME, else mlruns/ in a checkout or the current folder."""
    given = os.environ.get(HOME)
    return (files.user_path(given) if given else _default_home()).resolve()


@functools.cache
def _default_home() -> Path:
    return (ROOT if is_checkout() else Path.cwd()) / "mlruns"  # stays, whatever is current later
