"""Stored models: what a run of this project stores is accepted, and nothing that runs programs."""

import contextlib
import io
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import keras_models
from pipelines.errors import UserError
from pipelines.results import evaluation, model_registry
from pipelines.tracking import model_files, store, stored_models
from pipelines.tracking.bundles import importing
from pipelines.tracking.model_files import LAYERS_BYTES, NETWORK
from tests.conftest import Go
from tests.tracking.bundles import all_runs, exported, tracked
from tests.tracking.stored_models import (
    HOSTILE,
    RECIPE,
    SCALE,
    change,
    folder_of,
    network,
    record_training,
)
from tests.tracking.test_bundle_refused import Members, harm_members, listed


def is_a_program(folder: Path, marker: Path) -> bool:
    """Whether MLflow, asked to load the model, writes the file."""
    import mlflow.pyfunc

    with contextlib.suppress(Exception):
        mlflow.pyfunc.load_model(str(folder))
    written = marker.exists()
    marker.unlink(missing_ok=True)
    return written


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_program_of_a_stored_model_is_run(
    kind: str, home: Path, digits: Path, tmp_path: Path
) -> None:
    run_id, marker = record_training(), tmp_path / "marker"
    HOSTILE[kind](folder_of(run_id), marker)
    assert is_a_program(folder_of(run_id), marker)
    for read in (
        lambda: evaluation.evaluate(run_id),
        lambda: model_registry.register(RECIPE, SCALE),
        lambda: model_registry.register(RECIPE, SCALE, dry_run=True),
    ):
        with pytest.raises(UserError, match=r"must be as this project stores one.*MLmodel "):
            read()
        assert not marker.exists()
    assert store.client().search_registered_models() == []


def with_model(file: Path, folder: Path, prefix: str) -> None:
    """An archive whose model has other files."""

    def change(members: Members, manifest: dict[str, Any], run_id: str) -> None:
        for name in [name for name in members if name.startswith(prefix)]:
            del members[name], manifest["members"][name]
        for path in filter(Path.is_file, folder.rglob("*")):
            name = f"{prefix}{path.relative_to(folder).as_posix()}"
            listed(members, manifest, name, path.read_bytes())

    harm_members(change)(file)


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_program_is_imported(kind: str, home: Path, go: Go, tmp_path: Path) -> None:
    run_id, marker, file = record_training(), tmp_path / "marker", tmp_path / "runs.zip"
    exported(file)
    HOSTILE[kind](shutil.copytree(folder_of(run_id), tmp_path / "hostile"), marker)
    model = f"runs/{run_id}/models/{stored_models.find_id(run_id)}/"
    with_model(file, tmp_path / "hostile", model)
    go("b")
    with pytest.raises(
        UserError, match=r"must be as this project .*MLmodel .*Nothing was imported"
    ):
        importing.import_runs(file)
    assert all_runs() == []
    assert not (tmp_path / "b" / "artifacts").exists()
    assert not marker.exists()


def in_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return harm


def whole(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "MLmodel").write_bytes(text.encode(errors="surrogatepass"))


