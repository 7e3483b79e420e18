"""Sweeps: one table and one run a cell, none measured twice, the same after kill -9 as without."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipelines.cli import tables
from pipelines.measurement import claim, claim_catalog, sweep
from pipelines.measurement.verdict import VERDICTS
from pipelines.results import scoreboard
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history, store
from tests.conftest import ROOT, command

AGAIN = RunOptions(force=True)
NAME = "small-norm-factorization"
GRID = ("d=2,3", "gamma=0.5,1", "l=5:20:2x")


def swept(*specs, **options):
    return sweep.sweep(NAME, "smoke", specs, **{"seeds": 3, "workers": 1, **options})


def children(document):
    return history.rows(None, **{"mlflow.parentRunId": document["run_id"]})


def content(document):
    """Everything a sweep measured: by name, params and curves of its children; their states."""
    rows = children(document)
    assert len({row.name for row in rows}) == len(rows)
    curves = history.curves([row.id for row in rows])
    return {row.name: (row.status, row.params, plain(curves[row.id])) for row in rows}


def plain(table):
    steps, curves = table
    return {
        name: list(zip(steps.tolist(), values.tolist(), strict=True))
        for name, values in curves.items()
    }


def test_a_sweep_is_one_parent_and_one_finished_child_a_setting_and_seed(home: Path) -> None:
    document = swept(*GRID)
    rows = children(document)
    assert len(rows) == 2 * 2 * 3
    assert {row.status for row in rows} == {"FINISHED"}
    assert {row.tags["assumption_holds"] for row in rows} == {"True"}
    one = store.client().get_metric_history(rows[0].id, "balanced")
    assert [point.step for point in one] == [5, 10, 20]
    parent = history.row(document["run_id"])
    assert (parent.status, parent.tags["kind"]) == ("FINISHED", "sweep")
    assert parent.name.startswith("d=2,3 gamma=0.5,1.0 l=5,10,20")
    assert parent.metrics["total/cells"] == 12
    assert parent.metrics["total/points"] == 36
    artifacts = {a.path for a in store.client().list_artifacts(parent.id)}
    assert {"figure.png", "settings.csv", "cells.npz"} <= artifacts
    assert len(document["settings"]) == 12
    assert "| d | gamma | premise | ratio" in parent.tags["mlflow.note.content"]


def test_the_curves_are_those_of_the_theory_whatever_the_batch(home: Path) -> None:
    from pipelines.claims.hardt_ma.small_norm_factorization import random_matrix
    from theory.factorization import balanced, max_norm

    for name, (_, params, curves) in content(swept(*GRID)).items():
        d, gamma, seed = int(params["d"]), float(params["gamma"]), int(params["seed"])
        R, _ = random_matrix(np.random.default_rng(seed), d, gamma)
        for depth, value in curves["balanced"]:
            assert value == pytest.approx(depth * max_norm(balanced(R, depth)), rel=1e-12), name


def test_processes_give_what_one_process_gives(home: Path) -> None:
    alone, together = swept(*GRID), swept(*GRID, workers=2, run_options=AGAIN)
    assert alone["run_id"] != together["run_id"]
    assert content(alone) == content(together)
    assert alone["metrics"] == together["metrics"]


def measured_at(document):
    """By fingerprint when each cell of a sweep was measured, as its run says."""
    return {row.tags["fingerprint"]: row.start_ms for row in children(document)}


def test_finished_settings_are_not_measured_again(home: Path) -> None:
    first = swept(*GRID)
    assert swept(*GRID)["run_id"] == first["run_id"]
    wider = swept("d=2,3,4", *GRID[1:])
    assert len(wider["settings"]) == len(children(wider)) == 18
    before, after = measured_at(first), measured_at(wider)
    assert before.items() <= after.items()
    spans = {(row.start_ms, row.end_ms) for row in children(wider)}
    assert wider["wall_s"] > sum(end - start for start, end in spans) / 1000 - 0.02
    straight = swept("d=2,3,4", *GRID[1:], run_options=AGAIN)
    assert wider["metrics"] == straight["metrics"]
    assert not before.items() & measured_at(straight).items()


def test_the_order_in_which_an_axis_is_typed_changes_nothing(home: Path) -> None:
    typed = swept("d=3,2", "gamma=1", "l=20,5,10")
    assert swept(*GRID[:1], "gamma=1", GRID[2])["run_id"] == typed["run_id"]
    wider, measured = swept("d=2,3,4", "gamma=1", "l=10,20,5"), swept("d=4", "gamma=1", "l=5,10,20")
    assert wider["settings"][-3:] == measured["settings"]  # which are those measured
    again = swept("d=2,3,4", "gamma=1", "l=5,10,20", run_options=AGAIN)
    assert again["metrics"] == wider["metrics"]


def test_the_newest_measurement_of_a_setting_is_taken(home: Path) -> None:
    swept("d=2", "gamma=1", "l=5")
    newest = measured_at(swept("d=2", "gamma=1", "l=5", run_options=AGAIN))
    wider = swept("d=2,3", "gamma=1", "l=5")
    assert newest.items() <= measured_at(wider).items()


def test_a_sweep_that_failed_goes_on_in_the_same_run(home: Path, monkeypatch) -> None:
    def broken(*_, **__):
        raise RuntimeError("no table today")

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.measurement.claim_run.page.write_note", broken)
        with pytest.raises(RuntimeError):
            swept(*GRID)
    (failed,) = history.rows(None, kind="sweep")
    assert (failed.status, failed.tags["failure"]) == ("FAILED", "RuntimeError: no table today")
    before = {row.id for row in children({"run_id": failed.id})}
    document = swept(*GRID)
    assert document["run_id"] == failed.id
    assert "failure" not in history.row(failed.id).tags
    assert {row.id for row in children(document)} == before


def test_where_nothing_is_judged_the_table_says_so(home: Path, capsys) -> None:
    name = "negative-eigenvalue-fails"
    setting = dataclasses.replace(claim_catalog.load(name).scales["smoke"], delta=(0.1,))
    document = sweep.check(name, "smoke", setting, seeds=1)
    assert document["verdict"] == "inconclusive"
    tables.show_scoreboard([scoreboard.entry_of_run(document).document()])
    assert "not judged" in capsys.readouterr().out


def test_a_database_half_made_is_made_anew(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    (tmp_path / "half.mlflow.db").write_bytes(b"")
    with closing(sqlite3.connect(tmp_path / "half.mlflow.db")) as killed:
        killed.execute("create table runs (run_uuid text)")
    store.client()
    assert history.rows(None) == []
    assert not (tmp_path / "half.mlflow.db").exists()


def test_a_premise_out_of_force_is_recorded_and_not_judged(home: Path) -> None:
    document = swept("d=2", "gamma=2,3", "l=5,16", seeds=1)
    tags = {row.params["gamma"]: row.tags["assumption_holds"] for row in children(document)}
    assert tags == {"2.0": "at some steps", "3.0": "at some steps"}
    assert document["verdict"] == "holds"
    tested_claim = claim_catalog.load(NAME)
    assert (
        tested_claim.verdict({}, "cpu") == "inconclusive"
    )  # nothing was in force: nothing was tested


@pytest.mark.slow
def test_a_trained_claim_can_be_swept(home: Path, digits: Path) -> None:
    grid = ["learning_rate=0.02,0.05"]
    document = sweep.sweep("identity-beats-plain", "smoke", grid, seeds=1)
    pictures = {a.path for a in store.client().list_artifacts(document["run_id"])}
    assert {"figure learning_rate=0.02.png", "figure learning_rate=0.05.png"} <= pictures
    rows = children(document)
    settings = [row for row in rows if row.tags["kind"] == "setting"]
    assert {row.params["learning_rate"] for row in settings} == {"0.02", "0.05"}
    trainings = [row for row in rows if row.tags["kind"] == "training"]
    assert len(trainings) == 3  # the plain network is trained once


def settings_in(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        query = "select count(*) from tags where key = 'kind' and value = 'setting'"
        return int(connection.execute(query).fetchone()[0])


def test_a_setting_that_a_kill_left_half_written_is_written_anew(home: Path, capsys) -> None:
    document = swept(*GRID)
    whole, client = content(document), store.client()
    parent, (setting, *_) = history.row(document["run_id"]), children(document)
    tags = {key: setting.tags[key] for key in ("kind", "claim", "fingerprint", "code")}
    tags[store.PARENT] = parent.id
    place = client.get_run(parent.id).info.experiment_id
    half = client.create_run(place, tags=tags, run_name=setting.name)  # params come later
    client.set_terminated(half.info.run_id, "KILLED")
    client.delete_run(setting.id)
    client.set_terminated(parent.id, "KILLED")
    assert swept(*GRID)["run_id"] == parent.id
    assert content(document) == whole
    assert "left out" not in capsys.readouterr().err


@pytest.mark.slow
def test_killed_and_started_again_it_ends_like_an_uninterrupted_one(home: Path) -> None:
    words = ["pipelines", "sweep", NAME, "--scale", "smoke", "--seeds", "6", "--workers", "2"]
    words += ["--grid", "d=2,3", "--grid", "gamma=0.2:0.8:0.2", "--grid", "l=8:512:2x", "--json"]
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while settings_in(home / "mlflow.db") < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(workers, timeout=10)[1] == []  # none is left behind
    before = settings_in(home / "mlflow.db")
    assert 8 <= before < 48
    again = command(*words)
    assert again.returncode == 0, again.stderr
    assert "Settled run" in again.stderr
    (parent,) = history.rows(None, kind="sweep")
    assert parent.status == "FINISHED"
    interrupted = content({"run_id": parent.id})
    assert len(interrupted) == 48
    assert {status for status, _, _ in interrupted.values()} == {"FINISHED"}
    specs = [words[i + 1] for i, word in enumerate(words) if word == "--grid"]
    straight = sweep.sweep(NAME, "smoke", specs, seeds=6, workers=1, run_options=AGAIN)
    assert content(straight) == interrupted
    assert {k: v for k, v in parent.metrics.items() if k != "wall_s"} == {
        k: v for k, v in history.row(straight["run_id"]).metrics.items() if k != "wall_s"
    }


ONE_CELL = [
    name
    for name in claim_catalog.names()
    if isinstance(claim_catalog.load(name), claim.Theorem) and name != "gradient-formula"
]


@pytest.mark.parametrize("name", ONE_CELL)
def test_a_grid_of_one_cell_is_measured_and_drawn(name: str, home: Path) -> None:
    tested_claim = claim_catalog.load(name)
    settings = tested_claim.scales["smoke"]
    fields = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    axes = {key: value for key, value in fields.items() if isinstance(value, tuple)}
    last = {k: value if k == tested_claim.inner else value[-1:] for k, value in axes.items()}
    specs = [f"{key}={','.join(map(str, values))}" for key, values in last.items()]
    document = sweep.sweep(name, "smoke", specs, seeds=1, workers=1)
    assert document["verdict"] in VERDICTS.keys() - {"refuted", "not reproduced"}
    assert len(children(document)) == 1
