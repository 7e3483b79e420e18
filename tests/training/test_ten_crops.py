"""A network tested on ten crops of a picture: the mean of its softmax, by hand and in a run."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest

from pipelines.recipes.catalog import get_recipe
from pipelines.results import evaluation
from pipelines.running.run import run
from pipelines.training.evaluation import average_crops
from tests.conftest import PREPARED, needs


def test_by_hand_it_is_the_logarithm_of_the_mean_probability() -> None:
    image = keras.Input((1, 1, 2))  # two pixels, which are the logits
    network = keras.Model(image, keras.layers.Flatten()(image))
    crops = np.zeros((2, 10, 1, 1, 2), np.float32)
    crops[0, 0, 0, 0] = [math.log(3), 0]  # probabilities 3/4 and 1/4; of the nine others 1/2
    crops[1, :, 0, 0, 1] = 1_000  # a class that softmax rounds to 1
    found = np.asarray(average_crops(network, (1, 1, 2))(crops))
    expected = [(0.75 + 9 * 0.5) / 10, (0.25 + 9 * 0.5) / 10]
    np.testing.assert_allclose(np.exp(found[0]), expected, rtol=1e-6)
    np.testing.assert_allclose(found[1], [-1_000, 0], atol=1e-3)  # finite: a loss can be had of it


@pytest.mark.slow
@needs("imagenet2012")
def test_a_training_is_tested_by_ten_crops_and_evaluated_to_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    recipe = get_recipe("resnet34-imagenet", "smoke").override(steps=3)
    ten = run(recipe)
    one = run(recipe.override(data_args={"ten_crops": False}))
    assert ten.metrics["val_loss"] == one.metrics["val_loss"]  # the same network
    assert ten.metrics["test_loss"] != one.metrics["test_loss"]
    assert evaluation.evaluate(ten.run_id)["agrees"]
