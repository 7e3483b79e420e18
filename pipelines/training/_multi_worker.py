"""Synchronous training on several machines: every step is one step on the whole batch.

Keras 3.15's `fit` fails under MultiWorkerMirroredStrategy; the loop below runs Keras's own steps
and calls the same callbacks. Whoever calls it does so on every machine, with the same arguments.
Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2 as protobuf
from tensorflow.python.eager import context

from pipelines.training._cluster import PATIENCE_S, translate_errors, wait_for_all
from pipelines.training.tf_config import Role

HEARTBEAT_S = 10  # a machine silent for so long is taken for lost

Evaluation = Callable[[], Mapping[str, float]]
Wishes = Callable[[], Mapping[str, float]]


def strategy(role: Role, patience_s: float = PATIENCE_S) -> Any:
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
    """Return the chief's `values` on every machine: any nest of arrays and plain numbers.

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
def fit(
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


def evaluation(
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
