"""The check of every data set that is there: whether it can be read. Never touches the network.

The sizes of files are compared with those that were written down when they were prepared, and one
example of every part is read, which takes TensorFlow. Bytes that have changed in place are found in
packed files alone, which have checksums.
"""

import contextlib
import json as json_format
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.data import datasets
from pipelines.data.pictures import VERSION
from pipelines.errors import UserError, short

UNREADABLE = "unreadable"
FRAME = 16  # bytes of length and checksums around every record of a file


@contextlib.contextmanager
def explain_damage(name: str) -> Iterator[None]:
    """Let the error of a damaged file say what to do; no command makes a person's own anew."""
    try:
        yield
    except UserError as error:
        damage, _, command = str(error).partition("Make it anew:")
        if not command:
            raise
        anew = f"make it anew:{command}"
        if name not in datasets.DATASETS:
            anew = "name the folder or file of the pictures again by --data."
        raise UserError(f"{damage}Delete it, and {anew}") from error


def check(read: bool = True) -> dict[str, Any]:
    """Return every data set as `data check NAME` says it, or why it cannot be read.

    Unless one example of every part is to be `read`, it is said by what is written beside them.
    """
    rows = [describe(name, read) for name in datasets.names()]
    return {
        "data": rows,
        UNREADABLE: [row["name"] for row in rows if row["state"] == UNREADABLE],
    }


def is_at_hand(name: str) -> bool:
    """Return whether a data set can be used as it is, by what is written beside it alone."""
    from pipelines.data.embedded import EMBEDDED

    if name in EMBEDDED:
        return True
    try:
        data_set = datasets.get(name)
        return data_set.examples(data_set.defaults()) > 0
    except Exception:  # as `describe`
        return False


def describe(name: str, read: bool = True) -> dict[str, Any]:
    """Return what is known of a data set; its state is UNREADABLE where it is damaged, and why."""
    try:
        with explain_damage(name):
            description = datasets.get(name).check() if read else _outline(name)
        if description["state"] == "prepared":
            _check_sizes(Path(description["folder"]))
    except UserError as error:
        why = str(error)
    except Exception as error:  # TensorFlow's, a parser's, the disk's: all mean the same
        said = short(error) or type(error).__name__
        home = datasets.data_home()
        anew = f"python -m pipelines data prepare {name} --data-dir {home}"
        why = f"{said}. Delete it in {home}, and make it anew: {anew}"
    else:
        return description
    return {"name": name, "prepared": True, "state": UNREADABLE, "why": why}


def _outline(name: str) -> dict[str, Any]:
    """Return what is known of a data set by what is written beside its examples."""
    data_set, home = datasets.get(name), datasets.data_home()
    versions = {
        tuple(map(int, path.parent.name.split("."))): path.parent
        for path in (home / getattr(data_set, "builder", name)).glob("*/dataset_info.json")
        if re.fullmatch(VERSION, path.parent.name)
    }
    is_packed = (home / f"{name}.npz").exists()
    if not (versions or is_packed):
        return data_set.check()
    data_set.examples(data_set.defaults())  # raises what is wrong with it
    if is_packed:
        return {"name": name, "prepared": True, "state": "packed"}
    return {
        "name": name,
        "prepared": True,
        "state": "prepared",
        "folder": str(versions[max(versions)]),
    }


def _check_sizes(folder: Path) -> None:
    """Raise OSError if the files of a part are not of the size that they were written with."""
    about = json_format.loads((folder / "dataset_info.json").read_text())
    for part in about["splits"]:
        records = sum(map(int, part["shardLengths"]))
        expected = int(part["numBytes"]) + FRAME * records
        files = folder.glob(f"*-{part['name']}.tfrecord-*")
        size = sum(path.stat().st_size for path in files)
        if about.get("fileFormat", "tfrecord") == "tfrecord" and size != expected:
            raise OSError(f"{part['name']} in {folder} has {size} bytes instead of {expected}")
