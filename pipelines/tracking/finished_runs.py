"""Runs that are over and only have to be written down, by MLflow's client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipelines.runtime import heartbeat, provenance
from pipelines.tracking import store
from pipelines.tracking.outbox import send_batch


@dataclass(frozen=True)
class FinishedRun:
    """A run that is over, with curves over integer steps; its points are dated to its end."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    steps: Sequence[int]  # [k], of every curve
    curves: Mapping[str, ArrayLike]  # by metric; [k] each
    start_ms: int
    end_ms: int


def write(run: FinishedRun, experiment: str, parent: str | None = None) -> str:
    """Write a run, below its parent, with the tags of every child; return its id.

    Raise what `store.unavailable()` names. A run that a kill leaves half written says RUNNING, and
    is closed as that of any process that was killed.
    """
    below = {store.PARENT: parent} if parent else {}
    tags = {**provenance.tags(), **heartbeat.tags(), **below, **run.tags}
    to = store.client()
    place = store.experiment(store.uri(), experiment)
    run_id = str(to.create_run(place, run.start_ms, tags, run.name).info.run_id)
    numbers = [
        (metric, value, step, run.end_ms)
        for metric, values in run.curves.items()
        for step, value in zip(run.steps, np.asarray(values).tolist(), strict=True)
    ]
    send_batch(run_id, numbers, params={key: str(value) for key, value in run.params.items()})
    to.set_terminated(run_id, "FINISHED", run.end_ms)
    return run_id
