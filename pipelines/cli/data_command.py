"""`python -m pipelines data ACTION NAME`: data sets are listed, prepared, packed, checked."""

import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.cli.shell import exit_with_error, print_answer
from pipelines.data import datasets
from pipelines.data.integrity import UNREADABLE, check, explain_damage
from pipelines.data.own import packing, prepared_set
from pipelines.errors import unknown
from pipelines.runtime.progress import say_begin


def data_command(action: str, name: str | None, size: int | None, json: bool) -> None:
    """Do what the action says with the data set of that name, or at that place; print its state."""
    say_begin(f"Reading {name or 'the data sets'} in {datasets.data_home()}.", json)
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
        with explain_damage(name):
            if action == "prepare":
                print(f"{name} is ready in {datasets.get(name).prepare()}", file=sys.stderr)
            elif action == "pack":
                print(f"{name} is packed in {datasets.get(name).pack()}", file=sys.stderr)
            row = datasets.get(name).check(required=True)
        print_answer(row, json, lambda row: show([row]))


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a line a data set, then what is wrong with those that cannot be read.

    Of a person's own, where it is the only one, print what is in it, too.
    """
    rows = list(rows)
    width = max([14, *(len(row["name"]) for row in rows)])
    for row in rows:
        counts = [f"{part} {row[part]}" for part in ("train", "val", "test") if part in row]
        print(f"{row['name']:<{width}} {row['state']:<14} {', '.join(counts) or '-'}")
    for row in rows:
        if "why" in row:
            print(f"{row['name']}: {row['why']}")
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
        exit_with_error(f"These data sets cannot be read: {', '.join(document[UNREADABLE])}.")
