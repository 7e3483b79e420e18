"""The page of a training in MLflow: errors, settings, its command, how to ask its network."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pipelines.data import datasets
from pipelines.data.datasets import AnySplit
from pipelines.data.splits import Pictures
from pipelines.recipes.recipe import Recipe
from pipelines.running.seed_statistics import format_mean
from pipelines.runtime import backend, provenance
from pipelines.tracking import database, store

PORT = 5001  # of a served network: not that of the UI
MANY = 20  # classes that are all named
COLOURS = {1: "grey", 3: "red, green and blue"}  # by the number of channels
STORED_EXAMPLE = "serving_input_example.json"  # which MLflow stores with a model
Example = tuple[str, AnySplit]
"""The part of the data set, training or test, whose first example is stored with a network."""
SCALED = {"digits": "Those of scikit-learn, 0 to 16, must be multiplied by 255/16."}


def describe_errors(
    metrics: Mapping[str, float], sds: Mapping[str, float | None] = MappingProxyType({})
) -> str:
    """Return `error: test 4.9 %, validation 5.1 %, best 4.7 %`; losses where errors are none.

    Where `sds` has the standard deviation of a number, `4.9 ± 0.2 %`.
    """
    unit = " %" if {"val_error_pct", "test_error_pct"} & metrics.keys() else ""
    what = "error_pct" if unit else "loss"
    names = {f"test_{what}": "test", f"val_{what}": "validation", f"best_val_{what}": "best"}
    numbers = [
        f"{name} {format_mean({'mean': metrics[key], 'sd': sds.get(key)})}{unit}"
        for key, name in names.items()
        if key in metrics
    ]
    return f"{what.removesuffix('_pct')}: {', '.join(numbers)}"


def write(
    recipe: Recipe, metrics: Mapping[str, float], run_id: str, example: Example | None
) -> str:
    """Return Markdown for the page of a training, without asking the store, which may be away.

    `example` is what was stored with its network; None where it stored none.
    """
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    lines = [
        f"**{describe_errors(metrics)}**",
        f"Recipe `{recipe.name}` ({recipe.source}), seed {recipe.seed}",
        f"Reported: {'; '.join(reported)}" if reported else "",
        f"Made by: `python -m {provenance.tags()['mlflow.source.name']}`",
        f"![learning rate](get-artifact?path=learning_rate.png&run_uuid={run_id})",
        *([] if example is None else _describe_request(recipe, run_id, example)),
    ]
    return "\n\n".join(filter(None, lines))


def _describe_request(recipe: Recipe, run_id: str, example: Example) -> Iterator[str]:
    """Yield paragraphs on what the stored network reads and gives, and on how to ask it."""
    yield "**The stored network**"
    for title, text in describe_network(recipe).items():
        yield f"{title} {text}"
    yield f"Serve it, from any folder: `{serve_line(f'runs:/{run_id}/model')}`"
    part, examples = example
    fetch = shell_line(f"mlflow artifacts download -u runs:/{run_id}/model/{STORED_EXAMPLE} -d .")
    about = f"Ask it, in a second terminal, about the first example of the {part} set"
    if isinstance(examples, Pictures):
        about += f", of class {class_names(recipe)[examples.labels[0]]}"
    yield f"{about}: `{fetch} && {ask_line(f'model/{STORED_EXAMPLE}')}`"


def describe_network(recipe: Recipe, logits: bool = False) -> dict[str, str]:
    """Return what the stored network of a recipe reads and gives, as sentences by their beginning.

    `logits`: it is of a version before 0.3, which gave these.
    """
    data_set = datasets.get(recipe.data)
    shape, classes = data_set.sizes(recipe.data_args)
    reads, gives = (f"float32 [n, {', '.join(map(str, each))}]" for each in (shape, (classes,)))
    if not data_set.is_classification:
        return {
            "It reads": f"{reads}: inputs as {recipe.data} draws them.",
            "It gives": f"{gives}: its prediction of the targets.",
        }
    order = f"one number a class, in this order: {_shorten(class_names(recipe))}"
    if recipe.data_args.get("whitened"):
        return {
            "It reads": f"{reads}: pictures that were whitened as in training.",
            "It gives": f"logits, {gives}, {order}.",
        }
    height, width, channels = shape
    pictures = f"n pictures of {height} x {width} pixels, {COLOURS[channels]}"
    pixels = " ".join(["Pixels are from 0 to 255.", *filter(None, [SCALED.get(recipe.data)])])
    other = "NaN for a picture whose pixels leave that range, or are all from 0 to 1."
    return {
        "It reads": f"{reads}: {pictures}. {pixels}",
        "It gives": f"logits, {gives}, {order}."
        if logits
        else f"probabilities, {gives}, {order}; {other}",
    }


def class_names(recipe: Recipe) -> list[str]:
    """Return the names of the classes in the order of the labels; numbers where none are known."""
    data_set = datasets.get(recipe.data)
    own: Mapping[str, list[str]] = getattr(data_set, "about", {})
    if "names" in own:
        return own["names"]
    stored = Path(getattr(data_set, "builder", recipe.data), "*", "label.labels.txt")
    for path in sorted(datasets.data_home().glob(str(stored))):
        return path.read_text().splitlines()
    return list(map(str, range(data_set.sizes(recipe.data_args)[1])))


def _shorten(names: list[str]) -> str:
    if names == list(map(str, range(len(names)))):
        return f"0 to {names[-1]}"
    return ", ".join(names if len(names) <= MANY else [*names[:3], "...", names[-1]])


def serve_line(model: str) -> str:
    """Return the command that serves a model of the store from any folder, in this environment."""
    settings = {"KERAS_BACKEND": backend.name()} if backend.name() != "tensorflow" else {}
    words = f"mlflow models serve -m {shlex.quote(model)} --env-manager local --port {PORT}"
    return shell_line(words, settings)


def ask_line(file: str) -> str:
    """Return the command that sends a request in a file to the served network."""
    post = f"curl -s -H 'Content-Type: application/json' -d @{shlex.quote(file)}"
    return f"{post} http://127.0.0.1:{PORT}/invocations"


def shell_line(words: str, settings: Mapping[str, str] = {}) -> str:
    """Return a command of MLflow for a shell where this store and environment need not be set."""
    named = {"MLFLOW_DISABLE_TELEMETRY": "true", **settings}
    if store.uri().startswith(database.SQLITE):  # the environment names any other store already
        named["MLFLOW_TRACKING_URI"] = store.uri()
    line = " ".join([*(f"{key}={shlex.quote(value)}" for key, value in named.items()), words])
    scripts = Path(sys.executable).parent
    is_found = shutil.which("mlflow") == str(scripts / "mlflow")
    return line if is_found else f"PATH={shlex.quote(str(scripts))}:$PATH {line}"
