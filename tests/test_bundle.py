"""Export and import: a run must be the same in another store, and no file may harm one."""

import contextlib
import io
import json
import multiprocessing
import os
import pprint
import re
import resource
import shutil
import signal
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import (
    bulk,
    bundle,
    bundle_format,
    bundle_in,
    bundle_out,
    claim,
    history,
    report,
    store,
    sweep,
    tracking,
    ui,
)
from pipelines.bundle_shape import IMPORTING, ORIGIN
from pipelines.errors import UserError
from tests.conftest import command, free_port, mlflow_server

NAN, INF = float("nan"), float("inf")
ADDED = {ORIGIN, IMPORTING}
Go = Callable[[str], None]


@pytest.fixture
def go(home: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """`go("b")`: to another store, empty at first, where experiments have other ids."""

    def to(name: str) -> None:
        folder = home.parent / name
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        if not folder.exists():
            folder.mkdir()
            shutil.copy(empty_database, folder / "mlflow.db")
            store.experiment(store.uri(), f"only in {name}")

    return to


def tracked(name: str, **options: Any) -> Any:
    return tracking.tracked(name, **{"experiment": "one", "kind": "training", **options})


def sample() -> dict[str, str]:
    """Runs with all that a run can have; ids by name."""
    with tracked("old", experiment="two", tags={"recipe": "old"}) as old:
        old.log({"loss": 1.0}, 3)
    with tracked("top", kind="claim", params={"d": 4}, tags={"claim": "top"}) as top:
        top.tag(f"reused.{old.id}", "seed 0")
        top.tag("mlflow.note.content", f"See [all]({ui.children_chart(top.id)}), {old.id}")
        top.text("a,b\n", "table.csv")
        top.text("ü", "deep/er/with space é.txt")
        top.dataset("digits", "abc", 10, "https://example.org")
        with tracked("broken", parent=top, tags={"study": "s"}) as child:
            child.log({"loss": NAN, "up": INF, "down": -INF}, 1)
            child.log({"loss": 2.0}, 1)
        points = [(5, 10, 1.5), (5, 11, 0.5), (5, 11, 0.5), (-2, 9, NAN), (7, 12, 1e-320)]
        for step, date_ms, value in points:
            store.client().log_metric(child.id, "again", value, timestamp=date_ms, step=step)
        cells = bulk.record("one", [cell(f"cell {i}", i) for i in range(3)], top.id)
    store.client().set_terminated(child.id, "FAILED", 123_456)
    with contextlib.suppress(KeyboardInterrupt), tracked("killed", tags={"recipe": "alone"}) as run:
        raise KeyboardInterrupt
    model(top.id)
    named = {"old": old.id, "top": top.id, "broken": child.id, "killed": run.id}
    return named | {f"cell {i}": run_id for i, run_id in enumerate(cells)}


def cell(name: str, seed: int) -> bulk.Finished:
    curves = {"loss": [3.0, NAN, float(seed)], "bound": [INF, 1.0, 0.5]}
    tags = {"fingerprint": name}
    return bulk.Finished(name, {"seed": seed}, tags, [1, 2, 4], curves, 5_000, 9_000)


class Twice:
    """A model that MLflow loads without any library."""

    def predict(self, inputs: Any) -> Any:
        return 2 * np.asarray(inputs)


def _load_pyfunc(path: str) -> Twice:
    return Twice()


def model(run_id: str) -> None:
    """A model of a run, made as MLflow makes one."""
    import mlflow.pyfunc

    store.client().log_metric(run_id, "accuracy", 0.5, timestamp=7, step=2)
    status = store.client().get_run(run_id).info
    with mlflow.start_run(run_id=run_id):
        mlflow.pyfunc.log_model(
            name="model", loader_module=__name__, pip_requirements=["mlflow"], step=2
        )
    store.client().set_terminated(run_id, status.status, status.end_time)


def contents(run: Any, model: Any = None) -> dict[str, bytes]:
    from mlflow.artifacts import list_artifacts

    location = model.artifact_location if model else run.info.artifact_uri
    where = {"artifact_uri": location, "tracking_uri": store.uri()}
    if not list_artifacts(**where):
        return {}
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(**where))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "MLmodel"  # it names ids and places
    }


