"""Evaluation: a network that a run stored, measured anew beside what was recorded of it.

Nothing is written. The test part is read where the run has read it: a search never does.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pipelines.data import datasets
from pipelines.data.datasets import Splits
from pipelines.data.splits import Pictures
from pipelines.data.streamed import Photographs
from pipelines.errors import DAMAGE_ERRORS, UserError, short
from pipelines.recipes.recipe import Recipe
from pipelines.results import comparison
from pipelines.runtime import backend
from pipelines.runtime.plain_table import plain_table
from pipelines.tracking import history, store, stored_models
from pipelines.tracking.history import Row

ROUNDING = {"float32": 1e-3, "tensorfloat32": 1e-2, "mixed_bfloat16": 1e-2}  # relative
MIN_LOSS_TOLERANCE = 1e-6  # a loss that is nearly 0 is rounding
RULE = (
    "Recorded and measured agree where they differ by rounding: of a loss by {rounding:g} of it or "
    "{least:g}, of a percentage by {points:g} points or one example."
)


def evaluate(name: str) -> dict[str, Any]:
    """Return the recorded numbers of validation and test beside those measured now.

    `name` is a run's id, the beginning of one, or a name, of which the newest is taken. Raise
    UserError for a run that stored no network, or one that cannot be read, or recorded no number.
    """
    row = history.find(name) or comparison.find_run(name, own=True)
    recipe, rounding = _read_recipe(row)
    model = load_model(row, recipe.precision)
    splits = datasets.load(recipe.data, recipe.train_examples, recipe.data_args, recipe.validation)
    check_shape(row, model, splits)
    metrics = {
        key: _compare(key, row.metrics[key], value, rounding, examples)
        for key, value, examples in _measure(recipe, splits, model, row.metrics)
    }
    if not metrics:
        raise UserError(
            "What is evaluated must have recorded numbers of its validation or test part. "
            f"Received: {row.name} ({row.id}), which has none. Name a finished training, by its id."
        )
    return {
        "run_id": row.id,
        "name": row.name,
        "recipe": recipe.name,
        "agrees": all(each["agrees"] for each in metrics.values()),
        "rule": RULE.format(rounding=rounding, least=MIN_LOSS_TOLERANCE, points=100 * rounding),
        "metrics": metrics,
    }


def check_shape(row: Row, model: Any, splits: Splits) -> None:
    """Raise UserError where the stored network of a run does not fit its data."""
    shapes = (None, *splits.input_shape), (None, splits.classes)
    if (model.input_shape, model.output_shape) != shapes:
        raise UserError(
            f"A stored network must be of the shape of its data. Received: that of {row.name} "
            f"({row.id}), {model.input_shape} to {model.output_shape}, where {splits.name} "
            f"needs {shapes[0]} to {shapes[1]}. Train it again with --force."
        )


def _read_recipe(row: Row) -> tuple[Recipe, float]:
    """Return what a run says of its data, and how exactly it multiplied.

    Raise UserError if it is no training of one network.
    """
    if "data" not in row.params or "batch_size" not in row.params or "recipe" not in row.tags:
        kind = row.tags.get("kind", "run")
        raise UserError(
            f"What is evaluated must be a training. Received: {row.name} ({row.id}), of kind "
            f"{kind}. Name a run of a recipe, by its id; those of a claim are below it."
        )
    prefix = "data_args."
    data_args = {k.removeprefix(prefix): v for k, v in row.params.items() if k.startswith(prefix)}
    try:
        recipe = Recipe(
            name=row.tags["recipe"],
            source=row.tags.get("source", ""),
            model=row.params["model"],
            data=row.params["data"],
            data_args={key: _read_value(value) for key, value in data_args.items()},
            train_examples=json.loads(row.params.get("train_examples", "null")),
            validation=json.loads(row.params.get("validation", "true")),
            batch_size=int(row.params["batch_size"]),
            precision=cast("Any", row.params.get("precision", "float32")),
            steps=1,
        )
        return recipe, ROUNDING[recipe.precision]
    except DAMAGE_ERRORS as error:  # a run from elsewhere may be damaged
        raise UserError(
            f"What is evaluated must say how it was trained. Received: {row.name} ({row.id}): "
            f"{short(error)}. Train it again with --force."
        ) from error


def _read_value(text: str) -> Any:
    """Return a value of JSON, or else the word that stands for itself, as in `Recipe.flat`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def load_model(row: Row, precision: str) -> Any:
    """Return the network that a run stored last; its products are rounded as in training."""
    model_id = stored_models.find_id(row.id)
    if model_id is None:
        raise UserError(
            f"An evaluation needs a stored network. Received: {row.name} ({row.id}), which is "
            f"{row.status} and has none. Name a finished training, by its id."
        )
    backend.keras()
    from pipelines.training.precision import set_matmul_precision

    set_matmul_precision(precision)
    try:
        return stored_models.load(model_id)
    except UserError:
        raise
    except Exception as error:  # whatever Keras raises for a description or weights that are wrong
        if store.is_away(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"A stored network must be readable. Received: that of {row.name} ({row.id}): "
            f"{reason:.500}. Train it again with --force."
        ) from error


