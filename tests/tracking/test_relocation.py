"""Homes that are copied or moved, and artifacts that are gone."""

import shutil
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.cli import doctor
from pipelines.errors import UserError
from pipelines.results import evaluation, model_registry
from pipelines.tracking import journals, recovery, store, stored_models
from pipelines.tracking.bundles import exporting
from tests.tracking.bundles import tracked
from tests.tracking.stored_models import RECIPE, SCALE, network, record_training


def write_run(name: str, text: str) -> str:
    with tracked(name) as run:
        run.text(text, "text.txt")
        run.model(network())
    return run.id


def files(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


@pytest.mark.parametrize("moved", [False, True])
def test_a_copied_home_reads_and_writes_its_own_artifacts(
    home: Path, monkeypatch: pytest.MonkeyPatch, moved: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_run("first", "original")
    other = home.parent / "a copy % of it" / "mlruns"
    (shutil.move if moved else shutil.copytree)(home, other)
    before = {} if moved else files(home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    place = other / "artifacts" / first / "artifacts" / "text.txt"
    place.write_text("copy")
    assert store.artifact(first, "text.txt") == b"copy"
    assert f"files of runs are in {other}/artifacts now; before, in " in capsys.readouterr().err
    model = store.client().get_logged_model(stored_models.find_id(first))
    assert model.artifact_location.startswith((other / "artifacts").as_uri())
    second = write_run("second", "of the copy")
    assert (other / "artifacts" / second / "artifacts" / "text.txt").read_text() == "of the copy"
    document = exporting.export_runs(other.parent / "all.zip", [], None)
    assert {run["run_id"] for run in document["runs"]} == {first, second}
    assert doctor.check_artifacts().state == "ok"
    if moved:
        assert not home.exists()
    else:
        assert files(home) == before
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
        assert store.artifact(first, "text.txt") == b"original"


def test_places_elsewhere_stay_when_a_home_is_moved(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = (home.parent / "elsewhere" / "artifacts").as_uri()
    near = (home / "artifacts of others").as_uri()
    for name, place in (("theirs", elsewhere), ("near", near)):
        store.client().create_experiment(name, artifact_location=place)
    other = home.parent / "moved"
    shutil.move(home, other)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    places = {e.name: e.artifact_location for e in store.client().search_experiments()}
    assert places == {
        "Default": (other / "artifacts").as_uri(),
        "theirs": elsewhere,
        "near": near,
    }


def test_the_journal_of_a_copied_home_is_delivered_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = write_run("r", "text")
    journal = journals.Journal(home / "live", run_id, store.uri())
    journal.write(numbers=[["loss", 2.0, 1, 5]])
    journal.close(delivered=False)
    other = home.parent / "copy"
    shutil.copytree(home, other)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    assert recovery.deliver_journals() == [run_id]
    assert store.client().get_run(run_id).data.metrics == {"loss": 2.0}


def test_missing_artifacts_are_said_with_their_place(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = write_run("r", "text")
    assert doctor.check_artifacts().state == "ok"
    (home / "artifacts").rename(tmp_path / "away")
    file = tmp_path / "runs.zip"
    with pytest.raises(UserError, match=rf"r \({run_id}\).* none at file:.*artifacts/models/m-"):
        exporting.export_runs(file, [], None)
    assert not file.exists()
    finding = doctor.check_artifacts()
    assert finding.state == "problem"
    assert "python -m pipelines export" in finding.fix
    assert "2 runs and models have no files; the first: none at file:" in finding.found
    dispatch(["export", str(file), "--without-artifacts"])
    assert capsys.readouterr().out.startswith("1 runs, ")
    (tmp_path / "away").rename(home / "artifacts")
    assert exporting.export_runs(file, [], None)["bytes"] > 0


def test_a_champion_without_files_is_refused_with_their_place(home: Path, tmp_path: Path) -> None:
    run_id = record_training()
    (home / "artifacts").rename(tmp_path / "away")
    for read in (
        lambda: model_registry.register(RECIPE, SCALE),
        lambda: evaluation.evaluate(run_id),
    ):
        with pytest.raises(UserError, match=r"must have its files.* none at file:.*/models/m-"):
            read()
    assert store.client().search_registered_models() == []
