"""Tasks: what a network is trained for; the splits of a data set know theirs.

To add one, write its numbers and name them in a Task: `x` becomes train_x, val_x and test_x.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Number = Callable[[Any, Any], Any]  # targets [b, ...], outputs [b, k] -> one number an example [b]
OfModel = Callable[[Any], Mapping[str, float]]  # a network -> numbers of it by name


@dataclass(frozen=True)
class Task:
    """Numbers whose means over a split are recorded.

    `numbers["loss"]` is the one trained on; the least validation value of `watched` is kept.
    `of_model` makes numbers of the network itself, recorded at every validation.
    """

    numbers: Mapping[str, Number]
    watched: str
    of_model: OfModel | None = None


def cross_entropy(labels: Any, logits: Any) -> Any:
    """Return the cross entropy of labels [b] under softmax(logits [b, k]); [b]."""
    import keras

    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def smoothed_cross_entropy(labels: Any, logits: Any, share: float) -> Any:
    """Return the cross entropy if labels give `share` of their weight to all classes alike; [b].

    Szegedy et al. 2016 (arXiv 1512.00567), section 7.
    """
    import keras

    one_hot = keras.ops.one_hot(keras.ops.cast(labels, "int32"), logits.shape[-1])
    return keras.losses.categorical_crossentropy(
        one_hot, logits, from_logits=True, label_smoothing=share
    )


def error_pct(labels: Any, logits: Any) -> Any:
    """Return 100 where the largest logit [b, k] is not the label's [b], else 0; [b]."""
    from keras import ops

    return 100 * ops.cast(ops.argmax(logits, axis=-1) != ops.cast(labels, "int32"), logits.dtype)


def top5_error_pct(labels: Any, logits: Any) -> Any:
    """Return 100 where the label [b] is not among the five largest logits [b, k], else 0; [b]."""
    from keras import ops

    _, best = ops.top_k(logits, 5)
    is_among_best = ops.any(best == ops.cast(labels, best.dtype)[:, None], axis=-1)
    return 100 * (1 - ops.cast(is_among_best, logits.dtype))


def squared_error(targets: Any, outputs: Any) -> Any:
    """Return |h(x) - y|^2, summed over the outputs [b, k]; [b]. Its mean is HM section 2's f."""
    from keras import ops

    return ops.sum(ops.square(outputs - targets), axis=-1)


CLASSIFICATION = Task({"loss": cross_entropy, "error_pct": error_pct}, watched="error_pct")
TOP5 = Task(
    {"loss": cross_entropy, "error_pct": error_pct, "top5_error_pct": top5_error_pct},
    watched="error_pct",
)
REGRESSION = Task({"loss": squared_error}, watched="loss")

MEAN = "mean_"  # begins Keras's name of a task's number; Keras's own "loss" holds the decay too
