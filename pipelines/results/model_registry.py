"""The model registry: the best training of a recipe, by validation, is its champion.

A registered model has the recipe's name. Its versions are the champions there have been; the alias
`champion` is on the present one, the best run of the largest scale that was registered: a run of a
larger scale takes the alias, one of a smaller scale never does. The best has the least validation
number after its last step, for then its weights were stored. The test set is never looked at.
"""

import math
from collections.abc import Mapping
from typing import Any

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import markdown_table
from pipelines.recipes import catalog, checks
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import SCALES
from pipelines.results import scoreboard, served
from pipelines.running.existing import TRAINING
from pipelines.running.training_page import describe_network, serve_line
from pipelines.runtime.plain_table import wrap_prose
from pipelines.tracking import history, store, stored_models
from pipelines.tracking.store import PARENT

ALIAS = "champion"
VAL, TEST = "val_", "test_"  # begin the names of numbers of the weights that are stored
RULE = "Of the largest scale registered, the run whose stored weights validate best is champion."


def register(name: str, scale: str, dry_run: bool = False) -> dict[str, Any]:
    """Make the best run of a recipe at a scale the champion and return the JSON document.

    Nothing changes if it is that already, if the champion is of a larger scale, or in a dry run,
    whose document says what would become of the present champion. Raise UserError if there is no
    such recipe, no finished run of it, or no model in the best one.
    """
    recipe = catalog.get_recipe(name, scale)
    checks.require_validation(recipe, "A champion is chosen")
    with store.lock(f"register-{name}"):
        models = store.client().search_registered_models(f"name = '{name}'")
        number = models[0].aliases.get(ALIAS) if models else None
        version = number and store.client().get_model_version(name, str(number))
        row, chosen_scale = _choose(recipe, scale, version)
        model = _logged_model(row)  # asked of a champion that stays, too: it is about to be served
        present = (version.run_id, version.tags.get("scale")) if version else None
        new = (row.id, chosen_scale) != present
        if dry_run:
            now = version and {"version": str(version.version), "run_id": version.run_id}
            considered = document(row, None if new else version, chosen_scale, scale, new)
            return considered | {"champion_now": now}
        request = served.write_request(catalog.get_recipe(name, chosen_scale), row, model)
        if new:
            version = _promote(row, scale, request)
    return document(row, version, chosen_scale, scale, new) | request


def _choose(recipe: Recipe, scale: str, version: Any) -> tuple[history.Row, str]:
    """Return the run that is to be the champion beside the present version, and its scale."""
    present_scale = version.tags.get("scale", "") if version else ""
    if present_scale in SCALES[SCALES.index(scale) + 1 :]:
        if row := history.find(version.run_id):
            return row, present_scale
        raise UserError(
            f"A champion gives way to none of a smaller scale. Received: version {version.version}"
            f", of {present_scale} scale, whose run {version.run_id} is gone. Register a run of "
            f"{present_scale} scale, or delete that version in the UI first."
        )
    present = version.run_id if present_scale == scale else None  # it stays where both are equal
    runs = candidates(recipe, scale)
    return min(runs, key=lambda row: (validation_number(row), row.id != present)), scale


def candidates(recipe: Recipe, scale: str) -> list[history.Row]:
    """Return the finished runs of a recipe at a scale, newest first; UserError if there is none.

    Those started under its name and scale, overrides included, and those with its very settings.
    All have its data: validation errors on other data are not comparable.
    """
    settings = history.without_seed(recipe.flat())
    runs = [
        row
        for row in history.rows(kind=TRAINING, recipe=recipe.name)
        if row.tags.get(store.RUN_AS) == f"{recipe.name} {scale}"
        or history.without_seed(row.params) == settings
        if _data(row.params) == _data(settings) and math.isfinite(validation_number(row))
    ]
    if not runs:
        raise UserError(
            f"A champion is chosen among finished runs. Received: {recipe.name} at scale {scale}, "
            f"which has none. Run python -m pipelines run {recipe.name} --scale {scale} first."
        )
    return runs


def _data(params: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in params.items() if k == "data" or k.startswith("data_args.")}


def validation_number(row: history.Row) -> float:
    """Return the validation number of the weights that a run stored; infinity if it has none."""
    value = row.metrics.get(criterion(row), math.nan)
    return math.inf if math.isnan(value) else value


def _promote(row: history.Row, scale: str, request: dict[str, Any]) -> Any:
    """Create a version of the recipe's model from that run, with the alias, and return it."""
    client, name, model = store.client(), row.tags["recipe"], _logged_model(row)
    about = document(row, None, scale, scale, new=True) | request
    if not client.search_registered_models(f"name = '{name}'"):
        words = [f"{row.tags['source']}.", *_serving_lines(about)]
        client.create_registered_model(name, description="\n\n".join(words))
    tags = {key: about[key] for key in ("claim", "verdict") if about["claim"]}
    tags |= {key: f"{value:.10g}" for key, value in about["metrics"].items()}
    tags |= {f"reported_{key}": f"{value:g}" for key, value in _reported(row).items()}
    tags |= {"run_id": row.id, "scale": scale, "commit": row.tags.get("commit", "unknown")}
    version = client.create_model_version(
        name,
        f"models:/{model}",
        run_id=row.id,
        tags=tags,
        description=_describe(row, about),
        model_id=model,
    )
    client.set_registered_model_alias(name, ALIAS, str(version.version))
    return version


