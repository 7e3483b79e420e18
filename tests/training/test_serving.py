"""Stored networks: pixels 0 to 255 in, probabilities out; found in MLflow by their numbers."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import mlflow
import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.splits import Pictures
from pipelines.recipes.catalog import get_recipe
from pipelines.results import evaluation
from pipelines.running.run import run
from pipelines.tracking import history, store, stored_models, tracked_run


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path, prepared_digits: Path
) -> Iterator[str]:
    """The id of a training on digits, in a home of this module."""
    folder = tmp_path_factory.mktemp("serving")
    shutil.copy(empty_database, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.setenv("TFDS_DATA_DIR", str(prepared_digits))
        yield run(get_recipe("mlp-digits", "smoke").override(steps=60)).run_id


def test_probabilities_of_pixels_and_nothing_for_other_numbers(trained: str) -> None:
    model = mlflow.pyfunc.load_model(f"runs:/{trained}/model")
    pictures = datasets.load("digits").test.images[:64].astype(np.float32)
    shares = model.predict(pictures)
    assert shares.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert (shares >= 0).all()
    for wrong in (pictures / 255, pictures - 1, pictures * 1.01, pictures * math.nan):
        bad = (wrong.max(axis=(1, 2, 3)) <= 1) | (wrong.min(axis=(1, 2, 3)) < 0)
        bad |= ~(wrong.max(axis=(1, 2, 3)) <= 255)
        answers = model.predict(wrong)
        assert bad.any()
        assert np.isnan(answers[bad]).all()
        assert not np.isnan(answers[~bad]).any()
    assert not np.isnan(model.predict(np.zeros_like(pictures[:1]))).any()


def test_a_stored_network_says_what_it_gives_and_has_an_example(trained: str) -> None:
    model_id = stored_models.find_id(trained)
    model = mlflow.pyfunc.load_model(f"models:/{model_id}")
    [output] = model.metadata.signature.outputs.inputs
    assert output.name == "probabilities"
    example = np.array(model.input_example, np.float32)
    assert example.shape == (1, 8, 8, 1)
    assert example.max() > 1
    assert model.predict(example).shape == (1, 10)


def test_the_page_of_a_run_says_how_to_ask_its_network_about_a_test_picture(trained: str) -> None:
    page = store.client().get_run(trained).data.tags[store.NOTE]
    model = mlflow.pyfunc.load_model(f"models:/{stored_models.find_id(trained)}")
    test = cast("Pictures", datasets.load("digits").test)
    assert (np.array(model.input_example) == test.images[:1]).all()
    assert f"the first example of the test set, of class {test.labels[0]}:" in page
    assert f"models serve -m runs:/{trained}/model" in page
    assert f"download -u runs:/{trained}/model/serving_input_example.json" in page
    assert "8 x 8 pixels, grey. Pixels are from 0 to 255" in page


def test_a_model_is_found_by_its_numbers(trained: str) -> None:
    row, client = history.row(trained), store.client()
    experiment = client.get_run(trained).info.experiment_id
    error = row.metrics["test_error_pct"]
    for bound, found in ((error + 0.1, 1), (error - 0.1, 0)):
        models = client.search_logged_models(
            [experiment], f"metrics.test_error_pct < {bound} AND source_run_id = '{trained}'"
        )
        assert len(models) == found
    [model] = client.search_logged_models([experiment], f"source_run_id = '{trained}'")
    metrics = {metric.key: metric for metric in model.metrics}
    assert len(metrics) == len(model.metrics)  # one value each
    assert metrics.keys() >= {"test_error_pct", "val_error_pct", "train_error_pct"}
    assert all(row.metrics[key] == metric.value for key, metric in metrics.items())
    assert {metric.dataset_name for metric in model.metrics} == {"digits"}


def test_a_number_that_is_not_finite_is_none_of_the_model(home: Path) -> None:
    import keras_models

    with tracked_run.track("x", experiment="trained networks", kind="training") as tracked:
        tracked.log({"test_loss": math.inf, "val_loss": math.nan, "train_loss": 1.0})
        tracked.model(keras_models.build("mlp", (4,), 3))
    model = store.client().get_logged_model(stored_models.find_id(tracked.id))
    assert [(metric.key, metric.value) for metric in model.metrics] == [("train_loss", 1.0)]


def test_mlflow_reads_where_the_data_came_from(trained: str) -> None:
    run_of = store.client().get_run(trained)
    [given] = run_of.inputs.dataset_inputs
    source = mlflow.data.get_source(given.dataset)
    assert source.to_dict() == {"tags": {"data": "digits"}}
    schema = json.loads(given.dataset.schema)["mlflow_tensorspec"]
    assert json.loads(schema["features"])[0]["tensor-spec"]["shape"] == [-1, 8, 8, 1]
    assert json.loads(given.dataset.profile)["classes"] == 10
    for name in datasets.DATASETS:
        kind, fields = datasets.get(name).origin()
        entity = mlflow.entities.Dataset(name, "0", kind, json.dumps(fields))
        assert mlflow.data.get_source(entity).to_dict() == fields


def test_evaluation_takes_the_logits_below(trained: str, digits: Path) -> None:
    assert evaluation.evaluate(trained)["agrees"]
