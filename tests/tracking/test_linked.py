"""The runs of a command belong to the run of who started it, and are whole without that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.measurement import claim_catalog, sweep
from pipelines.results import model_registry, scoreboard
from pipelines.tracking import history, store, tracked_run
from pipelines.tracking.bundles import exporting, importing
from tests.conftest import Go
from tests.tracking.bundles import tracked

NAME = "small-norm-factorization"
CLAIM = {"claim": NAME, "scale": "cpu", "verdict": "holds", "source": "HM Theorem 2.1"}
CLAIM |= {"as_stated": "True", "fingerprint": "f", "seeds": "5"}


@pytest.fixture
def starter(home: Path) -> Iterator[tracked_run.Run]:
    """A run whose process has started this one, and says so."""
    with tracked("attempt", experiment="scheduled runs", kind="scheduled") as run:
        pass
    with tracked_run.parent_of_commands(run):
        yield run


def recorded(kind: str = "claim", tags: dict[str, str] = CLAIM) -> str:
    with tracked(NAME, kind=kind, tags=tags) as run:
        run.log({"ratio": 0.5, "wall_s": 1.0})
    return run.id


def test_a_run_without_a_parent_is_below_the_run_of_its_starter(starter: tracked_run.Run) -> None:
    with tracked("c", kind="claim") as claim, tracked("s", kind="setting", parent=claim) as setting:
        pass
    assert history.row(claim.id).tags[store.PARENT] == starter.id
    assert history.row(setting.id).tags[store.PARENT] == claim.id
    assert store.client().get_run(claim.id).info.experiment_id == store.experiment(
        store.uri(), "one"
    )
    assert store.artifact(claim.id, "provenance/packages.txt")
    assert store.artifact(setting.id, "provenance/packages.txt") is None


def test_what_goes_on_belongs_to_the_attempt_that_goes_on_with_it(starter: tracked_run.Run) -> None:
    with pytest.raises(SystemExit), tracked("c", kind="claim") as run:
        raise SystemExit(143)
    with (
        tracked_run.parent_of_commands(tracked_run.Parent("0" * 32, "scheduled runs")),
        tracked("c", kind="claim", resume=run.id),
    ):
        pass
    assert history.row(run.id).tags[store.PARENT] == "0" * 32


def test_a_claim_of_an_attempt_is_on_the_scoreboard_and_travels_alone(
    starter: tracked_run.Run, tmp_path: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"])["run_id"]
    training = recorded("training", {"recipe": "of no claim"})
    assert model_registry.find_claim(history.row(training)) is None
    (entry,) = [entry for entry in scoreboard.entries() if entry.name == NAME]
    assert (entry.verdict, entry.yours and entry.yours.run.id) == ("holds", measured)
    exported = exporting.export_runs(tmp_path / "runs.zip", [measured], None)
    assert {run["run_id"] for run in exported["runs"]} == {measured}
    exporting.export_runs(tmp_path / "training.zip", [training], None)
    both = exporting.export_runs(tmp_path / "all.zip", [starter.id], None)
    assert {run["run_id"] for run in both["runs"]} == {starter.id, measured, training}
    monkeypatch.delenv(tracked_run.PARENT_VARIABLE)
    go("elsewhere")
    [imported] = importing.import_runs(tmp_path / "runs.zip")["imported"]
    assert history.row(imported).origin == measured
    (there,) = [entry for entry in scoreboard.entries() if entry.name == NAME]
    assert there.verdict == "holds"
    [alone] = importing.import_runs(tmp_path / "training.zip")["imported"]
    assert history.row(alone).origin == training
    assert model_registry.find_claim(history.row(alone)) is None  # its parent is not here


def test_a_starter_that_records_nothing_or_elsewhere_names_no_run(
    starter: tracked_run.Run, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracked_run.inherited_parent() == tracked_run.Parent(starter.id, "scheduled runs")
    with tracked_run.parent_of_commands(tracked_run.Parent("other", "e")):
        assert tracked_run.inherited_parent() == tracked_run.Parent("other", "e")
    assert tracked_run.inherited_parent() == tracked_run.Parent(starter.id, "scheduled runs")
    go("b")
    assert tracked_run.inherited_parent() is None
    assert store.PARENT not in history.row(recorded()).tags
    monkeypatch.delenv(tracked_run.PARENT_VARIABLE)
    assert tracked_run.inherited_parent() is None
