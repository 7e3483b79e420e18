"""The test set looked at while training: its curves, what is best of them, and exact resume."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.splits import Pictures, Split
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.results.evidence import derive
from pipelines.running.run import TrainingObserver, run
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history
from pipelines.training.checkpoints import Saving
from pipelines.training.seen_test import SeenTest
from tests.training.trainings import Curves, Log, equal, trained, trained_in_parts, untimed

EVERY, STEPS = 6, 40


def small(**changes: Any) -> Recipe:
    settings = {"steps": STEPS, "test_every": EVERY, "validation": False, "learning_rate": 0.1}
    return get_recipe("mlp-digits", "smoke").override(**settings | changes)


def logged(recipe: Recipe) -> tuple[Any, Curves]:
    """Train; what was trained, and its curves."""
    log = Log()
    return trained(recipe, log), log.curves


def test_by_hand_the_best_is_over_the_whole_set_and_over_halves_in_turn() -> None:
    # errors by step of the first two and of the last three of five examples
    errors = {10: (50.0, 100.0), 20: (0.0, 100.0), 30: (50.0, 0.0), 40: (100.0, 100 / 3)}
    step = 0

    def evaluate(part: Any) -> Mapping[str, float]:
        return {"seen_test_error_pct": errors[step][len(part) == 3]}

    split = Split(np.arange(5.0)[:, None], np.arange(5))
    seen = SeenTest(split, "error_pct", evaluate)
    assert [half.y.tolist() for half in seen.halves] == [[0, 1], [2, 3, 4]]  # type: ignore[union-attr]
    looks = []
    for step in errors:
        looks.append(seen.look(step))
    assert [look["half_seen_test_error_pct"] for look in looks] == [50, 100, 50, 100 / 3]
    whole = [look["seen_test_error_pct"] for look in looks]
    assert whole == pytest.approx([80, 60, 20, 60])
    found = seen.summarize()
    assert found.pop("last_5_seen_test_error_pct") == pytest.approx(mean(whole))
    assert found == pytest.approx(
        {
            "best_seen_test_error_pct": 20,
            "best_seen_test_step": 30,
            "best_half_seen_test_error_pct": 100 / 3,
            "best_half_seen_test_step": 40,
        }
    )


def test_the_last_five_evaluations_alone_make_the_mean() -> None:
    values = iter(range(16))

    def evaluate(part: Any) -> Mapping[str, float]:
        return {"seen_test_loss": float(next(values))}

    seen = SeenTest(Split(np.zeros((2, 1)), np.zeros(2)), "loss", evaluate)
    for step in range(8):  # looks of mean 0.5, 2.5, ..., 14.5
        seen.look(step)
    assert seen.summarize()["last_5_seen_test_loss"] == mean([6.5, 8.5, 10.5, 12.5, 14.5])


@pytest.mark.parametrize("validation", [True, False])
def test_every_look_is_a_point_and_the_last_is_the_test_at_the_end(
    digits: Path, validation: bool
) -> None:
    result, points = logged(small(validation=validation))
    curve = points["seen_test_error_pct"]
    assert list(curve) == [6, 12, 18, 24, 30, 36, 40]
    assert curve[40] == pytest.approx(result.metrics["test_error_pct"], abs=1e-4)
    assert result.metrics["best_seen_test_error_pct"] == min(curve.values())
    assert result.metrics["last_5_seen_test_error_pct"] == pytest.approx(
        mean([*curve.values()][-5:])
    )
    assert result.metrics["best_half_seen_test_error_pct"] == min(
        points["half_seen_test_error_pct"].values()
    )
    assert len({*curve.values()}) > 1
    assert ("val_error_pct" in points) == validation


def test_the_looks_change_no_weight_and_no_curve(digits: Path) -> None:
    plain, seen = (logged(small(test_every=every)) for every in (None, 8))  # epochs of 8
    assert equal(plain[0], seen[0])
    for key in ("batch_loss", "train_error_pct", "train_loss"):
        assert plain[1][key] == seen[1][key]


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "accumulate": 2}])
def test_killed_between_looks_it_ends_with_the_same_numbers(
    digits: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    expected, whole = logged(small(**changes))
    saving = Saving(tmp_path, every=4)
    resumed, curves = trained_in_parts(small(**changes), saving, (8, 21, 37))
    assert untimed(curves) == untimed(whole)
    assert equal(expected, resumed)


def test_averaged_weights_are_what_is_looked_at(digits: Path) -> None:
    result, points = logged(small(ema=0.9))
    last = points["seen_test_loss"][STEPS]
    assert last == pytest.approx(result.metrics["test_loss"], rel=1e-5)  # of the averages


def test_the_end_of_pictures_that_a_device_holds_is_theirs(digits: Path) -> None:
    from pipelines.training import _device_data, devices

    recipe = small(pictures="device")
    splits = datasets.load("digits")
    there = _device_data.place_pictures(recipe, splits, devices.place(recipe.devices)).test
    assert isinstance(splits.test, Pictures)
    where, labels = there.tail(100).take(slice(None))  # type: ignore[union-attr]
    whole, _ = there.take(slice(None))  # type: ignore[union-attr]
    np.testing.assert_array_equal(where, whole[-100:])
    np.testing.assert_array_equal(labels, splits.test.labels[-100:])
    np.testing.assert_array_equal(splits.test.tail(100).x, splits.test.images[-100:])


def test_a_search_refuses_to_see_the_test_set(home: Path) -> None:
    from tuning.plan import StudyPlan

    watch = TrainingObserver(report=lambda metrics, step: None, lost={})
    sentence = "A search leaves the test set unread. Received: test_every=6 for mlp-digits"
    with pytest.raises(UserError, match=sentence):
        run(small(validation=True), RunOptions(), watch=watch)
    with pytest.raises(UserError, match=sentence):
        StudyPlan(recipe="mlp-digits", changes={"test_every": 6})
    assert history.rows(None) == []


@pytest.mark.parametrize("metric", ["seen_test_error_pct", "half_seen_test_error_pct"])
def test_evidence_whose_best_is_not_on_its_curve_is_found(
    home: Path, digits: Path, metric: str
) -> None:
    run_id = run(small()).run_id
    histories = history.histories([run_id])[run_id]
    points = {key: [[s, 0, v] for s, v in curve.items()] for key, curve in histories.items()}
    document: Any = SimpleNamespace(name="a run", run_id=run_id, metrics=points)
    assert derive.final_numbers(document, STEPS)[f"best_{metric}"] >= 0
    points[f"best_{metric}"] = [[STEPS, 0, 0.01]]
    with pytest.raises(ValueError, match=f"has best_{metric} 0.01, its curve "):
        derive.final_numbers(document, STEPS)
    del points[metric]  # nor can the curve be left out
    with pytest.raises(ValueError, match=f"has best_{metric} 0.01, its curve nan"):
        derive.final_numbers(document, STEPS)


def test_what_was_seen_is_recorded(home: Path, digits: Path) -> None:
    row = history.row(run(small()).run_id)
    assert row.params["test_every"] == "6"
    assert {"best_seen_test_step", "best_half_seen_test_error_pct"} <= row.metrics.keys()
