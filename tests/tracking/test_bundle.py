"""Export and import: a run must be the same in another store."""

import contextlib
import functools
import json
import os
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.results import scoreboard
from pipelines.runtime import heartbeat
from pipelines.tracking import finished_runs, history, mlflow_ui, recovery, store
from pipelines.tracking.bundles import exporting, importing
from pipelines.tracking.bundles.shape import IMPORTING, ORIGIN
from tests.conftest import Go, exit_code, free_port, mlflow_server
from tests.tracking.bundles import all_runs, exported, pictures, tracked

DATA = {
    "source_type": "http",
    "source": {"url": "https://example.org"},
    "schema": {"features": ("uint8", [-1, 8, 8, 1]), "targets": ("int64", [-1])},
    "profile": {"train": 10},
}

NAN, INF = float("nan"), float("inf")


def sample() -> dict[str, str]:
    """Runs with all that a run can have; ids by name."""
    with tracked("old", experiment="two", tags={"recipe": "old"}) as old:
        old.log({"loss": 1.0}, 3)
    tags = dict.fromkeys((*history.NEEDED["claim"], *history.JUDGED), "1")
    with tracked("top", kind="claim", params={"d": 4}, tags=tags | {"claim": "top"}) as top:
        top.link(store.REUSED, old.id)
        top.tag("mlflow.note.content", f"See [all]({mlflow_ui.children_chart(top.id)}), {old.id}")
        top.text("a,b\n", "table.csv")
        top.text("ü", "deep/er/with space é.txt")
        top.dataset("digits", "abc", DATA)
        with tracked("broken", parent=top, tags={"study": "s"}) as child:
            child.log({"loss": NAN, "up": INF, "down": -INF}, 1)
            child.log({"loss": 2.0}, 1)
        points = [(5, 10, 1.5), (5, 11, 0.5), (5, 11, 0.5), (-2, 9, NAN), (7, 12, 1e-320)]
        for step, date_ms, value in points:
            store.client().log_metric(child.id, "again", value, timestamp=date_ms, step=step)
        cells = [write_cell(f"cell {i}", i, top.id) for i in range(3)]
    store.client().set_terminated(child.id, "FAILED", 123_456)
    with contextlib.suppress(KeyboardInterrupt), tracked("killed", tags={"recipe": "alone"}) as run:
        raise KeyboardInterrupt
    model(top.id)
    named = {"old": old.id, "top": top.id, "broken": child.id, "killed": run.id}
    return named | {f"cell {i}": run_id for i, run_id in enumerate(cells)}


def strange() -> str:
    """The id of a run that something else made: it ended, and its tags name no process."""
    to = store.client()
    run_id = to.create_run(store.experiment(store.uri(), "one"), 1_000, run_name="strange")
    run_id = str(run_id.info.run_id)
    to.log_text(run_id, "a", "a.txt")
    to.set_terminated(run_id, "FAILED", 2_000)
    return run_id


def write_cell(name: str, seed: int, parent: str) -> str:
    return finished_runs.write(
        name,
        experiment="one",
        parent=parent,
        params={"seed": seed},
        tags={"kind": "setting", "fingerprint": name},
        steps=[1, 2, 4],
        curves={"loss": [3.0, NAN, float(seed)], "bound": [INF, 1.0, 0.5]},
        start_ms=5_000,
        end_ms=9_000,
    )


@functools.cache
def twice() -> Any:
    """A network that doubles what it reads."""
    from pipelines.runtime import backend

    keras = backend.keras()
    inputs = keras.Input((1,))
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(2))
    return keras.Model(inputs, dense(inputs))


def model(run_id: str) -> None:
    """A model of a run, made as MLflow makes one."""
    import mlflow.keras
    from mlflow.models import infer_signature

    store.client().log_metric(run_id, "accuracy", 0.5, timestamp=7, step=2)
    status = store.client().get_run(run_id).info
    numbers = np.zeros((1, 1), "float32")
    with mlflow.start_run(run_id=run_id):
        mlflow.keras.log_model(
            twice(),
            name="model",
            signature=infer_signature(numbers, numbers),
            pip_requirements=["keras==3.15.1", "mlflow==3.17.2"],
            step=2,
        )
    store.client().set_terminated(run_id, status.status, status.end_time)


