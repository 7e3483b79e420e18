"""The runs of a command belong to the run of who started it, and are whole without that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import bundle, champion, claim, history, linked, report, store, sweep, tracking
from tests.conftest import Go

NAME = "small-norm-factorization"
CLAIM = {"claim": NAME, "scale": "cpu", "verdict": "reproduced", "source": "HM Theorem 2.1"}
CLAIM |= {"as_stated": "True", "fingerprint": "f", "seeds": "5"}


@pytest.fixture
def starter(home: Path) -> Iterator[tracking.Run]:
    """A run whose process has started this one, and says so."""
    with tracking.tracked("attempt", experiment="scheduled runs", kind="scheduled") as run:
        pass
    with linked.parent_of_commands(run.id, run.experiment):
        yield run


def recorded(kind: str = "claim", tags: dict[str, str] = CLAIM) -> str:
    with tracking.tracked(NAME, experiment="test", kind=kind, tags=tags) as run:
        run.log({"ratio": 0.5, "wall_s": 1.0})
    return run.id


def test_a_run_without_a_parent_is_below_the_run_of_its_starter(starter: tracking.Run) -> None:
    with (
        tracking.tracked("c", experiment="test", kind="claim") as claim,
        tracking.tracked("s", experiment="test", kind="setting", parent=claim) as setting,
    ):
        pass
    assert history.row(claim.id).tags[store.PARENT] == starter.id
    assert history.row(setting.id).tags[store.PARENT] == claim.id
    assert store.client().get_run(claim.id).info.experiment_id == store.experiment(
        store.uri(), "test"
    )
    assert store.artifact(claim.id, "provenance/packages.txt")
    assert store.artifact(setting.id, "provenance/packages.txt") is None


def test_what_goes_on_belongs_to_the_attempt_that_goes_on_with_it(starter: tracking.Run) -> None:
    with pytest.raises(SystemExit), tracking.tracked("c", experiment="test", kind="claim") as run:
        raise SystemExit(143)
    with (
        linked.parent_of_commands("0" * 32, "scheduled runs"),
        tracking.tracked("c", experiment="test", kind="claim", resume=run.id),
    ):
        pass
    assert history.row(run.id).tags[store.PARENT] == "0" * 32


def test_a_claim_of_an_attempt_is_on_the_scoreboard_and_travels_alone(
    starter: tracking.Run, tmp_path: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = sweep.check(NAME, "smoke", claim.load(NAME).scales["smoke"])["run_id"]
    settings = {row.id for row in history.rows(kind="setting")}
    training = recorded("training", {"recipe": "of no claim"})
    assert champion.claim_of(history.row(training)) is None
    (entry,) = [entry for entry in report.entries() if entry.name == NAME]
    assert (entry.verdict, entry.yours and entry.yours.run.id) == ("reproduced", measured)
    exported = bundle.export_runs(tmp_path / "runs.zip", [measured], None)
    assert {run["run_id"] for run in exported["runs"]} == {measured, *settings}
    bundle.export_runs(tmp_path / "training.zip", [training], None)
    both = bundle.export_runs(tmp_path / "all.zip", [starter.id], None)
    assert {run["run_id"] for run in both["runs"]} == {starter.id, measured, training, *settings}
    monkeypatch.delenv(linked.PARENT_RUN)
    go("elsewhere")
    assert set(bundle.import_runs(tmp_path / "runs.zip")["imported"]) == {measured, *settings}
    (there,) = [entry for entry in report.entries() if entry.name == NAME]
    assert there.verdict == "reproduced"
    assert bundle.import_runs(tmp_path / "training.zip")["imported"] == [training]
    assert champion.claim_of(history.row(training)) is None  # its parent is not here


def test_a_starter_that_records_nothing_or_elsewhere_names_no_run(
    starter: tracking.Run, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert linked.parent() == (starter.id, "scheduled runs")
    with linked.parent_of_commands("other", "e"):
        assert linked.parent() == ("other", "e")
    assert linked.parent() == (starter.id, "scheduled runs")
    go("b")
    assert linked.parent() is None
    assert store.PARENT not in history.row(recorded()).tags
    monkeypatch.delenv(linked.PARENT_RUN)
    assert linked.parent() is None
