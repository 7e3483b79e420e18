"""`python -m pipelines data ACTION NAME`: data sets are listed, prepared, packed, checked."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.cli.shell import exit_with_error, print_answer
from pipelines.data import datasets
from pipelines.data.integrity import UNREADABLE, check
from pipelines.errors import unknown


def data_command(action: str, name: str | None, json: bool) -> None:
    """Do what the action says with the data set of that name, and print its state."""
    if name is None and action == "check":
        check_command(json)
    elif name is None and action == "list":
        print_answer(check()["data"], json, show)
    elif name is None:
        raise unknown(
            "The data set to " + action, "nothing", datasets.DATASETS, "python -m pipelines data"
        )
    else:
        if action == "prepare":
            print(f"{name} is ready in {datasets.get(name).prepare()}", file=sys.stderr)
        elif action == "pack":
            print(f"{name} is packed in {datasets.get(name).pack()}", file=sys.stderr)
        print_answer(datasets.get(name).check(required=True), json, lambda row: show([row]))


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a data set."""
    for row in rows:
        counts = [f"{part} {row[part]}" for part in ("train", "val", "test") if part in row]
        about = row.get("why") or ", ".join(counts) or "-"
        print(f"{row['name']:<14} {row['state']:<14} {about}")


def check_command(json: bool) -> None:
    """Check all data sets; exit code 1, and a sentence, if one that is there cannot be read."""
    document = check()
    print_answer(document, json, lambda document: show(document["data"]))
    if document[UNREADABLE]:
        broken = {row["name"]: row["why"] for row in document["data"] if "why" in row}
        why = "; ".join(f"{name}: {reason}" for name, reason in broken.items())
        anew = "; ".join(f"python -m pipelines data prepare {name}" for name in broken)
        exit_with_error(
            f"Data that are there must be readable. Received: {why}. Delete these in "
            f"{datasets.data_home()} and make them anew: {anew}"
        )
