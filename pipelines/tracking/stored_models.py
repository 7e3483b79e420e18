"""The models that runs stored: found, checked to be of our own form, and read anew.

Nothing of a model is loaded before `model_files` has checked its files: another could run programs.
"""

import contextlib
import json
import math
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, short
from pipelines.runtime import backend
from pipelines.tracking.store import client, download, top_files

MOST_OUTPUTS = 1 << 21  # numbers of one layer for one input: those of the recipes make 0.8 million


def find_id(run_id: str) -> str | None:
    """Return the id of the whole model that a run stored last; None if it has none."""
    experiment = client().get_run(run_id).info.experiment_id
    newest = [{"field_name": "creation_time", "ascending": False}]
    models = client().search_logged_models(
        [experiment], f"source_run_id = '{run_id}'", order_by=newest
    )
    return next((str(model.model_id) for model in models if model.status == "READY"), None)


def load(model_id: str) -> Any:
    """Return the network of a stored model, read anew. Import Keras first (runtime/backend.py)."""
    with _fetch_checked(model_id) as folder:
        import keras

        from pipelines.tracking import model_files

        network = folder / model_files.NETWORK
        return keras.models.load_model(network, compile=False, safe_mode=True)


def check(model_id: str) -> None:
    """Raise UserError for a stored model that is not as this project stores one, or too large."""
    with _fetch_checked(model_id):
        pass


@contextlib.contextmanager
def _fetch_checked(model_id: str) -> Iterator[Path]:
    """Yield a copy of the files of a stored model, once they are checked: load no other."""
    from pipelines.tracking import model_files

    location = client().get_logged_model(model_id).artifact_location
    if not top_files(location):
        raise UserError(
            f"A stored model must have its files. Received: model {model_id}, which has none at "
            f"{location}. Put them back there, or train it again with --force."
        )
    with tempfile.TemporaryDirectory() as place:
        folder = download(location, Path(place))
        try:
            model_files.check(folder)
            _check_size(folder / model_files.NETWORK)
        except ValueError as error:
            raise UserError(
                f"{model_files.RULE} Received: in model {model_id}, {error}. Delete the run that "
                "has it, or train it again with --force."
            ) from error
        yield folder


def _check_size(path: Path) -> None:
    """Raise ValueError for a network that would need much more memory than its file has bytes.

    Keras builds it without any values: no variable of it is made.
    """
    keras = backend.keras()
    with zipfile.ZipFile(path) as zipped:
        text = zipped.read("config.json")
    if b'"keras_models.memorizer"' in text:
        raise ValueError("a network with the layer ResidualBlocks, which earlier versions had")
    description = json.loads(text) | {"compile_config": None}
    try:
        with keras.StatelessScope(initialize_variables=False):
            network = keras.saving.deserialize_keras_object(description, safe_mode=True)
        weights, room = sum(math.prod(each.shape) for each in network.weights), path.stat().st_size
        outputs = [each.output for each in _layers(network) if hasattr(each, "output")]
        shapes = [tensor.shape for tensor in keras.tree.flatten(outputs)]
    except Exception as error:  # whatever Keras raises for settings that do not fit together
        raise ValueError(f"a network that Keras cannot build: {short(error)}") from error
    finally:
        keras.backend.clear_session()  # else the next model would make these variables, too
    largest = max(math.prod(size or 1 for size in shape) for shape in shapes)
    if weights > room or largest > MOST_OUTPUTS:
        raise ValueError(
            f"a network of {weights:,} weights in a file of {room:,} bytes, of which a layer makes "
            f"{largest:,} numbers of one input, where {MOST_OUTPUTS:,} are the most"
        )


def _layers(network: Any) -> Iterator[Any]:
    """Yield the layers of a network, and of the networks that are layers of it."""
    for layer in network.layers:
        yield layer
        if hasattr(layer, "layers"):
            yield from _layers(layer)
