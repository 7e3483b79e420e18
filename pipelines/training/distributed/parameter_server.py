"""Asynchronous training on several machines, as HM trained: parameter servers hold the weights.

Every worker takes the weights as they are, computes the gradient of a batch of its own, divided
over its GPUs, and applies it, whatever the others have done meanwhile. Nothing is repeatable.
Imports Keras and TensorFlow at the top: import this module inside the functions that train.
"""

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pipelines.data.splits import PAD, Photographs, Pictures, Split
from pipelines.data.tasks import MEAN, Task
from pipelines.data.whitening import Whitened
from pipelines.errors import UserError
from pipelines.runtime.tf_config import Role
from pipelines.training.distributed import machines
from pipelines.training.distributed.machines import PATIENCE_S, MachineLost, translate_errors
from pipelines.training.distributed.multi_worker import Evaluation, Wishes

AHEAD = 8  # updates a worker that are scheduled before the oldest of them is done
STALL_S = 600.0  # without any update for so long, a machine is taken for lost


def serve(role: Role, patience_s: float = PATIENCE_S) -> None:
    """Be a worker or a parameter server until the coordinator, task "chief", has left.

    MachineLost when it does not come within `patience_s`; Unavailable when the own port is taken.
    """
    machines.bind_port(role).close()
    gpus = {"GPU": 0} if role.task == "ps" else {}
    options = tf.compat.v1.ConfigProto(device_count=gpus, gpu_options={"allow_growth": True})
    cluster = tf.train.ClusterSpec(role.cluster)
    server = tf.distribute.Server(cluster, role.task, role.index, config=options)
    (coordinator,) = role.cluster["chief"]
    machines.wait_for([coordinator], patience_s)
    silent = 0
    while silent < 3:  # 1.5 s: gone before a new coordinator can come to the same address
        time.sleep(0.5)
        silent = 0 if machines.is_listening(coordinator) else silent + 1
    print("The chief has left: this machine ends.", file=sys.stderr)
    del server  # it had to live


def strategy(role: Role, patience_s: float = PATIENCE_S) -> Any:
    """ParameterServerStrategy of the coordinator, once all other machines are up.

    Call it before anything else starts TensorFlow. Errors as of `serve`.
    """
    machines.bind_port(role).close()
    tf.get_logger().addFilter(machines.failure_filter())
    machines.wait_for([*role.cluster["ps"], *role.cluster["worker"]], patience_s)
    with translate_errors("the start"):
        return tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver()
        )


@dataclass(frozen=True)
class Served:
    """A network whose weights, velocities and count of updates lie on the parameter servers."""

    model: keras.Model
    velocities: list[Any]
    updates: Any

    def load(self, model: keras.Model, updates: int) -> None:
        """Take over weights and velocities of an ordinary model, and its number of updates."""
        for theirs, ours in self._pairs(model):
            theirs.assign(keras.ops.convert_to_numpy(ours))
        self.updates.assign(updates)

    def save(self, model: keras.Model) -> None:
        """Give weights, velocities and number of updates to an ordinary model."""
        for theirs, ours in self._pairs(model):
            ours.assign(theirs.numpy())
        model.optimizer.iterations.assign(self.updates.numpy())

    def _pairs(self, model: keras.Model) -> list[tuple[Any, Any]]:
        """Variables on the servers beside those of an ordinary model with a built optimizer."""
        weights = [weight.value for weight in self.model.weights]
        momentums = getattr(model.optimizer, "momentums", [])  # Keras keeps none for momentum 0
        return [
            *zip(weights, model.weights, strict=True),
            *zip(self.velocities[: len(momentums)], momentums, strict=True),
        ]


def build_served(build: Callable[[], keras.Model], strategy: Any) -> Served:
    """Return a network from `build` on the parameter servers."""
    with translate_errors("the start"), strategy.scope():
        model, velocities = build(), []
        for weight in model.trainable_variables:
            with strategy.extended.colocate_vars_with(weight.value):
                velocities.append(tf.Variable(tf.zeros(weight.shape, weight.dtype)))
        return Served(model, velocities, tf.Variable(0, dtype=tf.int64))


