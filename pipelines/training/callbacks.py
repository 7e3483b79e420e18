"""The Keras callbacks that write down a training run as it goes.

Imports Keras at the top: import this module inside the functions that train.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from pipelines.data.task_metrics import MEAN
from pipelines.errors import Diverged, Paused, UserError
from pipelines.runtime.signals import DeferredSignals
from pipelines.training import _device_data
from pipelines.training.checkpoints import Arrays, Checkpoint, Saving
from pipelines.training.devices import Place
from pipelines.training.evaluation import rename_means
from pipelines.training.job import TrainingJob
from pipelines.training.seen_test import SeenTest

Log = Callable[[Mapping[str, float], int], None]
POINTS = 2_000  # a longer run logs its per-step curves at this many steps


class MetricsLogger(keras.callbacks.Callback):
    """Logs the curves of a job's training; raises Diverged when its loss does.

    `step` counts finished steps, from 1; after each, or after `steps_per_execution` of them where
    Keras does so many at once, `advance(steps, images_per_s)` is called. A step is as many batches
    of Keras as the recipe accumulates. `best` are the validation numbers where the one that the
    task watches was least so far, and the step; nothing where the run does not validate. `note` is
    all that a resumed run needs to go on.
    """

    def __init__(
        self,
        job: TrainingJob,
        log: Log,
        advance: Callable[[int, float], Any],
        seen: SeenTest | None = None,
    ) -> None:
        super().__init__()
        self.job, self.log, self.advance, self.seen = job, log, advance, seen
        self.rates, self.epoch, self.task = job.rates, job.epoch, job.splits.task
        self.step, self.piece, self.steps_per_execution = 0, 0, 1
        self.busy_s, self.timed = 0.0, 0
        self.least = f"best_val_{self.task.watched}"
        self.best = {self.least: math.inf} if job.splits.has_validation else {}
        self.summed, self.counted = 0.0, 0
        self.began = time.perf_counter()
        self.last: dict[str, float] = {}
        self.continued = False
        self._stride = max(1, len(self.rates) // POINTS)

    @property
    def note(self) -> dict[str, Any]:
        """Plain numbers; valid between two steps."""
        names = ("step", "busy_s", "timed", "best", "summed", "counted", "last")
        looks = {"looks": self.seen.looks} if self.seen else {}
        return {name: getattr(self, name) for name in names} | {"wall_s": self.wall_s} | looks

    def resume(self, note: Mapping[str, Any]) -> None:
        """Go on where the run that wrote the note was."""
        for name in self.note.keys() - {"wall_s", "looks"}:
            setattr(self, name, note.get(name, getattr(self, name)))  # an older note has no `best`
        if self.seen:
            self.seen.looks = list(note["looks"])
        self.began = time.perf_counter() - note.get("wall_s", 0.0)
        self.advance(self.step, math.nan)

    @property
    def seen_numbers(self) -> dict[str, float]:
        """The best numbers on the test set so far; none where it is not looked at."""
        return self.seen.summarize() if self.seen else {}

    @property
    def wall_s(self) -> float:
        """Seconds since the start; of a resumed run, of all its parts."""
        return time.perf_counter() - self.began

    @property
    def images_per_s(self) -> float:
        """Training rate so far; the first step after a start, which traces, is left out."""
        images = self.job.recipe.batch_size * self.timed
        return images / self.busy_s if self.timed else math.nan

    def reached_multiple(self, every: int) -> bool:
        """Return whether the last call ended at a multiple of `every` steps, or went over one."""
        return self.step % every < self.steps_per_execution

    @property
    def within_epoch(self) -> bool:
        """Whether a step is over that is neither the last of its epoch nor of the run."""
        return not self.piece and self.step % self.epoch > 0 and self.step < len(self.rates)

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._tracing, self._took = True, 0.0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if not self.continued:
            self.summed, self.counted = 0.0, 0
        self.continued = False

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        self._took += time.perf_counter() - self._started
        self.piece = (self.piece + 1) % self.job.recipe.accumulate
        if not math.isfinite(logs["loss"]):
            raise self._divergence(logs["loss"])
        if self.piece == 0:
            self._count_step(logs[f"{MEAN}loss"])

    def _count_step(self, mean_loss: float) -> None:
        done = self.steps_per_execution
        if not self._tracing:
            self.busy_s, self.timed = self.busy_s + self._took, self.timed + done
        self._tracing, self._took = False, 0.0
        # Keras reports means over the epoch so far; their difference is this batch's loss.
        self.step, self.counted = self.step + done, self.counted + done
        summed = mean_loss * self.counted
        if self.reached_multiple(self._stride):
            loss, rate = (summed - self.summed) / done, float(self.rates[self.step - 1])
            self.log({"batch_loss": loss, "learning_rate": rate}, self.step)
        self.summed = summed
        self.advance(done, self.images_per_s)

    def _divergence(self, loss: float) -> Diverged:
        step, last = self.step + 1, self.step + self.steps_per_execution
        rate = float(self.rates[self.step])
        where = f"at step {step}" if step == last else f"in steps {step} to {last}"
        return Diverged(
            f"The training loss must stay finite. Received: {loss} {where} with learning "
            f"rate {rate:g}. Lower --learning-rate or lengthen --warmup.",
            step,
        )

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        curves = {**rename_means("train", logs), **rename_means("val", logs, prefix="val_")}
        if self.task.of_model:
            curves |= self.task.of_model(self.model)
        if self.seen:
            curves |= self.seen.look(self.step)
        validated = {f"best_{key}": n for key, n in curves.items() if key.startswith("val_")}
        if validated and validated[self.least] < self.best[self.least]:
            self.best = {**validated, "best_step": float(self.step)}
        self.log(curves, self.step)
        self.last = curves


SECONDS = 60.0  # between checkpoints where no number of steps is given
LASTING = ("network", "optimizer")  # what outlives an epoch
METRICS = "metrics"


def variables(model: keras.Model) -> dict[str, Sequence[Any]]:
    """Return every variable that the next training step reads, by part."""
    return {
        LASTING[0]: _device_data.unwrap(model).variables,
        LASTING[1]: model.optimizer.variables,
        METRICS: model.metrics_variables,
    }


def capture(model: keras.Model) -> Arrays:
    """Return their values; call it between two steps, within the scope of the devices."""
    return {
        part: [ops.convert_to_numpy(variable) for variable in part_variables]
        for part, part_variables in variables(model).items()
    }


def restore(model: keras.Model, arrays: Arrays, *parts: str) -> None:
    """Put values back. UserError where they are another network's."""
    model_variables = variables(model)
    for part in parts:
        shapes = [tuple(variable.shape) for variable in model_variables[part]]
        if shapes != [array.shape for array in arrays.get(part, [])]:
            raise UserError(
                "A checkpoint must be of the same network. Received: one whose "
                f"{part} variables have other shapes: the code has changed since. Set --new-run."
            )
        for variable, array in zip(model_variables[part], arrays[part], strict=True):
            variable.assign(array)


