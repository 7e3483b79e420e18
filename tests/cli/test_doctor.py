"""The doctor: a healthy home is healthy, and each broken thing is found by its own check alone."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines import __version__
from pipelines.__main__ import dispatch
from pipelines.cli import doctor
from pipelines.errors import UserError
from pipelines.results import reference_runs
from pipelines.runtime import heartbeat, places, provenance
from pipelines.tracking import history, recovery, store, tracked_run
from tests.conftest import command

KEYS = ["check", "state", "found", "costs", "fix"]
MACHINE = {"project code", "backend"}  # what they say depends on where tests run
Patch = pytest.MonkeyPatch


def find_states() -> dict[str, dict[str, Any]]:
    """What the checks found, by name."""
    return {row["check"]: row for row in doctor.examine()["checks"]}


def unexpected_states(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The states of checks that are not ok; CIFAR and ImageNet are never prepared in tests."""
    states = {name: row["state"] for name, row in rows.items() if row["state"] != "ok"}
    expected = {**dict.fromkeys(MACHINE, "note"), "data sets": "note"}
    return {name: state for name, state in states.items() if expected.get(name) != state}


def record() -> str:
    """A run with an artifact; its id."""
    with tracked_run.track("r", experiment="test", kind="training") as run:
        run.log({"loss": 1.0}, 1)
    return run.id


def test_a_healthy_home_is_healthy_and_is_left_as_it_was(home: Path, digits: Path) -> None:
    record()
    reference_runs.write()  # which have no files
    runs = len(history.rows(None))
    before = {path for path in home.rglob("*") if path.is_file()}
    document = doctor.examine()
    assert document["healthy"]
    assert [list(row) for row in document["checks"]] == [KEYS] * len(doctor.CHECKS)
    rows = {row["check"]: row for row in document["checks"]}
    assert unexpected_states(rows) == {}
    for row in rows.values():
        assert row["found"]
        assert bool(row["costs"]) == bool(row["fix"]) == (row["state"] != "ok")
    assert {path for path in home.rglob("*") if path.is_file()} - before == set()
    with sqlite3.connect(home / "mlflow.db") as database:
        tags = "SELECT * FROM experiment_tags WHERE key != 'made_by'"
        assert database.execute(tags).fetchall() == []
    database.close()
    assert len(history.rows(None)) == runs


def says_running(*tag: str) -> str:
    """The id of a run that says RUNNING, of this process but for one tag."""
    run_id = record()
    store.client().update_run(run_id, status="RUNNING")
    if tag:
        store.client().set_tag(run_id, *tag)
    return run_id


def corrupt_studies(home: Path, patch: Patch) -> None:
    (home / "optuna.journal").write_text("no journal at all\n")


def file_for_artifacts(home: Path, patch: Patch) -> None:
    (home / "artifacts").write_text("")


def damaged_journal(home: Path, patch: Patch) -> None:
    run_id = says_running()
    head = json.dumps({"uri": store.uri()})
    (home / "live" / f"{run_id}.jsonl").write_text(f'{head}\n{{"numbers": 5}}\n')
    recovery.deliver_journals()


def waiting_journal(home: Path, patch: Patch) -> None:
    run_id = says_running()
    (home / "live" / f"{run_id}.jsonl").write_text(json.dumps({"uri": store.uri()}) + "\n")


def run_of_a_dead_process(home: Path, patch: Patch) -> None:
    says_running(heartbeat.PROCESS, f"{os.getpid()} 1.00")  # its number was given again


def journal_of_a_deleted_run(home: Path, patch: Patch) -> None:
    run_id = record()
    (home / "live" / f"{run_id}.jsonl").write_text(
        json.dumps({"uri": store.uri()}) + '\n{"numbers": [["loss", 2.0, 9, 5]]}\n'
    )
    store.client().delete_run(run_id)
    recovery.deliver_journals()


def home_below_a_file(home: Path, patch: Patch) -> None:
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db/below/mlflow.db")


