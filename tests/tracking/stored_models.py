"""Trainings with a stored network, and models that would run a program where they are loaded."""

import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pipelines.recipes.catalog import get_recipe
from pipelines.running.run import EXPERIMENT
from pipelines.tracking import store, stored_models, tracked_run

RECIPE, SCALE = "mlp-digits", "smoke"


@functools.cache
def network(*shape: int) -> Any:
    """A small network for the digits, or for inputs of another shape."""
    from pipelines.runtime import backend

    backend.keras()
    import keras_models

    return keras_models.build("mlp", shape or (8, 8, 1), 10, depth=1, width=8)


def record_training(*shape: int) -> str:
    """The id of a finished training of RECIPE with such a network."""
    recipe = get_recipe(RECIPE, SCALE).override(train_examples=64)
    tags = {"recipe": RECIPE, "source": recipe.source, "run_as": f"{RECIPE} {SCALE}"}
    with tracked_run.track(
        "net", experiment=EXPERIMENT, kind="training", params=recipe.flat(), tags=tags
    ) as run:
        run.log({"val_error_pct": 8.0, "best_val_error_pct": 8.0, "val_loss": 1.0})
        run.model(network(*shape))
    return run.id


def folder_of(run_id: str) -> Path:
    """Where this store keeps the model of a run."""
    model = store.client().get_logged_model(stored_models.find_id(run_id))
    return Path(model.artifact_location.removeprefix("file://"))


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a YAML file in place."""
    document = yaml.safe_load(path.read_text())
    edit(document)
    path.write_text(yaml.safe_dump(document))


def saved_model(folder: Path, marker: Path) -> None:
    """Put a graph of TensorFlow in place of the network, which writes a file when it is loaded."""
    import tensorflow as tf

    class Table(tf.saved_model.experimental.TrackableResource):  # type: ignore[misc]
        def _create_resource(self) -> Any:
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.string)

        def _initialize(self) -> None:
            tf.io.write_file(str(marker), "program")

    module = tf.Module()
    module.table = Table()

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1])])  # type: ignore[misc]
    def serve(x: Any) -> Any:
        return tf.convert_to_tensor(module.table.resource_handle) is not None and x

    module.serve = serve
    tf.saved_model.save(module, str(folder / "data/model"))
    (folder / "data/model.keras").unlink()
    edit = {"save_exported_model": True}
    change(folder / "MLmodel", lambda document: document["flavors"]["keras"].update(edit))


class Program:
    """What writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.marker, "program"))


def write_pickle(folder: Path, marker: Path) -> None:
    """Let MLflow load a pickle in place of the network."""
    (folder / "model.pkl").write_bytes(pickle.dumps(Program(marker)))

    def edit(document: dict[str, Any]) -> None:
        python = {"loader_module": "mlflow.sklearn", "model_path": "model.pkl"}
        document["flavors"]["python_function"].update(python)
        document["flavors"]["sklearn"] = {
            "pickled_model": "model.pkl",
            "serialization_format": "pickle",
            "sklearn_version": "1.9.1",
        }

    change(folder / "MLmodel", edit)


HOSTILE = {"saved model": saved_model, "pickle": write_pickle}
