"""Several machines, which TF_CONFIG names: they share every batch of one training.

Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

from dataclasses import dataclass
from typing import Any

import keras

from pipelines.data.splits import Part, Split
from pipelines.data.streamed import Photographs
from pipelines.errors import UserError
from pipelines.recipes.recipe import Recipe
from pipelines.training import _multi_worker, devices, input_pipeline
from pipelines.training.callbacks import Checkpointer, MetricsLogger
from pipelines.training.checkpoints import Checkpoint
from pipelines.training.devices import Place
from pipelines.training.evaluation import rename_means
from pipelines.training.job import TrainingJob
from pipelines.training.tf_config import Role
from pipelines.training.train import KerasLoop, callbacks_of


@dataclass(frozen=True, kw_only=True)
class Machines(Place, KerasLoop):
    """All GPUs of several machines, or a CPU of each: every step is one step of all of them."""

    role: Role
    shares_wishes = True

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.role.workers} machines, synchronous"

    @property
    def part(self) -> Part:
        """This machine's part of every batch."""
        return self.role.rank, self.role.workers

    def share(self, value: Any) -> Any:
        """Return the chief's value on every machine, once all have asked."""
        return _multi_worker.broadcast(value, self.strategy)

    def fit(
        self,
        job: TrainingJob,
        model: keras.Model,
        logger: MetricsLogger,
        checkpointer: Checkpointer,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Train to the end of the run. MachineLost when a machine leaves.

        The running means of an epoch that was interrupted begin anew.
        """
        pieces, start, stop = job.recipe.accumulate, logger.step, len(job.rates)
        _multi_worker.fit(
            model,
            self.strategy,
            input_pipeline.train(job.recipe, job.splits.train, start, stop, self.part),
            start=start * pieces,
            stop=stop * pieces,
            epoch=job.epoch * pieces,
            callbacks=callbacks_of(job, logger, checkpointer),
            validate=(
                self._evaluation(job, model, job.splits.val) if job.splits.has_validation else dict
            ),
            wishes=checkpointer.wishes,
        )

    def evaluate(
        self, job: TrainingJob, model: keras.Model, split: Split | Photographs, name: str
    ) -> dict[str, float]:
        """Return the means over a split, of which each machine reads a part of every batch."""
        return rename_means(name, self._evaluation(job, model, split)())

    def _evaluation(
        self, job: TrainingJob, model: keras.Model, split: Split | Photographs
    ) -> _multi_worker.Evaluation:
        batches = input_pipeline.evaluation(job.recipe, split, self.replicas, self.part)
        return _multi_worker.evaluation(model, self.strategy, batches, int(batches.cardinality()))


def meet(recipe: Recipe, role: Role) -> Machines:
    """Return all devices of all machines, once they have met.

    Call it before anything else starts TensorFlow. UserError for what several machines cannot do.
    """
    if recipe.devices is not None:
        raise UserError(
            "On several machines every GPU trains. Received: devices="
            f"{recipe.devices} with TF_CONFIG. Leave --devices out; hide GPUs with "
            "CUDA_VISIBLE_DEVICES."
        )
    if recipe.ema:
        raise UserError(
            "Averages of the weights are kept on one machine. Received: ema="
            f"{recipe.ema} with TF_CONFIG. Set --ema 0, or unset TF_CONFIG."
        )
    if recipe.test_every:
        raise UserError(
            "The test set is looked at while training on one machine. Received: test_every="
            f"{recipe.test_every} with TF_CONFIG. Set --test-every None, or unset TF_CONFIG."
        )
    strategy = _multi_worker.strategy(role)
    count, kind = strategy.num_replicas_in_sync, devices.gpu_kind()
    return Machines(count, kind, strategy, role=role)
