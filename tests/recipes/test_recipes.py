"""Recipes: overriding, its flags, the rules of every field, labels, fingerprints."""

import dataclasses
import math
import shlex
from typing import Any

import pytest

import keras_models
from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes import lr
from pipelines.recipes.catalog import get_recipe, title
from pipelines.recipes.recipe import LABELS, LATER, Recipe

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
    "validation": False,
    "test_every": 10,
    "augment": True,
    "shift": 2,
    "batch_size": 64,
    "accumulate": 4,
    "epochs": 2.0,
    "steps": 7,
    "learning_rate": 0.2,
    "schedule": "cosine",
    "schedule_args": {"factor": 0.25},
    "warmup": 0.25,
    "warmup_level": 0.5,
    "momentum": 0.5,
    "rate_in_velocity": True,
    "nesterov": True,
    "weight_decay": 1e-4,
    "decay_all": True,
    "seed": 1,
    "label_smoothing": 0.1,
    "ema": 0.99,
    "precision": "mixed_bfloat16",
    "devices": 1,
}


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


def test_an_override_keeps_the_labels() -> None:
    paper = get_recipe("allconv-cifar10", "paper")
    changed = paper.override(seed=3, batch_size=64, model="mlp", data="cifar100", epochs=1)
    assert [getattr(changed, key) for key in LABELS] == [getattr(paper, key) for key in LABELS]
    assert changed.reported == {"test_error_pct": 6.38}


def test_the_parts_of_a_batch_are_even() -> None:
    sentence = r"accumulate must be > 0 and divide batch_size=96\. Received: accumulate=64"
    with pytest.raises(UserError, match=sentence):
        TINY.override(accumulate=64, batch_size=96)
    assert TINY.override(accumulate=32, batch_size=96).accumulate == 32


def test_override_merges_mappings_key_by_key() -> None:
    changed = TINY.override(model_args={"depth": 8, "init": "he"}, schedule_args={"factor": 0.1})
    assert changed.model_args == {"width": 4, "depth": 8, "init": "he"}
    assert changed.schedule_args == {"boundaries": (0.25, 0.5), "factor": 0.1}
    assert TINY.model_args == {"width": 4, "depth": 2}


def test_another_model_or_schedule_starts_from_its_own_arguments() -> None:
    arguments = TINY.override(model="allconv_resnet").model_args
    assert arguments == keras_models.defaults("allconv_resnet")
    assert arguments["blocks_per_stage"] == 9
    assert TINY.override(schedule="linear").schedule_args == {}
    assert TINY.override(schedule="linear").model_args == TINY.model_args
    changed = TINY.override(schedule="exponential", schedule_args={"final": 0.5})
    assert changed.schedule_args == {"final": 0.5}
    assert TINY.override(model="mlp", schedule="steps") == TINY  # the same ones


def test_other_data_start_from_their_own_arguments() -> None:
    teacher = TINY.override(data="linear-teacher", data_args={"noise": 0.5})
    assert teacher.data_args == datasets.get("linear-teacher").start({}) | {"noise": 0.5}
    assert teacher.override(data_args={"gamma": 1.0}).data_args["noise"] == 0.5
    assert teacher.override(data="digits") == TINY
    assert teacher.override(data="linear-teacher") == teacher


def test_other_pictures_are_read_as_those_before() -> None:
    plain = TINY.override(data_args={"standardized": False})
    assert plain.override(data="mnist").data_args == plain.data_args
    assert plain.override(data="imagenet2012").data_args == {}  # photographs have no such choice
    assert plain.override(data="linear-teacher").override(data="mnist").data_args == {}
    assert TINY.override(data="mnist").data_args == {}


def test_data_arguments_are_settings() -> None:
    teacher = get_recipe("linear-teacher")
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


def test_an_unknown_field_lists_the_near_ones_first() -> None:
    with pytest.raises(UserError) as caught:
        TINY.override(batch_sise=3)
    assert "Received: 'batch_sise'. Did you mean batch_size? Choices: accumulate, " in str(
        caught.value
    )
    assert str(caught.value).endswith(f", ... ({len(dataclasses.fields(TINY))}).")