@translate_errors("training")
def fit(
    model: keras.Model,
    served: Served,
    stream: Callable[[int], Any],
    strategy: Any,
    *,
    task: Task,
    rates: NDArray[np.float64],
    start: int,
    epoch: int,
    callbacks: Sequence[keras.callbacks.Callback],
    validate: Evaluation,
    wishes: Wishes = dict,
) -> None:
    """Updates start+1 to len(rates) by all workers, with the callbacks of `model.fit`.

    `model` is an ordinary compiled model with a built optimizer: training begins with its weights
    and velocities, and it holds the newest ones whenever an epoch of `epoch` updates ends.
    `stream(replicas)` is a worker's endless data set, of batches for each of its replicas, in graph
    operations alone. When one of the `wishes` is not 0, no update is begun until the model holds
    the newest weights; the logs of that update, and only those, carry the wishes. MachineLost when
    a parameter server leaves; what a lost worker had begun is done by the others.
    """
    names = ["loss", *(MEAN + name for name in task.numbers)]
    served.load(model, start)
    momentum = float(getattr(model.optimizer, "momentum", 0.0))
    updates = _Updates(_update(served, strategy, task, rates, momentum), stream, strategy)
    listeners = keras.callbacks.CallbackList(list(callbacks), model=model)
    step, wished = start, dict[str, float]()
    listeners.on_train_begin()
    while step < len(rates):
        begin, end = step, min(len(rates), (step // epoch + 1) * epoch)
        summed = np.zeros(len(names))
        listeners.on_epoch_begin(begin // epoch)
        while step < end:
            listeners.on_train_batch_begin(step % epoch)
            wished = wished or {name: wish for name, wish in wishes().items() if wish}
            summed += updates.take(end - step, paused=bool(wished))
            step += 1
            logs = dict(zip(names, (summed / (step - begin)).tolist(), strict=True))
            if updates.idle:
                served.save(model)
                logs, wished = logs | wished, {}
            listeners.on_train_batch_end((step - 1) % epoch, logs)
        values = {f"val_{name}": value for name, value in validate().items()}
        listeners.on_epoch_end(begin // epoch, logs | values)
    listeners.on_train_end()


def _update(
    served: Served, strategy: Any, task: Task, rates: NDArray[np.float64], momentum: float
) -> Any:
    """Return what one worker runs, a function of its iterator: an update, and its numbers.

    v <- momentum v + g, w <- w - rate v, with the rate of the number of updates so far. The numbers
    are the loss with its decay term and the task's numbers; [1 + numbers].
    """
    table, model = tf.constant(rates, tf.float32), served.model
    weights = [weight.value for weight in model.trainable_variables]

    def replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            means = {
                name: tf.cast(tf.reduce_mean(number(y, outputs)), tf.float32)
                for name, number in task.numbers.items()
            }
            loss = tf.add_n([means["loss"], *model.losses])
        return tape.gradient(loss, weights), tf.stack([loss, *means.values()])

    def update(iterator: Any) -> Any:
        rate = tf.gather(table, tf.minimum(served.updates.read_value(), len(rates) - 1))
        gradients, numbers = strategy.run(replica, args=next(iterator))
        mean = tf.distribute.ReduceOp.MEAN
        applied = [
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle,
                accum=velocity.handle,
                lr=rate,
                grad=strategy.reduce(mean, gradient, axis=None),
                momentum=momentum,
                use_locking=True,
            )
            for weight, velocity, gradient in zip(
                weights, served.velocities, gradients, strict=True
            )
        ]
        with tf.control_dependencies(applied):
            served.updates.assign_add(1)
        return strategy.reduce(mean, numbers, axis=None)

    return tf.function(update)


class _Updates:
    """Updates made by the workers, taken in the order in which they were scheduled."""

    def __init__(self, update: Any, stream: Callable[[int], Any], strategy: Any) -> None:
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        replicas = strategy.num_replicas_in_sync
        datasets = self.coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(lambda _: stream(replicas))
        )
        self.update, self.batches = update, iter(datasets)
        workers = sum("/job:worker" in d.name for d in tf.config.list_logical_devices("CPU"))
        self.ahead, self.pending = AHEAD * workers, deque[Any]()

    @property
    def idle(self) -> bool:
        """Whether no update is under way."""
        return not self.pending

    def take(self, remaining: int, paused: bool) -> NDArray[np.float32]:
        """Return the oldest update's numbers; up to `remaining` are scheduled, none if `paused`."""
        count = min(self.ahead, remaining) if not paused else 0
        for _ in range(max(count, 1) - len(self.pending)):
            self.pending.append(self.coordinator.schedule(self.update, args=(self.batches,)))
        return _fetch(self.pending.popleft())


def _fetch(value: Any) -> NDArray[np.float32]:
    """Return the value from its worker or raise its error; MachineLost after STALL_S."""
    outcome = queue.SimpleQueue[Any]()

    def wait() -> None:
        try:
            outcome.put(value.fetch())
        except Exception as error:  # handed to the thread that asked
            outcome.put(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        numbers = outcome.get(timeout=STALL_S)
    except queue.Empty:
        raise MachineLost(
            f"A worker must make an update within {STALL_S:g} s. Received none. Mend the machine "
            "that no longer answers and start the same command on every machine again."
        ) from None
    if isinstance(numbers, Exception):
        raise numbers
    return np.asarray(numbers, np.float32)


def random_batches(
    split: Split | Photographs, batch_size: int, shift: int | None
) -> tf.data.Dataset:
    """Endless random batches; arrays in memory travel with the graph, photographs' paths do.

    Every pass over the data has a new order, and every machine orders of its own.
    """
    seed = tf.raw_ops.NonDeterministicInts(shape=[2], dtype=tf.int64)
    if isinstance(split, Photographs):
        tf.compat.v1.set_random_seed(1)  # of this graph: beside 0, tf.data takes no tensor as seed
        return split.shuffled_dataset(batch_size, seed[0], augment=shift is not None)
    if isinstance(split, Whitened):
        raise UserError(
            "Asynchronous workers take pictures as they are stored. Received: whitened ones. Train "
            "synchronously, without --asynchronous."
        )
    x, y = tf.constant(split.x), tf.constant(split.y)

    def batch(index: Any, number: Any) -> tuple[Any, Any]:
        images, targets = tf.gather(x, index), tf.gather(y, index)
        if not isinstance(split, Pictures):
            return images, targets
        standard = (tf.cast(images, tf.float32) / 255 - split.mean) / split.std
        if shift is not None:
            standard = _crop_flip(standard, shift, tf.stack([seed[1], number]))
        return standard, tf.cast(targets, tf.int32)

    def order(epoch: Any) -> tf.data.Dataset:
        numbers = tf.range(len(split), dtype=tf.int64)
        shuffled = tf.random.experimental.stateless_shuffle(numbers, tf.stack([seed[0], epoch]))
        return tf.data.Dataset.from_tensor_slices(shuffled)

    indices = tf.data.Dataset.counter().flat_map(order).batch(batch_size, drop_remainder=True)
    numbered = tf.data.Dataset.zip(indices, tf.data.Dataset.counter())
    return numbered.map(batch, num_parallel_calls=2).prefetch(2)


def _crop_flip(x: Any, shift: int, seed: Any) -> Any:
    """Pad, random crop, random horizontal flip (He et al. 2015, section 4.2); [b, h, w, c]."""
    b, h, w, _ = x.shape
    padded = tf.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    draws = tf.random.stateless_uniform((3, b), seed, maxval=(1 << 16), dtype=tf.int32)
    rows, columns = (PAD - shift + draws[i, :, None] % (2 * shift + 1) for i in range(2))
    forward = tf.range(w)
    across = tf.where(draws[2, :, None] % 2 == 0, forward, forward[::-1])
    cropped = tf.gather(padded, rows + tf.range(h), axis=1, batch_dims=1)
    return tf.gather(cropped, columns + across, axis=2, batch_dims=1)
