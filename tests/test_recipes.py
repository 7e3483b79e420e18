"""Recipes: overriding, the rules of every field, fingerprints, and the recipes that have a name."""

import dataclasses
import math

import pytest

import keras_models
from pipelines import data, lr
from pipelines.data import DATASETS, Dataset
from pipelines.errors import UserError
from pipelines.recipes import LABELS, RECIPES, SCALES, Recipe, named
from pipelines.run_command import Options

TINY = Recipe(
    name="tiny",
    source="a test",
    model="mlp",
    model_args={"width": 4, "depth": 2},
    data="digits",
    epochs=1.0,
    schedule="steps",
    schedule_args={"boundaries": (0.25, 0.5), "factor": 0.5},
)
OTHER = {  # another value of every field that is a setting
    "model": "allconv_resnet",
    "model_args": {"width": 5},
    "data": "synthetic",
    "data_args": {"noise": 0.5},
    "train_examples": 100,
    "augment": True,
    "batch_size": 64,
    "epochs": 2.0,
    "steps": 7,
    "learning_rate": 0.2,
    "schedule": "cosine",
    "schedule_args": {"factor": 0.25},
    "warmup": 0.25,
    "momentum": 0.5,
    "weight_decay": 1e-4,
    "seed": 1,
    "precision": "mixed_bfloat16",
    "devices": 1,
}
every_named = pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in RECIPES for scale in RECIPES[name]]
)


def test_override_changes_what_it_names_and_nothing_else() -> None:
    changed = TINY.override(batch_size=64, seed=3)
    differing = {
        field.name
        for field in dataclasses.fields(TINY)
        if getattr(TINY, field.name) != getattr(changed, field.name)
    }
    assert differing == {"batch_size", "seed"}
    assert (changed.batch_size, changed.seed) == (64, 3)
    assert TINY.batch_size == 128


def test_override_merges_mappings_key_by_key() -> None:
    changed = TINY.override(model_args={"depth": 8, "init": "he"}, schedule_args={"factor": 0.1})
    assert changed.model_args == {"width": 4, "depth": 8, "init": "he"}
    assert changed.schedule_args == {"boundaries": (0.25, 0.5), "factor": 0.1}
    assert TINY.model_args == {"width": 4, "depth": 2}


def test_another_model_or_schedule_starts_from_no_arguments() -> None:
    assert TINY.override(model="allconv_resnet").model_args == {}
    assert TINY.override(schedule="cosine").schedule_args == {}
    assert TINY.override(schedule="cosine").model_args == TINY.model_args
    changed = TINY.override(schedule="exponential", schedule_args={"final": 0.5})
    assert changed.schedule_args == {"final": 0.5}


def test_other_data_start_from_their_own_arguments() -> None:
    teacher = TINY.override(data="linear-teacher", data_args={"noise": 0.5})
    assert teacher.data_args == data.defaults("linear-teacher") | {"noise": 0.5}
    assert teacher.override(data_args={"gamma": 1.0}).data_args["noise"] == 0.5
    assert teacher.override(data="digits") == TINY
    assert teacher.override(data="linear-teacher") == teacher


def test_data_arguments_are_settings() -> None:
    teacher = named("linear-teacher")
    assert teacher.flat()["data_args.noise"] == "0.1"
    changed = teacher.override(data_args={"noise": 0.2})
    assert changed.flat() == teacher.flat() | {"data_args.noise": "0.2"}
    assert changed.fingerprint != teacher.fingerprint


def test_a_run_has_one_length_and_a_new_one_replaces_the_old() -> None:
    assert (TINY.steps, TINY.epochs) == (None, 1.0)
    assert (TINY.override(steps=7).steps, TINY.override(steps=7).epochs) == (7, None)
    assert TINY.override(steps=7).override(epochs=1.0) == TINY
    with pytest.raises(UserError, match="epochs=2 and steps=3"):
        TINY.override(epochs=2, steps=3)


