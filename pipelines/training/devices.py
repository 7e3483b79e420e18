"""Devices: which ones of this machine share the batches of a recipe.

Imports Keras at the top: import this module inside the functions that train.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from pipelines.errors import UserError
from pipelines.training import tf_config

SEEDS_APART = 0x9E3779B9  # odd: no two devices draw alike


@dataclass(frozen=True)
class Place:
    """The place where a recipe trains: equal devices of one machine that share every batch."""

    replicas: int
    kind: str  # CPU, NVIDIA H100
    strategy: Any = None  # TensorFlow's, or Keras's distribution on JAX
    shares_wishes: ClassVar[bool] = False
    """Whether the logs of a step tell what a machine wishes, as several have to act alike."""

    def __str__(self) -> str:
        return f"{self.replicas} {self.kind}"

    @property
    def is_accelerator(self) -> bool:
        """Whether the devices are no CPUs."""
        return self.kind != "CPU"

    @property
    def alone(self) -> bool:
        """Whether one device of one machine trains."""
        return self.replicas == 1

    def scope(self) -> Any:
        """Return what a network is built and read in."""
        if keras.backend.backend() == "jax":
            keras.distribution.set_distribution(self.strategy)  # which clear_session drops
            return contextlib.nullcontext()
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()


def place(count: int | None) -> Place:
    """Return so many devices of this machine; None: every GPU, else one CPU device.

    MirroredStrategy or, on JAX, DataParallel shares batches among several.

    Call it before anything else starts the backend: several CPU devices can be made only then.
    UserError where TF_CONFIG names several machines, which `multi_machine` has.
    """
    if role := tf_config.role():
        raise UserError(
            "Several machines train one recipe, once, by `python -m pipelines run`. Received: "
            f"a TF_CONFIG with {role.workers} machines. Unset TF_CONFIG."
        )
    backends = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
    return backends[keras.backend.backend()](count)


@contextlib.contextmanager
def act_on_whole_batches(layers: Iterable[keras.Layer], place: Place) -> Iterator[None]:
    """Let layers act on the whole batch that several devices of TensorFlow share, in the block.

    Batch normalization takes the moments of all of it, so that every device keeps the same; dropout
    drops other entries on each. A network that is stored afterwards has nothing of this.
    """
    several = place.replicas > 1 and keras.backend.backend() == "tensorflow"
    chosen = list(layers) if several else []
    normalizing = [each for each in chosen if isinstance(each, keras.layers.BatchNormalization)]
    seeds = [each.seed_generator for each in chosen if isinstance(each, keras.layers.Dropout)]
    for layer in normalizing:
        layer.synchronized = True
    for seed in seeds:
        seed.next = functools.partial(_next_seed, seed.next)
    try:
        yield
    finally:
        for layer in normalizing:
            layer.synchronized = False
        for seed in seeds:
            del seed.next


def _next_seed(draw: Callable[..., Any], **options: Any) -> Any:
    """Return the next seed, another one on every device."""
    import tensorflow as tf

    seed = draw(**options)
    device = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, seed.dtype)
    return seed + tf.stack([device * SEEDS_APART, tf.zeros_like(device)])


def _choose(count: int | None, gpus: int) -> int:
    """Return how many devices train. UserError where they are not there."""
    if gpus and (count or 1) > gpus:
        raise UserError(
            f"devices must be at most the number of GPUs. Received: devices={count} with "
            f"{gpus} GPUs visible. Set --devices {gpus} or leave it out."
        )
    return count or max(1, gpus)


def _tensorflow(wanted: int | None) -> Place:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    count = _choose(wanted, len(gpus))
    if count == 1:
        return Place(1, gpu_kind(), tf.distribute.get_strategy())
    names = [gpu.name.removeprefix("/physical_device:") for gpu in gpus] or _logical_cpus(count)
    return Place(count, gpu_kind(), tf.distribute.MirroredStrategy(names[:count]))


def gpu_kind() -> str:
    """Return what TensorFlow calls the GPUs here; CPU without any."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    return str(details.get("device_name", "CPU"))


def _logical_cpus(count: int) -> list[str]:
    """Return the names of `count` logical CPU devices, to try data parallelism without a GPU."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, configuration)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise _too_late(count) from error
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def _jax(wanted: int | None) -> Place:
    import jax

    if (wanted or 1) > 1:
        with contextlib.suppress(RuntimeError):  # too late, which matters on a CPU alone
            jax.config.update("jax_num_cpu_devices", wanted)
    jax_devices = jax.devices()
    accelerated = jax_devices[0].platform != "cpu"
    count = _choose(wanted, len(jax_devices) if accelerated else 0)
    if count > len(jax_devices):
        raise _too_late(count)
    names = [f"{device.platform}:{device.id}" for device in jax_devices[:count]]
    several = keras.distribution.DataParallel(devices=names) if count > 1 else None
    return Place(count, jax_devices[0].device_kind if accelerated else "CPU", several)


def _torch(wanted: int | None) -> Place:
    import torch

    if (wanted or 1) > 1:
        raise UserError(
            f"On PyTorch one device trains. Received: devices={wanted} with "
            "KERAS_BACKEND=torch. Set --devices 1, or take the backend tensorflow or jax."
        )
    return Place(1, torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU")


def _too_late(count: int) -> UserError:
    return UserError(
        f"devices must be chosen before {keras.backend.backend()} starts. Received: devices="
        f"{count} in a process that has trained already. Run this recipe in a process of its own."
    )
