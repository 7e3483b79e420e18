"""`python -m pipelines data ACTION NAME`: what there is of data sets, made, packed, checked."""

import sys

from pipelines import data, data_check
from pipelines.errors import unknown
from pipelines.shell import print_json


def data_command(action: str, name: str | None, json: bool) -> None:
    """Do what the action says with the data set of that name, and say what is there of it."""
    if action == "check" and name is None:
        data_check.command(json)
        return
    if action != "list" and name is None:
        raise unknown("The data set to " + action, "nothing", data.DATASETS)
    if action == "prepare":
        print(f"{name} is ready in {data.prepare(str(name))}", file=sys.stderr)
    elif action == "pack":
        print(f"{name} is packed in {data.pack(str(name))}", file=sys.stderr)
    chosen = list(data.DATASETS) if name is None else [name]
    found = [data.check(each, required=name is not None) for each in chosen]
    if json:
        print_json(found if name is None else found[0])
        return
    data_check.show(found)
