"""Evaluation: the means of a task's numbers over a split, as Keras makes them.

Imports Keras at the top: import this module inside the functions that train.
"""

import math
from collections.abc import Mapping

import keras
from keras import ops

from pipelines.data.datasets import AnySplit
from pipelines.data.task_metrics import MEAN, Task
from pipelines.training.input_pipeline import CROPS


def mean_metrics(task: Task) -> list[keras.Metric]:
    """Return the means of the task's numbers."""
    return [
        keras.metrics.MeanMetricWrapper(number, name=MEAN + name)
        for name, number in task.numbers.items()
    ]


def tester(network: keras.Model, split: AnySplit, task: Task) -> keras.Model:
    """Return what is evaluated on a split: the compiled network, or its mean over ten crops."""
    if not split.ten_crops:
        return network
    averaging = average_crops(network, split.shape)
    averaging.compile(loss=task.numbers["loss"], weighted_metrics=mean_metrics(task))
    return averaging


def average_crops(network: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """Return the network for ten crops of a picture, [b, 10, h, w, c] -> [b, classes].

    Its outputs are the logarithms of the mean, over the crops, of softmax: logits of that mean.
    """
    pictures = keras.Input((CROPS, *shape))
    outputs = network(ops.reshape(pictures, (-1, *shape)))
    logs = ops.reshape(ops.log_softmax(outputs), (-1, CROPS, outputs.shape[-1]))
    return keras.Model(pictures, ops.logsumexp(logs, axis=1) - math.log(CROPS))


def rename_means(split: str, logs: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Return Keras's means over a split by our names: `{split}_{number}`."""
    start = prefix + MEAN
    return {
        f"{split}_{key.removeprefix(start)}": float(value)
        for key, value in logs.items()
        if key.startswith(start)
    }