def corrupt_runs(home: Path, patch: Patch) -> None:
    (home / "other").mkdir()
    (home / "other" / "mlflow.db").write_text("no database at all, long enough to be one")
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/other/mlflow.db")


def absent_server(home: Path, patch: Patch) -> None:
    patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")


def absent_database(home: Path, patch: Patch) -> None:
    patch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@127.0.0.1:9/runs")


def data_below_a_file(home: Path, patch: Patch) -> None:
    patch.setenv("TFDS_DATA_DIR", str(home / "mlflow.db" / "data"))


def torn_data(home: Path, patch: Patch) -> None:
    folder = home.with_name("torn")
    shutil.copytree(os.environ["TFDS_DATA_DIR"], folder)
    for file in folder.rglob("*.tfrecord*"):
        file.write_bytes(file.read_bytes()[:20])
    patch.setenv("TFDS_DATA_DIR", str(folder))


def little_memory(home: Path, patch: Patch) -> None:
    patch.setattr(doctor, "MIN_MEMORY_BYTES", 1e18)


def little_disk(home: Path, patch: Patch) -> None:
    patch.setattr(doctor, "MIN_DISK_BYTES", 1e18)


def other_python(home: Path, patch: Patch) -> None:
    patch.setattr(doctor, "SUPPORTED_PYTHONS", ("3.99",))


Broken = tuple[Callable[[Path, Patch], None], str, str, str]  # check, its state, its fix
BROKEN: list[Broken] = [
    (corrupt_studies, "studies", "problem", "python -m tuning show"),
    (file_for_artifacts, "artifacts", "problem", "MLFLOW_TRACKING_URI"),
    (waiting_journal, "running runs", "note", "python -m pipelines recover"),
    (run_of_a_dead_process, "running runs", "note", "python -m pipelines recover"),
    (journal_of_a_deleted_run, "running runs", "note", "*.orphan, then delete"),
    (damaged_journal, "running runs", "note", "*.orphan, then delete"),
    (home_below_a_file, "tracking store", "problem", "MLFLOW_TRACKING_URI"),
    (corrupt_runs, "tracking store", "problem", "MLFLOW_TRACKING_URI"),
    (absent_server, "tracking store", "problem", "start its server"),
    (absent_database, "tracking store", "problem", "start its server"),
    (data_below_a_file, "data sets", "problem", "--data-dir"),
    (torn_data, "data sets", "problem", "python -m pipelines data prepare digits"),
    (little_memory, "memory", "problem", "more memory"),
    (little_disk, "disk", "problem", "--data-dir"),
    (other_python, "Python", "problem", "make setup PYTHON="),
]