def test_a_schedule_s_defaults_are_settings() -> None:
    by_default, spelled = (
        TINY.override(schedule="exponential"),
        TINY.override(schedule="exponential", schedule_args={"final": 0.01}),
    )
    assert by_default == spelled
    assert by_default.fingerprint == spelled.fingerprint


def test_the_same_model_and_schedule_keep_their_arguments() -> None:
    assert TINY.override(model="mlp", schedule="steps") == TINY


def test_an_unknown_field_lists_the_near_ones_first() -> None:
    with pytest.raises(UserError) as caught:
        TINY.override(batch_sise=3)
    assert "Received: 'batch_sise'. Did you mean batch_size" in str(caught.value)
    assert "weight_decay" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", -1),
        ("batch_size", 0),
        ("epochs", 0.0),
        ("epochs", -1.0),
        ("epochs", math.nan),
        ("epochs", math.inf),
        ("steps", 0),
        ("steps", -5),
        ("train_examples", 0),
        ("train_examples", -1),
        ("learning_rate", 0.0),
        ("learning_rate", -0.1),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("warmup", 1.0),
        ("warmup", -0.1),
        ("warmup", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("momentum", math.nan),
        ("weight_decay", -1.0),
        ("weight_decay", math.nan),
        ("weight_decay", math.inf),
        ("seed", -1),
        ("devices", 0),
        ("devices", -1),
    ],
)
def test_a_setting_that_no_run_can_have_is_one_sentence(field: str, value: float) -> None:
    with pytest.raises(UserError) as caught:
        TINY.override(**{field: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{field} must be ")
    assert f"Received: {field}={value!r}." in sentence
    assert f"--{field.replace('_', '-')}" in sentence


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch_size", 1),
        ("epochs", 0.01),
        ("steps", 1),
        ("steps", None),
        ("train_examples", 1),
        ("train_examples", None),
        ("learning_rate", 1e-12),
        ("warmup", 0.0),
        ("warmup", 0.999),
        ("momentum", 0.0),
        ("momentum", 0.999),
        ("weight_decay", 0.0),
        ("seed", 0),
        ("devices", 1),
        ("devices", None),
    ],
)
def test_the_edge_of_every_rule_is_allowed(field: str, value: float | None) -> None:
    assert getattr(TINY.override(**{field: value}), field) == value


def test_flat_is_one_level_of_strings() -> None:
    assert TINY.flat() == {
        "model": "mlp",
        "model_args.depth": "2",
        "model_args.width": "4",
        "data": "digits",
        "train_examples": "null",
        "augment": "false",
        "batch_size": "128",
        "epochs": "1.0",
        "steps": "null",
        "learning_rate": "0.1",
        "schedule": "steps",
        "schedule_args.boundaries": "[0.25, 0.5]",
        "schedule_args.factor": "0.5",
        "warmup": "0.0",
        "momentum": "0.9",
        "weight_decay": "0.0",
        "seed": "0",
        "precision": "float32",
        "devices": "null",
    }


def test_the_fingerprint_is_stable() -> None:
    # Recorded runs are found by it: another value here means that none of them is found again.
    assert TINY.fingerprint == "fd872ad3ec6c"


def test_equal_settings_have_one_fingerprint_whatever_they_are_called() -> None:
    renamed = dataclasses.replace(TINY, name="other", source="elsewhere")
    reordered = dataclasses.replace(TINY, model_args={"depth": 2, "width": 4})
    listed = TINY.override(schedule_args={"boundaries": [0.25, 0.5]})
    assert {r.fingerprint for r in (renamed, reordered, listed)} == {TINY.fingerprint}


@pytest.mark.parametrize(
    ("field", "whole"), [("epochs", 1), ("momentum", 0), ("weight_decay", 0), ("warmup", 0)]
)
def test_a_whole_number_is_the_same_setting_as_an_integer_or_a_float(
    field: str, whole: int
) -> None:
    integer, floating = TINY.override(**{field: whole}), TINY.override(**{field: float(whole)})
    assert integer == floating
    assert integer.fingerprint == floating.fingerprint


def test_other_holds_every_setting() -> None:
    assert OTHER.keys() == {field.name for field in dataclasses.fields(Recipe)} - set(LABELS)


