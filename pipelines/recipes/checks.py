"""Checks of a recipe against schedules, data, networks and machines, before it is trained."""

import sys

import keras_models
from pipelines.data import datasets, integrity
from pipelines.errors import LISTED_BY, UserError, unknown
from pipelines.recipes import lr
from pipelines.recipes.recipe import LONGEST, Recipe


def check(recipe: Recipe) -> None:
    """Raise UserError where no machine can train it: a name or an argument that is wrong.

    Quick, without Keras. What depends on the machine is checked by `check_here`.
    """
    lr.check(recipe.schedule, recipe.schedule_args)
    with integrity.explain_damage(recipe.data):
        data = datasets.get(recipe.data)
    data.check_arguments(recipe.data_args)
    check_even(recipe, recipe.devices or 1)
    for name, option in data.unsuitable_settings().items():
        value = getattr(recipe, name)
        if value and value not in ("auto", "host"):
            raise UserError(
                f"{name} must suit the data. Received: {name}={value} for {recipe.data}, where "
                f"it means nothing. Set {option}."
            )
    require_model(recipe.model)
    shape, classes = data.sizes(recipe.data_args)
    try:
        keras_models.check(recipe.model, shape, classes, **recipe.model_args)
    except ValueError as error:
        raise UserError(str(error)) from error


def require_model(name: str) -> None:
    """Raise UserError unless there is an architecture of that name, or a person's own."""
    if not keras_models.is_own(name) and name not in keras_models.names():
        raise unknown("An architecture", name, keras_models.names(), LISTED_BY)


def name_model(given: str) -> str:
    """Return what a recipe calls an architecture: a person's own with the digest of its source.

    That it runs as it stands is said on standard error. Raise UserError for a file or a module that
    has no network.
    """
    if not keras_models.is_own(given):
        return given
    try:
        name = keras_models.name_own(given)
        keras_models.defaults(name)  # reads it
    except ValueError as error:
        raise UserError(str(error)) from error
    print(f"The network is your own code, and runs as it stands: {name}", file=sys.stderr)
    return name


def check_here(recipe: Recipe) -> None:
    """Raise UserError where this machine cannot train it, as far as is known without Keras.

    Its data must be there, and a batch must not be more than they are.
    """
    check(recipe)
    count_steps(recipe, count_examples(recipe))


def check_even(recipe: Recipe, devices: int) -> None:
    """Raise UserError unless that many devices can share a batch and its parts evenly."""
    if recipe.batch_size % (devices * recipe.accumulate):
        raise UserError(
            "batch_size must be a multiple of the number of devices times --accumulate. "
            f"Received: batch_size={recipe.batch_size} for {devices} devices and accumulate="
            f"{recipe.accumulate}. Set --batch-size, --devices or --accumulate accordingly."
        )


def check_searchable(recipe: Recipe) -> None:
    """Raise UserError where a search has no validation examples, or would see the test set."""
    require_validation(recipe, "A search chooses")
    if recipe.test_every:
        raise UserError(
            "A search leaves the test set unread. Received: test_every="
            f"{recipe.test_every} for {recipe.name}. Set --test-every None."
        )


def require_validation(recipe: Recipe, chosen: str) -> None:
    """Raise UserError where nothing can be chosen by validation: there are no examples for it.

    `chosen` is who chooses, and the verb: `A champion is chosen`.
    """
    if not recipe.validation:
        raise UserError(
            f"{chosen} by validation examples. Received: validation=False for {recipe.name}, "
            "which trains on all of them. Set --validation."
        )


def count_examples(recipe: Recipe) -> int:
    """Return how many training examples it uses. UserError where its data are not there."""
    available = datasets.get(recipe.data).examples(recipe.data_args, recipe.validation)
    return min(available, recipe.train_examples or available)


def count_steps(recipe: Recipe, examples: int) -> int:
    """Return the optimizer steps of a training on so many examples.

    UserError for a batch of more.
    """
    per_epoch = examples // recipe.batch_size
    if per_epoch == 0:
        raise UserError(
            "batch_size must be at most the number of training examples. Received: batch_size="
            f"{recipe.batch_size} for {examples} examples of {recipe.data}. Set --batch-size lower."
        )
    steps = recipe.steps or max(1, round((recipe.epochs or 0) * per_epoch))
    if steps > LONGEST:
        raise UserError(
            f"A training has at most {LONGEST:,} steps. Received: epochs={recipe.epochs} of "
            f"{per_epoch:,} steps. Set --epochs lower."
        )
    return steps
