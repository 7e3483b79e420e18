"""Exact resume: all of a training as arrays, put back into a freshly built network.

What is kept besides the weights: momentum and the optimizer's counter, the states of random layers
(dropout), the moments of normalization, the running means of an epoch that is not over. Batches
need nothing: they are functions of the seed and the step.
Imports Keras at the top: import this module inside the functions that train.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from pipelines import resident
from pipelines.checkpoints import Arrays, Checkpoint, Saving
from pipelines.curves import Curves
from pipelines.devices import Place
from pipelines.errors import Paused, UserError
from pipelines.runtime.signals import Interrupts

SECONDS = 60.0  # between checkpoints where no number of steps is given
LASTING = ("network", "optimizer")  # what outlives an epoch
METRICS = "metrics"


def variables(model: keras.Model) -> dict[str, Sequence[Any]]:
    """Every variable that the next training step reads, by part."""
    return {
        LASTING[0]: resident.bare(model).variables,
        LASTING[1]: model.optimizer.variables,
        METRICS: model.metrics_variables,
    }


def captured(model: keras.Model) -> Arrays:
    """Their values; call it between two steps, within the scope of the devices."""
    return {
        part: [ops.convert_to_numpy(variable) for variable in found]
        for part, found in variables(model).items()
    }


def restore(model: keras.Model, arrays: Arrays, *parts: str) -> None:
    """Put values back. UserError where they are another network's."""
    own = variables(model)
    for part in parts:
        shapes = [tuple(variable.shape) for variable in own[part]]
        if shapes != [array.shape for array in arrays.get(part, [])]:
            raise UserError(
                "A checkpoint must be of the same network. Received: one whose "
                f"{part} variables have other shapes: the code has changed since. Set --new-run."
            )
        for variable, array in zip(own[part], arrays[part], strict=True):
            variable.assign(array)


class Saver(keras.callbacks.Callback):
    """Saves checkpoints as the run goes, and before a signal ends it or its time is over.

    Within an epoch after any call; at its end only once validation is recorded. Of several
    machines all read their variables at the same step, since that can take all of them: the logs of
    a step carry what one of them `wishes`. One machine asks itself.
    """

    def __init__(
        self, curves: Curves, saving: Saving | None, interrupts: Interrupts, place: Place
    ) -> None:
        super().__init__()
        self.curves, self.saving, self.interrupts = curves, saving, interrupts
        self.place = place
        self.saved = time.monotonic()
        self.resumed: Arrays | None = None

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on with the running means of an epoch that was not over."""
        if checkpoint.step % self.curves.epoch:
            self.resumed = checkpoint.arrays

    def wishes(self) -> dict[str, float]:
        """What this machine asks for: a checkpoint, an end, a pause."""
        stop, pause = self.interrupts.received is not None, bool(self.saving and self.saving.over)
        asked = {"save": stop or pause or self._due, "stop": stop, "pause": pause}
        return {wish: float(asked_for) for wish, asked_for in asked.items()}

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if self.resumed is not None:
            restore(self.model, self.resumed, METRICS)
            self.resumed = None

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        if self.curves.within_epoch:
            self._between_steps(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        self._between_steps(logs)

    def _between_steps(self, logs: Mapping[str, float]) -> None:
        asked = logs if self.place.role else self.wishes()
        if asked.get("save"):
            with self.place.scope():
                arrays = captured(self.model)
            if self.saving:
                self._write(self.saving, arrays, must=bool(asked.get("pause")))
            self.saved = time.monotonic()
        if asked.get("stop"):
            self.interrupts.deliver()
            raise SystemExit(143)  # another machine was told to stop
        if asked.get("pause"):
            raise Paused(f"step {self.curves.step} of {len(self.curves.rates)}")

    def _write(self, saving: Saving, arrays: Arrays, must: bool) -> None:
        """A checkpoint on disk; without space or right, a warning unless it `must` be there."""
        try:
            saving.write(Checkpoint(self.curves.step, self.curves.note, arrays))
        except OSError as error:
            if must:
                raise
            print(
                f"Checkpoints must fit on the disk. Received at step {self.curves.step}: {error}. "
                "Make room: training goes on, and the last checkpoint stays.",
                file=sys.stderr,
            )

    @property
    def _due(self) -> bool:
        if self.saving is None:
            return False
        every = self.saving.every
        if not every:
            return time.monotonic() - self.saved > SECONDS
        if self.place.role:  # several machines ask before the step
            return (self.curves.step + 1) % every == 0
        return self.curves.passed(every)
