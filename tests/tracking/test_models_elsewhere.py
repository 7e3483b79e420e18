"""Stored models open where this project is not: every architecture, by Keras and by MLflow."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_models
from pipelines.tracking import tracked_run
from tests.tracking.stored_models import folder_of

ELSEWHERE = """
import importlib.util, sys
from pathlib import Path
import keras, mlflow.pyfunc, numpy as np, tensorflow as tf

tf.config.run_functions_eagerly(True)  # which traces nothing
for module in ("keras_models", "pipelines", "tests", "theory"):
    assert importlib.util.find_spec(module) is None, module
for folder in map(Path, sys.argv[1:]):
    given = np.load(folder / "given.npz")
    network = keras.models.load_model(folder / "data/model.keras", safe_mode=True)
    np.testing.assert_array_equal(network(given["x"]), given["y"], str(folder))
    served = mlflow.pyfunc.load_model(str(folder)).predict(given["x"])
    np.testing.assert_allclose(served, given["y"], 1e-5, 1e-6, err_msg=str(folder))
"""


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_every_stored_model_opens_without_this_project(home: Path, tmp_path: Path) -> None:
    from pipelines.runtime import backend

    backend.keras()
    from tests.keras_models.networks import batch, tiny

    folders = []
    for name in keras_models.names():
        model = tiny(name)
        with tracked_run.track(name, experiment="test", kind="training") as run:
            run.model(model)
        x, _ = batch(model)
        folders.append(folder_of(run.id))
        np.savez(folders[-1] / "given.npz", x=x, y=np.asarray(model(x)))
    words = [sys.executable, "-I", "-c", ELSEWHERE, *map(str, folders)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
