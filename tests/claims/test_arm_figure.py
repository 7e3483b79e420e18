"""The figure of arms shows the means of what was recorded, and every label can be read."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.claims import _arm_figure
from pipelines.claims._arm_figure import Arm
from pipelines.measurement.experiment import Training

STEPS = np.array([100, 200, 300])
LONG = "a network that is described by far more words, in a row"


def training(*errors: float, less: float = 5.0) -> Training:
    """Return a training with these validation errors, and training errors that are less."""
    val = np.array(errors)
    return Training("", STEPS[: len(val)], {"val_error_pct": val, "train_error_pct": val - less})


def arm(label: str, ends: Sequence[float], **more: Any) -> Arm:
    """Return an arm whose seeds ended in these test errors."""
    trainings = [training(90.0, end + 10, end) for end in ends]
    return Arm(label, {"test": np.array(ends)}, more.pop("trainings", trainings), **more)


def test_curves_are_means_over_the_seeds_that_did_not_diverge() -> None:
    trainings = [training(80, 40, 20), training(84, 44, 26), training(90, 95)]
    arms = [arm("a", [21.0, 25.0, math.nan], trainings=trainings)]
    learning, _ = _arm_figure.draw(arms, [0, 1, 2]).axes
    drawn = {line.get_linestyle(): line for line in learning.lines if len(line.get_xdata()) == 3}
    assert list(drawn["-"].get_xdata()) == list(STEPS)
    assert drawn["-"].get_ydata() == pytest.approx([82, 42, 23])
    assert drawn["--"].get_ydata() == pytest.approx([77, 37, 18])
    band = learning.collections[0].get_paths()[0].vertices
    at_end = band[band[:, 0] == 300, 1]
    assert (at_end.min(), at_end.max()) == pytest.approx((23 - math.sqrt(18), 23 + math.sqrt(18)))
    crosses = [list(line.get_ydata()) for line in learning.lines if line.get_marker() == "x"]
    assert crosses == [[95], [90], []]  # where the third ended, and what the legend shows


def test_the_training_error_of_a_few_last_steps_is_no_point_of_its_curve() -> None:
    curves = {key: np.array([90.0, 50.0, 70.0]) for key in _arm_figure.LEARNING}
    cut = Training("", np.array([100, 200, 203]), curves)
    assert list(_arm_figure.read_curve(cut, "train_error_pct")[0]) == [100, 200]
    assert list(_arm_figure.read_curve(cut, "val_error_pct")[0]) == [100, 200, 203]


def test_the_axis_begins_where_the_errors_are_and_holds_them_all() -> None:
    arms = [arm("a", [15.0, 15.4, 15.1], reported={"test": 14.2}), arm("b", [16.0, 16.9, 16.2])]
    learning, ends = _arm_figure.draw(arms, [0, 1, 2]).axes
    low, high = ends.get_xlim()
    assert 13.5 < low < 14.2
    assert 16.9 < high < 17.6
    low, high = learning.get_ylim()
    assert 0 < low < 10.2  # the training error of the best arm is 10.17 in the mean
    assert 90 < high < 100


@pytest.mark.parametrize("splits", [("test",), ("train", "test")])
@pytest.mark.parametrize("label", ["short", LONG])
@pytest.mark.parametrize("learns", [True, False])
def test_no_label_covers_another(
    splits: Sequence[str], label: str, learns: bool, tmp_path: Path
) -> None:
    ends = [np.array([20.0, 20.0, 20.0]), np.array([20.1, math.nan, 20.2]), np.full(3, math.nan)]
    arms = [
        Arm(f"{label} {i}", dict.fromkeys(splits, each), [training(90, 20) if learns else None] * 3)
        for i, each in enumerate([*ends, *ends[:2]])
    ]
    picture = _arm_figure.draw(arms, [0, 1, 2])
    picture.savefig(tmp_path / "figure.png")
    axes = picture.axes[-1]
    assert len(picture.axes) == 1 + learns
    assert "test 20.15 ± 0.07 %\nseed 1 diverged" in {text.get_text() for text in axes.texts}
    about = [axes.xaxis.label, *(each.title for each in picture.axes), *picture.legends]
    shown = [each.get_window_extent() for each in (*axes.texts, *axes.get_yticklabels(), *about)]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(shown, 2))
    assert all(picture.bbox.contains(*end) for box in shown for end in (box.min, box.max))
    panels = [each.get_window_extent() for each in picture.axes]
    assert not any(box.count_overlaps(panels) for box in shown)
