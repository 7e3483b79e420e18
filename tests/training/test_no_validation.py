"""All examples that are not for testing are trained on, and nothing is chosen by validation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.results import evaluation, model_registry
from pipelines.running.run import TrainingObserver, run
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history
from pipelines.training.checkpoints import Saving
from tests.conftest import PREPARED, command, needs
from tests.training.trainings import equal, trained, trained_in_parts, untimed

WATCH = TrainingObserver(report=lambda metrics, step: None, lost={})


def small(**changes: Any) -> Recipe:
    return get_recipe("mlp-digits", "smoke").override(
        **{"steps": 20, "validation": False} | changes
    )


def test_the_training_part_is_all_that_is_not_for_testing(digits: Path) -> None:
    kept, whole = datasets.load("digits"), datasets.load("digits", validation=False)
    assert (len(whole.train), len(whole.val)) == (len(kept.train) + len(kept.val), 0)
    np.testing.assert_array_equal(whole.test.x, kept.test.x)  # type: ignore[union-attr]
    for one, two in zip(whole.untested(), kept.untested(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert datasets.get("digits").examples({}, validation=False) == len(whole.train)
    assert len(datasets.load("digits", 7, validation=False).train) == 7


def test_a_teacher_draws_the_same_examples_and_validates_none() -> None:
    kept, whole = datasets.load("linear-teacher"), datasets.load("linear-teacher", validation=False)
    assert len(whole.val) == 0
    np.testing.assert_array_equal(whole.train.x, kept.train.x)  # type: ignore[union-attr]


@needs("imagenet2012")
def test_photographs_are_all_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    kept = datasets.load("imagenet2012")
    whole = datasets.load("imagenet2012", validation=False)
    assert (len(whole.train), len(whole.val)) == (len(kept.train) + len(kept.val), 0)


def test_a_run_reports_no_validation_numbers_and_is_tested(home: Path, digits: Path) -> None:
    result = run(small())
    assert "test_error_pct" in result.metrics
    assert "final_train_error_pct" in result.metrics
    assert not [key for key in result.metrics if "val" in key or key == "best_step"]
    row = history.row(result.run_id)
    assert row.params["validation"] == "false"
    assert row.tags["result"].startswith("error: test ")
    assert evaluation.evaluate(row.id)["metrics"].keys() == {"test_error_pct", "test_loss"}


def test_it_is_resumed_exactly(digits: Path, tmp_path: Path) -> None:
    expected = trained(small())
    resumed, _ = trained_in_parts(small(), Saving(tmp_path, every=3), [13])
    assert equal(expected, resumed)
    assert untimed(resumed.metrics) == untimed(expected.metrics)


def test_what_chooses_by_validation_refuses_before_a_run_is_opened(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.recipes import catalog
    from tuning.plan import StudyPlan

    sentence = "chooses by validation examples. Received: validation=False for mlp-digits"
    with pytest.raises(UserError, match=sentence):
        run(small(), RunOptions(), watch=WATCH)
    with pytest.raises(UserError, match=sentence):
        StudyPlan(recipe="mlp-digits", changes={"validation": False})
    monkeypatch.setitem(catalog.RECIPES, "mlp-digits", {"smoke": small()})
    with pytest.raises(UserError, match="A champion is chosen by validation examples"):
        model_registry.register("mlp-digits", "smoke")
    assert history.rows(None) == []


def test_the_command_that_registers_refuses_before_it_trains(home: Path) -> None:
    words = ("train-and-register", "mlp-digits", "--no-validation")
    ended = command("pipelines", "pipeline", *words)
    assert ended.returncode == 2
    assert "A champion is chosen by validation examples" in ended.stderr
    assert history.rows(None) == []
