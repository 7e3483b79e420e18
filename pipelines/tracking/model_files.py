"""The files of a stored model: which a run of this project stores (tracked_run.py), and no others.

A model may come from anybody, and what MLflow and Keras can load may hold programs: pickles, graphs
of TensorFlow, layers with code, packages to install. So nothing is imported, loaded or registered
but the very form in which a run stores its network. `check` reads text, and loads nothing.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    create_model,
)

from pipelines.errors import DAMAGE_ERRORS

RULE = "A stored model must be as this project stores one: any other could run programs."
MLMODEL, NETWORK = "MLmodel", "data/model.keras"
TEXT_BYTES = 1 << 13  # largest file of text: ours have less than 2,000
LAYERS_BYTES = 1 << 23  # largest description of a network: that of ResNet-152 has 560,000


Text = str | None
Version = Annotated[str, Field(pattern=r"^\d+(\.\w+)*(\+[\w.]+)?$")]
Tensor = Annotated[  # the type and shape of one
    str,
    Field(
        pattern=r'^\[\{("name": "probabilities", )?"type": "tensor", "tensor-spec": '
        r'\{"dtype": "\w+", "shape": \[-?\d+(, -?\d+)*\]\}\}\]$'
    ),
]
Package = Annotated[
    str, Field(pattern=r"^(keras|tensorflow|jax|torch|mlflow)==\d+(\.\w+)*(\+[\w.]+)?$")
]
Builder = Annotated[str, Field(pattern=r"^(pip|setuptools|wheel)==\d+(\.\w+)*$")]
Python = Annotated[str, Field(pattern=r"^python=\d+(\.\w+)*$")]
Pip = Annotated[str, Field(pattern=r"^pip(<=\d+(\.\w+)*)?$")]


class Form(BaseModel):
    """Part of a file: it has the keys that are named here, and values of just these types."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Keras(Form):
    data: Literal["data"]
    keras_backend: Literal["tensorflow", "jax", "torch"]
    keras_version: Version
    save_exported_model: Literal[False]


class Environment(Form):
    conda: Literal["conda.yaml"]
    virtualenv: Literal["python_env.yaml"]


class Function(Form):
    env: Environment
    loader_module: Literal["mlflow.keras"]
    python_version: Version


class Flavors(Form):
    keras: Keras
    python_function: Function


class Signature(Form):
    inputs: Tensor
    outputs: Tensor
    params: None


class Example(Form):
    artifact_path: Literal["input_example.json"]
    serving_input_path: Literal["serving_input_example.json"]
    type: Literal["ndarray"]


class Description(Form):
    """MLmodel; what has a default may be missing."""

    flavors: Flavors
    signature: Signature
    artifact_path: Text = None
    is_signature_from_type_hint: Literal[False] = False
    mlflow_version: Version = ""
    model_id: Text = None
    model_size_bytes: int | None = None
    model_uuid: Text = None
    prompts: None = None
    run_id: Text = None
    type_hint_from_example: Literal[False] = False
    saved_input_example_info: Example | None = None
    utc_time_created: Text = None


PATH = r"^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*$"  # letters, digits, _ - . and /, without ".."
MOST = 1 << 24  # units, channels or pixels
Name = Annotated[str, Field(pattern=PATH)]
Count = Annotated[int, Field(ge=0, le=MOST)]
SETTINGS = {  # what the parts of a network may be set to
    **{"name": Name | None, "keras_history": list[Name | int]},
    **dict.fromkeys(("units", "filters", "depth", "groups", "input_dim", "output_dim"), Count),
    **{"length": Count | None},
    **dict.fromkeys(("kernel_size", "dilation_rate", "pool_size"), Count | list[Count]),
    **{"strides": Count | list[Count] | None, "batch_shape": list[Count | None] | None},
    **{"target_shape": list[Count | Literal[-1]], "axis": int | list[int] | None},
    **dict.fromkeys(("rate", "momentum", "epsilon", "stddev", "negative_slope"), float | None),
    **dict.fromkeys(("use_bias", "trainable", "center"), bool),
}
FIELDS: Any = {name: (kind, None) for name, kind in SETTINGS.items()}
Settings = create_model("Settings", __config__=ConfigDict(strict=True, extra="allow"), **FIELDS)


class Packages(Form):
    pip: list[Package]


class Conda(Form):
    channels: list[Literal["conda-forge"]]
    dependencies: Annotated[tuple[Python, Pip, Packages], Strict(False)]
    name: Literal["mlflow-env"]


class Virtualenv(Form):
    python: Version
    build_dependencies: list[Builder]
    dependencies: list[Literal["-r requirements.txt"]]


class Registered(Form):
    model_name: Text
    model_version: Text | int  # of a store in SQLite MLflow writes a number


FORMS: dict[str, Any] = {  # what the files of text may hold: YAML, or lines
    MLMODEL: Description,
    "conda.yaml": Conda,
    "python_env.yaml": Virtualenv,
    "requirements.txt": list[Package],
    "data/keras_module.txt": list[Literal["keras"]],
}
OPTIONAL_FORMS: dict[str, Any] = {"registered_model_meta": Registered}  # where a model is read
EXAMPLES = {  # an input, by itself and as a request: numbers in brackets
    "input_example.json": re.compile(r"\[[\[\]\s\d.,eE+-]+\]\s*"),
    "serving_input_example.json": re.compile(r'\{\s*"inputs": \[[\[\]\s\d.,eE+-]+\]\s*\}\s*'),
}
REFUSED_TOKENS = (  # parts of YAML that ours has not
    *(yaml.AliasToken, yaml.AnchorToken, yaml.TagToken, yaml.DirectiveToken),
    *(yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken),  # deep ones take minutes
)
NETWORK_PARTS = ("config.json", "metadata.json", "model.weights.h5")  # in the network's archive
HARMLESS_CLASSES = re.compile(  # module and name, as its description has them
    r"keras\.(layers|initializers|regularizers|constraints)\.[A-Z]\w*|keras\.DTypePolicy"
    r"|keras\.src\.(ops\.(numpy|nn|math|linalg)\.[A-Z]\w*|ops\.core\.Scan|models\.functional\.Functional)"
    r"|keras_models\.memorizer\.ResidualBlocks"  # of earlier versions: it loads no more
)
PROGRAM_LAYERS = {  # layers of Keras that hold code, or read files of their own
    *("Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"),
    *("StringLookup", "IntegerLookup", "TextVectorization"),
    *("MelSpectrogram", "STFTSpectrogram"),  # make arrays of their own as they are built
    *("Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention"),  # as they run
}
VALUE_CLASSES = ("__keras_tensor__", "__slice__", "__ellipsis__")  # described like objects