class Checkpointer(keras.callbacks.Callback):
    """Saves checkpoints as the run goes, and before a signal ends it or its time is over.

    Within an epoch after any call; at its end only once validation is recorded. Of several
    machines all read their variables at the same step, since that can take all of them: the logs of
    a step carry what one of them `wishes`. One machine asks itself.
    """

    def __init__(
        self,
        logger: MetricsLogger,
        saving: Saving | None,
        interrupts: DeferredSignals,
        place: Place,
    ) -> None:
        super().__init__()
        self.logger, self.saving, self.interrupts = logger, saving, interrupts
        self.place = place
        self.saved = time.monotonic()
        self.resumed: Arrays | None = None

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on with the running means of the epoch in which the checkpoint was saved."""
        self.logger.continued, self.resumed = True, checkpoint.arrays

    def wishes(self) -> dict[str, float]:
        """Return what this machine asks for: a checkpoint, an end, a pause."""
        stop, pause = self.interrupts.received is not None, bool(self.saving and self.saving.over)
        wishes = {"save": stop or pause or self._due, "stop": stop, "pause": pause}
        return {wish: float(asked_for) for wish, asked_for in wishes.items()}

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if self.resumed is not None:
            restore(self.model, self.resumed, METRICS)
            self.resumed = None

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        if self.logger.within_epoch:
            self._between_steps(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float]) -> None:
        self._between_steps(logs)

    def _between_steps(self, logs: Mapping[str, float]) -> None:
        wishes = logs if self.place.shares_wishes else self.wishes()
        if wishes.get("save"):
            with self.place.scope():
                arrays = capture(self.model)
            if self.saving:
                self._write(self.saving, arrays, must=bool(wishes.get("pause")))
            self.saved = time.monotonic()
        if wishes.get("stop"):
            self.interrupts.deliver()
            raise SystemExit(143)  # another machine was told to stop
        if wishes.get("pause"):
            raise Paused(f"step {self.logger.step} of {len(self.logger.rates)}")

    def _write(self, saving: Saving, arrays: Arrays, must: bool) -> None:
        """Write a checkpoint; without space or right, warn, unless it `must` be there."""
        try:
            saving.write(Checkpoint(self.logger.step, self.logger.note, arrays))
        except OSError as error:
            if must:
                raise
            print(
                f"Checkpoints must fit on the disk. Received at step {self.logger.step}: {error}. "
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
        if self.place.shares_wishes:  # several machines ask before the step
            return (self.logger.step + 1) % every == 0
        return self.logger.reached_multiple(every)


class Averages(keras.callbacks.Callback):
    """Has the averaged weights in place while a network is validated.

    Keras's SwapEMAWeights adds and subtracts on TensorFlow, which rounds the weights.
    """

    def on_test_begin(self, logs: Any = None) -> None:
        weights = self.model.trainable_variables
        self.weights = [ops.convert_to_numpy(weight) for weight in weights]
        self.model.optimizer.put_averages(weights)

    def on_test_end(self, logs: Any = None) -> None:
        for weight, value in zip(self.model.trainable_variables, self.weights, strict=True):
            weight.assign(value)