def picture(run_id: str) -> str:
    """Everything MLflow gives back of a run, under the ids of where it was measured."""
    client = store.client()
    run = client.get_run(run_id)
    models = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    found = {
        "info": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
        "user": (run.info.user_id, run.info.lifecycle_stage),
        "experiment": client.get_experiment(run.info.experiment_id).name,
        "params": run.data.params,
        "tags": {key: value for key, value in run.data.tags.items() if key not in ADDED},
        "metrics": {key: repr(value) for key, value in run.data.metrics.items()},
        "histories": {key: history_of(run_id, key) for key in run.data.metrics},
        "datasets": [given.to_dictionary() for given in run.inputs.dataset_inputs],
        "artifacts": contents(run),
        "outputs": [output.step for output in run.outputs.model_outputs],
        "models": [model_picture(run, each) for each in models],
    }
    return original(found)


def history_of(run_id: str, key: str) -> list[Any]:
    points = store.client().get_metric_history(run_id, key)
    return sorted((p.step, p.timestamp, repr(p.value)) for p in points)


def model_picture(run: Any, model: Any) -> dict[str, Any]:
    return {
        "what": (model.name, model.model_type or None, str(model.status), model.params),
        "tags": {key: value for key, value in model.tags.items() if key != "origin_model_id"},
        "metrics": sorted((m.key, m.step, m.timestamp, m.value) for m in model.metrics or []),
        "files": contents(run, model),
    }


def original(found: dict[str, Any]) -> str:
    """With the run ids of where runs were measured, and experiments by name."""
    text = pprint.pformat(found, width=200)
    for run in all_runs():
        text = text.replace(run.info.run_id, run.data.tags.get(ORIGIN, run.info.run_id))
    for each in store.client().search_experiments():
        text = text.replace(f"#/experiments/{each.experiment_id}/", f"#/experiments/{each.name}/")
    return text


def all_runs() -> list[Any]:
    return list(bundle_out.search(deleted=True))


def pictures() -> dict[str, str]:
    return {
        run.data.tags.get(ORIGIN, run.info.run_id): picture(run.info.run_id) for run in all_runs()
    }


def exported(file: Path, *names: str, filter: str | None = None) -> set[str]:
    document = bundle.export_runs(file, names, filter)
    assert document["bytes"] == file.stat().st_size
    return {run["name"] for run in document["runs"]}


