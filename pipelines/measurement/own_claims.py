"""Claims of a person's own: files that were run by their path, and packages that offer claims.

A file that `run FILE.py` has measured is remembered in the home of the runs, so that its claim goes
by its name from then on. A package offers its modules by an entry point of the group
`near_identity.claims`, whose value is a package with a module a claim. Either is the person's own
code, and runs as it stands.
"""

import functools
import hashlib
import importlib
import importlib.util
import json
import pkgutil
import re
import sys
import traceback
from importlib import metadata
from pathlib import Path
from types import ModuleType

from pipelines.errors import DAMAGE_ERRORS, UserError, describe_damage
from pipelines.measurement.claim import Claim
from pipelines.runtime import files
from pipelines.tracking import store

GROUP = "near_identity.claims"
REMEMBERED = "own_claims.json"  # beside the database: file by name of the claim
FOLDER = "own_claims"  # begins the names of modules that are files; no folder of that name exists
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_loaded: dict[Path, tuple[str, ModuleType]] = {}  # values: the digest of the source, the module
_refused: set[str] = set()


def add(given: str, taken: set[str]) -> str:
    """Return the name of the claim in a file, which is remembered; `taken` are the project's.

    Raise UserError for what is no file with a claim.
    """
    path = files.user_path(given).resolve()
    name = path.stem.lower().replace("_", "-")
    if not path.is_file() or not NAME.fullmatch(name):
        found = "which is not there" if not path.is_file() else "whose name is no claim's"
        raise UserError(
            "A claim of your own must be a Python file, named by letters, digits and _. Received: "
            f"{given}, {found}. Check its spelling, or rename it."
        )
    if name in taken:
        raise UserError(
            f"A claim of your own needs a name of its own. Received: {path}, where the project has "
            f"a claim {name}. Rename the file."
        )
    if not is_changed(path):
        load(f"{FOLDER}.{path.stem}", path)
    else:
        raise UserError(
            f"A process measures a claim as it has read it. Received: {path}, which has changed "
            "since. Begin a new process; in a notebook restart the kernel."
        )
    with files.lock(store.home(), ".own-claims"):
        remembered = {**_remembered(), name: str(path)}
        with files.replace_whole(store.home() / REMEMBERED) as half:
            half.write_text(json.dumps(remembered, indent=1))
    return name


def find() -> dict[str, tuple[str, Path]]:
    """Return by name of a claim its module and file.

    What cannot be loaded any more is left out, and said once.
    """
    try:
        remembered = _remembered()
    except UserError as error:
        remembered = {}
        if REMEMBERED not in _refused:
            print(f"Your own claims are left out. {error}", file=sys.stderr)
        _refused.add(REMEMBERED)
    found = {n: (f"{FOLDER}.{Path(p).stem}", Path(p)) for n, p in remembered.items()}
    for name, (module, path) in [*found.items(), *_offered().items()]:
        try:
            load(module, path)
            found[name] = module, path
        except UserError as error:
            found.pop(name, None)
            if name not in _refused:
                print(
                    f"Your claim {name} is left out. {error} To forget it, take it out of "
                    f"{store.home() / REMEMBERED}.",
                    file=sys.stderr,
                )
            _refused.add(name)
    return found


def load(module: str, path: Path) -> ModuleType:
    """Return the module, run once a process. Raise UserError where it has no claim `CLAIM`."""
    if path in _loaded:
        return _loaded[path][1]
    try:
        digest = _digest(path)
        if module.startswith(f"{FOLDER}."):
            spec = importlib.util.spec_from_file_location(module, path)
            if spec is None or spec.loader is None:
                raise ImportError("it is no Python file")
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[module] = loaded  # where dataclasses look
            spec.loader.exec_module(loaded)
        else:
            loaded = importlib.import_module(module)
        if not isinstance(getattr(loaded, "CLAIM", None), Claim):
            raise TypeError("it must have CLAIM = Theorem(...), Experiment(...) or compare(...)")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f", line {frame.lineno}" for frame in frames if frame.filename == str(path)]
        raise UserError(
            f"A claim of your own must be there and run. Received: {path}"
            f"{lines[-1] if lines else ''}: {type(error).__name__}: {error}. Fix it there."
        ) from error
    _loaded[path] = digest, loaded
    return loaded


def is_changed(path: Path) -> bool:
    """Return whether the source of a claim is another than this process has read."""
    return path in _loaded and _loaded[path][0] != _digest(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _remembered() -> dict[str, str]:
    """Return the files of claims by name; none where nothing is remembered."""
    try:
        given = json.loads((store.home() / REMEMBERED).read_text())
        return {str(name): str(path) for name, path in given.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except DAMAGE_ERRORS as error:
        raise UserError(
            "The list of your own claims must be readable. Received: "
            f"{store.home() / REMEMBERED}: {describe_damage(error)}. Delete it, and run "
            "your claims by their files."
        ) from error


@functools.cache
def _offered() -> dict[str, tuple[str, Path]]:
    """Return by name of a claim the module and the file that an installed package offers."""
    offered = {}
    for entry in metadata.entry_points(group=GROUP):
        spec = importlib.util.find_spec(entry.value)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for module in pkgutil.iter_modules([folder]):
                if not module.name.startswith("_") and not module.ispkg:
                    path = Path(folder, f"{module.name}.py")
                    offered[path.stem.replace("_", "-")] = f"{entry.value}.{path.stem}", path
    return offered
