"""What a network was like just before its loss stopped being finite: norms, block by block.

Imports Keras at the top: import this module inside the functions that train.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from numpy.typing import NDArray

from pipelines import feed, optimizer, resuming

if TYPE_CHECKING:
    from pipelines.checkpoints import Saving
    from pipelines.training_job import Job


def norms(job: Job, step: int, saving: Saving | None) -> dict[str, float]:
    """Norms `weight_norm/BLOCK` and `gradient_norm/BLOCK` of the last step whose loss was finite.

    The steps since the last checkpoint are repeated: each is a function of seed and step. `step`
    is the number of that step, from 1; nothing is known where the first loss was not finite.
    """
    if step == 0:
        return {}
    model = job.model()
    found = saving.latest(before=step) if saving else None
    start = found.step if found else 0
    if found:
        with job.place.scope():
            resuming.restore(model, found.arrays, *resuming.LASTING)
    if start < step - 1:
        _repeat(job, model, start, step - 1)
    before = _weights(model)
    pieces, rate = job.recipe.accumulate, optimizer.RateTable(np.ones(1))
    accumulated = optimizer.AccumulatedSGD(rate, pieces=pieces)
    sgd = accumulated if pieces > 1 else optimizer.MomentumSGD(rate)
    with job.place.scope():
        model.compile(sgd, model.loss)  # one step of rate 1 takes away the gradient
    _repeat(job, model, step - 1, step)
    after = _weights(model)
    gradient = {path: before[path] - after[path] for path in before}
    found_norms = _by_block("weight_norm", before) | _by_block("gradient_norm", gradient)
    return {name: norm for name, norm in found_norms.items() if np.isfinite(norm)}


def _repeat(job: Job, model: keras.Model, start: int, stop: int) -> None:
    """Steps start, ..., stop - 1 again, with nothing recorded."""
    batches = feed.train(job.recipe, job.splits.train, start, stop)
    count = (stop - start) * job.recipe.accumulate
    model.fit(batches, steps_per_epoch=count, shuffle=False, verbose=0)


def _weights(model: keras.Model) -> dict[str, NDArray[Any]]:
    return {v.path: keras.ops.convert_to_numpy(v).astype(float) for v in model.trainable_variables}


def _by_block(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Euclidean norm of all arrays of a block: layers that share a name up to its last `_`."""
    blocks: dict[str, Sequence[NDArray[Any]]] = {}
    for path, array in arrays.items():
        layer = path.partition("/")[0]
        block = layer.rpartition("_")[0] or layer
        blocks[block] = [*blocks.get(block, []), array]
    return {
        f"{name}/{block}": float(np.sqrt(sum(np.sum(array**2) for array in found)))
        for block, found in blocks.items()
    }
