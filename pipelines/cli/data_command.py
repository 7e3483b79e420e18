"""`python -m pipelines data ACTION NAME`: data sets are listed, prepared, packed, checked."""

import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from pipelines.cli.parsing import DataDir, Json, add_command, call, command, new_app
from pipelines.cli.shell import exit_with_error, print_answer, use_data_dir
from pipelines.data import datasets
from pipelines.data.integrity import UNREADABLE, describe, explain_damage
from pipelines.data.integrity import check as check_all
from pipelines.data.own import packing, prepared_set
from pipelines.errors import UserError
from pipelines.runtime.progress import say_begin

PROG = "python -m pipelines data"


app = new_app(
    PROG,
    """List, prepare, pack or check data sets.

    NAME may be your own: a folder with a subfolder a class, FILE.npz or tfds:NAME.""",
)
OWN = "or your own: FOLDER, FILE.npz or tfds:NAME"
DataName = Annotated[str, Parameter(help=f"Data set, which `data` lists, {OWN}.")]
AnyData = Annotated[
    str | None,
    Parameter(help=f"Data set, which `data` lists, {OWN} (default: all that are here)."),
]
Size = Annotated[
    int | None,
    Parameter(help="Pixels of a side to which your own pictures are scaled (None: as they are)."),
]


def data_command(words: list[str]) -> None:
    """Run one of the commands about data sets."""
    call(app, words)


def list_all(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List data sets, and which of them are here."""
    _begin("the data sets", data_dir, json)
    print_answer(check_all()["data"], json, show)


@command(app, "list")
def list_data(
    name: AnyData = None, /, *, data_dir: DataDir = None, size: Size = None, json: Json = False
) -> None:
    """List data sets, and which of them are here; or one of them, read as `check` does."""
    if name is None and size is None:
        list_all(data_dir=data_dir, json=json)
    else:
        check_data(name or "", data_dir=data_dir, size=size, json=json)


@command(app)
def prepare(
    name: DataName, /, *, data_dir: DataDir = None, size: Size = None, json: Json = False
) -> None:
    """Download a data set, or read your own, and prepare it for trainings."""
    _begin(name, data_dir, json)
    if name.startswith(prepared_set.PREFIX):
        print(f"{name} is ready in {prepared_set.data_set(name).prepare()}", file=sys.stderr)
    name = packing.name_data(name, size)
    with explain_damage(name):
        print(f"{name} is ready in {datasets.get(name).prepare()}", file=sys.stderr)
    _print_state(name, json)


@command(app)
def pack(
    name: DataName, /, *, data_dir: DataDir = None, size: Size = None, json: Json = False
) -> None:
    """Pack a data set into one file that is read without TensorFlow."""
    _begin(name, data_dir, json)
    name = packing.name_data(name, size)
    with explain_damage(name):
        print(f"{name} is packed in {datasets.get(name).pack()}", file=sys.stderr)
    _print_state(name, json)


@command(app, "check")
def check_data(
    name: AnyData = None, /, *, data_dir: DataDir = None, size: Size = None, json: Json = False
) -> None:
    """Read an example of every part; the network is never used.

    Exit code 1 where data that are here cannot be read.
    """
    _begin(name or "the data sets", data_dir, json)
    if name is None and size is None:
        check_command(json)
    else:
        _print_state(packing.name_data(name or "", size), json)


add_command(app, list_all)  # what `data` alone does


def _begin(about: str, data_dir: Path | None, json: bool) -> None:
    use_data_dir(data_dir)
    say_begin(f"Reading {about} in {datasets.data_home()}.", json)


def _print_state(name: str, json: bool) -> None:
    with explain_damage(name):
        data_set = datasets.get(name)
    row = describe(name)
    if row["state"] == UNREADABLE:
        raise UserError(f"A data set must be readable. Received: {name}: {row['why']}")
    if not row.get("prepared"):
        row = data_set.check(required=True)  # says how it is made
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
    document = check_all()
    print_answer(document, json, lambda document: show(document["data"]))
    if document[UNREADABLE]:
        exit_with_error(f"These data sets cannot be read: {', '.join(document[UNREADABLE])}.")
