"""What a claim's figure is drawn from: the trainings of its cells, as MLflow holds them."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from pipelines.measurement.experiment import Trainer, read_trainings
from pipelines.measurement.grid import Cell, Measured
from pipelines.measurement.plan import stated_plan
from pipelines.measurement.sweep import count_seconds
from pipelines.recipes.catalog import RECIPES
from pipelines.running.existing import identity
from pipelines.tracking import history, store, tracked_run
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


def of_cell(*fingerprints: str) -> Measured:
    return Measured(Cell({}, 0), np.zeros(1, np.int64), {}, trained=fingerprints)


def arms(arm_names: dict[str, str], run_id: str, *fingerprints: str) -> dict[str, list[float]]:
    plan = stated_plan("later-habits", "cpu", 1)
    vars(plan)["arm_names"] = arm_names
    (trainings,) = read_trainings(plan, [of_cell(*fingerprints)], run_id)
    return {each.arm: list(each.curves["val_error_pct"]) for each in trainings}


def test_trainings_of_a_cell_are_its_own_and_those_it_found(home: Path) -> None:
    with tracked_run.track("earlier", experiment="e", kind="claim") as earlier:
        reused = record(earlier, "c", [50.0, 40.0, 30.0])
        record(earlier, "d", [50.0, 40.0, 30.0], arm="other")
    with tracked_run.track("claim", experiment="e", kind="claim") as run:
        record(run, "a", [90.0, 60.0], arm="a")  # failed, and was then repeated
        record(run, "a", [90.0, 50.0, 20.0], arm="a")
        record(run, "b", [90.0, 95.0], arm="b")
        record(run, "e", [90.0, 80.0, 70.0], arm="another cell's")
        run.link(store.REUSED, reused)
    assert arms({}, run.id, "a", "b", "c") == {
        "a": [90.0, 50.0, 20.0],
        "b": [90.0, 95.0],
        "": [50.0, 40.0, 30.0],
    }


def test_a_training_of_two_claims_is_an_arm_of_both(home: Path) -> None:
    with tracked_run.track("claim", experiment="e", kind="claim") as run:
        record(run, "a", [90.0, 60.0, 30.0], arm="fixed")
        record(run, "b", [90.0, 70.0, 40.0], arm="found by a search")
    found = arms({"a": "plain"}, run.id, "a", "b")
    assert {arm: curve[-1] for arm, curve in found.items()} == {
        "plain": 30.0,
        "found by a search": 40.0,
    }


def test_of_an_arm_at_two_rates_the_one_that_finished_comes_first(home: Path) -> None:
    """So a figure shows the seed that diverged at a rate at the rate that it stood."""
    with tracked_run.track("claim", experiment="e", kind="claim") as run:
        record(run, "a", [90.0, 95.0], arm="standard")
        record(run, "b", [90.0, 70.0, 40.0], arm="standard")
    plan = stated_plan("later-habits", "cpu", 1)
    ((first, second),) = read_trainings(plan, [of_cell("a", "b")], run.id)
    assert first.curves["val_error_pct"][-1] == 40.0
    assert second.curves["val_error_pct"][-1] == 95.0


def test_of_two_names_for_one_training_the_first_counts() -> None:
    plan = stated_plan("later-habits", "cpu", 1)
    arms = plan.arms(plan.cells[0])
    alike = arms["published"].fingerprint
    assert alike == arms["schedule"].fingerprint  # which a search has not changed yet
    assert plan.arm_names[alike] == "published"


def test_a_run_names_the_searches_that_others_made(home: Path) -> None:
    """Its export and the evidence hold what it names; a figure is drawn of trainings alone."""
    recipe, lost = RECIPES["allconv-digits"]["smoke"], {"val_error_pct": 100.0}
    with tracked_run.track(
        "earlier", experiment="e", kind="search", tags=identity(recipe.fingerprint)
    ) as search:
        search.log({"val_error_pct": 17.0}, 10)
    with tracked_run.track("claim", experiment="e", kind="claim") as run:
        result = Trainer(run).search(recipe, lost)
    assert (result.run_id, result.metrics) == (search.id, {"val_error_pct": 17.0})
    with tracked_run.track("joined", experiment="e", kind="claim") as joined:
        claim = stated_plan("later-habits", "cpu", 1).claim
        claim.link_trainings([of_cell(recipe.fingerprint)], joined)
    for each in (run, joined):
        assert store.read_links(history.row(each.id).tags, store.REUSED) == [search.id]
        assert arms({}, each.id, recipe.fingerprint) == {}


def test_a_claim_took_what_its_trainings_took_whoever_asked_for_them(home: Path) -> None:
    """Found again, they end in no time; a cell of a sweep of other trainings is not its own."""
    with tracked_run.track("earlier", experiment="e", kind="claim") as earlier:
        hours = {"s": 3, "a": 1, "of another cell": 9}
        made = [record(earlier, each, [3.0, 2.0, 1.0]) for each in hours]
        store.client().set_tag(made[0], "kind", "search")
        for run_id, h in zip(made, hours.values(), strict=True):
            store.client().log_metric(run_id, "wall_s", h * 3600)
    with tracked_run.track("claim", experiment="e", kind="claim") as run:
        for run_id in made:
            run.link(store.REUSED, run_id)
    claim = stated_plan("later-habits", "cpu", 1).claim
    spans = claim.training_spans([of_cell("a", "s")], run.id)
    assert sorted(end - start for start, end in spans) == [3_600_000, 3 * 3_600_000]
    now_ms = max(end for _, end in spans)
    assert count_seconds(spans, now_ms) == pytest.approx(3 * 3600, abs=60)  # one within the other


def test_seconds_that_several_spans_share_count_once_and_later_ones_not() -> None:
    spans = [(4_000, 9_000), (0, 1_000), (500, 3_000), (700, 900), (6_000, 7_000)]
    assert count_seconds(spans, until_ms=5_000) == 4.0
