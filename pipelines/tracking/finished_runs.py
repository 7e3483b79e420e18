"""Runs that are over and only have to be written down, by MLflow's client."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipelines.runtime import heartbeat, provenance, signals
from pipelines.tracking import store
from pipelines.tracking.outbox import send_batch


def write(
    name: str,
    *,
    experiment: str,
    parent: str | None = None,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    steps: Sequence[int],
    curves: Mapping[str, ArrayLike],
    start_ms: int,
    end_ms: int,
) -> str:
    """Write a run that is over, below its parent, with the tags of every child; return its id.

    `curves` [k] each are over the integer `steps` [k]; points are dated to the end. Raise what
    `store.unavailable()` names. A signal waits for the run to be whole; one that a kill leaves half
    written says RUNNING, and is closed as that of any process that was killed.
    """
    below = {store.PARENT: parent} if parent else {}
    every = {**provenance.tags(), **heartbeat.tags(), **below, **tags}
    place = store.experiment(store.uri(), experiment)
    texts = {key: str(value) for key, value in params.items()}
    numbers = [
        (metric, value, step, end_ms)
        for metric, values in curves.items()
        for step, value in zip(steps, np.asarray(values).tolist(), strict=True)
    ]
    with signals.defer():
        run_id = str(store.client().create_run(place, start_ms, every, name).info.run_id)
        send_batch(run_id, numbers, params=texts)
        store.client().set_terminated(run_id, "FINISHED", end_ms)
    return run_id
