"""The model registry: the best training of a recipe, by validation, is its champion.

A registered model has the recipe's name. Its versions are the champions there have been; the alias
`champion` is on the present one, the best run of the largest scale that was registered: a run of a
larger scale takes the alias, one of a smaller scale never does. The best has the least validation
number after its last step, for then its weights were stored. The test set is never looked at.
"""

import math
from collections.abc import Mapping
from typing import Any

from pipelines import champion
from pipelines.champion import ALIAS
from pipelines.errors import UserError
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe
from pipelines.resume import RUN_AS, TRAINING
from pipelines.runtime import locks
from pipelines.tracking import history, store


def register(name: str, scale: str, dry_run: bool = False) -> dict[str, Any]:
    """Make the best run of a recipe at a scale the champion; the JSON document.

    Unless it is already, or the champion is of a larger scale. A dry run changes nothing, and says
    what would become of the champion of now. UserError where there is no such recipe, no finished
    run of it, or no model in the best one.
    """
    recipe = catalog.named(name, scale)
    with locks.locked(store.home() / "live", f"register-{name}"):
        version = _champion(name)
        row, held = _chosen(recipe, scale, version)
        _logged_model(row)  # of a champion that stays too: it is about to be served
        new = _takes_over(row, held, version)
        if dry_run:
            now = version and {"version": str(version.version), "run_id": version.run_id}
            considered = champion.document(row, None if new else version, held, scale, new)
            return considered | {"champion_now": now}
        if new:
            version = _promote(row, scale)
    return champion.document(row, version, held, scale, new)


def _takes_over(row: history.Row, scale: str, version: Any) -> bool:
    """Whether a run that is chosen is not the champion, at that scale, already."""
    return version is None or (row.id, scale) != (version.run_id, version.tags.get("scale"))


def _chosen(recipe: Recipe, scale: str, version: Any) -> tuple[history.Row, str]:
    """The run that the rule makes champion beside the version that is, and its scale."""
    held = version.tags.get("scale", "") if version else ""
    if held in catalog.SCALES[catalog.SCALES.index(scale) + 1 :]:
        return _standing(version, held), held
    present = version.run_id if held == scale else None  # of equal ones it stays
    runs = candidates(recipe, scale)
    return min(runs, key=lambda row: (chosen_by(row), row.id != present)), scale


def _standing(version: Any, scale: str) -> history.Row:
    """The run of a champion that stays."""
    if row := history.find(version.run_id):
        return row
    raise UserError(
        f"A champion gives way to none of a smaller scale. Received: version {version.version}, of "
        f"{scale} scale, whose run {version.run_id} is gone. Register a run of {scale} scale, or "
        "delete that version in the UI first."
    )


def candidates(recipe: Recipe, scale: str) -> list[history.Row]:
    """The finished runs of a recipe at a scale, newest first; UserError where there is none.

    Those started under its name and scale, overrides included, and those with its very settings.
    All have its data: validation errors on other data are not comparable.
    """
    own = _settings(recipe.flat())
    runs = [
        row
        for row in history.rows(kind=TRAINING, recipe=recipe.name)
        if row.tags.get(RUN_AS) == f"{recipe.name} {scale}" or _settings(row.params) == own
        if _data(row.params) == _data(own) and math.isfinite(chosen_by(row))
    ]
    if not runs:
        raise UserError(
            f"A champion is chosen among finished runs. Received: {recipe.name} at scale {scale}, "
            f"which has none. Run python -m pipelines run {recipe.name} --scale {scale} first."
        )
    return runs


def _settings(params: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in params.items() if key != "seed"}


def _data(params: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in params.items() if k == "data" or k.startswith("data_args.")}


def chosen_by(row: history.Row) -> float:
    """The validation number of the weights that a run stored; infinite where it has none."""
    found = row.metrics.get(champion.watched(row), math.nan)
    return math.inf if math.isnan(found) else found


def _champion(name: str) -> Any:
    """The version with the alias, or None."""
    models = store.client().search_registered_models(f"name = '{name}'")
    if not models or ALIAS not in models[0].aliases:
        return None
    return store.client().get_model_version(name, str(models[0].aliases[ALIAS]))


def _promote(row: history.Row, scale: str) -> Any:
    """A new version of the recipe's model, from that run, with the alias."""
    client, name, model = store.client(), row.tags["recipe"], _logged_model(row)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name, description=row.tags["source"])
    version = client.create_model_version(
        name,
        f"models:/{model}",
        run_id=row.id,
        tags=champion.version_tags(row, scale),
        description=champion.describe(row, scale),
        model_id=model,
    )
    client.set_registered_model_alias(name, ALIAS, str(version.version))
    return version


def _logged_model(row: history.Row) -> str:
    """The id of the model that a run stored last."""
    if found := store.logged_model(row.id):
        store.check_model(found)
        return found
    recipe = row.tags["recipe"]
    raise UserError(
        f"A champion needs a stored model. Received: run {row.id}, the best of {recipe}, which "
        f"has none. Run python -m pipelines run {recipe} with its settings and --force first."
    )


def show(document: Mapping[str, Any]) -> None:
    """The champion in the terminal, and how to get an answer from it."""
    dry_run = "champion_now" in document
    verb = "would become" if dry_run else "is"
    verb = verb if document["new"] else "is already"
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
    print(f"\nServe it:  {document['serve']}\n\nAsk it:    {document['ask']}")