def _measure(
    recipe: Recipe, splits: Splits, model: Any, recorded: Mapping[str, float]
) -> Iterator[tuple[str, float, int]]:
    """Yield every number that was recorded of validation and test: name, value now, examples."""
    import keras

    from pipelines.training import evaluation, input_pipeline
    from pipelines.training.train import PROBABILITIES

    network, task, split = model, splits.task, splits.val  # what training reports
    with contextlib.suppress(ValueError):  # networks stored before gave logits
        model = keras.Model(model.input, model.get_layer(PROBABILITIES).input)
    if isinstance(split, Pictures | Photographs):  # stored networks read pixels 0..255
        standard = keras.Input(split.shape)
        scale, offset = (255 * split.std).tolist(), (255 * split.mean).tolist()
        network = keras.Model(standard, model(keras.layers.Rescaling(scale, offset)(standard)))
    metrics = evaluation.mean_metrics(task)
    network.compile(loss=task.numbers["loss"], weighted_metrics=metrics)
    for part, split in (("val", splits.val), ("test", splits.test)):
        if any(key.startswith(f"{part}_") for key in recorded):
            tester = evaluation.tester(network, split, task)
            with input_pipeline.unwrap_errors():
                stream = input_pipeline.evaluation(recipe, split, 1)
                logs = tester.evaluate(stream, verbose=0, return_dict=True)
            for key, value in evaluation.rename_means(part, logs).items():
                if key in recorded:
                    yield key, value, len(split)


def _compare(
    key: str, recorded: float, measured: float, rounding: float, examples: int
) -> dict[str, Any]:
    """Return a number as recorded and as measured, and whether the two agree."""
    loss = max(rounding * abs(recorded), MIN_LOSS_TOLERANCE)
    tolerance = max(100 * rounding, 100 / examples) if key.endswith("_pct") else loss
    difference = measured - recorded
    return {
        "recorded": recorded,
        "measured": measured,
        "difference": difference,
        "tolerance": tolerance,
        "agrees": abs(difference) <= tolerance,
    }


def print_evaluation(document: Mapping[str, Any]) -> None:
    """Print the evaluation, a row a number."""
    from rich.console import Console

    table = plain_table("number", "recorded", "measured now", "difference", "")
    for key, each in document["metrics"].items():
        cells = f"{each['recorded']:.6g}", f"{each['measured']:.6g}", f"{each['difference']:+.2g}"
        table.add_row(key, *cells, "agrees" if each["agrees"] else "[red]differs")
    Console().print(table)
    print(f"Run {document['run_id']}, {document['name']}. {document['rule']}")
