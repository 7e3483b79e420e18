"""What a training run writes down as it goes: a Keras callback, and the bar in the terminal.

Imports Keras at the top: import this module inside the functions that train.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from pipelines.errors import Diverged

Log = Callable[[Mapping[str, float], int], None]

POINTS = 2_000  # a longer run logs its per-step curves at this many steps


class Curves(keras.callbacks.Callback):
    """Logs the curves of a run of `len(rates)` steps, stops it there, or when the loss diverges.

    `step` counts finished steps, from 1; `advance(images_per_s)` is called after each.
    """

    def __init__(
        self, rates: NDArray[np.float64], batch_size: int, log: Log, advance: Callable[[float], Any]
    ) -> None:
        super().__init__()
        self.rates, self.batch_size, self.log, self.advance = rates, batch_size, log, advance
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
        summed = logs["cross_entropy"] * (self.step - self._epoch_start)
        if self.step % self._stride == 0:
            self.log({"batch_loss": summed - self._summed, "learning_rate": rate}, self.step)
        self._summed = summed
        self.advance(self.images_per_s)
        self.model.stop_training = self.step == len(self.rates)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        curves = {**named("train", logs), **named("val", logs, prefix="val_")}
        self.best_val = min(self.best_val, curves["val_error_pct"])
        self.log(curves, self.step)
        self.last = curves


def named(split: str, logs: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Our names for Keras's logs: `{split}_loss` (cross entropy alone) and `{split}_error_pct`."""
    return {
        f"{split}_loss": float(logs[f"{prefix}cross_entropy"]),
        f"{split}_error_pct": 100 * (1 - float(logs[f"{prefix}accuracy"])),
    }


@contextmanager
def progress_bar(title: str, steps: int) -> Iterator[Callable[[float], None]]:
    """A bar on standard error with rate and time left; silent where no one is watching."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:,.0f} images/s  time left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=steps, rate=0.0)
        yield lambda rate: bar.update(task, advance=1, rate=0.0 if math.isnan(rate) else rate)