@pytest.mark.parametrize("broken", BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_a_broken_thing_is_found_by_its_own_check_alone(
    home: Path, digits: Path, monkeypatch: Patch, broken: Broken
) -> None:
    breaks, check, state, fix = broken
    breaks(home, monkeypatch)
    rows = find_states()
    assert unexpected_states(rows) == {check: state}
    assert fix in rows[check]["fix"]
    assert rows[check]["costs"]
    assert not any("\n" in text or "secret" in text for text in rows[check].values())
    left_out = set(doctor.CHECKS) - rows.keys()
    away = check == "tracking store" and state == "problem"
    assert left_out == ({"running runs", "artifacts", "studies"} if away else set())


def test_a_thorough_examination_loads_the_backend_and_reads_examples(
    home: Path, digits: Path, monkeypatch: Patch
) -> None:
    folder = home.with_name("changed")
    shutil.copytree(digits, folder)
    for file in folder.rglob("*.tfrecord*"):  # of the same sizes
        file.write_bytes(bytes(file.stat().st_size))
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
    monkeypatch.setattr(shutil, "which", lambda name: None)  # as on a machine without a GPU
    brief = find_states()
    assert ("no NVIDIA driver" in brief["backend"]["found"], brief["data sets"]["state"]) == (
        True,
        "note",
    )
    document = doctor.examine(thorough=True)
    rows = {row["check"]: row for row in document["checks"]}
    assert "0 GPUs" in rows["backend"]["found"]
    assert rows["data sets"]["state"] == "problem"
    assert "data prepare digits" in rows["data sets"]["fix"]


def test_dead_is_what_recover_would_close_and_nothing_else(home: Path) -> None:
    says_running()  # of this process
    says_running(heartbeat.MACHINE, "elsewhere 8c2f pid:[1]")
    store.client().create_run(store.experiment(store.uri(), "test"))  # of nobody
    assert doctor.check_runs().state == "ok"
    dead = {says_running(heartbeat.PROCESS, f"{os.getpid()} 1.00")}
    silent = says_running(heartbeat.MACHINE, "elsewhere 8c2f pid:[1]")
    store.client().set_tag(silent, heartbeat.HEARTBEAT, "0")
    assert doctor.check_runs().found.startswith("of 2 runs ")
    assert recovery.recover().keys() == dead | {silent}
    assert doctor.check_runs().state == "ok"


def test_claims_are_named_that_cannot_run_without_a_data_set(
    home: Path, digits: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    found = doctor.check_data_sets()
    assert (found.state, "digits prepared" in found.found) == ("note", True)
    for name in ("skip-length", "resnet-cifar100", "imagenet-underfits (paper scale)"):
        assert name in found.costs
    assert "identity-beats-plain," not in found.costs  # digits are there
    assert "data prepare cifar10 " in found.fix
    assert "data prepare mnist " in found.fix
    assert "imagenet32" not in found.fix  # no claim reads it
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nowhere"))
    assert "not there yet" in doctor.check_data_sets().found
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("commit", "state"), [("abc", "ok"), ("abc+changes", "note"), ("unknown", "note")]
)
def test_code_that_its_commit_does_not_hold_is_a_note(
    commit: str, state: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(provenance, "tags", lambda: {"commit": commit})
    assert doctor.check_code().state == state


@pytest.mark.parametrize(
    ("commit", "state"), [("abc", "ok"), ("abc+changes", "note"), (__version__, "note")]
)
def test_a_package_that_its_commit_does_not_repeat_is_a_note(
    commit: str, state: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(places, "is_checkout", lambda: False)
    monkeypatch.setattr(provenance, "tags", lambda: {"commit": commit})
    assert doctor.check_code().state == state


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_package_without_evidence_is_not_healthy(
    is_checkout: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert doctor.check_evidence().state == "ok"
    monkeypatch.setattr(places, "is_checkout", lambda: is_checkout)
    monkeypatch.setattr(places, "published_folder", lambda: tmp_path)
    assert doctor.check_evidence().state == "problem"


def test_a_check_that_raises_is_a_problem_in_a_sentence(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken() -> doctor.Finding:
        raise UserError("The rule. Received: this. Do that.")

    def failing() -> doctor.Finding:
        raise KeyError

    checks = {"one": mistaken, "other": failing, "fine": lambda: doctor.Finding("ok", "yes")}
    monkeypatch.setattr(doctor, "CHECKS", checks)
    document = doctor.examine(doctor.show_row)
    assert [row["state"] for row in document["checks"]] == ["problem", "problem", "ok"]
    assert not document["healthy"]
    doctor.show_counts(document)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "problem  one    The rule. Received: this. Do that."
    assert lines[1].strip().startswith("costs: ")
    assert lines[2].strip().startswith("fix: ")
    assert lines[3].startswith("problem  other  KeyError")
    assert lines[6] == "ok       fine   yes"
    assert lines[-1] == "not healthy: 1 ok, 0 note, 2 problem"
    with pytest.raises(SystemExit) as ended:
        dispatch(["doctor", "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.slow
def test_the_command_ends_with_1_for_a_backend_that_is_not_there(
    home: Path, digits: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "no-such-backend")
    done = command("pipelines", "doctor", "--json")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    document = json.loads(done.stdout)
    assert not document["healthy"]
    rows = {row["check"]: row for row in document["checks"]}
    assert unexpected_states(rows) == {"backend": "problem"}
    assert "no-such-backend" in rows["backend"]["found"]
    assert "data sets" not in rows
