"""The evidence: it travels, counts as the project's and nobody's own, adds up, and is checked."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import tables
from pipelines.errors import UserError
from pipelines.measurement import cells, claim, claim_catalog, claim_code, sweep
from pipelines.measurement.claim_run import json_document
from pipelines.measurement.plan import stated_plan
from pipelines.results import scoreboard
from pipelines.results.evidence import adding, bundles, check
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history, store, stored_models, tracked_run
from pipelines.tracking.bundles import exporting, importing
from tests.conftest import Go

NAME = "small-norm-factorization"
MOST = 20_000_000  # bytes that git keeps of all evidence


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw none, which takes most of the time of a measurement and is looked at nowhere here."""
    monkeypatch.setattr(tracked_run.Run, "figure", lambda *_: None)


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the evidence is, empty at first; every home of a test is the project's own."""
    monkeypatch.setattr(bundles, "FOLDER", tmp_path / "evidence")
    monkeypatch.setattr(store, "is_project_home", lambda: True)
    return bundles.FOLDER


@pytest.fixture
def shipped(folder: Path, go: Go) -> str:
    """The id of a run that the evidence holds; we are in another home, which has imported it."""
    run_id = measure()
    adding.add([NAME])
    go("b")
    assert bundles.import_if_own() == 1
    return run_id


def measure(seeds: int | None = None, **how: Any) -> str:
    """Measure the claim at smoke scale, as `run` does; the id of its run."""
    return str(measure_document(seeds, **how)["run_id"])


def measure_document(seeds: int | None = None, force: bool = False, **how: Any) -> dict[str, Any]:
    settings, run_options = claim_catalog.load(NAME).scales["smoke"], RunOptions(force=force)
    return sweep.check(NAME, "smoke", settings, seeds, run_options=run_options, **how)


def entry() -> scoreboard.Entry:
    [found] = [entry for entry in scoreboard.entries() if entry.name == NAME]
    return found


def project_seeds() -> int:
    project = entry().project
    return 0 if project is None else int(project.run.tags["seeds"])


def test_what_the_project_recorded_is_here_and_nobodys_own(shipped: str) -> None:
    assert bundles.import_if_own() == 0
    assert history.rows(None, kind="claim") == []
    [row] = history.rows(kind="claim", origin="project")
    assert (row.origin, row.tags["seeds"]) == (shipped, "5")
    assert (entry().yours, entry().verdict) == (None, "holds")
    own = measure()  # a cheap claim is measured here, too
    assert own != shipped
    shown = entry()
    assert shown.project and shown.yours
    assert (shown.project.run.origin, shown.yours.run.id) == (shipped, own)
    document = shown.document()
    assert (document["run_id"], document["recorded_by"]) == (own, "you")
    assert document["project"]["run_id"] == shipped


def test_only_the_evidence_itself_says_what_the_project_recorded(
    folder: Path, go: Go, tmp_path: Path
) -> None:
    measured = measure()
    [added] = adding.add([NAME])["added"]
    copy = Path(shutil.copy(added["file"], tmp_path / "copy.zip"))
    go("b")
    assert bundles.import_runs(copy)["imported"] == []  # it came from the evidence, first
    assert [row.origin for row in history.rows(kind="claim", origin="project")] == [measured]
    Path(added["file"]).unlink()
    go("c")
    imported = bundles.import_runs(copy)["imported"]
    assert history.rows(None, kind="claim", origin="project") == []
    [row] = history.rows(kind="claim")
    assert (row.id, row.origin) == (imported[0], measured)
    [again] = adding.add([str(copy)])["added"]
    assert again["seeds"] == {"smoke": 5}


def test_a_claim_that_was_imported_is_added_to_the_evidence(
    folder: Path, go: Go, tmp_path: Path
) -> None:
    exporting.export_runs(tmp_path / "claim.zip", [measure()], None)
    go("b")
    assert len(bundles.import_runs(tmp_path / "claim.zip")["imported"]) == 1
    [row] = history.rows(kind="claim")
    [added] = adding.add([NAME])["added"]
    assert added["seeds"] == {"smoke": 5}
    assert row.id in {each.run_id for each in bundles.rows()}


