"""The same recipes on JAX and PyTorch, and on a machine without TensorFlow.

Every other backend runs in a process of its own: Keras has one a process.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_models
from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.runtime import backend
from pipelines.tracking import history
from tests.conftest import ROOT
from tests.training import on_backend

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: make backends installs it",
)
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: make test installs it"
)
OTHERS = [pytest.param("jax", marks=needs_jax), pytest.param("torch", marks=needs_torch)]
WITHOUT = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
hidden = ("tensorflow", "tensorflow_datasets")
PathFinder.find_spec = lambda name, *more: None if name in hidden else find(name, *more)
"""
TRAINING = "training"


@pytest.fixture(scope="session")
def packed_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the digits in one file and nothing else."""
    prepared, folder = (tmp_path_factory.mktemp(name) for name in ("prepared", "packed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(prepared))
        datasets.get("digits").prepare()
        shutil.move(datasets.get("digits").pack(), folder)
    return folder


@pytest.fixture(scope="session")
def elsewhere(packed_digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process on JAX that cannot import TensorFlow."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "sitecustomize.py").write_text(WITHOUT)
    return {
        "KERAS_BACKEND": "jax",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "TFDS_DATA_DIR": str(packed_digits),
        # so that equal programs are compiled once
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def python(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def perform(environment: dict[str, str], folder: Path, *tasks: tuple[str, dict[str, Any]]) -> None:
    """Have functions of on_backend.py called, one after another, in one process."""
    done = python(environment, "-m", "tests.training.on_backend", str(folder), json.dumps(tasks))
    assert done.returncode == 0, done.stderr


def arrays(folder: Path, name: str) -> list[np.ndarray]:
    return list(np.load(folder / f"{name}.npz").values())


def logged(folder: Path, name: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads((folder / f"{name}.json").read_text())
    return found


def equal(folder: Path, one: str, other: str) -> bool:
    return all(map(np.array_equal, arrays(folder, one), arrays(folder, other)))


def assert_close(folder: Path, one: str, other: str) -> None:
    """Equal to 1e-4 of the largest entry of every array."""
    for expected, found in zip(arrays(folder, one), arrays(folder, other), strict=True):
        error, largest = np.max(np.abs(found - expected)), np.max(np.abs(expected))
        assert error <= 1e-4 * largest


@pytest.fixture(scope="module")
def both(
    elsewhere: dict[str, str], packed_digits: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What JAX, without TensorFlow, and TensorFlow did from the same start."""
    folder = tmp_path_factory.mktemp("both")
    drawn = {"accumulate": 2, "augment": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(packed_digits))
        on_backend.start(folder, "tensorflow")
        for name in ("jax", "stopped"):
            shutil.copytree(folder / "tensorflow", folder / name)
        on_backend.batches(folder, "tensorflow_batches", **drawn)
        on_backend.training(folder, "tensorflow", every=6)
    perform(
        elsewhere,
        folder,
        ("batches", {"name": "jax_batches", **drawn}),
        (TRAINING, {"name": "jax", "every": 100}),
        (TRAINING, {"name": "stopped", "every": 3, "stop_at": 11}),
        (TRAINING, {"name": "stopped", "every": 3}),
    )
    return folder


@pytest.mark.slow
@needs_jax
def test_batches_are_bit_equal_on_every_backend(both: Path) -> None:
    assert len(arrays(both, "jax_batches")) == 9 * 2 * 2 + 1 * 3
    assert equal(both, "tensorflow_batches", "jax_batches")


@pytest.mark.slow
@needs_jax
def test_jax_trains_without_tensorflow_to_the_same_weights_and_curves(both: Path) -> None:
    assert_close(both, "tensorflow", "jax")
    one, two = logged(both, "tensorflow"), logged(both, "jax")
    assert one.keys() == two.keys()
    for name in ("batch_loss", "val_loss", "test_loss"):
        assert two[name] == pytest.approx(one[name], rel=1e-4)


@pytest.mark.slow
@needs_jax
def test_a_stopped_training_ends_with_equal_weights_on_jax(both: Path) -> None:
    assert equal(both, "jax", "stopped")
    whole, resumed = logged(both, "jax"), logged(both, "stopped")
    assert list(resumed["batch_loss"]) == [str(step) for step in range(10, 21)]  # 9 was saved
    assert resumed["batch_loss"].items() <= whole["batch_loss"].items()
    assert resumed["train_loss"].items() <= whole["train_loss"].items()


@pytest.mark.slow
def test_a_missing_backend_is_one_sentence(elsewhere: dict[str, str], home: Path) -> None:
    missing = elsewhere | {"KERAS_BACKEND": "tensorflow"}
    done = python(missing, "-m", "pipelines", "run", "allconv-digits", "--scale", "smoke")
    assert done.returncode == 2
    _begun, said = done.stderr.splitlines()
    assert said.startswith("error: KERAS_BACKEND must name an installed backend")
    assert history.rows() == []