def described(edit: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Another description of the network."""

    def change(parts: dict[str, bytes]) -> None:
        edit(description := json.loads(parts["config.json"]))
        parts["config.json"] = json.dumps(description).encode()

    return lambda folder: repack(folder, change)


def with_part(module: str, name: str, **more: Any) -> Callable[[Path], None]:
    """A first layer of another class."""
    changes = {"module": module, "class_name": name, **more}
    return described(lambda description: description["config"]["layers"][0].update(changes))


def with_setting(class_name: str, **settings: Any) -> Callable[[Path], None]:
    """Parts of that class with other settings."""

    def edit(description: dict[str, Any]) -> None:
        for each in model_files._objects(description):
            if each["class_name"] == class_name:
                each["config"].update(settings)

    return described(edit)


def with_weights_at(name: str) -> Callable[[Path], None]:
    """Weights at one more place."""

    def edit(parts: dict[str, bytes]) -> None:
        file = io.BytesIO(parts["model.weights.h5"])
        with h5py.File(file, "r+") as weights:
            weights[name] = np.zeros(1)
        parts["model.weights.h5"] = file.getvalue()

    return lambda folder: repack(folder, edit)


def with_content(part: str, content: bytes) -> Callable[[Path], None]:
    """One part of the network with another content, or one more part."""
    return lambda folder: repack(folder, lambda parts: parts.update({part: content}))


def repack(
    folder: Path, edit: Callable[[dict[str, bytes]], Any], packing: int = zipfile.ZIP_STORED
) -> None:
    """Change the parts of the network."""
    with zipfile.ZipFile(folder / NETWORK) as zipped:
        parts = {name: zipped.read(name) for name in zipped.namelist()}
    edit(parts)
    with zipfile.ZipFile(folder / NETWORK, "w", packing) as zipped:
        for name, content in parts.items():
            zipped.writestr(name, content)


def add(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")

    return harm


HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "exported": (in_text("MLmodel", "model: false", "model: true"), "exported_model = True"),
    "a text": (in_text("MLmodel", "model: false", "model: 'false'"), "model = .false."),
    "no value": (in_text("MLmodel", "model: false", "model:"), "save_exported_model = None"),
    "loader": (in_text("MLmodel", "mlflow.keras", "os"), "loader_module = 'os'"),
    "code": (in_text("MLmodel", "    env:", "    code: code\n    env:"), "python_function code = "),
    "config": (in_text("MLmodel", "    env:", "    config: x\n    env:"), "function config = "),
    "flavor": (in_text("MLmodel", "  keras:", "  onnx: x\n  keras:"), "flavors onnx = "),
    "twice": (in_text("MLmodel", "    data: data", "    data: data\n    data: data"), "come twice"),
    "merged": (in_text("MLmodel", "    data: data", "    <<:\n      data: data"), "are merged"),
    "missing": (in_text("MLmodel", "    data: data\n", ""), "flavors keras data = .*required"),
    "metadata": (in_text("MLmodel", "flavors:", "metadata: x\nflavors:"), "MLmodel metadata = 'x'"),
    "place": (in_text("MLmodel", "data: data", "data: ../../data"), "keras data = "),
    "anchor": (in_text("MLmodel", "data: data", "data: &a data"), "only plain values"),
    "alias": (whole("a: &a [x]\nb: &b [*a,*a]\nc: [*b,*b]"), "only plain values"),
    "object": (whole("!!python/object/apply:os.system [ls]"), "only plain values"),
    "list": (whole("- 1"), "valid dictionary"),
    "flow": (whole("[1, 2]"), "only plain values"),
    "no flavor": (whole("flavors: {}"), "only plain values"),
    "empty": (whole(""), "MLmodel = None"),
    "deep": (whole(8_000 * "["), "only plain values"),
    "deep lines": (whole(4_000 * "- "), "recursion"),
    "two": (whole("---\na: 1\n---\nb: 1\n"), "single document"),
    "no text": (whole("\ud800"), "utf-8"),
    "large": (whole(9_000 * "#"), "more than 8,192 bytes"),
    "package": (in_text("requirements.txt", "keras==", "evil=="), "requirements.txt 0 = 'evil=="),
    "index": (in_text("requirements.txt", "keras==", "-i http://x\nkeras=="), "= '-i http://x'"),
    "address": (in_text("requirements.txt", "keras==", "keras @ http://x/"), "= 'keras @ http"),
    "conda": (in_text("conda.yaml", "- keras==", "- evil=="), "dependencies 2 pip 0 = 'evil"),
    "channel": (in_text("conda.yaml", "conda-forge", "evil"), "channels 0 = 'evil'"),
    "more of conda": (in_text("conda.yaml", "- pip:", "- gcc\n- pip:"), "dependencies = "),
    "builder": (in_text("python_env.yaml", "- pip==", "- evil=="), "build_dependencies . = 'evil"),
    "pickle": (add("data/custom_objects.cloudpickle"), "custom_objects.cloudpickle', where only"),
    "program": (add("code/keras_models.py"), "a file 'code/keras_models.py', where only"),
    "example": (add("input_example.json"), "which is no array of numbers"),
    "request": (add("serving_input_example.json"), "which is no array of numbers"),
    "no network": (lambda folder: (folder / NETWORK).unlink(), "no file data/model.keras"),
    "no MLmodel": (lambda folder: (folder / "MLmodel").unlink(), "no file MLmodel"),
    "no archive": (add("data/model.keras"), "no network of Keras's"),
    "assets": (with_content("assets/x", b""), "other parts"),
    "packed": (lambda folder: repack(folder, len, zipfile.ZIP_DEFLATED), "parts that are compr"),
    "no json": (with_content("config.json", b"{"), "no network of"),
    "deep json": (with_content("config.json", 100_000 * b"["), "no network of"),
    "many layers": (with_content("config.json", bytes(LAYERS_BYTES + 1)), "more than"),
    "lambda": (with_part("keras.layers", "Lambda"), "'keras.layers.Lambda', not known"),
    "graph": (with_part("keras.layers", "TFSMLayer"), "TFSMLayer"),
    "layer of ours": (with_part("keras_models.mlp", "Dense"), "mlp.Dense', not known"),
    "endless loop": (with_part("keras.src.ops.core", "WhileLoop"), "WhileLoop', not known"),
    "long loop": (with_part("keras.src.ops.core", "Scan", config={"length": 9**9}), "n length ="),
    "torch": (with_part("keras.layers", "TorchModuleWrapper"), "TorchModuleWrapper"),
    "vocabulary": (with_part("keras.layers", "StringLookup"), "StringLookup"),
    "function": (with_part("keras.utils", "get_file"), "'keras.utils.get_file'"),
    "builtin": (with_part("builtins", "function"), "'builtins.function'"),
    "module": (with_part("os", "system"), "'os.system'"),
    "marshalled": (with_part("keras.layers", "__lambda__"), "__lambda__"),
    "another's": (with_part("keras.layers", "Dense", registered_name="evil>Dense"), "Dense"),
    "a list": (with_part("keras.layers", ["Dense"]), "Dense"),  # type: ignore[arg-type]
    "name outside": (with_setting("Dense", name="../out"), "Dense name = '../out'"),
    "name of a root": (with_setting("Dense", name="/out"), "Dense name = '/out'"),
    "odd name": (with_setting("Dense", name="a\\b"), "Dense name = "),
    "no name": (with_setting("Dense", name=["a"]), "Dense name = .'a'.: Input should be a valid s"),
    "weights outside": (with_weights_at("layers/../out"), "weights at 'layers/..'"),
    "odd weights": (with_weights_at("layers/a b"), "weights at 'layers/a b'"),
    "no weights": (with_content("model.weights.h5", b"x"), "no network of"),
    "units of text": (with_setting("Dense", units="64"), "Dense units = '64': .* valid integer"),
    "negative units": (with_setting("Dense", units=-1), "Dense units = -1"),
    "many units": (with_setting("Dense", units=1 << 40), "Dense units = 1099511627776"),
    "a switch of text": (with_setting("Dense", use_bias="no"), "Dense use_bias = 'no'"),
    "shape of text": (with_setting("InputLayer", batch_shape=[None, "8"]), "batch_shape 1"),
    "origin outside": (with_setting("__keras_tensor__", keras_history=["../x", 0, 0]), "history 0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """The files of a model that a run has stored."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        shutil.copy(empty_database, folder / "mlflow.db")
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        return folder_of(record_training())


@pytest.mark.parametrize("harm", HARMS)
def test_any_other_model_is_refused_by_name_and_place(
    harm: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    model_files.check(folder)
    work, says = HARMS[harm]
    work(folder)
    with pytest.raises(ValueError, match=says) as caught:
        model_files.check(folder)
    assert "\n" not in str(caught.value)


IDENTITY = ("artifact_path", "model_id", "model_uuid", "run_id", "utc_time_created")
IDENTITY += ("mlflow_version", "model_size_bytes", "prompts", "is_signature_from_type_hint")


@pytest.mark.parametrize("key", [*IDENTITY, "type_hint_from_example"])
def test_a_model_needs_no_lines_that_say_whose_it_is(
    key: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    change(folder / "MLmodel", lambda document: document.pop(key))
    model_files.check(folder)
    change(folder / "MLmodel", lambda document: document.update({key: ["odd"]}))
    with pytest.raises(ValueError, match=rf"MLmodel {key} = "):
        model_files.check(folder)


def test_the_files_are_those_that_mlflow_saves_without_a_run(tmp_path: Path) -> None:
    import mlflow.keras
    from mlflow.models import infer_signature

    numbers = np.zeros((1, 8, 8, 1), "float32")
    mlflow.keras.save_model(
        network(),
        str(tmp_path / "model"),
        signature=infer_signature(numbers, np.zeros((1, 10), "float32")),
        pip_requirements=["keras==3.15.1", "jax==0.10.2", "mlflow==3.17.2"],
    )
    model_files.check(tmp_path / "model")


FAST = ("mlp", "memorizer")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *[
            pytest.param(name, {}, marks=[pytest.mark.slow] * (name not in FAST))
            for name in keras_models.names()
        ],
        ("allconv_resnet", {"widths": (4, 8), "standardize": True}),
    ],
)
def test_every_architecture_is_accepted(name: str, arguments: dict[str, Any]) -> None:
    from pipelines.runtime import backend

    keras = backend.keras()
    from tests.keras_models.networks import tiny

    model = tiny(name, **arguments)
    described = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    parts = list(model_files._objects(described))
    assert len(parts) > 3
    assert [part for part in parts if not model_files._is_harmless(part)] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["link", "kept outside"])
