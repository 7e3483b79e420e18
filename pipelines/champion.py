"""A champion: its document, the tags and the page of its version, how to serve and ask it."""

import shlex
from collections.abc import Mapping
from typing import Any

from pipelines import report
from pipelines.data import datasets
from pipelines.data._prepared import Dataset
from pipelines.measurement import claim_catalog
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend
from pipelines.tracking import history, store
from pipelines.tracking.store import PARENT

ALIAS = "champion"
PORT = 5001  # not that of the UI
VAL, TEST = "val_", "test_"  # begin the names of numbers of the weights that are stored
NOT_RUN = "not run"
RULE = "Of the largest scale registered, the run whose stored weights validate best is champion."


def document(row: history.Row, version: Any, scale: str, asked: str, new: bool) -> dict[str, Any]:
    """What is said of the champion, or of the run that would be, which has no version yet.

    Its scale is larger than the one asked for where that lost.
    """
    name, found = row.tags["recipe"], claim_of(row)
    return {
        "model": name,
        "version": str(version.version) if version else None,
        "alias": ALIAS,
        "run_id": row.id,
        "scale": scale,
        "asked_scale": asked,
        "metrics": _shown(row.metrics),
        "claim": found,
        "verdict": _verdict(found),
        "new": new,
        "rule": RULE,
        "serve": serve(name),
        "ask": ask(catalog.named(name, scale)),
    }


def watched(row: history.Row) -> str:
    """The name of the number that chooses: the validation error, in a regression the loss.

    Empty where a run has neither.
    """
    names = (f"{VAL}error_pct", f"{VAL}loss")
    return next((name for name in names if name in row.metrics), "")


def version_tags(row: history.Row, scale: str) -> dict[str, str]:
    """What a version says of itself; nothing of what does not exist."""
    found = claim_of(row)
    of_claim = {"claim": found, "verdict": str(_verdict(found))} if found else {}
    numbers = {key: f"{value:.10g}" for key, value in _shown(row.metrics).items()}
    reported = {f"reported_{key}": f"{value:g}" for key, value in _reported(row).items()}
    commit = row.tags.get("commit", "unknown")
    return {"run_id": row.id, "scale": scale, "commit": commit, **numbers, **reported, **of_claim}


def describe(row: history.Row, scale: str) -> str:
    """Markdown for the page of a version: its numbers beside the reported ones, its claim."""
    found, reported = claim_of(row), _reported(row)
    table = [
        f"| `{key}` | {value:.4g} | {f'{reported[key]:g}' if key in reported else ''} |"
        for key, value in _shown(row.metrics).items()
    ]
    lines = [
        f"**{row.tags['recipe']}** at {scale} scale: {row.tags['source']}.",
        "",
        "| number | measured | reported |",
        "|---|---|---|",
        *table,
        "",
        f"Chosen among runs of this scale by `{watched(row)}` of these weights, not by test.",
        f"Run `{row.id}`, commit {row.tags.get('commit', 'unknown')}.",
    ]
    return "\n".join([*lines, *([f"Claim `{found}`: {_verdict(found)}."] if found else [])])


def _shown(metrics: Mapping[str, float]) -> dict[str, float]:
    return {k: v for k, v in sorted(metrics.items()) if k.startswith((VAL, TEST))}


def _reported(row: history.Row) -> Mapping[str, float]:
    """What the source reports of the recipe of a run."""
    scales = catalog.RECIPES[row.tags["recipe"]]
    return next(iter(scales.values())).reported


def claim_of(row: history.Row) -> str | None:
    """The claim of the recipe's name, or that for which the run was made, or None."""
    if row.tags["recipe"] in claim_catalog.names():
        return row.tags["recipe"]
    above: history.Row | None = row
    while above and "claim" not in above.tags:
        above = history.find(above.tags[PARENT]) if PARENT in above.tags else None
    return above.tags["claim"] if above else None


def _verdict(name: str | None) -> str | None:
    """The claim's verdict on the scoreboard; None without a claim."""
    if name is None:
        return None
    return next((entry.verdict for entry in report.entries() if entry.name == name), NOT_RUN)


def serve(name: str) -> str:
    """The command that serves the champion, in the project's environment, from any folder."""
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true"}
    if store.uri().startswith(store.SQLITE):  # any other store is named by the environment already
        path = store.uri().removeprefix(store.SQLITE)
        settings["MLFLOW_TRACKING_URI"] = f"{store.SQLITE}{store.home() / path.rpartition('/')[2]}"
    if backend.backend() != "tensorflow":
        settings["KERAS_BACKEND"] = backend.backend()
    words = " ".join(f"{key}={shlex.quote(value)}" for key, value in settings.items())
    model = shlex.quote(f"models:/{name}@{ALIAS}")
    return f"{words} mlflow models serve -m {model} --env-manager local --port {PORT}"


def ask(recipe: Recipe) -> str:
    """The command that asks the served model about two examples of zeros."""
    row = datasets.DATASETS[recipe.data]
    shape = row.shape if isinstance(row, Dataset) else (recipe.data_args["dimension"],)
    zeros = f"import json, numpy; x = numpy.zeros({(2, *shape)})"
    batch = f"{zeros}; print(json.dumps({{'inputs': x.tolist()}}))"
    post = "curl -s -H 'Content-Type: application/json' -d @-"
    return f'python -c "{batch}" | {post} http://127.0.0.1:{PORT}/invocations'