NAN, INF = math.nan, math.inf
REFUSED = {
    "batch_size": (-1, 0),
    "accumulate": (0, -1, 3, 256),
    "epochs": (0.0, -1.0, NAN, INF),
    "steps": (0, -5),
    "train_examples": (0, -1),
    "test_every": (0,),
    "learning_rate": (0.0, -0.1, NAN, INF),
    "warmup": (1.0, -0.1, NAN),
    "warmup_level": (1.5, -0.1),
    "momentum": (1.0, -0.1, NAN),
    "weight_decay": (-1.0, NAN, INF),
    "seed": (-1,),
    "devices": (0, -1),
}
ALLOWED = {  # the edges of every rule
    "batch_size": (1,),
    "accumulate": (1, 128),
    "epochs": (0.01,),
    "steps": (1, None),
    "train_examples": (1, None),
    "learning_rate": (1e-12,),
    "warmup": (0.0, 0.999),
    "warmup_level": (1.0,),
    "momentum": (0.0, 0.999),
    "weight_decay": (0.0,),
    "seed": (0,),
    "devices": (1, None),
}


def each(table: dict[str, Any]) -> Any:
    rows = [(field, value) for field, values in table.items() for value in values]
    return pytest.mark.parametrize(("field", "value"), rows)


@each(REFUSED)
def test_a_setting_that_no_run_can_have_is_one_sentence(field: str, value: float) -> None:
    with pytest.raises(UserError) as caught:
        TINY.override(**{field: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{field} must be ")
    assert f"Received: {field}={value!r}." in sentence
    assert f"--{field.replace('_', '-')}" in sentence


@each(ALLOWED)
def test_the_edge_of_every_rule_is_allowed(field: str, value: float | None) -> None:
    assert getattr(TINY.override(**{field: value}), field) == value


def test_flat_is_one_level_of_strings() -> None:
    assert TINY.flat() == {
        "model": "mlp", "model_args.depth": "2", "model_args.width": "4",
        "data": "digits", "train_examples": "null", "augment": "false", "shift": "4",
        "batch_size": "128", "accumulate": "1", "epochs": "1.0", "steps": "null",
        "learning_rate": "0.1", "schedule": "steps",
        "schedule_args.boundaries": "[0.25, 0.5]", "schedule_args.factor": "0.5",
        "warmup": "0.0", "momentum": "0.9", "nesterov": "false", "weight_decay": "0.0",
        "seed": "0", "label_smoothing": "0.0", "ema": "0.0", "precision": "float32",
        "devices": "null", "asynchronous": "false",
    }  # fmt: skip


@pytest.mark.parametrize("field", LATER)
def test_a_later_field_is_a_setting_only_where_it_is_not_its_default(field: str) -> None:
    changed = dataclasses.replace(TINY, **{field: OTHER[field]})
    assert field not in TINY.flat()
    assert changed.flat().keys() - TINY.flat().keys() == {field}


def test_the_fingerprint_is_stable() -> None:
    # Recorded runs are found by it: another value here means that none of them is found again.
    # A new field of a recipe is one of LATER, which leaves it as it is.
    assert TINY.fingerprint == "2503d06dcd3b"


def test_equal_settings_have_one_fingerprint_whatever_they_are_called() -> None:
    renamed = dataclasses.replace(
        TINY, name="other", source="elsewhere", reported={"test_error_pct": 1.0}, costs={}
    )
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


def read_back(base: Recipe, flags: str) -> Recipe:
    """What `python -m pipelines run NAME FLAGS` trains, by the command's own reading."""
    from pipelines.cli import overrides, parsing

    words = shlex.split(flags)
    default = overrides.with_choices(base, words, "run")
    values = parsing.parse(overrides.recipe_options(default), words, "run", "")
    return overrides.apply_overrides(default, values)


FLAGS: list[tuple[str, dict[str, Any], str]] = [
    ("allconv-digits", {}, ""),
    ("allconv-digits", {"learning_rate": 1e-5, "seed": 3}, "--learning-rate 1e-05 --seed 3"),
    ("allconv-digits", {"epochs": 3}, "--epochs 3.0"),
    ("allcnn-cifar10", {"steps": 7}, "--steps 7"),
    ("allconv-digits", {"augment": True, "weight_decay": 0.0}, "--augment --weight-decay 0.0"),
    ("allconv-cifar10", {"augment": False, "precision": "mixed_bfloat16"}, "--no-augment"),
    ("allconv-digits", {"train_examples": 9, "devices": 1}, "--train-examples 9 --devices 1"),
    ("allconv-imagenet32", {"train_examples": None}, "--train-examples None"),
    ("allconv-digits", {"schedule": "cosine"}, "--schedule cosine"),
    (
        "allconv-digits",
        {"validation": False, "test_every": 100},
        "--no-validation --test-every 100",
    ),
    ("densenet-cifar10", {"decay_all": False}, "--no-decay-all"),
    ("resnet-imagenet", {"data_args": {"crops": "area"}}, "--crops area"),
    (
        "densenet-cifar10",
        {"schedule": "cosine-restarts", "schedule_args": {"cycles": 4, "stretch": 1.5}},
        "--schedule cosine-restarts --cycles 4 --stretch 1.5",
    ),
    (
        "allconv-imagenet",
        {"schedule": "steps", "schedule_args": {"boundaries": (0.1, 0.25, 0.7)}},
        "--schedule steps --boundaries 0.1 0.25 0.7",
    ),
    ("allconv-digits", {"schedule_args": {"boundaries": ()}, "warmup": 0.0}, "--boundaries"),
    (
        "allconv-digits",
        {"model_args": {"use_bias": True, "fixed_projection": False, "init": "he"}},
        "--use-bias --no-fixed-projection --init he",
    ),
    ("allconv-digits", {"model_args": {"widths": (8, 12, 24)}}, "--widths 8 12 24"),
    ("linear-teacher", {"data_args": {"noise": 0.5}}, "--noise 0.5"),
    (
        "relu-blocks-digits",
        {"data": "mnist", "data_args": {"standardized": True}},
        "--data mnist --standardized",
    ),
    ("mlp-digits", {"model": "allconv_resnet", "data": "synthetic"}, "--model allconv_resnet"),
]


@pytest.mark.parametrize(("name", "changes", "words"), FLAGS)
def test_flags_say_on_the_command_line_what_an_override_says_in_python(
    name: str, changes: dict[str, Any], words: str
) -> None:
    base = get_recipe(name)
    recipe = base.override(**changes)
    assert words in recipe.flags(base)
    assert read_back(base, recipe.flags(base)) == recipe


@pytest.mark.parametrize("schedule", lr.SCHEDULES)
@pytest.mark.parametrize("name", ["allconv-digits", "densenet-cifar10", "allconv-imagenet"])
def test_flags_name_every_argument_of_a_schedule(name: str, schedule: str) -> None:
    base = get_recipe(name)
    shape = {
        key: (0.125, 0.875) if key == "boundaries" else value + 1 if key == "cycles" else value / 2
        for key, value in lr.defaults(schedule).items()
    }
    recipe = base.override(schedule=schedule, schedule_args=shape)
    assert read_back(base, recipe.flags(base)).fingerprint == recipe.fingerprint


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"model": "mlp", "model_args": {"dept": 2}}, "model_args.dept=2, where width"),
        ({"model_args": {"stem": "cifar"}}, "model_args.stem='cifar', where blocks_per_stage"),
        ({"data": "linear-teacher", "data_args": {"noise": 0.0}}, "data_args.noise=0.0, where"),
    ],
)
def test_what_no_flag_can_say_is_one_sentence(changes: dict[str, Any], received: str) -> None:
    base = get_recipe("allconv-digits")
    with pytest.raises(UserError, match=f"argument that the recipe has. Received: {received}"):
        base.override(**changes).flags(base)