def _logged_model(row: history.Row) -> str:
    """Return the id of the model that a run stored last; UserError if it stored none."""
    if model := stored_models.find_id(row.id):
        stored_models.check(model)
        return model
    recipe = row.tags["recipe"]
    raise UserError(
        f"A champion needs a stored model. Received: run {row.id}, the best of {recipe}, which "
        f"has none. Run python -m pipelines run {recipe} with its settings and --force first."
    )


def print_champion(document: Mapping[str, Any]) -> None:
    """Print the champion, and the commands that serve and ask it."""
    dry_run = "champion_now" in document
    verb = "is already" if not document["new"] else "would become" if dry_run else "is"
    name = f"{document['model']} version {document['version'] or '(new)'}"
    print(f"{name} {verb} the {ALIAS}: run {document['run_id']}, {document['scale']} scale")
    if (asked := document["asked_scale"]) != document["scale"]:
        print(f"  no run of {asked} scale replaces it; to let one, delete that version in the UI")
    for key, value in document["metrics"].items():
        print(f"  {key} {value:.4g}")
    if document["claim"]:
        print(f"  claim {document['claim']}: {document['verdict']}")
    print(f"\n{document['rule']}")
    if dry_run:
        print("Nothing was changed.")
        return
    for part in _serving_lines(document):
        text, *command = part.split("\n", 1)  # a command is not wrapped
        print("", wrap_prose(text), *command, sep="\n")


def _serving_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the parts of a text about a champion: what it reads and gives, how to ask it."""
    return [
        *(f"{title} {text}" for title, text in document["network"].items()),
        f"Serve it, from any folder:\n\n    {document['serve']}",
        f"Ask it, in a second terminal, {document['asked_about']}:\n\n    {document['ask']}",
    ]


def document(row: history.Row, version: Any, scale: str, asked: str, new: bool) -> dict[str, Any]:
    """Return the document of the champion, or of the run that would be it, without a version yet.

    Its scale is larger than the one asked for where that lost.
    """
    name, claim = row.tags["recipe"], find_claim(row)
    return {
        "model": name,
        "version": str(version.version) if version else None,
        "alias": ALIAS,
        "run_id": row.id,
        "scale": scale,
        "asked_scale": asked,
        "metrics": {k: v for k, v in sorted(row.metrics.items()) if k.startswith((VAL, TEST))},
        "claim": claim,
        "verdict": scoreboard.entries(claim)[0].verdict if claim else None,
        "new": new,
        "rule": RULE,
        "network": describe_network(catalog.get_recipe(name, scale)),
        "serve": serve_line(f"models:/{name}@{ALIAS}"),
        "ask": None,
        "asked_about": None,
    }


def criterion(row: history.Row) -> str:
    """Return the name of the number that decides: the validation error, in a regression the loss.

    It is empty if a run has neither.
    """
    names = (f"{VAL}error_pct", f"{VAL}loss")
    return next((name for name in names if name in row.metrics), "")


def _describe(row: history.Row, about: Mapping[str, Any]) -> str:
    """Return Markdown for a version's page: its numbers beside the reported ones, its claim."""
    reported = _reported(row)
    table = [
        [f"`{key}`", f"{value:.4g}", f"{reported[key]:g}" if key in reported else ""]
        for key, value in about["metrics"].items()
    ]
    lines = [
        f"**{about['model']}** at {about['scale']} scale: {row.tags['source']}.",
        "",
        *markdown_table(["number", "measured", "reported"], table),
        "",
        f"Chosen among runs of this scale by `{criterion(row)}` of these weights, not by test.",
        f"Run `{row.id}`, commit {row.tags.get('commit', 'unknown')}.",
    ]
    lines += [line for part in _serving_lines(about) for line in ("", part)]
    lines += ["Claim `{claim}`: {verdict}.".format(**about)] * bool(about["claim"])
    return "\n".join(lines)


def _reported(row: history.Row) -> Mapping[str, float]:
    """Return what the source reports of the recipe of a run."""
    scales = catalog.RECIPES[row.tags["recipe"]]
    return next(iter(scales.values())).reported


def find_claim(row: history.Row) -> str | None:
    """Return the claim of the recipe's name, or that for which the run was made; None if none."""
    if claim_catalog.is_claim(row.tags["recipe"]):
        return row.tags["recipe"]
    above: history.Row | None = row
    while above and "claim" not in above.tags:
        above = history.find(above.tags[PARENT]) if PARENT in above.tags else None
    return above.tags["claim"] if above else None