def documents(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as zipped:
        names = [name for name in zipped.namelist() if re.fullmatch("runs/[^/]+", name)]
        return {name: json.loads(zipped.read(name)) for name in names}


@pytest.fixture
def bundled(home: Path, tmp_path: Path) -> Path:
    """The sample, exported."""
    sample()
    bundle.export_runs(tmp_path / "runs.zip", [], None)
    return tmp_path / "runs.zip"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_runs_are_the_same_in_another_database(
    kind: str, home: Path, go: Go, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, file = sample(), home.parent / "runs.zip"
    assert exported(file) == ids.keys()
    before = pictures()
    go("b")
    if kind == "postgresql":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("postgresql"))
        monkeypatch.setattr(store, "home", lambda: home.parent / "b")
    document = bundle.import_runs(file)
    assert set(document["imported"]) == set(ids.values())
    assert document["present"] == []
    assert pictures() == before
    for run_id in ids.values():
        tags = history.row(run_id).tags
        assert tags[ORIGIN] == run_id
        assert IMPORTING not in tags
    children = history.rows(None, **{"mlflow.parentRunId": ids["top"]})
    assert {row.name for row in children} == {"broken", "cell 0", "cell 1", "cell 2"}
    assert predictions(ids["top"]) == [2.0, 4.0]
    assert bundle.import_runs(file)["imported"] == []
    assert pictures() == before


def predictions(run_id: str) -> list[float]:
    import mlflow.pyfunc

    loaded = mlflow.pyfunc.load_model(f"runs:/{run_id}/model")
    assert store.client().get_logged_model(loaded.model_id).source_run_id == run_id
    assert loaded.metadata.run_id == run_id
    return list(np.ravel(loaded.predict(np.array([1.0, 2.0]))))


def test_links_lead_to_the_runs_of_this_store(home: Path, go: Go) -> None:
    ids, file = sample(), home.parent / "runs.zip"
    experiment = store.experiment(store.uri(), "one")
    exported(file)
    go("b")
    bundle.import_runs(file)
    here = store.experiment(store.uri(), "one")
    assert here != experiment
    note = history.row(ids["top"]).tags["mlflow.note.content"]
    assert note == f"See [all]({ui.children_chart(ids['top'])}), {ids['old']}"
    assert f"#/experiments/{here}/runs?" in note


def test_a_client_s_store_gives_new_ids_and_all_that_names_runs_follows(
    home: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, file = sample(), home.parent / "runs.zip"
    exported(file)
    before = pictures()
    go("b")
    monkeypatch.setattr(bulk, "REVISION", "another")
    check_other_ids(file, ids, before)


def check_other_ids(file: Path, ids: dict[str, str], before: dict[str, Any]) -> None:
    imported = bundle.import_runs(file)["imported"]
    assert not {*imported} & {*ids.values()}
    after = pictures()
    assert after.keys() == before.keys()
    for run_id, text in before.items():
        assert after[run_id].splitlines() == text.splitlines()
    here = {row.tags[ORIGIN]: row for row in history.rows(None)}
    top, old = here[ids["top"]], here[ids["old"]]
    assert f"reused.{old.id}" in top.tags
    assert ui.children_chart(top.id) in top.tags["mlflow.note.content"]
    assert predictions(top.id) == [2.0, 4.0]
    again = bundle.import_runs(file)
    assert (again["imported"], set(again["present"])) == ([], set(imported))


@pytest.mark.slow
def test_runs_go_to_a_server_and_back(
    home: Path, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, file, back = sample(), tmp_path / "runs.zip", tmp_path / "back.zip"
    exported(file)
    before = pictures()
    with mlflow_server(tmp_path, free_port()) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setattr(store, "home", lambda: home.parent / "b")
        check_other_ids(file, ids, before)
        assert exported(back, "top") == ids.keys() - {"killed"}
        monkeypatch.undo()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
        document = bundle.import_runs(back)
        assert (document["imported"], set(document["present"])) == (
            [],
            set(ids.values()) - {ids["killed"]},
        )
        go("c")
        bundle.import_runs(back)
        assert pictures() == {key: value for key, value in before.items() if key != ids["killed"]}


def test_a_second_export_gives_the_same_documents_and_keeps_the_first_origin(
    home: Path, go: Go, bundled: Path
) -> None:
    first, again, third = documents(bundled), home.parent / "2.zip", home.parent / "3.zip"
    for name, file in (("b", again), ("c", third)):
        go(name)
        bundle.import_runs(bundled if name == "b" else again)
        exported(file)
        assert plain(documents(file)) == plain(first)
    assert [each["tags"][ORIGIN] for each in documents(third).values()] == [
        each["run_id"] for each in first.values()
    ]


def plain(found: dict[str, Any]) -> str:
    """Documents without what an import adds or must change."""
    text = re.sub(r"#/experiments/\d+/", "#/experiments/N/", json.dumps(found, sort_keys=True))
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
        bundle.export_runs(tmp_path / "runs.zip", names, condition)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs.zip").exists()


def test_an_empty_store_has_nothing_to_export(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There must be a run"):
        bundle.export_runs(tmp_path / "runs.zip", [], None)


def test_running_runs_are_left_out(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracked("goes on") as run:
        with tracked("ended", parent=run) as child:
            pass
        document = bundle.export_runs(tmp_path / "runs.zip", [], None)
        assert document["left_out"] == [run.id]
        assert [each["run_id"] for each in document["runs"]] == [child.id]
        assert run.id in capsys.readouterr().err
        with pytest.raises(UserError, match="must be a run to export that has ended"):
            bundle.export_runs(tmp_path / "runs.zip", [], "attributes.run_name = 'none'")


def test_a_deleted_run_is_present_and_said_so(
    home: Path, bundled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [run_id] = [row.id for row in history.rows(None) if row.name == "top"]
    store.client().delete_run(run_id)
    document = bundle.import_runs(bundled)
    assert document["imported"] == []
    assert run_id in document["present"]
    assert f"mlflow runs restore --run-id {run_id}" in capsys.readouterr().err


KILLED = {  # what a dying process does last
    "rows": "bulk.insert",
    "begun": "client.create_run",
    "data sets": "client.log_inputs",
    "files": "bundle_in._upload",
    "model": "client.create_logged_model",
    "model's files": "bundle_in._end_model",
    "output": "client.log_outputs",
    "end": "client.set_terminated",
    "mark": "client.delete_tag",
}


def die_after(name: str, file: Path, revision: str) -> None:
    bulk.sql_store().engine.dispose(close=False)  # its connections are the parent's
    module, _, attribute = name.partition(".")
    places = {"bulk": bulk, "bundle_in": bundle_in, "client": type(store.client())}
    place: Any = places[module]
    work = getattr(place, attribute)

    def last(*arguments: Any, **options: Any) -> None:
        work(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, attribute, last)
    bulk.REVISION = revision
    bundle.import_runs(file)


@pytest.mark.parametrize(
    ("last", "revision"),
    [("rows", bulk.REVISION), ("begun", "another")]
    + [(last, revision) for last in [*KILLED][2:] for revision in (bulk.REVISION, "another")],
)
def test_an_import_that_was_killed_is_completed_by_the_next(
    last: str, revision: str, home: Path, go: Go, tmp_path: Path
) -> None:
    ids, file = sample(), tmp_path / "runs.zip"
    exported(file)
    before = pictures()
    go("b")
    arguments = (KILLED[last], file, revision)
    process = multiprocessing.get_context("fork").Process(target=die_after, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    unfinished = {run.info.run_id for run in all_runs() if IMPORTING in run.data.tags}
    assert unfinished
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "REVISION", revision)
        document = bundle.import_runs(file)
    assert unfinished <= {*document["imported"]}
    assert pictures() == before
    assert len(all_runs()) == len(ids)
    assert not [run for run in all_runs() if IMPORTING in run.data.tags]


@pytest.mark.slow
def test_the_report_is_the_same_where_runs_are_imported(home: Path, go: Go, tmp_path: Path) -> None:
    for name in ("gradient-formula", "small-norm-factorization"):
        sweep.check(name, "smoke", claim.load(name).scales["smoke"])
    report.write(tmp_path / "a")
    exported(tmp_path / "runs.zip")
    go("b")
    bundle.import_runs(tmp_path / "runs.zip")
    report.write(tmp_path / "b")
    results = (tmp_path / "a" / "RESULTS.md").read_bytes()
    assert (tmp_path / "b" / "RESULTS.md").read_bytes() == results
    assert b"reproduced" in results


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
    bundle.import_runs(tmp_path / "runs.zip")
    after = mlflow.pyfunc.load_model(f"runs:/{run.id}/model").predict(inputs)
    np.testing.assert_array_equal(after, before)


# --- files that are refused ---

Members = dict[str, bytes]
FIRST = "0" * 31 + "1"


def small(home: Path) -> None:
    """A store with one run of one small artifact and one metric."""
    with tracked("small") as run:
        run.text("hello", "hello.txt")
        run.log({"loss": 1.0})


def repacked(file: Path, change: Callable[[Members, dict[str, Any]], None]) -> None:
    """Change members and manifest; sizes and digests are made right before."""
    with zipfile.ZipFile(file) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    members.setdefault("manifest.json", json.dumps(manifest).encode())
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)


def listed(members: Members, manifest: dict[str, Any], name: str, content: bytes) -> None:
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    members[name] = content
    manifest["members"][name] = {"bytes": len(content), "sha256": digest}


def named(pattern: str) -> Callable[[Path], None]:
    """A further artifact of a strange name, {} being the folder of artifacts."""

    def harm(file: Path) -> None:
        def change(members: Members, manifest: dict[str, Any]) -> None:
            folder = f"runs/{manifest['runs'][0]['run_id']}/artifacts"
            listed(members, manifest, pattern.format(folder), b"evil")

        repacked(file, change)

    return harm


def in_run(**changes: Any) -> Callable[[Path], None]:
    """Other values in the run's document, which the manifest lists as they are."""

    def harm(file: Path) -> None:
        def change(members: Members, manifest: dict[str, Any]) -> None:
            name = f"runs/{manifest['runs'][0]['run_id']}.json"
            document = json.loads(members[name]) | changes
            document = {key: value for key, value in document.items() if value is not ...}
            for key in manifest["runs"][0].keys() & changes.keys():
                manifest["runs"][0][key] = changes[key]
            listed(members, manifest, name, json.dumps(document).encode())

        repacked(file, change)

    return harm


def in_manifest(**changes: Any) -> Callable[[Path], None]:
    return lambda file: repacked(file, lambda members, manifest: manifest.update(changes))


def raw(change: Callable[[zipfile.ZipFile, list[zipfile.ZipInfo]], None]) -> Callable[[Path], None]:
    """An archive of the same members, into which `change` writes more."""

    def harm(file: Path) -> None:
        old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
        with zipfile.ZipFile(file, "w") as zipped:
            for info in old.infolist():
                zipped.writestr(info.filename, old.read(info))
            change(zipped, old.infolist())

    return harm


def twice(zipped: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr(infos[0].filename, b"other")


def symlink(file: Path) -> None:
    old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
    with zipfile.ZipFile(file, "w") as zipped:
        for info in old.infolist():
            new = zipfile.ZipInfo(info.filename)
            link = info.filename.endswith("hello.txt")
            new.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o777) << 16
            zipped.writestr(new, old.read(info))


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def flipped_stored(file: Path) -> None:
    """A byte changed where ZIP itself cannot see it: its own check sum is changed too."""

    def change(members: Members, manifest: dict[str, Any]) -> None:
        [name] = [name for name in members if name.endswith("hello.txt")]
        members[name] = b"hellO"

    repacked(file, change)


def lying(file: Path) -> None:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        [name] = [name for name in members if name.endswith("hello.txt")]
        manifest["members"][name]["bytes"] = 6

    repacked(file, change)


def header_lies(file: Path) -> None:
    """The archive's own directory says that a member is a terabyte."""
    content = file.read_bytes()
    at = content.rindex(b"PK\x01\x02")
    file.write_bytes(content[: at + 24] + b"\xf0\xff\xff\xff" + content[at + 28 :])


def dropped(suffix: str) -> Callable[[Path], None]:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        for name in [name for name in members if name.endswith(suffix)]:
            del members[name]

    return lambda file: repacked(file, change)


def encrypted(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.index(mark) + offset] |= 1
    file.write_bytes(content)


def without_manifest(file: Path) -> None:
    old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
    with zipfile.ZipFile(file, "w") as zipped:
        for info in old.infolist()[:-1]:
            zipped.writestr(info.filename, old.read(info))


def no_json(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"{"


def deep_json(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"[" * 100_000


def no_object(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"[]"


def unknown_model(file: Path) -> None:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        run_id = manifest["runs"][0]["run_id"]
        listed(members, manifest, f"runs/{run_id}/models/m-{FIRST}/MLmodel", b"")

    repacked(file, change)


def nul(file: Path) -> None:
    named("{}/hello?txt")(file)
    file.write_bytes(file.read_bytes().replace(b"hello?txt", b"hello\0txt"))


HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absolute": (named("/etc/{}"), "must be relative"),
    "absolute inside": (named("{}//etc/passwd"), "nothing between"),
    "up": (named("{}/../../x"), r"must not have \.\."),
    "up, quoted": (named("{}/%252e%252e/x"), r"must not have \.\."),
    "here": (named("{}/./x"), r"must not have \.\."),
    "folder": (named("{}/x/"), "nothing between"),
    "backslash": (named("{}/..\\x"), "backslash"),
    "drive": (named("C:/{}"), "drive letter"),
    "drive inside": (named("{}/C:x"), "drive letter"),
    "control character": (named("{}/a\nb"), "control character"),
    "long": (named("{}/" + 256 * "x"), "must be short"),
    "file and folder": (named("{}/hello.txt/x"), "folder too"),
    "nobody's": (named("runs/" + FIRST + "/artifacts/x"), "belong to a run"),
    "no place": (named("x{}"), "belong to a run"),
    "of no model": (named("{}/../models/m-" + FIRST + "/x"), "must not"),
    "unknown model": (unknown_model, "belong to a run"),
    "nul": (nul, "control character"),
    "symlink": (symlink, "plain file"),
    "encrypted": (encrypted, "encrypted"),
    "twice": (raw(twice), "there twice"),
    "not listed": (raw(lambda z, _: z.writestr("runs/x", b"")), "list every member"),
    "another packing": (
        raw(lambda z, _: z.writestr("y", b"", zipfile.ZIP_LZMA)),
        "stored or deflated",
    ),
    "missing": (dropped("hello.txt"), "list every member"),
    "no document": (dropped(".json"), "list every member"),
    "no manifest": (without_manifest, "must have a manifest.json"),
    "flipped": (flipped, "must"),
    "flipped and signed": (flipped_stored, "digest"),
    "lying manifest": (lying, "must have 6 bytes"),
    "lying archive": (header_lies, "must"),
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-30]), "whole ZIP archive"),
    "half": (lambda file: file.write_bytes(file.read_bytes()[:500]), "whole ZIP archive"),
    "empty": (lambda file: file.write_bytes(b""), "whole ZIP archive"),
    "no zip": (lambda file: file.write_text("hello"), "whole ZIP archive"),
    "not there": (lambda file: file.unlink(), "can be read"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "can be read"),
    "another version": (in_manifest(version=2), "of version 1. Received: 2"),
    "no version": (in_manifest(version=None), "of version 1. Received: None"),
    "no list": (in_manifest(members=[]), "keys and types"),
    "more keys": (in_manifest(more=1), "keys and types"),
    "another experiment": (in_manifest(experiments={"1": "x"}), "experiments of its runs"),
    "no json": (lambda file: repacked(file, no_json), "must be JSON"),
    "deep json": (lambda file: repacked(file, deep_json), "must be JSON"),
    "no object": (lambda file: repacked(file, no_object), "must be a JSON object"),
    "another run": (in_run(run_id=FIRST), "once, with its document"),
    "bad id": (in_run(run_id="../../x"), "keys and types"),
    "no name": (in_run(end_ms=...), "keys and types"),
    "another name": (in_run(tags={"kind": "other"}), "as the manifest says"),
    "bad status": (in_run(status="RUNNING"), "keys and types"),
    "bad time": (in_run(start_ms="1"), "keys and types"),
    "bad parameter": (in_run(params={"a": 1}), "keys and types"),
    "bad parameter name": (in_run(params={"../a": "1"}), "that MLflow takes"),
    "nul in a text": (in_run(params={"a": "\0"}), "keys and types"),
    "half a character": (in_run(params={"a": "\ud800"}), "must be JSON"),
    "bad point": (in_run(metrics={"loss": [[0, 0, "x"]]}), "keys and types"),
    "infinite": (in_run(metrics={"loss": [[0, 0, INF]]}), "must be JSON"),
    "short point": (in_run(metrics={"loss": [[0, 0]]}), "keys and types"),
    "huge step": (in_run(metrics={"loss": [[2**63, 0, 1.0]]}), "keys and types"),
    "bad metric name": (in_run(metrics={"a,b": []}), "that MLflow takes"),
    "bad data set": (in_run(datasets=[{}]), "keys and types"),
    "bad model": (in_run(models=[{"model_id": "m-1"}]), "keys and types"),
}  # fmt: skip


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the database's and the locks, which any command writes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "mlflow.db" not in path.name and path.suffix != ".lock"
    }


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_or_hostile_file_is_refused_whole(
    harm: str, home: Path, go: Go, tmp_path: Path
) -> None:
    small(home)
    exported(tmp_path / "runs.zip")
    work, says = HARMS[harm]
    work(tmp_path / "runs.zip")
    go("b")
    experiments = len(store.client().search_experiments())
    before = {path: each for path, each in tree(tmp_path).items() if path != "runs.zip"}
    with pytest.raises(UserError, match=says) as caught:
        bundle.import_runs(tmp_path / "runs.zip")
    assert "\n" not in str(caught.value)
    assert "Received: " in str(caught.value)
    assert all_runs() == []
    assert len(store.client().search_experiments()) == experiments
    assert {path: each for path, each in tree(tmp_path).items() if path != "runs.zip"} == before


def test_any_flipped_byte_is_refused_or_changes_nothing(home: Path, go: Go, tmp_path: Path) -> None:
    small(home)
    file = tmp_path / "runs.zip"
    exported(file)
    good, before = file.read_bytes(), pictures()
    rng = np.random.default_rng(0)
    for number, at in enumerate(rng.choice(len(good), 60, replace=False)):
        content = bytearray(good)
        content[at] ^= 1 << rng.integers(8)
        file.write_bytes(content)
        if refuses(file):
            continue
        go(f"flipped {number}")
        bundle.import_runs(file)
        assert pictures() == before


def refuses(file: Path) -> bool:
    try:
        with bundle_format.opened(file, file.parent, lambda document: None):
            return False
    except UserError:
        return True


def test_a_file_larger_than_the_disk_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(home)
    exported(tmp_path / "runs.zip")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 0, 9))
    with pytest.raises(
        UserError, match=r"room for all its files. Received: [\d,]+ bytes, and 9 free"
    ):
        bundle.import_runs(tmp_path / "runs.zip")


@pytest.mark.parametrize("place", ["nowhere/runs.zip", "mlruns"])
def test_a_place_that_cannot_be_written_is_said(home: Path, tmp_path: Path, place: str) -> None:
    small(home)
    with pytest.raises(UserError, match=f"file in a folder that can be written.*{place}"):
        bundle.export_runs(tmp_path / place, [], None)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_full_disk_leaves_the_file_that_was_there(home: Path, tmp_path: Path) -> None:
    small(home)
    with tracked("large") as run:
        for number in range(4):
            run.text(np.random.default_rng(number).bytes(450_000).hex(), f"{number}.txt")
    file = tmp_path / "runs.zip"
    file.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(UserError, match="can be written"):
            bundle.export_runs(file, [], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_text() == "before"
    assert [path for path in tmp_path.iterdir() if path.is_file()] == [file]
    exported(file)
    assert zipfile.is_zipfile(file)


@pytest.mark.slow
def test_the_commands(home: Path, go: Go, tmp_path: Path) -> None:
    small(home)
    file = str(tmp_path / "runs.zip")
    done = command("pipelines", "export", file, "--json")
    assert (done.returncode, len(json.loads(done.stdout)["runs"])) == (0, 1)
    go("b")
    done = command("pipelines", "import", file)
    assert done.stdout.startswith("1 runs imported, 0 ")
    done = command("pipelines", "import", str(tmp_path / "none.zip"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