@pytest.mark.parametrize("field", OTHER)
def test_any_one_setting_changes_the_fingerprint(field: str) -> None:
    changed = dataclasses.replace(TINY, **{field: OTHER[field]})
    assert changed.fingerprint != TINY.fingerprint
    assert len(changed.fingerprint) == 12
    assert int(changed.fingerprint, 16) >= 0


def test_recipes_of_different_names_and_scales_have_different_fingerprints() -> None:
    fingerprints = [recipe.fingerprint for scales in RECIPES.values() for recipe in scales.values()]
    assert len(set(fingerprints)) == len(fingerprints)


def test_hm_table_1_is_the_papers() -> None:
    recipe = named("allconv-cifar10", "paper")
    rates = lr.table(recipe.schedule, recipe.learning_rate, recipe.steps, **recipe.schedule_args)
    assert rates[[0, 29_999, 30_000, 49_999, 50_000, 63_999]] == pytest.approx(
        [0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005], rel=1e-12
    )
    assert (recipe.batch_size, recipe.momentum, recipe.weight_decay) == (128, 0.9, 1e-4)
    assert (len(rates), recipe.augment) == (64_000, True)


@every_named
def test_named_recipes_are_made_of_what_there_is(name: str, scale: str) -> None:
    recipe = named(name, scale)
    assert recipe.name == name
    assert scale in SCALES
    assert recipe.model in keras_models.names()
    assert recipe.data in DATASETS
    assert recipe.source
    steps = recipe.steps or 100
    rates = lr.table(
        recipe.schedule, recipe.learning_rate, steps, recipe.warmup, **recipe.schedule_args
    )
    assert len(rates) == steps


@every_named
def test_named_recipes_build_their_network(name: str, scale: str) -> None:
    recipe = named(name, scale)
    row = DATASETS[recipe.data]
    if isinstance(row, Dataset):
        shape, classes = row.shape, row.classes
    else:
        drawn = data.load(recipe.data, 1, recipe.data_args)
        shape, classes = drawn.input_shape, drawn.classes
    model = keras_models.build(recipe.model, shape, classes, **recipe.model_args)
    assert model.output_shape == (None, classes)


@every_named
def test_no_two_options_of_a_recipe_have_one_name(name: str, scale: str) -> None:
    recipe = named(name, scale)
    options = [field.name for kind in (Recipe, Options) for field in dataclasses.fields(kind)]
    options += [*recipe.model_args, *recipe.data_args, *recipe.schedule_args]
    assert len(options) == len(set(options))


@pytest.mark.parametrize("name", RECIPES)
def test_smoke_differs_in_size_only(name: str) -> None:
    smoke, cpu = named(name, "smoke"), named(name)
    assert smoke.steps <= 10
    assert smoke.train_examples <= 256
    kept = ("model", "data", "data_args", "learning_rate", "schedule", "augment", "momentum")
    kept += ("schedule_args",)
    assert [getattr(smoke, key) for key in kept] == [getattr(cpu, key) for key in kept]


def test_the_plain_twin_differs_in_its_shortcuts_only() -> None:
    plain, residual = named("plain-digits"), named("allconv-digits")
    changed = plain.override(model_args={"shortcut": "identity", "init": "small"})
    assert changed.fingerprint == residual.fingerprint


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("allconv-digit", "cpu", "A recipe must be a known name. Received: 'allconv-digit'. "),
        ("allconv-digit", "cpu", "Did you mean allconv-digits"),
        ("x", "cpu", "Choices: allconv-cifar10, allconv-cifar100, allconv-digits, "),
        ("allconv-digits", "paper", "The scale of allconv-digits must be a known name. "),
        ("allconv-digits", "paper", "Received: 'paper'. Choices: cpu, smoke."),
        ("allconv-cifar10", "papr", "Did you mean paper? Choices: cpu, paper, smoke."),
    ],
)
def test_unknown_recipes_and_scales_list_the_choices(name: str, scale: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        named(name, scale)
    assert expected in str(caught.value)