@pytest.mark.parametrize(
    ("scale", "changes", "said"),
    [
        ("cpu", {}, "allconv-digits"),
        ("cpu", {"seed": 3}, "allconv-digits"),
        ("smoke", {}, "allconv-digits smoke"),
        ("cpu", {"schedule": "cosine", "learning_rate": 0.1}, "allconv-digits cosine 0.1"),
        ("cpu", {"schedule": "cosine"}, "allconv-digits cosine 0.05"),
        ("cpu", {"learning_rate": 0.2}, "allconv-digits rate 0.2"),
        ("cpu", {"epochs": 3}, "allconv-digits epochs 3.0"),
        ("cpu", {"model": "mlp", "data": "mnist"}, "allconv-digits model mlp, data mnist"),
        (
            "smoke",
            {"model_args": {"widths": (4, 8, 16)}, "augment": True, "validation": False},
            "allconv-digits smoke, widths 4 8 16, no validation, augment",
        ),
    ],
)
def test_a_title_says_what_is_changed_of_the_recipe(
    scale: str, changes: dict[str, object], said: str
) -> None:
    assert title(get_recipe("allconv-digits", scale).override(**changes)) == said


def test_a_long_title_is_cut_and_tells_settings_apart() -> None:
    base = get_recipe("allconv-digits")
    bounds = [tuple(k / 1000 for k in range(1, 200)), tuple(k / 1000 for k in range(2, 201))]
    first, second = (title(base.override(schedule_args={"boundaries": each})) for each in bounds)
    assert max(len(first), len(second)) <= 200
    assert first != second
    assert first.startswith("allconv-digits boundaries 0.001")
    assert title(base.override(schedule_args={"boundaries": ()})).endswith("boundaries none")
