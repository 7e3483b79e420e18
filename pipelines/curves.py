"""What a training run writes down as it goes: a Keras callback.

Imports Keras at the top: import this module inside the functions that train.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from pipelines.errors import Diverged

Log = Callable[[Mapping[str, float], int], None]

MEAN = "mean_"  # begins Keras's name of a task's number; Keras's own "loss" holds the decay too
POINTS = 2_000  # a longer run logs its per-step curves at this many steps


class Curves(keras.callbacks.Callback):
    """Logs the curves of a run of `len(rates)` steps, stops it there, or when the loss diverges.

    `step` counts finished steps, from 1; after each, `advance(1, images_per_s)` is called.
    `best_val` is the least validation value so far of the number that is `watched`.
    """

    def __init__(
        self,
        rates: NDArray[np.float64],
        batch_size: int,
        watched: str,
        log: Log,
        advance: Callable[[int, float], Any],
    ) -> None:
        super().__init__()
        self.rates, self.batch_size, self.watched = rates, batch_size, watched
        self.log, self.advance = log, advance
        self.step, self.busy_s, self.best_val = 0, 0.0, math.inf
        self.last: dict[str, float] = {}
        self._stride = max(1, len(rates) // POINTS)

    @property
    def images_per_s(self) -> float:
        """Training rate so far; the first step, which traces the graph, is left out."""
        return self.batch_size * (self.step - 1) / self.busy_s if self.busy_s else math.nan

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._epoch_start, self._summed = self.step, 0.0

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        rate = float(self.rates[self.step])
        self.busy_s += time.perf_counter() - self._started if self.step else 0.0
        self.step += 1
        if not math.isfinite(logs["loss"]):
            raise Diverged(
                f"The training loss must stay finite. Received: {logs['loss']} at step {self.step} "
                f"with learning rate {rate:g}. Lower --learning-rate or lengthen --warmup."
            )
        # Keras reports means over the epoch so far; their difference is this batch's loss.
        summed = logs[f"{MEAN}loss"] * (self.step - self._epoch_start)
        if self.step % self._stride == 0:
            self.log({"batch_loss": summed - self._summed, "learning_rate": rate}, self.step)
        self._summed = summed
        self.advance(1, self.images_per_s)
        self.model.stop_training = self.step == len(self.rates)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        curves = {**named("train", logs), **named("val", logs, prefix="val_")}
        self.best_val = min(self.best_val, curves[f"val_{self.watched}"])
        self.log(curves, self.step)
        self.last = curves


def named(split: str, logs: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Our names for Keras's means over a split: `{split}_{number}` of every number of the task."""
    start = prefix + MEAN
    return {
        f"{split}_{key.removeprefix(start)}": float(value)
        for key, value in logs.items()
        if key.startswith(start)
    }