def test_a_seed_that_was_measured_elsewhere_joins_the_evidence(shipped: str) -> None:
    assert adding.add([NAME])["added"] == []
    measure(only_seed=5)
    [added] = adding.add([NAME])["added"]
    assert added["seeds"] == {"smoke": 6}


def test_a_store_that_was_named_is_left_alone(
    home: Path, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "FOLDER", tmp_path / "evidence")
    measure()
    adding.add([NAME])
    go("b")
    assert bundles.import_if_own() == 0
    assert [each["here"] for each in bundles.list_bundles()["evidence"]] == [False]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path / "own"))
    assert bundles.import_if_own() == 1


def test_a_seed_of_another_machine_adds_one_and_nothing_twice(
    folder: Path, go: Go, tmp_path: Path
) -> None:
    measure()
    adding.add([NAME])
    go("b")
    alone = measure(only_seed=5)
    exporting.export_runs(tmp_path / "five.zip", [alone], None)
    exporting.export_runs(tmp_path / "six.zip", [measure(6)], None)  # five of them once more
    go("a")
    [added] = adding.add([str(tmp_path / "five.zip")])["added"]
    assert added["seeds"] == {"smoke": 6}
    assert project_seeds() == 6
    assert entry().project.document()["metrics"]["ratio"]["n"] == 6  # type: ignore[union-attr]
    assert adding.add([str(tmp_path / "five.zip"), str(tmp_path / "six.zip")])["added"] == []
    assert len(bundles.files()) == 2
    go("c")
    assert bundles.import_if_own() == 2
    assert project_seeds() == 6


def test_no_seed_can_be_left_out(folder: Path) -> None:
    measure()
    measure(only_seed=7)
    [added] = adding.add([NAME])["added"]
    assert added["seeds"] == {"smoke": 5}
    measure(only_seed=5)
    adding.add([NAME])
    measure(only_seed=6)
    adding.add([NAME])
    assert project_seeds() == 8


def test_the_whole_is_joined_from_parts_of_several_machines(
    folder: Path, go: Go, tmp_path: Path
) -> None:
    files = []
    for seed in range(5):
        go(f"machine {seed}")
        files.append(tmp_path / f"{seed}.zip")
        exporting.export_runs(files[-1], [measure(only_seed=seed)], None)
    go("whole")
    whole = metrics_of(measure())
    go("joined")
    for file in files[:4]:
        adding.add([str(file)])
    assert project_seeds() == 0  # fewer than the claim asks for decide nothing
    adding.add([str(files[4])])
    project = entry().project
    assert project is not None
    assert project.document()["metrics"] == whole


def metrics_of(run_id: str) -> Any:
    return json_document.claim_document(history.row(run_id))["metrics"]


def test_what_is_measured_anew_replaces_evidence_that_was_deleted(folder: Path) -> None:
    measured = measure()
    adding.add([NAME])
    [old] = bundles.files()
    assert adding.add([NAME])["added"] == []
    again = measure(force=True)
    old.unlink()
    [added] = adding.add([NAME])["added"]
    assert added["seeds"] == {"smoke": 5}
    ids = {row.run_id for row in bundles.rows_of(Path(added["file"]))}
    assert again in ids
    assert measured not in ids
    assert project_seeds() == 5


def test_withdrawn_evidence_is_the_projects_no_more(folder: Path, go: Go) -> None:
    measure(7)
    adding.add([NAME])
    go("user")
    bundles.import_if_own()
    assert project_seeds() == 7
    for file in bundles.files():
        file.unlink()
    assert project_seeds() == 0
    go("fresh")
    measure()
    adding.add([NAME])
    go("user")
    assert bundles.import_if_own() == 1
    assert project_seeds() == 5
    assert adding.add([NAME])["added"] == []


def test_an_addition_that_is_killed_is_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure()
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "write", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adding.add([NAME])
    assert project_seeds() == 0
    assert len(adding.add([NAME])["added"]) == 1
    assert project_seeds() == 5


def test_a_seed_measured_apart_is_found_with_its_verdict(folder: Path) -> None:
    first, again = measure_document(only_seed=5), measure_document(only_seed=5)
    assert again == first | {"reused": True}
    assert first["verdict"] == "holds"


