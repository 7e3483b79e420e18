"""`python -m pipelines data ACTION NAME`: data sets are listed, prepared, packed, checked."""

import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.cli.shell import exit_with_error, print_answer
from pipelines.data import datasets
from pipelines.data.integrity import UNREADABLE, check
from pipelines.data.own import packing, prepared_set
from pipelines.errors import unknown


def data_command(action: str, name: str | None, size: int | None, json: bool) -> None:
    """Do what the action says with the data set of that name, or at that place; print its state."""
    if name and action == "prepare" and name.startswith(prepared_set.PREFIX):
        print(f"{name} is ready in {prepared_set.data_set(name).prepare()}", file=sys.stderr)
    if name is not None or size is not None:
        name = packing.name_data(name or "", size)
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
    """Print a line a data set; of a person's own, where it is the only one, what is in it, too."""
    rows = list(rows)
    width = max([14, *(len(row["name"]) for row in rows)])
    for row in rows:
        counts = [f"{part} {row[part]}" for part in ("train", "val", "test") if part in row]
        about = row.get("why") or ", ".join(counts) or "-"
        print(f"{row['name']:<{width}} {row['state']:<14} {about}")
    if len(rows) == 1 and "pixels" in rows[0]:
        _show_own(rows[0])


def _show_own(row: Mapping[str, Any]) -> None:
    """Print where a person's own data came from, their pixels and their classes."""
    pixels, pictures = row["pixels"], row["pictures"]
    mean, deviation = ("/".join(map(str, pixels[key])) for key in ("mean", "deviation"))
    print(f"  source    {row['source']}")
    print(
        f"  pictures  {'x'.join(map(str, row['shape']))}, pixels {pixels['least']} to "
        f"{pixels['largest']}, mean {mean}, deviation {deviation}"
    )
    counts = zip(row["names"], pictures["train"], pictures["test"], strict=True)
    listed = ", ".join(f"{name} ({train} + {test})" for name, train, test in counts)
    text = f"{len(row['names'])}, with those of training and validation + test: {listed}"
    print(textwrap.fill(f"  classes   {text}", 100, subsequent_indent=" " * 12))


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
