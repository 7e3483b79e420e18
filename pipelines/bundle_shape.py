"""What may be in an export: names of members, and the shapes of the manifest and of a run."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from pipelines.errors import UserError
from pipelines.store import ORIGIN, PARENT

ENDED = ("FINISHED", "FAILED", "KILLED")
IMPORTING = "importing"  # tag of a run that is not yet all here
TAGGED = ("kind", "claim", "recipe", "fingerprint", "scale")  # tags that the manifest repeats
READY = "READY"  # a model that is stored whole
MODEL_STATUS = ("UNSPECIFIED", "PENDING", READY, "FAILED")

Shape = Any
"""A dict of shapes by key, a list with the shape of all its members, a tuple with a shape for each
member, or a function that says whether a value is right."""


def refused(rule: str, received: str) -> UserError:
    """The sentence for a file that is not taken in."""
    return UserError(
        f"{rule} Received: {received[:300]}. Nothing was imported: export the runs again, and copy "
        "the file whole."
    )


def wrong_name(name: str) -> str:
    """The rule that the name of a member breaks, however it is quoted; empty for a good one."""
    while (decoded := unquote(name)) != name:  # as a server will
        name = decoded
    parts = name.split("/")
    rules = {
        "A name must be relative: no / before it, no drive letter.": name.startswith("/")
        or any(re.match("[A-Za-z]:", part) for part in parts),
        "A name must not have .., . or nothing between two /.": bool({"..", ".", ""} & {*parts}),
        "A name must have no backslash, # or control character.": any(
            c in "\\#" or not c.isprintable() for c in name
        ),
        "A name must be short: 255 bytes between two /, 1000 in all.": len(name) > 1000
        or any(len(part.encode(errors="replace")) > 255 for part in parts),
    }
    return next((rule for rule, broken in rules.items() if broken), "")


def check_tree(names: Collection[str]) -> None:
    """No name comes twice, and none is a folder of another, which would be both on the disk."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refused("No member may be there twice.", name)
        seen.add(name)
    for name in names:
        if not seen.isdisjoint(map(str, PurePosixPath(name).parents)):
            raise refused("No member may be a folder too.", name)


def text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def short(value: object) -> bool:
    return text(value) and 0 < len(str(value)) <= 250


def integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def count(value: object) -> bool:
    return integer(value) and int(str(value)) >= 0


def moment(value: object) -> bool:
    """Milliseconds since 1970; 0 is none to MLflow."""
    return count(value) and value != 0


def number(value: object) -> bool:
    """A finite number; null is how NaN is kept."""
    return value is None or isinstance(value, float) or integer(value)


def run_id(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{32}", value))


def model_id(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("m-[0-9a-f]{32}", value))


def sha256(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value))


def texts(value: object) -> bool:
    return isinstance(value, dict) and all(short(k) and text(v) for k, v in value.items())


def members(value: object) -> bool:
    entry = {"bytes": count, "sha256": sha256}
    return isinstance(value, dict) and all(
        text(name) and not _mismatch(given, entry, "") for name, given in value.items()
    )


def metrics(value: object) -> bool:
    """Every history: [step, milliseconds since 1970, value]."""
    return isinstance(value, dict) and all(
        short(key) and isinstance(points, list) and all(map(_point, points))
        for key, points in value.items()
    )


def _point(value: object) -> bool:
    """Compare with (integer, count, number) in a tenth of the time: a file has a million points."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and type(value[0]) is type(value[1]) is int
        and -(2**63) < value[0] < 2**63
        and 0 <= value[1] < 2**63
        and (type(value[2]) is float or number(value[2]))
    )


def one_of(*choices: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in choices


def optional(shape: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or shape(value)


ROW = {
    "run_id": run_id,
    "origin": run_id,
    "name": short,
    "experiment": short,
    "status": one_of(*ENDED),
    "parent": optional(text),
    **dict.fromkeys(TAGGED, optional(text)),
}
MANIFEST = {
    "version": integer,
    "commit": text,
    "packages": [text],
    "experiments": texts,  # names, by the ids that links have
    "runs": [ROW],
    "members": members,
}
DATASET = {
    "name": text,
    "digest": text,
    "source_type": short,
    "source": text,
    "schema": optional(text),
    "profile": optional(text),
    "tags": texts,
}
MODEL = {
    "model_id": model_id,
    "name": short,
    "type": optional(short),
    "status": one_of(*MODEL_STATUS),
    "step": optional(integer),
    "params": texts,
    "tags": texts,
    "metrics": [(short, integer, count, number, optional(short), optional(short))],
}
RUN = {
    "run_id": run_id,
    "name": short,
    "experiment": short,
    "status": one_of(*ENDED),
    "start_ms": moment,
    "end_ms": optional(moment),
    "params": texts,
    "tags": texts,
    "metrics": metrics,
    "datasets": [DATASET],
    "models": [MODEL],
}


def row(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says of a run."""
    tags = document["tags"]
    return {
        **{key: document[key] for key in ("run_id", "name", "experiment", "status")},
        **{key: tags.get(key) for key in TAGGED},
        "parent": tags.get(PARENT),
        "origin": tags.get(ORIGIN, document["run_id"]),
    }


def check_manifest(document: Mapping[str, Any], version: int) -> None:
    """UserError for a manifest of another version or shape."""
    if document.get("version") != version:
        raise refused(f"The manifest must be of version {version}.", str(document.get("version")))
    _check(document, MANIFEST, "manifest.json")
    used = {row["experiment"] for row in document["runs"]}
    if used != set(document["experiments"].values()):
        raise refused("The manifest must name the experiments of its runs.", ", ".join(used))


def check_run(document: Mapping[str, Any], listed: Mapping[str, Any]) -> None:
    """UserError for a run's document of another shape, or another than the manifest says."""
    _check(document, RUN, f"runs/{listed['run_id']}.json")
    if row(document) != listed:
        raise refused("A run must be as the manifest says.", f"another {listed['run_id']}")
    models = [model["model_id"] for model in document["models"]]
    if len(set(models)) != len(models):
        raise refused("A run must name a model once.", ", ".join(models))


def _check(document: object, shape: Shape, name: str) -> None:
    wrong = _mismatch(document, shape, name)
    if wrong:
        raise refused("A document must have the keys and types of its version.", wrong)


def _mismatch(value: object, shape: Shape, place: str) -> str:
    """Where a value first differs from its shape; empty where it does not."""
    if callable(shape):
        return "" if shape(value) else f"{place} = {value!r:.60}"
    pairs = _pairs(value, shape)
    if pairs is None:
        return f"{place} = {value!r:.60}"
    return next(filter(None, (_mismatch(v, s, f"{place} {key}") for key, v, s in pairs)), "")


def _pairs(value: Any, shape: Shape) -> Iterator[tuple[Any, Any, Shape]] | None:
    """Each member of a value with its own shape; None where they cannot be paired."""
    if isinstance(shape, dict):
        same = isinstance(value, dict) and value.keys() == shape.keys()
        return ((key, value[key], shape[key]) for key in shape) if same else None
    if not isinstance(value, list) or (isinstance(shape, tuple) and len(value) != len(shape)):
        return None
    shapes = shape if isinstance(shape, tuple) else shape * len(value)
    return ((i, v, s) for i, (v, s) in enumerate(zip(value, shapes, strict=True)))
