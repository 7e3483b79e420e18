"""What test_backends.py has done in a process of its own, on the backend that KERAS_BACKEND names.

`python -m tests.training.on_backend FOLDER TASKS`, where TASKS is JSON:
[["name of a function", {arguments}]].
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import Diverged, UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.runtime import backend
from pipelines.training.checkpoints import Checkpoint, Saving
from tests.training.trainings import Killed, Log, trained

RATE, MOMENTUM, DECAY = 0.1, 0.9, 1e-2


def recipe(changes: Mapping[str, Any]) -> Any:
    return get_recipe("allconv-digits", "smoke").override(**{"steps": 20, **changes})


def job(changes: Mapping[str, Any]) -> Any:
    from pipelines.data import datasets
    from pipelines.training import devices
    from pipelines.training.job import build_job

    chosen = recipe(changes)
    place = devices.place(chosen.devices)
    return build_job(chosen, datasets.load(chosen.data, chosen.train_examples), place)


def training(
    folder: Path, name: str, stop_at: int | None = None, every: int | None = None, **changes: Any
) -> None:
    """Train; goes on from the checkpoints FOLDER/NAME, and writes NAME.npz and NAME.json.

    With `stop_at`, it is stopped at that step; then, or where it diverges, only NAME.json.
    """
    log = Log(stop_at)
    try:
        saving = Saving(folder / name, every) if every else None
        model = trained(recipe(changes), log, saving).model
        np.savez(folder / f"{name}.npz", *map(array, model.variables))
    except (Killed, Diverged, UserError) as error:
        log.curves[f"{type(error).__name__}: {error}"] = {}
    (folder / f"{name}.json").write_text(json.dumps(log.curves))


def start(folder: Path, name: str, **changes: Any) -> None:
    """Write a checkpoint of step 0, from which any backend trains."""
    from pipelines.training import callbacks

    note = {"busy_s": 0.0, "timed": 0, "best_val": np.inf, "summed": 0.0, "counted": 0}
    note |= {"step": 0, "last": {}, "wall_s": 0.0}
    arrays = callbacks.capture(job(changes).model())
    Saving(folder / name).write(Checkpoint(0, note, arrays))


def batches(folder: Path, name: str, **changes: Any) -> None:
    """Write all batches of steps 3 to 11, which begin a second epoch, and of the validation set."""
    from pipelines.training import input_pipeline

    own = job(changes)
    found = [*input_pipeline.train(own.recipe, own.splits.train, 3, 12)]
    held_out = input_pipeline.evaluation(own.recipe, own.splits.val, 2)
    found += [held_out[i] for i in range(len(held_out))] if hasattr(held_out, "count") else held_out
    np.savez(folder / f"{name}.npz", *(np.asarray(part) for batch in found for part in batch))


def steps(folder: Path, names: list[str]) -> None:
    """One step of every architecture from given weights, on given data; writes NAME-BACKEND.npz."""
    import keras

    from pipelines.training.optimizer import MomentumSGD, add_weight_decay
    from tests.keras_models.networks import tiny

    for name in names:
        given = np.load(folder / f"{name}.npz")
        model = tiny(name)
        model.set_weights([given[f"w{i}"] for i in range(len(model.weights))])
        add_weight_decay(model, DECAY)
        logits = array(model(given["x"], training=False))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(MomentumSGD(RATE, momentum=MOMENTUM), loss)
        model.train_on_batch(given["x"], given["y"])
        weights = {weight.path: array(weight) for weight in model.weights}
        np.savez(folder / f"{name}-{backend.name()}.npz", logits=logits, **weights)


def masks(folder: Path, name: str) -> None:
    """Write what dropout leaves of ones on two devices of TensorFlow, in the block and after it."""
    import keras
    import tensorflow as tf

    from pipelines.training import devices

    place = devices.place(2)
    with place.scope():
        layer = keras.layers.Dropout(0.5, seed=0)

    def drop() -> list[Any]:
        step = tf.function(lambda: layer(tf.ones(1_000), training=True))
        return [np.asarray(part) for part in place.strategy.run(step).values]

    with devices.act_on_whole_batches([layer], place):
        apart = drop()
    np.savez(folder / f"{name}.npz", *apart, *drop())


def array(variable: Any) -> Any:
    import keras

    return keras.ops.convert_to_numpy(variable)


if __name__ == "__main__":
    backend.keras()
    for function, arguments in json.loads(sys.argv[2]):
        globals()[function](Path(sys.argv[1]), **arguments)
