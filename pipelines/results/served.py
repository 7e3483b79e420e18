"""The request that `register` prints: an example of the test set, and what the network answers."""

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
from numpy.typing import NDArray

from pipelines.data import datasets
from pipelines.data.datasets import AnySplit
from pipelines.data.splits import Split
from pipelines.errors import Unavailable, UserError
from pipelines.recipes.recipe import Recipe
from pipelines.results.evaluation import check_shape, load_model
from pipelines.running.training_page import STORED_EXAMPLE, ask_line, class_names, describe_network
from pipelines.tracking import store
from pipelines.tracking.history import Row

PROBABILITIES = "probabilities"  # the layer of a stored network that makes them of logits
REQUEST = "request.json"  # its name among the artifacts of the run
LOOKED_AT = 20  # test examples, the first, among which one is chosen


def write_request(recipe: Recipe, row: Row, model_id: str) -> dict[str, Any]:
    """Store a request with the run of a network; return how to send it and what it is about.

    That is the first test example that the network classifies right, or else the first. Where the
    data set is not here, it is the example that was stored with the network.
    """
    network = load_model(row, recipe.precision)
    logits = PROBABILITIES not in {layer.name for layer in network.layers}
    known: dict[str, Any] = {"network": describe_network(recipe, logits)}
    try:
        splits = datasets.load(recipe.data, data_args=recipe.data_args)
    except (UserError, Unavailable):
        about = f"about the example stored with it, for {recipe.data} is not prepared here"
        return known | _sent(
            store.client().get_logged_model(model_id).artifact_location, STORED_EXAMPLE, about
        )
    check_shape(row, network, splits)
    inputs, targets = _first_examples(splits.test)
    answers = np.asarray(network(inputs), np.float64)
    chosen, about = 0, "about the first test example"
    if datasets.get(recipe.data).is_classification:
        right = np.flatnonzero(answers.argmax(1) == targets)
        chosen = int(right[0]) if right.size else 0
        about = _describe(class_names(recipe), chosen, int(targets[chosen]), answers[chosen])
    text = json.dumps({"inputs": inputs[chosen : chosen + 1].tolist()})
    store.client().log_text(row.id, text.replace(".0,", ",").replace(".0]", "]"), REQUEST)
    return known | _sent(store.client().get_run(row.id).info.artifact_uri, REQUEST, about)


def _sent(location: str, name: str, about: str) -> dict[str, Any]:
    """Return the command that sends a file at a place of artifacts, and what the file is about."""
    place = urlsplit(location)
    folder = url2pathname(place.path)
    if place.scheme not in ("", "file"):  # artifacts are elsewhere: a copy is sent
        folder = str(store.download(location, Path(tempfile.mkdtemp())))
    return {"ask": ask_line(str(Path(folder, name))), "asked_about": about}


def _describe(names: Sequence[str], index: int, label: int, answer: NDArray[np.float64]) -> str:
    """Return which test picture it is, its class, and the largest number of the answer."""
    best = int(answer.argmax())
    outcome = "" if best == label else ", which is wrong"
    return (
        f"about picture {index + 1} of the test set, of class {names[label]} (in the answer number "
        f"{best + 1} of {len(answer)}, that of class {names[best]}, is the largest: "
        f"{answer[best]:.3g}{outcome})"
    )


def _first_examples(test: AnySplit) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return the first test examples as a stored network reads them, and their targets."""
    if isinstance(test, Split):
        return test.x[:LOOKED_AT].astype(np.float32), test.y[:LOOKED_AT]
    count = min(LOOKED_AT, len(test))
    photographs = dataclasses.replace(test, ten_crops=False).eval_dataset(count)
    standard, labels, _ = next(iter(photographs.as_numpy_iterator()))
    pixels = np.round(255 * (standard * test.std + test.mean)).clip(0, 255)
    return pixels.astype(np.float32), labels