def test_weights_that_are_in_another_file_are_not_read(
    kind: str, home: Path, digits: Path, tmp_path: Path
) -> None:
    run_id = record_training()

    def edit(parts: dict[str, bytes]) -> None:
        (tmp_path / "weights.h5").write_bytes(parts["model.weights.h5"])
        with h5py.File(tmp_path / "weights.h5", "r+") as file:
            if kind == "link":
                (tmp_path / "secret.h5").write_bytes(parts["model.weights.h5"])
                del file["layers"]
                file["layers"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/layers")
            else:
                folder = file["layers/dense/vars"]
                shape = folder["0"].shape
                (tmp_path / "secret").write_bytes(bytes(4 * int(np.prod(shape))))
                del folder["0"]
                place = [(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)]
                folder.create_dataset("0", shape, "f4", external=place)
        parts["model.weights.h5"] = (tmp_path / "weights.h5").read_bytes()

    repack(folder_of(run_id), edit)
    with pytest.raises(UserError, match="must be readable"):
        evaluation.evaluate(run_id)


WIDER = ([None, 8], [None, 1 << 20])


def wide(folder: Path) -> None:
    """Give the network more weights than its file can have."""

    def widen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        new = {"units": (8, 1 << 20), "input_shape": WIDER, "shape": WIDER}
        return {k: new[k][1] if k in new and v == new[k][0] else v for k, v in pairs}

    def edit(parts: dict[str, bytes]) -> None:
        description = json.loads(parts["config.json"], object_pairs_hook=widen)
        parts["config.json"] = json.dumps(description).encode()

    repack(folder, edit)


def padded(folder: Path) -> None:
    """Put another network in its place, of which one layer makes pictures of 8,208 pixels."""
    import keras

    pixels = keras.Input((8, 8, 1))
    x = keras.layers.ZeroPadding2D(4_100, name="frame")(pixels)
    x = keras.layers.GlobalAveragePooling2D()(x)
    keras.Model(pixels, keras.layers.Dense(10)(x)).save(folder / NETWORK)


@pytest.mark.parametrize(
    ("enlarge", "says"),
    [
        (wide, r"a network of 2,199,[0-9,]+ weights in a file of [0-9,]+ bytes"),
        (padded, "a layer makes 67,371,264 numbers of one input, where 2,097,152 are the most"),
    ],
)
def test_a_network_that_would_fill_the_memory_is_refused_before_it_is_built(
    enlarge: Callable[[Path], None],
    says: str,
    home: Path,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = record_training()
    enlarge(folder_of(run_id))
    monkeypatch.setattr("keras.models.load_model", lambda *_, **__: pytest.fail("it is built"))
    for read in (evaluation.evaluate, lambda _: model_registry.register(RECIPE, SCALE)):
        with pytest.raises(UserError, match=says):
            read(run_id)


def test_a_layer_of_earlier_versions_is_taken_in_and_not_loaded(home: Path, digits: Path) -> None:
    run_id = record_training()
    package = {"registered_name": "keras_models>ResidualBlocks"}
    with_part("keras_models.memorizer", "ResidualBlocks", **package)(folder_of(run_id))
    model_files.check(folder_of(run_id))
    with pytest.raises(
        UserError, match=r"the layer ResidualBlocks, which earlier .* Delete the run"
    ):
        evaluation.evaluate(run_id)


def test_a_network_of_another_shape_is_said(home: Path, digits: Path) -> None:
    run_id = record_training(4, 4, 1)
    says = r"of the shape of its data.*\(None, 4, 4, 1\) to \(None, 10\), where digits needs"
    with pytest.raises(UserError, match=says):
        evaluation.evaluate(run_id)


def test_an_artifact_that_mlflow_would_load_is_not_taken_in(
    home: Path, go: Go, tmp_path: Path
) -> None:
    with tracked("odd") as run:
        run.text("flavors: {}", "model/MLmodel")
    with pytest.raises(UserError, match=r"artifacts/model/MLmodel: an artifact that MLflow would"):
        exported(tmp_path / "runs.zip")


def test_a_half_stored_model_is_left_behind(home: Path, go: Go, tmp_path: Path) -> None:
    run_id = record_training()
    folder, model_id = folder_of(run_id), stored_models.find_id(run_id)
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("UPDATE logged_models SET status = 1")
    (folder / "MLmodel").unlink()
    assert str(store.client().get_logged_model(model_id).status) == "PENDING"
    exported(tmp_path / "runs.zip")
    with zipfile.ZipFile(tmp_path / "runs.zip") as zipped:
        assert not [name for name in zipped.namelist() if "/models/" in name]
    with_model(tmp_path / "runs.zip", folder, f"runs/{run_id}/models/{model_id}/")
    go("b")
    [imported] = importing.import_runs(tmp_path / "runs.zip")["imported"]
    assert stored_models.find_id(imported) is None
    assert not list((tmp_path / "b").rglob("model.keras"))
