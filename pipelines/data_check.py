"""The check of every data set that is there: whether it can be read. Never touches the network.

One example of every part is read, and the sizes of files are compared with those that were written
down when they were prepared. Bytes that have changed in place are found in packed files alone,
which have checksums.
"""

import json as json_format
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines import data
from pipelines.errors import UserError, short
from pipelines.shell import print_json

UNREADABLE = "unreadable"
FRAME = 16  # bytes of length and checksums around every record of a file


def check() -> dict[str, Any]:
    """Every data set as `data check NAME` says it; those that cannot be read, with the reason."""
    rows = [_checked(name) for name in data.DATASETS]
    return {
        "data": rows,
        UNREADABLE: [row["name"] for row in rows if row["state"] == UNREADABLE],
    }


def _checked(name: str) -> dict[str, Any]:
    try:
        found = data.check(name)
        if found["state"] == "prepared":
            _check_sizes(Path(found["folder"]))
    except UserError as error:
        why = str(error)
    except Exception as error:  # of TensorFlow, of a parser, of the disk: all mean the same
        why = re.sub(r"\{\{.*?\}\} | \[Op:.*", "", short(error)) or type(error).__name__
    else:
        return found
    return {"name": name, "prepared": True, "state": UNREADABLE, "why": why}


def _check_sizes(folder: Path) -> None:
    """OSError where the files of a part are not of the size that they were written with."""
    about = json_format.loads((folder / "dataset_info.json").read_text())
    for part in about["splits"]:
        records = sum(map(int, part["shardLengths"]))
        expected = int(part["numBytes"]) + FRAME * records
        files = folder.glob(f"*-{part['name']}.tfrecord-*")
        there = sum(path.stat().st_size for path in files)
        if about.get("fileFormat", "tfrecord") == "tfrecord" and there != expected:
            raise OSError(f"{part['name']} in {folder} has {there} bytes instead of {expected}")


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a data set."""
    for row in rows:
        counts = (f"{part} {row[part]}" for part in ("train", "val", "test") if part in row)
        said = row.get("why") or ", ".join(counts) or "-"
        print(f"{row['name']:<14} {row['state']:<14} {said}")


def command(json: bool) -> None:
    """`data check`: exit code 1, and a sentence, where what is there cannot be read."""
    document = check()
    if json:
        print_json(document)
    else:
        show(document["data"])
    if document[UNREADABLE]:
        why = "; ".join(f"{row['name']}: {row['why']}" for row in document["data"] if "why" in row)
        print(
            f"error: Data that are there must be readable. Received: {why}. Delete these in "
            f"{data.data_home()} and make them anew: python -m pipelines data prepare NAME",
            file=sys.stderr,
        )
        raise SystemExit(1)
