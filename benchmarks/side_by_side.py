"""What every benchmark does: ways that take turns, ratios over the rounds, a run that records them.

A busy machine slows ways that take turns alike. So a ratio is the median over rounds, and is given
with the least and the greatest.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data.datasets import Splits
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, provenance
from pipelines.tracking import database, tracked_run

Ways = Mapping[str, Callable[[], Any]]
Rounds = dict[str, NDArray[np.float64]]  # by way; [rounds] each


def take_turns(ways: Ways, rounds: int) -> Rounds:
    """Return the number that each way gives in every round."""
    table = [[way() for way in ways.values()] for _ in range(rounds)]
    return dict(zip(ways, np.array(table, np.float64).T, strict=True))


def print_title(title: str) -> None:
    """Print what the numbers below are, and of which machine."""
    tags = provenance.tags()
    print(f"{title}; {tags['cpu']}, {tags['cores']} cores")


def report(name: str, numbers: Mapping[str, Any], **params: Any) -> None:
    """Print the median of each number over its rounds, and record it in a run of that name."""
    with tracked_run.track(name, experiment="benchmarks", kind="benchmark", params=params) as run:
        print(f"{name}: median (least-most)")
        for key, values in numbers.items():
            middle, least, most = np.median(values), np.min(values), np.max(values)
            print(f"{key:>28}  {middle:.4g} ({least:.4g}-{most:.4g})", flush=True)
            run.log({key: float(middle)})


def wait_for(child: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Return the processor seconds of a process, and the most megabytes that it held.

    With the seconds of the processes that it has waited for. SystemExit if it fails.
    """
    said = child.stderr.read().decode() if child.stderr else ""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{child.args!r} ended with code {child.returncode}. {said}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


@contextmanager
def temporary_database() -> Iterator[Path]:
    """Yield the folder of an empty database, which is in force until the block ends."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"{database.SQLITE}{folder}/mlflow.db"
        try:
            yield Path(folder)
        finally:
            os.environ.pop("MLFLOW_TRACKING_URI")
            os.environ.update({} if before is None else {"MLFLOW_TRACKING_URI": before})


def build_job(recipe: Recipe, splits: Splits) -> Any:
    """Return the training job of a recipe on these splits."""
    backend.keras()
    from pipelines.training import devices, job

    return job.build_job(recipe, splits, devices.place(recipe.devices))


def images_per_s(job: Any, log: Callable[..., None] = lambda metrics, step: None) -> float:
    """Return the rate of `train`, without its first call, which traces, and its validations."""
    from pipelines.training.train import train

    ends: dict[int, float] = {}  # by step

    def timed_log(metrics: Mapping[str, float], step: int) -> None:
        log(metrics, step)
        if "batch_loss" in metrics:
            ends[step] = time.perf_counter()

    train(job, timed_log, test=False)
    calls = [(a, b) for a, b in pairwise(ends) if a % job.epoch]  # a validation follows an epoch
    seconds = sum(ends[b] - ends[a] for a, b in calls)
    return float(job.recipe.batch_size * sum(b - a for a, b in calls) / seconds)
