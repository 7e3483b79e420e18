"""`python -m pipelines data ACTION NAME`: what there is of data sets, made, packed, checked."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.cli.shell import print_json
from pipelines.data import datasets
from pipelines.data.integrity import UNREADABLE, check
from pipelines.errors import unknown


def data_command(action: str, name: str | None, json: bool) -> None:
    """Do what the action says with the data set of that name, and say what is there of it."""
    if action == "check" and name is None:
        check_command(json)
        return
    if action != "list" and name is None:
        raise unknown("The data set to " + action, "nothing", datasets.DATASETS)
    if action == "prepare":
        print(f"{name} is ready in {datasets.prepare(str(name))}", file=sys.stderr)
    elif action == "pack":
        print(f"{name} is packed in {datasets.pack(str(name))}", file=sys.stderr)
    chosen = list(datasets.DATASETS) if name is None else [name]
    found = [datasets.check(each, required=name is not None) for each in chosen]
    if json:
        print_json(found if name is None else found[0])
        return
    show(found)


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a data set."""
    for row in rows:
        counts = (f"{part} {row[part]}" for part in ("train", "val", "test") if part in row)
        said = row.get("why") or ", ".join(counts) or "-"
        print(f"{row['name']:<14} {row['state']:<14} {said}")


def check_command(json: bool) -> None:
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
            f"{datasets.data_home()} and make them anew: python -m pipelines data prepare NAME",
            file=sys.stderr,
        )
        raise SystemExit(1)