class Loader(yaml.SafeLoader):
    """Reads YAML as MLflow does, and refuses what other readers may read in another way."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [str(key.value) for key, _ in node.value]
        if "<<" in keys or len(set(keys)) < len(keys):
            raise ValueError(f"keys that are merged or come twice: {', '.join(keys)}")
        return super().construct_mapping(node, deep)


def check(folder: Path) -> None:
    """Raise ValueError for any other model: its message is the file, the place, what is wrong."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if MLMODEL not in names:
        raise ValueError(f"no file {MLMODEL}")
    for name, form in (FORMS | OPTIONAL_FORMS).items():
        if name in names:
            _check_form(folder / name, form)
    for name in EXAMPLES.keys() & names:
        _check_example(folder / name)
    needed = FORMS.keys() | {NETWORK}
    for name in sorted(needed - names):
        raise ValueError(f"no file {name}")
    for name in sorted(names - needed - OPTIONAL_FORMS.keys() - EXAMPLES.keys()):
        raise ValueError(f"a file {name!r}, where only {', '.join(sorted(needed))} are expected")
    _check_network(folder / NETWORK)


def _check_example(path: Path) -> None:
    """Raise ValueError for an input that is not an array of numbers, of five dimensions at most."""
    if path.stat().st_size > LAYERS_BYTES:
        raise ValueError(f"{path.name} of more than {LAYERS_BYTES:,} bytes")
    text = path.read_text("utf-8", "replace")
    if not EXAMPLES[path.name].fullmatch(text) or "[" * 6 in re.sub(r"\s", "", text):
        raise ValueError(f"{path.name}, which is no array of numbers")


def _check_form(path: Path, form: Any) -> None:
    """Raise ValueError for a file of text that has another form."""
    if path.stat().st_size > TEXT_BYTES:
        raise ValueError(f"{path.name} of more than {TEXT_BYTES:,} bytes")
    try:
        text = path.read_text("utf-8")
        if path.suffix != ".txt":
            for token in yaml.scan(text):
                if isinstance(token, REFUSED_TOKENS):
                    raise ValueError(f"{token.id}, where only plain values are expected")
        TypeAdapter(form).validate_python(
            text.splitlines() if path.suffix == ".txt" else Loader(text).get_single_data()
        )
    except ValidationError as error:
        raise ValueError(_describe(path.name, error)) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path.name} = {' '.join(str(error).split())}") from error


def _describe(where: str, error: ValidationError) -> str:
    """Return the first place that has another form, what is there, and what should be."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = " ".join(map(str, (where, *first["loc"])))
    return f"{place} = {first['input']!r:.100}: {first['msg']}"


def _check_network(path: Path) -> None:
    """Raise ValueError for a network that is not its three parts, or has layers with programs.

    The parts are stored as they are, so that their sizes are true. Keras itself refuses weights
    that are kept in other files, or are said to be larger than they are.
    """
    import h5py

    paths: list[str] = []
    try:
        with zipfile.ZipFile(path) as zipped:
            infos = zipped.infolist()
            if tuple(sorted(info.filename for info in infos)) != NETWORK_PARTS:
                raise ValueError(f"other parts than {', '.join(NETWORK_PARTS)}")
            if any(info.compress_type or info.file_size > path.stat().st_size for info in infos):
                raise ValueError("parts that are compressed")
            if zipped.getinfo(NETWORK_PARTS[0]).file_size > LAYERS_BYTES:
                raise ValueError(f"a {NETWORK_PARTS[0]} of more than {LAYERS_BYTES:,} bytes")
            description = json.loads(zipped.read(NETWORK_PARTS[0]))
            with zipped.open(NETWORK_PARTS[2]) as part, h5py.File(part) as weights:
                weights.visit_links(paths.append)
    except DAMAGE_ERRORS as error:
        raise ValueError(f"{NETWORK}, which is no network of Keras's: {error}") from error
    for path_of_weights in paths:
        if not re.fullmatch(PATH, path_of_weights):
            raise ValueError(f"{NETWORK}, which has weights at {path_of_weights!r:.100}")
    for each in _objects(description):
        name = f"{each.get('module')}.{each['class_name']}"
        if not _is_harmless(each):
            raise ValueError(f"{NETWORK}, which has a part {name!r:.100}, not known to be harmless")
        for settings in filter(lambda some: isinstance(some, dict), (each, each.get("config"))):
            try:
                Settings.model_validate(settings)
            except ValidationError as error:
                raise ValueError(_describe(f"{NETWORK}, {name:.100}", error)) from error


def _objects(description: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a network's description of which Keras makes an object."""
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
    is_listed = HARMLESS_CLASSES.fullmatch(f"{module}.{name}") and name not in PROGRAM_LAYERS
    return name in VALUE_CLASSES or bool(
        is_listed and described.get("registered_name") in registered
    )
