"""The files of a stored model: which a run of this project stores (tracking.py), and no others.

A model may come from anybody, and what MLflow and Keras can load may hold programs: pickles, graphs
of TensorFlow, layers with code, packages to install. So nothing is taken in, loaded or registered
but the very form in which a run stores its network. `check` reads text, and loads nothing.
"""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RULE = "A stored model must be as this project stores one: any other could run programs."
MLMODEL, NETWORK = "MLmodel", "data/model.keras"
TEXT_BYTES = 1 << 13  # of a file of text: ours have less than 2,000
LAYERS_BYTES = 1 << 23  # of a network's description: that of ResNet-152 has 560,000


@dataclass(frozen=True)
class Text:
    """A value that is not always the same: the pattern of what is written, and its YAML types."""

    pattern: str
    meaning: str
    types: tuple[str, ...] = ("str",)


ANY = Text(".*", "a text", ("str", "null"))
COUNT = Text(r"\d+|null", "a number", ("int", "null"))
VERSION = Text(r"\d+(\.\w+)*(\+[\w.]+)?", "a version such as 3.15.1")
TENSOR = Text(
    r'\[\{"type": "tensor", "tensor-spec": \{"dtype": "\w+", "shape": \[-?\d+(, -?\d+)*\]\}\}\]',
    "the type and shape of one tensor",
)
PACKAGE = Text(
    rf"(keras|tensorflow|jax|torch|mlflow)=={VERSION.pattern}",
    "a version of keras, tensorflow, jax, torch or mlflow, such as keras==3.15.1",
)

Shape = Any
"""What must be written: a text, False or None as they are, a Text, a dict of shapes by key (one
that ends with ? may be missing), a tuple of shapes, or a list of the shape of every member."""

FORMS: dict[str, Shape] = {
    MLMODEL: {
        "flavors": {
            "keras": {
                "data": "data",
                "keras_backend": Text("tensorflow|jax|torch", "tensorflow, jax or torch"),
                "keras_version": VERSION,
                "save_exported_model": False,
            },
            "python_function": {
                "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
                "loader_module": "mlflow.keras",
                "python_version": VERSION,
            },
        },
        "signature": {"inputs": TENSOR, "outputs": TENSOR, "params": None},
        "artifact_path?": ANY,
        "is_signature_from_type_hint?": False,
        "mlflow_version?": VERSION,
        "model_id?": ANY,
        "model_size_bytes?": COUNT,
        "model_uuid?": ANY,
        "prompts?": None,
        "run_id?": ANY,
        "type_hint_from_example?": False,
        "utc_time_created?": ANY,
    },
    "conda.yaml": {
        "channels": ["conda-forge"],
        "dependencies": (
            Text(rf"python={VERSION.pattern}", "such as python=3.11.7"),
            Text(rf"pip(<={VERSION.pattern})?", "such as pip<=23.2.1"),
            {"pip": [PACKAGE]},
        ),
        "name": "mlflow-env",
    },
    "python_env.yaml": {
        "python": VERSION,
        "build_dependencies": [
            Text(rf"(pip|setuptools|wheel)=={VERSION.pattern}", "such as pip==23.2.1")
        ],
        "dependencies": ["-r requirements.txt"],
    },
    "registered_model_meta?": {"model_name": ANY, "model_version": ANY},  # written where one reads
}
LINES = {"requirements.txt": PACKAGE, "data/keras_module.txt": Text("keras", "keras")}
PARTS = ("config.json", "metadata.json", "model.weights.h5")  # of the archive that is the network
CLASSES = re.compile(  # of its description, by module and name
    r"(keras\.(layers|initializers|regularizers|constraints)|keras\.src\.ops\.(numpy|nn|math|linalg)"
    r"|keras_models\.\w+)\.[A-Z]\w*|keras\.DTypePolicy|keras\.src\.models\.functional\.Functional"
)
PROGRAMS = {  # layers of Keras that hold code, or read files of their own
    *("Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"),
    *("StringLookup", "IntegerLookup", "TextVectorization"),
}
VALUES = ("__keras_tensor__", "__slice__", "__ellipsis__")  # described as if they were objects
DAMAGED = (  # what zipfile and json raise for bytes that are not theirs
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    OverflowError,
)