def documents(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as zipped:
        names = [name for name in zipped.namelist() if re.fullmatch("runs/[^/]+", name)]
        return {name: json.loads(zipped.read(name)) for name in names}


@pytest.fixture
def bundled(home: Path, tmp_path: Path) -> Path:
    """The sample, exported."""
    sample()
    exporting.export_runs(tmp_path / "runs.zip", [], None)
    return tmp_path / "runs.zip"


@dataclass
class Carried:
    """An export of the sample, and of a run of another program's: its ids and runs by name."""

    file: Path
    ids: dict[str, str]
    before: dict[str, str]


@pytest.fixture
def carried(home: Path, go: Go) -> Carried:
    """The sample, exported; the store in force is another one, which is empty."""
    ids, file = sample() | {"strange": strange()}, home.parent / "runs.zip"
    assert exported(file) == ids.keys()
    before = pictures()
    go("b")
    return Carried(file, ids, before)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_runs_are_the_same_in_another_database(
    kind: str, carried: Carried, home: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "postgresql":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("postgresql"))
        monkeypatch.setattr(store, "home", lambda: home.parent / "b")
    document = importing.import_runs(carried.file)
    assert document["present"] == []
    check_imported(carried, document["imported"])


def predictions(run_id: str) -> list[float]:
    import mlflow.pyfunc

    loaded = mlflow.pyfunc.load_model(f"runs:/{run_id}/model")
    assert store.client().get_logged_model(loaded.model_id).source_run_id == run_id
    assert loaded.metadata.run_id == run_id
    return list(np.ravel(loaded.predict(np.array([[1], [2]], "float32"))))


def test_links_lead_to_the_runs_of_this_store(carried: Carried, go: Go) -> None:
    importing.import_runs(carried.file)
    here = store.experiment(store.uri(), "one")
    top = row_here(carried.ids["top"])
    note = top.tags["mlflow.note.content"]
    assert note == f"See [all]({mlflow_ui.children_chart(top.id)}), {carried.ids['old']}"
    assert f"#/experiments/{here}/runs?" in note
    go("mlruns")
    assert here != store.experiment(store.uri(), "one")


def row_here(origin: str) -> history.Row:
    """Return the run that has that id where it was measured."""
    [row] = [row for row in history.rows(None) if row.origin == origin]
    return row


def check_imported(carried: Carried, imported: list[str]) -> None:
    """Check that runs are as they were, under new ids, and all that names them follows."""
    ids = carried.ids
    assert not {*imported} & {*ids.values()}
    assert {history.row(run_id).tags[ORIGIN] for run_id in imported} == {*ids.values()}
    assert not [run_id for run_id in imported if IMPORTING in history.row(run_id).tags]
    assert pictures() == carried.before
    top, old = row_here(ids["top"]), row_here(ids["old"])
    children = history.rows(None, **{"mlflow.parentRunId": top.id})
    assert {row.name for row in children} == {"broken", "cell 0", "cell 1", "cell 2"}
    assert store.read_links(top.tags, store.REUSED) == [old.id]
    assert mlflow_ui.children_chart(top.id) in top.tags["mlflow.note.content"]
    assert predictions(top.id) == [2.0, 4.0]
    again = importing.import_runs(carried.file)
    assert (again["imported"], set(again["present"])) == ([], set(imported))
    assert pictures() == carried.before


@pytest.mark.slow
def test_runs_go_to_a_server_and_back(
    carried: Carried, home: Path, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, ids = tmp_path / "back.zip", carried.ids
    with mlflow_server(tmp_path, free_port()) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        with monkeypatch.context() as patch:
            patch.setattr(store, "home", lambda: home.parent / "b")
            check_imported(carried, importing.import_runs(carried.file)["imported"])
            assert exported(back, "top") == ids.keys() - {"killed", "strange"}
        go("mlruns")
        document = importing.import_runs(back)
        there = set(ids.values()) - {ids["killed"], ids["strange"]}
        assert (document["imported"], set(document["present"])) == ([], there)
        go("c")
        importing.import_runs(back)
        assert pictures() == {key: value for key, value in carried.before.items() if key in there}


def test_a_second_export_gives_the_same_documents_and_keeps_the_first_origin(
    home: Path, go: Go, bundled: Path
) -> None:
    first, again, third = documents(bundled), home.parent / "2.zip", home.parent / "3.zip"
    for name, file in (("b", again), ("c", third)):
        go(name)
        importing.import_runs(bundled if name == "b" else again)
        exported(file)
        assert plain(documents(file)) == plain(first)
    assert sorted(each["tags"][ORIGIN] for each in documents(third).values()) == sorted(
        each["run_id"] for each in first.values()
    )


def plain(found: dict[str, Any]) -> str:
    """Documents by their first ids, without what an import adds or must change."""
    origins = {d["run_id"]: d["tags"].get(ORIGIN, d["run_id"]) for d in found.values()}
    found = {f"runs/{origins[d['run_id']]}.json": d for d in found.values()}
    text = re.sub(r"#/experiments/\d+/", "#/experiments/N/", json.dumps(found, sort_keys=True))
    for run_id, origin in origins.items():
        text = text.replace(run_id, origin)
    text = re.sub(r'"(origin_run_id|origin_model_id)": "[^"]*"(, )?', "", text)
    return re.sub("m-[0-9a-f]{32}", "m-", text).replace(", }", "}")


def test_the_same_runs_are_the_same_bytes(home: Path, bundled: Path) -> None:
    again = bundled.with_name("again.zip")
    exported(again)
    assert again.read_bytes() == bundled.read_bytes()
    assert {path.name for path in bundled.parent.iterdir() if path.is_file()} == {
        "runs.zip",
        "again.zip",
    }


def test_the_manifest_names_what_is_there(home: Path, bundled: Path) -> None:
    with zipfile.ZipFile(bundled) as zipped:
        manifest = json.loads(zipped.read("manifest.json"))
        assert {*manifest["members"], "manifest.json"} == {*zipped.namelist()}
        assert {info.date_time for info in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    by_name = {row["name"]: row for row in manifest["runs"]}
    assert by_name["top"]["claim"] == "top"
    assert by_name["broken"]["parent"] == by_name["top"]["run_id"]
    assert by_name["cell 1"] | {"run_id": "", "origin": "", "parent": ""} == {
        "run_id": "", "origin": "", "parent": "", "name": "cell 1", "experiment": "one",
        "status": "FINISHED", "kind": "setting", "claim": None, "recipe": None, "scale": None,
        "fingerprint": "cell 1",
    }  # fmt: skip
    assert any(package.startswith("mlflow==") for package in manifest["packages"])


CELLS = {"cell 0", "cell 1", "cell 2"}


def test_names_and_filters_choose_and_relatives_come_along(home: Path, tmp_path: Path) -> None:
    ids, file = sample(), tmp_path / "runs.zip"
    assert exported(file, "alone") == {"killed"}
    assert exported(file, "top") == {"top", "old", "broken", *CELLS}
    assert exported(file, "s", "alone") == {"broken", "killed"}
    assert exported(file, ids["cell 1"]) == {"cell 1"}
    assert exported(file, filter="metrics.loss > 0.5 and tags.kind = 'setting'") == {
        "cell 1",
        "cell 2",
    }
    assert exported(file, "s", filter="attributes.status = 'FAILED'") == {"broken"}
    assert exported(file, filter="") == ids.keys()


@pytest.mark.parametrize(
    ("names", "condition", "says"),
    [
        (["tpo"], None, r"Received: 'tpo'. Did you mean top\? Choices: alone, old, s, top"),
        (["f" * 32], None, "must be a known name"),
        ([], "nonsense", "--filter must be a filter of MLflow. Received: 'nonsense'"),
        ([], "metrics.x > 'a'", "--filter must be"),
        ([], "tags.kind = 'none such'", "There must be a run"),
        (["alone"], "tags.kind = 'claim'", "There must be a run"),
    ],
)
def test_what_cannot_be_chosen_is_said(
    home: Path, tmp_path: Path, names: list[str], condition: str | None, says: str
) -> None:
    sample()
    with pytest.raises(UserError, match=says) as caught:
        exporting.export_runs(tmp_path / "runs.zip", names, condition)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs.zip").exists()


def test_running_runs_are_left_out(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracked("goes on") as run:
        with tracked("ended", parent=run) as child:
            pass
        document = exporting.export_runs(tmp_path / "runs.zip", [], None)
        assert document["left_out"] == [run.id]
        assert [each["run_id"] for each in document["runs"]] == [child.id]
        assert run.id in capsys.readouterr().err
        with pytest.raises(UserError, match="must be a run to export that has ended"):
            exporting.export_runs(tmp_path / "runs.zip", [], "attributes.run_name = 'none'")


def test_a_deleted_run_is_present_and_said_so(
    home: Path, bundled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [run_id] = [row.id for row in history.rows(None) if row.name == "top"]
    store.client().delete_run(run_id)
    document = importing.import_runs(bundled)
    assert document["imported"] == []
    assert run_id in document["present"]
    assert f"mlflow runs restore --run-id {run_id}" in capsys.readouterr().err


KILLED = {  # what a dying process does last
    "begun": "client.create_run",
    "numbers": "bundle_in.send_batch",
    "data sets": "client.log_inputs",
    "files": "bundle_in._upload",
    "model": "client.create_logged_model",
    "model's files": "client.finalize_logged_model",
    "output": "client.log_outputs",
    "end": "client.set_terminated",
    "mark": "client.delete_tag",
}
OFTEN = ("begun", "files", "mark")  # the others are slow
LASTS = [last if last in OFTEN else pytest.param(last, marks=pytest.mark.slow) for last in KILLED]


def die_after(name: str, file: Path) -> None:
    module, _, attribute = name.partition(".")
    place: Any = {"bundle_in": importing, "client": type(store.client())}[module]
    work = getattr(place, attribute)

    def last(*arguments: Any, **options: Any) -> None:
        work(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, attribute, last)
    importing.import_runs(file)


def killed_import(last: str, file: Path) -> None:
    assert exit_code(die_after, KILLED[last], file) == -signal.SIGKILL


@pytest.mark.parametrize("is_recovered", [False, True])
@pytest.mark.parametrize("last", LASTS)
def test_an_import_that_was_killed_is_completed_by_the_next(
    last: str, is_recovered: bool, carried: Carried
) -> None:
    killed_import(last, carried.file)
    running = {row.id for row in history.rows("RUNNING")}
    unfinished = {run.info.run_id for run in all_runs() if IMPORTING in run.data.tags}
    assert running and running <= unfinished
    if is_recovered:
        assert recovery.recover().keys() == running
        assert history.rows("RUNNING") == []
        assert {history.row(run_id).status for run_id in running} == {"KILLED"}
    assert unfinished <= {*importing.import_runs(carried.file)["imported"]}
    assert pictures() == carried.before
    assert len(all_runs()) == len(carried.ids)
    marks = {IMPORTING, heartbeat.SETTLED}
    assert not [row for row in history.rows(None) if marks & row.tags.keys()]
    assert recovery.recover() == {}


def test_an_import_that_is_told_to_stop_leaves_nothing_running(carried: Carried) -> None:
    with pytest.MonkeyPatch.context() as stopped, pytest.raises(SystemExit):
        stopped.setattr(importing, "_upload", lambda *_: sys.exit(143))
        importing.import_runs(carried.file)
    assert history.rows("RUNNING") == []
    assert [row for row in history.rows("KILLED") if IMPORTING in row.tags]
    importing.import_runs(carried.file)
    assert pictures() == carried.before


@contextlib.contextmanager
def told_to_stop() -> Iterator[Callable[[], None]]:
    """What sends this process SIGTERM, which is to end the block by SystemExit."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with pytest.raises(SystemExit):
            yield lambda: os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_waits_for_the_run_that_an_import_writes(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of MLflow that is cut off in a write keeps the database locked."""
    end, said = importing._end, []

    def end_after_a_signal(document: Any, run_id: str, settled: set[str]) -> None:
        said.append(run_id)
        stop()
        end(document, run_id, settled)

    with monkeypatch.context() as patch, told_to_stop() as stop:
        patch.setattr(importing, "_end", end_after_a_signal)
        importing.import_runs(carried.file)
    (whole,) = said
    assert IMPORTING not in history.row(whole).tags
    assert history.rows("RUNNING") == []
    importing.import_runs(carried.file)
    assert pictures() == carried.before


def test_a_signal_waits_for_a_run_that_is_only_written_down(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = finished_runs.send_batch

    def send_after_a_signal(*given: Any, **named: Any) -> None:
        stop()
        send(*given, **named)

    with monkeypatch.context() as patch, told_to_stop() as stop:
        patch.setattr(finished_runs, "send_batch", send_after_a_signal)
        finished_runs.write(
            "reported",
            experiment="e",
            params={"d": 2},
            tags={"kind": "setting"},
            steps=[0],
            curves={"error": [1.5]},
            start_ms=1_000,
            end_ms=2_000,
        )
    [row] = history.rows(None)
    assert (row.status, row.params, row.metrics) == ("FINISHED", {"d": "2"}, {"error": 1.5})


def test_an_import_that_goes_on_is_not_reaped(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, reaped = importing._upload, []

    def and_reap(folder: str, location: str) -> None:
        upload(folder, location)
        reaped.append(recovery.recover())

    monkeypatch.setattr(importing, "_upload", and_reap)
    importing.import_runs(carried.file)
    assert reaped
    assert not any(reaped)
    assert pictures() == carried.before


@pytest.mark.slow
def test_the_report_is_the_same_where_runs_are_imported(home: Path, go: Go, tmp_path: Path) -> None:
    for name in ("gradient-formula", "small-norm-factorization"):
        sweep.check(name, "smoke", claim_catalog.load(name).scales["smoke"])
    scoreboard.write(tmp_path / "a")
    exported(tmp_path / "runs.zip")
    go("b")
    importing.import_runs(tmp_path / "runs.zip")
    scoreboard.write(tmp_path / "b")
    results = (tmp_path / "a" / "RESULTS.md").read_text()
    assert results == (tmp_path / "b" / "RESULTS.md").read_text()
    moved = (tmp_path / "a" / "results.json").read_text()
    for row in history.rows(kind="claim"):
        moved = moved.replace(row.origin, row.id)
    assert moved == (tmp_path / "b" / "results.json").read_text()
    assert "holds" in results


def test_stored_networks_can_be_left_out(bundled: Path, tmp_path: Path) -> None:
    exporting.export_runs(tmp_path / "light.zip", [], None, without_models=True)
    light, whole = documents(tmp_path / "light.zip"), documents(bundled)
    assert light.keys() == whole.keys()
    assert any(document["models"] for document in whole.values())
    for name, document in light.items():
        assert document == {**whole[name], "models": []}
    with zipfile.ZipFile(tmp_path / "light.zip") as few, zipfile.ZipFile(bundled) as all_files:
        left_out = set(all_files.namelist()) - set(few.namelist())
    assert left_out
    assert all("/models/" in name for name in left_out)


@pytest.mark.slow
def test_a_keras_model_predicts_the_same(home: Path, go: Go, tmp_path: Path) -> None:
    import mlflow.pyfunc

    import keras_models

    with tracked("net") as run:
        run.model(keras_models.build("mlp", (4,), 3))
    inputs = np.linspace(0, 1, 8, dtype="float32").reshape(2, 4)
    before = mlflow.pyfunc.load_model(f"runs:/{run.id}/model").predict(inputs)
    exported(tmp_path / "runs.zip")
    go("b")
    importing.import_runs(tmp_path / "runs.zip")
    after = mlflow.pyfunc.load_model(f"runs:/{row_here(run.id).id}/model").predict(inputs)
    np.testing.assert_array_equal(after, before)