def test_data_that_are_not_packed_need_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for name in ("tensorflow", "tensorflow_datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"only packed data are read.*data pack "):
        datasets.load("digits")


LOADED = """
import sys, keras, mlflow.keras, numpy as np
from pipelines.data import datasets
from pipelines.tracking import store
store.client()
model = mlflow.keras.load_model(f"runs:/{sys.argv[1]}/model")
test = datasets.load("digits").test
logits = keras.ops.convert_to_numpy(model(test.images.astype("float32")))
print(100 * float(np.mean(np.argmax(logits, axis=-1) != test.labels)))
"""


@pytest.mark.slow
@needs_jax
def test_tracking_and_report_work_without_tensorflow(
    elsewhere: dict[str, str], home: Path, tmp_path: Path
) -> None:
    words = ("run", "allconv-digits", "--scale", "smoke", "--json")
    done = python(elsewhere, "-m", "pipelines", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "oneDNN" not in done.stderr
    (row,) = history.rows("FINISHED")
    assert row.tags["device"] == "1 CPU"
    assert row.metrics["test_loss"] > 0
    loaded = python(elsewhere, "-c", LOADED, document["run_id"])
    assert loaded.returncode == 0, loaded.stderr
    assert float(loaded.stdout.split()[0]) == pytest.approx(row.metrics["test_error_pct"])
    (needed,) = home.rglob("requirements.txt")
    names = {line.partition("==")[0] for line in needed.read_text().split()}
    assert names == {"keras", "jax", "mlflow"}
    report = python(elsewhere, "-m", "pipelines", "report", "--out", str(tmp_path))
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "RESULTS.md").exists()


@pytest.mark.slow
@needs_jax
def test_two_jax_devices_equal_one(elsewhere: dict[str, str], tmp_path: Path) -> None:
    two = {"devices": 2, "every": 3}
    perform(
        elsewhere,
        tmp_path,
        (TRAINING, {"name": "two", **two}),
        (TRAINING, {"name": "stopped", **two, "stop_at": 11}),
        (TRAINING, {"name": "stopped", **two}),
        (TRAINING, {"name": "one", "devices": 1}),
        (TRAINING, {"name": "pieces", "accumulate": 4}),
        (TRAINING, {"name": "four", "devices": 4}),
        (TRAINING, {"name": "three", "devices": 3}),
    )
    assert_close(tmp_path, "one", "two")
    assert_close(tmp_path, "one", "pieces")
    assert equal(tmp_path, "two", "stopped")
    (sentence,) = logged(tmp_path, "four")
    assert "devices must be chosen before jax starts. Received: devices=4" in sentence
    (sentence,) = logged(tmp_path, "three")
    assert "batch_size must be a multiple of the number of devices" in sentence


@pytest.mark.slow
def test_two_tensorflow_devices_act_on_the_whole_batch(packed_digits: Path, tmp_path: Path) -> None:
    habits = {"ema": 0.9, "accumulate": 2}
    normalized = {**habits, "model_args": {"batch_norm": True}}
    dropping = {"batch_norm": True, "dropout": 0.5}
    two = {**habits, "model_args": dropping, "devices": 2, "every": 3}
    perform(
        {"KERAS_BACKEND": "tensorflow", "TFDS_DATA_DIR": str(packed_digits)},
        tmp_path,
        (TRAINING, {"name": "two", **normalized, "devices": 2}),
        (TRAINING, {"name": "one", **normalized, "devices": 1}),
        (TRAINING, {"name": "whole", **two}),
        (TRAINING, {"name": "stopped", **two, "stop_at": 11}),
        (TRAINING, {"name": "stopped", **two}),
        ("masks", {"name": "masks"}),
    )
    assert_close(tmp_path, "one", "two")
    assert equal(tmp_path, "whole", "stopped")
    curves, pieces = logged(tmp_path, "whole"), logged(tmp_path, "stopped")
    for name in ("val_loss", "val_error_pct", "test_loss", "final_train_loss"):
        assert pieces[name].items() <= curves[name].items()
    one, other, *alone = arrays(tmp_path, "masks")
    assert np.any(one != other)  # each device drops other entries
    assert np.array_equal(*alone)  # and nothing of that is left behind


@pytest.mark.slow
@needs_jax
def test_many_steps_in_one_program_on_jax_are_the_steps_of_the_host(
    elsewhere: dict[str, str], tmp_path: Path
) -> None:
    habits = {"augment": True, "ema": 0.9, "label_smoothing": 0.1}
    device = {**habits, "pictures": "device", "steps_per_execution": 4}
    perform(
        elsewhere,
        tmp_path,
        (TRAINING, {"name": "host", **habits}),
        (TRAINING, {"name": "device", **device}),
        (TRAINING, {"name": "stopped", **device, "every": 4, "stop_at": 12}),
        (TRAINING, {"name": "stopped", **device, "every": 4}),
    )
    assert_close(tmp_path, "host", "device")
    assert equal(tmp_path, "device", "stopped")
    host, device_log = logged(tmp_path, "host"), logged(tmp_path, "device")
    assert list(device_log["batch_loss"]) == ["4", "8", "12", "16", "20"]
    for name in ("train_loss", "val_loss", "test_loss"):
        assert device_log[name] == pytest.approx(host[name], rel=1e-4)


@pytest.mark.slow
@needs_jax
def test_random_layers_and_normalization_are_resumed_on_jax(
    elsewhere: dict[str, str], tmp_path: Path
) -> None:
    dense = {"depth": 10, "growth": 4, "dropout": 0.2}
    recipe = {"model": "densenet", "model_args": dense, "weight_decay": 1e-4, "accumulate": 2}
    recipe["ema"] = 0.99
    perform(
        elsewhere,
        tmp_path,
        (TRAINING, {"name": "whole", **recipe}),
        (TRAINING, {"name": "stopped", **recipe, "every": 3, "stop_at": 11}),
        (TRAINING, {"name": "stopped", **recipe, "every": 3}),
    )
    assert equal(tmp_path, "whole", "stopped")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", *OTHERS])
def test_mixed_precision_follows_float32_and_is_resumed(
    backend: str, elsewhere: dict[str, str], packed_digits: Path, tmp_path: Path
) -> None:
    recipe = {"weight_decay": 1e-2, "accumulate": 2}
    mixed = {"name": "mixed", "precision": "mixed_bfloat16", **recipe}
    stopped = {**mixed, "name": "stopped", "every": 3}
    tasks = [mixed, {**stopped, "stop_at": 11}, stopped, {"name": "float32", **recipe}]
    environment = elsewhere | {"KERAS_BACKEND": backend}
    if backend == "tensorflow":
        environment["PYTHONPATH"] = str(ROOT)
    perform(environment, tmp_path, *[(TRAINING, task) for task in tasks])
    assert equal(tmp_path, "mixed", "stopped")
    found, whole = logged(tmp_path, "mixed"), logged(tmp_path, "float32")
    assert found.keys() == whole.keys()
    assert list(found["batch_loss"]) == list(whole["batch_loss"])
    for name in ("batch_loss", "train_loss", "test_loss"):
        assert found[name] == pytest.approx(whole[name], rel=0.02)
    for one, other in zip(arrays(tmp_path, "float32"), arrays(tmp_path, "mixed"), strict=True):
        assert other.dtype == np.float32
        assert np.linalg.norm(other - one) <= 0.05 * np.linalg.norm(one)


@pytest.mark.slow
@needs_torch
def test_torch_trains_without_tensorflow(elsewhere: dict[str, str], home: Path) -> None:
    environment = elsewhere | {"KERAS_BACKEND": "torch"}
    words = ("-m", "pipelines", "run", "allconv-digits", "--scale", "smoke")
    done = python(environment, *words)
    assert done.returncode == 0, done.stderr
    (row,) = history.rows("FINISHED")
    assert row.metrics["test_loss"] > 0
    refused = python(environment, *words, "--devices", "2")
    assert refused.returncode == 2
    assert "On PyTorch one device trains" in refused.stderr


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, data and TensorFlow's step of every architecture."""
    from tests.keras_models.networks import tiny

    folder = tmp_path_factory.mktemp("steps")
    for name in keras_models.names():
        model = tiny(name)
        classes, rng = model.output_shape[-1], np.random.default_rng(0)
        weights = {f"w{i}": weight for i, weight in enumerate(model.get_weights())}
        x = rng.standard_normal((8, *model.input_shape[1:])).astype("float32")
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(8) % classes, **weights)
    on_backend.steps(folder, keras_models.names())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("backend", OTHERS)
def test_backends_agree_on_logits_and_a_step_of_every_architecture(
    backend: str, one_step: Path, elsewhere: dict[str, str]
) -> None:
    environment = elsewhere | {"KERAS_BACKEND": backend}
    perform(environment, one_step, ("steps", {"names": keras_models.names()}))
    for name in keras_models.names():
        before = np.load(one_step / f"{name}.npz")
        after = arrays(one_step, f"{name}-tensorflow")[1:]
        assert any(np.any(before[f"w{i}"] != weight) for i, weight in enumerate(after))
        assert_close(one_step, f"{name}-tensorflow", f"{name}-{backend}")


def test_the_backend_is_tensorflow_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert backend.name() == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "")  # for Keras, too, as if unset
    assert backend.name() == "tensorflow"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert backend.name() == "jax"
