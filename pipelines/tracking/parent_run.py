"""The run that the runs of this process belong to, where another process of ours started it.

An attempt at a scheduled job, or a pipeline, names its run in the environment of its commands.
Every run of such a command that has no parent in it becomes a child of that run. It stays in its
own experiment, and MLflow's UI nests runs within one experiment only: the page of the parent links
its children.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "PARENT_RUN"  # the name of the environment variable


def read() -> tuple[str, str] | None:
    """Return the id and the experiment of that run; None without one, or of one elsewhere."""
    document = json.loads(os.environ.get(VARIABLE, "{}"))
    if document.get("store") != _store_digest():
        return None
    return document["id"], document["experiment"]


@contextmanager
def write(run_id: str, experiment: str) -> Iterator[None]:
    """Make the runs of the commands that are started in the block children of that run."""
    before = os.environ.get(VARIABLE)
    document = {"id": run_id, "experiment": experiment, "store": _store_digest()}
    os.environ[VARIABLE] = json.dumps(document)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def _store_digest() -> str:
    """Return which store, without its password: a command may write into another one."""
    from pipelines.tracking import store

    return hashlib.sha256(store.uri().encode()).hexdigest()[:16]
