"""Several machines, which TF_CONFIG names: they share every batch of one training.

Every step is one step on the whole batch. Keras 3.15's `fit` fails under
MultiWorkerMirroredStrategy; the loop below runs Keras's own steps and calls the same callbacks, on
every machine with the same arguments.
Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2 as protobuf
from tensorflow.python.eager import context

from pipelines.data.datasets import AnySplit
from pipelines.data.splits import Part
from pipelines.errors import UserError
from pipelines.recipes.recipe import Recipe
from pipelines.training import devices, input_pipeline
from pipelines.training._cluster import PATIENCE_S, translate_errors, wait_for_all
from pipelines.training.callbacks import Checkpointer, MetricsLogger
from pipelines.training.checkpoints import Checkpoint
from pipelines.training.devices import Place
from pipelines.training.evaluation import rename_means
from pipelines.training.job import TrainingJob
from pipelines.training.tf_config import Role
from pipelines.training.train import KerasLoop, callbacks_of

HEARTBEAT_S = 10  # a machine silent for so long is taken for lost

Evaluation = Callable[[], Mapping[str, float]]
Wishes = Callable[[], Mapping[str, float]]


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
        return broadcast(value, self.strategy)

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
        _fit(
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
        self, job: TrainingJob, model: keras.Model, split: AnySplit, name: str
    ) -> dict[str, float]:
        """Return the means over a split, of which each machine reads a part of every batch."""
        return rename_means(name, self._evaluation(job, model, split)())

    def _evaluation(self, job: TrainingJob, model: keras.Model, split: AnySplit) -> Evaluation:
        batches = input_pipeline.evaluation(job.recipe, split, self.replicas, self.part)
        return _evaluator(model, self.strategy, batches, int(batches.cardinality()))


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
    strategy = _strategy(role)
    count, kind = strategy.num_replicas_in_sync, devices.gpu_kind()
    return Machines(count, kind, strategy, role=role)


def _strategy(role: Role, patience_s: float = PATIENCE_S) -> Any:
    """MultiWorkerMirroredStrategy over all GPUs of all machines, or a CPU each.

    Call it before anything else starts TensorFlow. MachineLost when not all machines have come
    within `patience_s`.
    """
    jobs = [
        protobuf.CoordinatedJob(name=task, num_tasks=len(addresses))
        for task, addresses in sorted(role.cluster.items())
    ]
    # The strategy sets this up itself, but would wait for an hour. No public call sets the time.
    context.context().configure_coordination_service(
        "standalone",
        service_leader=f"/job:{jobs[0].name}/replica:0/task:0",
        cluster_register_timeout_in_ms=round(1000 * patience_s),
        heartbeat_timeout_in_ms=1000 * HEARTBEAT_S,
        coordinated_jobs=jobs,
    )
    with translate_errors("the start"):
        wait_for_all(role, patience_s)
        return tf.distribute.MultiWorkerMirroredStrategy()


@translate_errors("the start")
def broadcast(values: Any, strategy: Any) -> Any:
    """Return the chief's `values` on every machine: what it has found of the training.

    What the other machines pass is not looked at. One collective for the size, one for the bytes.
    """
    content = np.frombuffer(pickle.dumps(values), np.uint8)
    words = np.concatenate([content, np.zeros(-len(content) % 8, np.uint8)]).view(np.int64)
    size = int(_from_first(np.array([len(words)]), 1, strategy)[0])
    received = _from_first(words, size, strategy)
    return pickle.loads(received.tobytes())  # noqa: S301 - sent by the chief of this very cluster


def _from_first(words: Any, size: int, strategy: Any) -> Any:
    """Return the int64 `words` of the first replica of all; [size].

    A sum, to which the others add 0.
    """

    def sum_over_replicas(summand: Any) -> Any:
        def replica(value: Any) -> Any:
            context = tf.distribute.get_replica_context()
            first = tf.cast(context.replica_id_in_sync_group == 0, tf.int64)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, first * value)

        return strategy.experimental_local_results(strategy.run(replica, args=(summand,)))[0]

    return tf.function(sum_over_replicas)(tf.constant(np.resize(words, size))).numpy()


@translate_errors("training")
def _fit(
    model: keras.Model,
    strategy: Any,
    batches: tf.data.Dataset,
    *,
    start: int,
    stop: int,
    epoch: int,
    callbacks: Sequence[keras.callbacks.Callback],
    validate: Evaluation,
    wishes: Wishes = dict,
) -> None:
    """Do steps start+1 to stop, in epochs of `epoch` steps, as `model.fit` would do them.

    `batches` begins at step `start` and holds this machine's share of every batch, in a shape that
    is known. Batch logs are running means over the epoch, and the same on all machines; they also
    hold the means of the machines' `wishes`, so that all can act on what one of them asks for.
    MachineLost when a machine leaves.
    """
    listeners = keras.callbacks.CallbackList(list(callbacks), model=model)
    iterator = iter(_distribute(batches.repeat(), strategy))  # endless: no vote before each batch
    step, train = start, _means(model, strategy, model.train_step)
    listeners.on_train_begin()
    while step < stop:
        number, last = step // epoch, min(stop, (step // epoch + 1) * epoch)
        model.reset_metrics()
        listeners.on_epoch_begin(number)
        while step < last:
            listeners.on_train_batch_begin(step % epoch)
            logs = train(iterator, wishes())
            step += 1
            listeners.on_train_batch_end((step - 1) % epoch, logs)
        values = {f"val_{name}": value for name, value in validate().items()}
        listeners.on_epoch_end(number, logs | values)
    listeners.on_train_end()


def _means(
    model: keras.Model, strategy: Any, step: Callable[[Any], Any]
) -> Callable[[Any, Mapping[str, float]], dict[str, float]]:
    """Return a function of an iterator and wishes: one step everywhere, and the means of both."""
    names: list[str] = []

    def replica(data: Any, wishes: Any) -> Any:
        logs = step(data)
        names[:] = logs
        return tf.concat([[tf.cast(value, tf.float32) for value in logs.values()], wishes], 0)

    def step_everywhere(iterator: Any, wishes: Any) -> Any:
        values = strategy.run(replica, args=(next(iterator), wishes))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None)

    compiled = tf.function(step_everywhere)

    def means(iterator: Any, wishes: Mapping[str, float]) -> dict[str, float]:
        values = compiled(iterator, tf.constant([*wishes.values()], tf.float32)).numpy()
        return dict(zip([*names, *wishes], values.tolist(), strict=True))

    return means


def _evaluator(
    model: keras.Model, strategy: Any, batches: tf.data.Dataset, count: int
) -> Evaluation:
    """Return a function that evaluates the model on this machine's share of `count` batches.

    Its result has Keras's names and is the same on every machine: the means over all shares.
    """
    shares = _distribute(batches.repeat(), strategy)

    def test(iterator: Any) -> None:
        strategy.run(model.test_step, args=(next(iterator),))

    compiled = tf.function(test)

    @translate_errors("evaluation")
    def evaluate() -> dict[str, float]:
        model.reset_metrics()
        iterator = iter(shares)
        with strategy.scope():
            for _ in range(count):
                compiled(iterator)
            return {k: float(v) for k, v in model.get_metrics_result().items()}

    return evaluate


def _distribute(batches: tf.data.Dataset, strategy: Any) -> Any:
    """This machine's batches, cut into equal parts for its devices."""
    devices = len(strategy.extended.worker_devices)
    if devices > 1:
        batches = batches.map(
            lambda *batch: tuple(tf.reshape(a, (devices, -1, *a.shape[1:])) for a in batch)
        ).unbatch()
    return strategy.distribute_datasets_from_function(lambda _: batches)
