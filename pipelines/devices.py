"""Devices: which ones share the batches of a recipe.

Imports TensorFlow at the top: import this module inside the functions that train.
"""

from typing import Any

import tensorflow as tf

from pipelines.errors import UserError
from pipelines.recipes import Recipe


def strategy(recipe: Recipe) -> Any:
    """MirroredStrategy over the recipe's devices; the default strategy for a single one.

    Call it before anything else starts TensorFlow: logical CPU devices can be made only then.
    """
    names = [gpu.name.removeprefix("/physical_device:") for gpu in gpus()]
    count = recipe.devices or max(1, len(names))
    if recipe.batch_size % count:
        raise UserError(
            f"batch_size must be a multiple of the number of devices. Received: batch_size="
            f"{recipe.batch_size} for {count} devices. Set --batch-size or --devices accordingly."
        )
    if count == 1:
        return tf.distribute.get_strategy()
    if names and count > len(names):
        raise UserError(
            f"devices must be at most the number of GPUs. Received: devices={count} with "
            f"{len(names)} GPUs visible. Set --devices {len(names)} or leave it out."
        )
    return tf.distribute.MirroredStrategy((names or _logical_cpus(count))[:count])


def gpus() -> list[Any]:
    return list(tf.config.list_physical_devices("GPU"))


def describe(strategy: Any) -> str:
    """`1 CPU`, `8 NVIDIA H100`: what shared the batches."""
    details = tf.config.experimental.get_device_details(gpus()[0]) if gpus() else {}
    return f"{strategy.num_replicas_in_sync} {details.get('device_name', 'CPU')}"


def _logical_cpus(count: int) -> list[str]:
    """Names of `count` logical CPU devices, for trying data parallelism without a GPU."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(cpu, configuration)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise UserError(
                f"devices must be chosen before TensorFlow starts. Received: devices={count} in a "
                "process that has trained already. Run this recipe in a process of its own."
            ) from error
    return [device.name for device in tf.config.list_logical_devices("CPU")]
