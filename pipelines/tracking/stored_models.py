"""The models that runs stored: found, checked to be of our own form, and read anew.

Nothing of a model is loaded before `model_files` has checked its files: another could run programs.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import UserError
from pipelines.tracking.store import client, download, top_files


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

        import keras_models.memorizer  # noqa: F401 - Keras looks for its layer
        from pipelines.tracking import model_files

        network = folder / model_files.NETWORK
        return keras.models.load_model(network, compile=False, safe_mode=True)


def check(model_id: str) -> None:
    """Raise UserError for a stored model that is not as this project stores one."""
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
        except ValueError as error:
            raise UserError(
                f"{model_files.RULE} Received: in model {model_id}, {error}. Delete the run that "
                "has it, or train it again with --force."
            ) from error
        yield folder