def test_a_new_number_of_an_expensive_claim_is_made_of_its_cells(
    shipped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = claim_catalog.load(NAME)
    more = dataclasses.replace(
        found, extra_metrics=lambda measured: found.extra_metrics(measured) | {"one": 1.0}
    )
    monkeypatch.setattr(claim_catalog, "load", lambda name: more)
    monkeypatch.setattr(sweep, "EXPENSIVE_S", 0)
    document = measure_document()
    assert document["reused"]
    assert document["metrics"]["one"]["mean"] == 1
    problems = check.check_evidence(publish(tmp_path))["problems"]
    assert any("has recorded another one than its cells say" in each for each in problems)
    [added] = adding.add([NAME])["added"]  # joined anew, by today's rules
    assert added["runs"] == 1
    assert check.check_evidence(publish(tmp_path))["problems"] == []


def test_cells_of_other_code_are_joined_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(only_seed=0)
    monkeypatch.setattr(claim_code, "of_claim", lambda *name: "other")
    for seed in range(1, 5):
        measure(only_seed=seed)
    adding.add([NAME])
    assert project_seeds() == 5
    project = entry().project
    assert project is not None
    [checked] = check.check_evidence(publish(folder.parent))["claims"]
    assert checked["other_code"] == project.run.metrics["total/cells"] / 5
    codes = project.run.tags[json_document.MEASURED_BY]
    assert codes.count("settings)") == 2
    assert codes in project.document()["commit"]
    assert entry().document()["other_code"]


def test_a_seed_of_another_backend_is_of_the_same_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("KERAS_BACKEND", "jax")
        first = measure(only_seed=0)
    for seed in range(1, 5):
        second = measure(only_seed=seed)
    codes = [history.row(run_id).tags[cells.CELL_CODE] for run_id in (first, second)]
    assert len(set(codes)) == 2  # no run of one backend stands for one of another
    adding.add([NAME])
    [checked] = check.check_evidence(publish(folder.parent))["claims"]
    assert checked["other_code"] == 0
    project = entry().project
    assert project is not None
    assert json_document.MEASURED_BY not in project.run.tags


def test_an_expensive_claim_is_shown_and_measured_by_force_alone(
    shipped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "EXPENSIVE_S", 0)
    document = measure_document()
    [row] = history.rows(kind="claim", origin="project")
    assert (document["run_id"], row.origin, document["reused"]) == (row.id, shipped, True)
    assert tables.reason_not_measured(document).startswith("Measured by the project on 20")
    assert "other code" not in tables.reason_not_measured(document)
    monkeypatch.setattr(claim_code, "of_claim", lambda *name: "other")
    assert ", by other code than this: " in tables.reason_not_measured(measure_document())
    assert history.rows(kind="claim") == []
    assert measure(force=True) != row.id
    assert history.rows(kind="claim")


def test_seeds_beyond_those_of_an_expensive_claim_are_all_that_is_measured(
    shipped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "EXPENSIVE_S", 0)
    before = cells_at(history.rows(kind="claim", origin="project")[0], 5)
    own = history.row(measure(6))
    measured = cells_at(own, 6)
    assert own.metrics["n/ratio"] == 6
    assert measured[: len(before)] != before  # settings come first, then seeds
    assert sorted(m for m in measured if m in before) == sorted(before)


def cells_at(row: history.Row, seeds: int) -> list[tuple[str, int]]:
    """Return of every cell of a run its fingerprint and when it was measured."""
    plan = stated_plan(NAME, "smoke", seeds)
    found = cells.read_plan(plan, row.id) or []
    return [(plan.cell_fingerprint(m.cell), m.start_ms) for m in found]


def test_an_export_leaves_out_what_everyone_has(shipped: str, tmp_path: Path) -> None:
    own = measure()
    runs = exporting.export_runs(tmp_path / "mine.zip", [NAME], None)["runs"]
    [row] = history.rows(kind="claim", origin="project")
    assert row.origin == shipped
    exported = {run["run_id"] for run in runs}
    assert own in exported and row.id not in exported
    [named] = exporting.export_runs(tmp_path / "named.zip", [row.id], None)["runs"]
    assert named["run_id"] == row.id


def publish(tmp_path: Path) -> Path:
    """Write results.json of the evidence."""
    scoreboard.publish(tmp_path / "published")
    return tmp_path / "published" / "results.json"


def test_every_verdict_follows_from_the_curves(folder: Path, go: Go, tmp_path: Path) -> None:
    for name in (NAME, "gradient-formula"):
        sweep.check(name, "smoke", claim_catalog.load(name).scales["smoke"])
    adding.add([NAME, "gradient-formula"])
    results = publish(tmp_path)
    go("empty")
    document = check.check_evidence(results)
    assert document["problems"] == []
    assert [each["claim"] for each in document["claims"]] == ["gradient-formula", NAME]
    assert history.rows_with_evidence(None) == []


DOCTORED = {  # of results.json: a text, another in its place, and how the first problem begins
    '"verdict": "holds"': ('"verdict": "refuted"', 'verdict: results.json says "refuted"'),
    '"mean": 0.': ('"mean": 0.0', "psd_ratio: results.json says"),
    '"n": 5': ('"n": 50', "augmented_error: results.json says"),
    '"scale": "smoke"': ('"scale": "paper"', 'scale: results.json says "paper"'),
    f'"claim": "{NAME}"': ('"claim": "another"', "results.json has nothing of it"),
}


def test_a_doctored_row_is_found_and_a_verdict_without_evidence(
    folder: Path, tmp_path: Path
) -> None:
    measure()
    adding.add([NAME])
    results = publish(tmp_path)
    text = results.read_text()
    for old, (new, problem) in DOCTORED.items():
        assert old in text
        results.write_text(text.replace(old, new))
        [first, *_] = check.check_evidence(results)["problems"]
        assert first.startswith(f"{NAME}: {problem}")
    results.write_text(text)
    for each in bundles.files():
        each.unlink()
    [problem] = check.check_evidence(results)["problems"]
    assert problem == f"{NAME}: results.json says holds, and no evidence says so"


def test_the_last_bits_of_a_fit_are_no_other_number() -> None:
    assert json_document.are_same([-0.9912964992116793], [-0.9912964992116795])
    assert not json_document.are_same([-0.9912964992116793], [-0.9912964])
    assert not json_document.are_same([-0.9912964992116793], [-0.9912964992116793] * 2)


def test_a_run_that_recorded_other_numbers_than_its_curves_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = history.row(measure())
    worst = row.metrics["ratio"]
    store.client().log_metric(row.id, f"{claim.SEED_PREFIX}ratio", worst / 2, step=0)
    monkeypatch.setattr(adding, "_is_of_today", lambda *_: True)
    adding.add([NAME])
    problems = check.check_evidence(publish(tmp_path))["problems"]
    assert f"{NAME}: run {row.id} has recorded another ratio than its cells say" in problems


def test_what_is_added_must_be_a_file_or_a_claim(folder: Path) -> None:
    with pytest.raises(UserError, match="must be named"):
        adding.add([])
    with pytest.raises(UserError, match="small-norm"):
        adding.add(["small-norm"])
    assert adding.add([NAME])["added"] == []


@pytest.mark.slow
def test_trainings_travel_without_networks_and_with_thin_curves(
    folder: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "identity-beats-plain"
    monkeypatch.setattr(exporting, "POINTS", 3)
    sweep.check(name, "smoke", claim_catalog.load(name).scales["smoke"])
    trained = {row.id: row.metrics for row in history.rows(kind="training")}
    monkeypatch.setattr(importing, "SHOWN_POINTS", 3)
    adding.add([name])
    go("b")
    bundles.import_if_own()
    rows = history.rows(kind="training", origin="project")
    assert {row.origin: row.metrics for row in rows} == trained
    assert all(stored_models.find_id(row.id) is None for row in rows)
    history_of = store.client().get_metric_history(rows[0].id, "batch_loss")
    assert 3 <= len(history_of) <= 4


def test_the_shipped_evidence_is_small_and_about_claims() -> None:
    files = bundles.files()
    assert files
    assert {bundles.subject(file) for file in files} <= set(claim_catalog.names())
    assert sum(file.stat().st_size for file in files) < MOST
