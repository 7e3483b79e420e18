"""A person's own architecture: a file, or a module of an installed package, with `build`.

It goes by `PATH.py@DIGEST` or `PACKAGE.MODULE@DIGEST`: the digest is that of its source, so that
another source is another network. The source is read without running it until it is built.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

DIGITS = 8


def is_own(name: str) -> bool:
    """Return whether a name is that of a person's own: the project's have neither `.` nor `/`."""
    return "." in name or "/" in name


def name_own(given: str) -> str:
    """Return FILE.py or PACKAGE.MODULE with the digest of its source, which must be `given`'s.

    Raise ValueError where there is no such file or module, or it has changed.
    """
    place, _, stated = given.partition("@")
    if place.endswith(".py"):
        place = str(Path(place).expanduser().resolve())
    digest = hashlib.sha256(_path(place).read_bytes()).hexdigest()[:DIGITS]
    if stated not in ("", digest):
        raise ValueError(
            f"An architecture must be as it was. Received: {place} with the digest {digest} "
            f"instead of {stated}. Bring that source back, or leave @{stated} out to begin anew."
        )
    return f"{place}@{digest}"


def read(name: str) -> str:
    """Return the source. Raise ValueError where it is no longer that of the digest."""
    place = name_own(name).partition("@")[0]
    try:
        return _path(place).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"An architecture must be text. Received: {place}: {error}.") from error


def _path(place: str) -> Path:
    """Return the file of a place. Raise ValueError where there is none."""
    if place.endswith(".py"):
        path = Path(place)
    else:
        try:
            found = importlib.util.find_spec(place)
        except (ImportError, ValueError):
            found = None
        path = Path(found.origin) if found and found.origin else Path()
    if not path.is_file():
        raise ValueError(
            "An architecture of your own must be a file FILE.py, or a module PACKAGE.MODULE that "
            f"can be imported. Received: {place}, which is not there. Check its spelling."
        )
    return path


@functools.cache
def load(name: str) -> ModuleType:
    """Return the module, run once a process. Raise ValueError for what it raises, with its line."""
    place = name_own(name).partition("@")[0]
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        title = f"own_{Path(place).stem}_{name.rpartition('@')[2]}"
        spec = importlib.util.spec_from_file_location(title, place)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[title] = module  # where pickle and dataclasses look
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(describe_failure(name, error)) from error
    return module


def describe_failure(name: str, error: Exception) -> str:
    """Return the sentence for an error of a person's own code, with the line that raised it."""
    place = str(_path(name.partition("@")[0]))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f", line {frame.lineno}" for frame in frames if frame.filename == place]
    return (
        f"Your architecture must run. Received: {place}{lines[-1] if lines else ''}: "
        f"{type(error).__name__}: {error}. Fix it there, and repeat the command."
    )


def check_built(name: str, model: Any, input_shape: tuple[int, ...], classes: int) -> None:
    """Raise ValueError unless a network takes such inputs and gives an output a class."""
    wanted = (None, *input_shape), (None, classes)
    shapes = tuple(getattr(model, key, None) for key in ("input_shape", "output_shape"))
    if shapes != wanted:
        raise ValueError(
            f"build(input_shape, classes) must return a keras.Model from {wanted[0]} to {wanted[1]}"
            f" without softmax. Received from {name}: {type(model).__name__} from {shapes[0]} to "
            f"{shapes[1]}. Fix it there."
        )
