"""What a claim's figure is drawn from: the trainings of its cells, as MLflow holds them."""

import contextlib
from pathlib import Path

from pipelines.measurement import documents
from pipelines.measurement.plan import stated_plan
from pipelines.tracking import store, tracked_run
from pipelines.tracking.tracked_run import Run


def record(parent: Run, fingerprint: str, errors: list[float], arm: str = "") -> str:
    """Record a training below a cell; it fails where its last error is not a number."""
    tags = {"fingerprint": fingerprint} | ({store.ARM: arm} if arm else {})
    with (
        contextlib.suppress(ArithmeticError),
        tracked_run.track(
            fingerprint, experiment="e", kind="training", tags=tags, parent=parent
        ) as run,
    ):
        for epoch, error in enumerate(errors, 1):
            run.log({"val_error_pct": error}, 10 * epoch)
        if len(errors) < 3:
            raise ArithmeticError
    return run.id


def test_trainings_of_a_cell_are_its_own_and_those_it_found(home: Path) -> None:
    with tracked_run.track("earlier", experiment="e", kind="setting") as earlier:
        reused = record(earlier, "c", [50.0, 40.0, 30.0])
        record(earlier, "d", [50.0, 40.0, 30.0], arm="other")
    with tracked_run.track("cell", experiment="e", kind="setting") as cell:
        record(cell, "a", [90.0, 60.0], arm="a")  # failed, and was then repeated
        record(cell, "a", [90.0, 50.0, 20.0], arm="a")
        record(cell, "b", [90.0, 95.0], arm="b")
        cell.tag(f"{store.REUSED}{reused}", "c")
    found = {each.arm: each for each in documents.read_trainings(cell.id, {})}
    assert {arm: list(each.curves["val_error_pct"]) for arm, each in found.items()} == {
        "a": [90.0, 50.0, 20.0],
        "b": [90.0, 95.0],
        "": [50.0, 40.0, 30.0],
    }
    assert list(found["a"].steps) == [10, 20, 30]


def test_a_training_of_two_claims_is_an_arm_of_both(home: Path) -> None:
    with tracked_run.track("cell", experiment="e", kind="setting") as cell:
        record(cell, "a", [90.0, 60.0, 30.0], arm="fixed")
        record(cell, "b", [90.0, 70.0, 40.0], arm="found by a search")
    found = {each.arm: each for each in documents.read_trainings(cell.id, {"a": "plain"})}
    assert {arm: each.curves["val_error_pct"][-1] for arm, each in found.items()} == {
        "plain": 30.0,
        "found by a search": 40.0,
    }


def test_of_two_names_for_one_training_the_first_counts() -> None:
    plan = stated_plan("later-habits", "cpu", 1)
    arms = plan.arms(plan.cells[0])
    alike = arms["published"].fingerprint
    assert alike == arms["schedule"].fingerprint  # which a search has not changed yet
    assert plan.arm_names[alike] == "published"