def check(folder: Path) -> None:
    """Raise ValueError for any other model: its message is the file, the line, what is expected."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if MLMODEL not in names:
        raise ValueError(f"no file {MLMODEL}")
    for name, form in FORMS.items():
        if name.removesuffix("?") in names:
            _check_form(folder / name.removesuffix("?"), form)
    for name, form in LINES.items():
        if name in names:
            _check_lines(folder / name, form)
    needed = {name for name in FORMS if name[-1] != "?"} | LINES.keys() | {NETWORK}
    for name in sorted(needed - names):
        raise ValueError(f"no file {name}")
    for name in sorted(names - needed - {name.removesuffix("?") for name in FORMS}):
        raise ValueError(f"a file {name!r}, where only {', '.join(sorted(needed))} are expected")
    _check_network(folder / NETWORK)


def _text(path: Path) -> str:
    if path.stat().st_size > TEXT_BYTES:
        raise ValueError(f"{path.name} of more than {TEXT_BYTES:,} bytes")
    return path.read_text("utf-8")


def _wrong(name: str, number: int, line: str, expected: str) -> ValueError:
    return ValueError(
        f"line {number + 1} of {name}, {line.strip()!r:.100}, where {expected} is expected"
    )


def _check_lines(path: Path, form: Text) -> None:
    for number, line in enumerate(_text(path).splitlines()):
        if not re.fullmatch(form.pattern, line):
            raise _wrong(path.name, number, line, form.meaning)


def _check_form(path: Path, form: Shape) -> None:
    """Raise ValueError for a YAML document of another form; its objects are never made."""
    import yaml

    text = _text(path)
    try:
        odd = (
            *(yaml.AliasToken, yaml.AnchorToken, yaml.TagToken, yaml.DirectiveToken),
            *(yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken),  # deep ones take minutes
        )
        for token in yaml.scan(text):
            if isinstance(token, odd):
                where, expected = token.start_mark.line, "a plain value"
                break
        else:
            node, expected = _mismatch(yaml.compose(text), form)
            where = node.start_mark.line if node else 0
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(
            f"{path.name}, which is no YAML: {' '.join(str(error).split())}"
        ) from error
    if expected:
        raise _wrong(path.name, where, dict(enumerate(text.splitlines())).get(where, ""), expected)


def _mismatch(node: Any, shape: Shape) -> tuple[Any, str]:
    """Return the first node of a YAML document that has another shape, and what is expected there.

    An empty text where there is none.
    """
    kind = getattr(node, "id", None)
    if isinstance(shape, dict):
        if kind != "mapping":
            return node, f"a mapping, {', '.join(key for key in shape if key[-1] != '?')}"
        return _mismatch_of_keys(node, shape)
    if isinstance(shape, list | tuple):
        if kind != "sequence":
            return node, "a list"
        shapes = shape if isinstance(shape, tuple) else shape * len(node.value)
        if len(shapes) != len(node.value):
            return node, f"a list of {len(shapes)}"
        found = (_mismatch(each, one) for each, one in zip(node.value, shapes, strict=True))
        return next((each for each in found if each[1]), (node, ""))
    form = shape if isinstance(shape, Text) else _literal(shape)
    known = kind == "scalar" and node.tag.rpartition(":")[2] in form.types
    return node, "" if known and re.fullmatch(form.pattern, node.value) else form.meaning


def _mismatch_of_keys(node: Any, shape: dict[str, Shape]) -> tuple[Any, str]:
    missing = {key.removesuffix("?"): each for key, each in shape.items()}
    for key, value in node.value:
        if key.id != "scalar" or key.value not in missing:
            return key, f"one of {', '.join(key.rstrip('?') for key in shape)}, once,"
        found = _mismatch(value, missing.pop(key.value))
        if found[1]:
            return found
    needed = [key for key in missing if key in shape]
    return node, f"also the key {needed[0]}" if needed else ""


def _literal(value: str | bool | None) -> Text:
    if isinstance(value, str):
        return Text(re.escape(value), value)
    return Text(json.dumps(value), json.dumps(value), ("null" if value is None else "bool",))


def _check_network(path: Path) -> None:
    """Raise ValueError for a network that is not its three parts, or has layers with programs.

    The parts are stored as they are, so that their sizes are true. Keras itself refuses weights
    that are kept in other files, or are said to be larger than they are.
    """
    try:
        with zipfile.ZipFile(path) as zipped:
            infos = zipped.infolist()
            if tuple(sorted(info.filename for info in infos)) != PARTS:
                raise ValueError(f"other parts than {', '.join(PARTS)}")
            if any(info.compress_type or info.file_size > path.stat().st_size for info in infos):
                raise ValueError("parts that are compressed")
            if zipped.getinfo(PARTS[0]).file_size > LAYERS_BYTES:
                raise ValueError(f"a {PARTS[0]} of more than {LAYERS_BYTES:,} bytes")
            description = json.loads(zipped.read(PARTS[0]))
    except DAMAGED as error:
        raise ValueError(f"{NETWORK}, which is no network of Keras's: {error}") from error
    for each in _objects(description):
        if not _is_harmless(each):
            name = f"{each.get('module')}.{each['class_name']}"
            raise ValueError(f"{NETWORK}, which has a part {name!r:.100}, not known to be harmless")


def _objects(description: Any) -> Iterator[dict[str, Any]]:
    """Everything in a network's description of which Keras makes an object."""
    todo = [description]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            if "class_name" in each:
                yield each
            todo += each.values()
        elif isinstance(each, list):
            todo += each


def _is_harmless(described: dict[str, Any]) -> bool:
    name, module = str(described["class_name"]), str(described.get("module"))
    registered = (None, name, f"{module.partition('.')[0]}>{name}")
    known = CLASSES.fullmatch(f"{module}.{name}") and name not in PROGRAMS
    return name in VALUES or bool(known and described.get("registered_name") in registered)
