"""The recipes that have a name: as published, and at every scale."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_models
from pipelines.cli.run_command import Options
from pipelines.data import datasets
from pipelines.data.datasets import DATASETS
from pipelines.errors import UserError
from pipelines.recipes import lr
from pipelines.recipes.catalog import RECIPES, get_recipe
from pipelines.recipes.cifar import HALF_BEST
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import SCALES
from tests.conftest import PREPARED, needs

PUBLISHED = [name for name in RECIPES if "paper" in RECIPES[name]]
HM_TABLE_2 = {  # and section 4.2: what is comparable
    "allconv-cifar10": 6.38,
    "allconv-cifar100": 24.64,
    "allconv-imagenet": 35.29,
    "allcnn-cifar10": 7.25,
    "allcnn-cifar100": 33.71,  # HM print 32.39, another network's
    "allcnn-imagenet": 41.2,
    "resnet-cifar10": 6.61,  # the mean of five runs, of which HM print the best
    "resnet-cifar100": 25.16,
    "resnet-imagenet": 23.0,  # of the centre crop; HM print several sizes
    "densenet-cifar10": 3.74,
    "densenet-cifar100": 19.25,
    "alexnet-imagenet": 40.7,
}
FOOTNOTE5 = [
    f"allconv-cifar10-{variant}" for variant in ("footnote5", "shift4", "tensorfloat32", "leaky")
]
LY_TABLE_1 = {"skip56-two-layer": 6.97, "skip56-single": 9.01, "skip56-vanilla": 12.04}
every_named = pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in RECIPES for scale in RECIPES[name]]
)
every_published = pytest.mark.parametrize("name", PUBLISHED)


def examples(recipe: Recipe) -> int:
    """Training pictures of the full data set, without those kept for validation."""
    pictures = {"cifar10": 45_000, "cifar100": 45_000, "imagenet2012": 1_268_355}
    return (pictures | {"imagenet32": 1_268_355})[recipe.data]


def length(recipe: Recipe) -> int:
    """Steps of a run on the full data set."""
    return recipe.steps or round(recipe.epochs * (examples(recipe) // recipe.batch_size))


def rates(recipe: Recipe) -> Any:
    """The learning rate of every step of a run on the full data set."""
    return lr.table(
        recipe.schedule,
        recipe.learning_rate,
        length(recipe),
        recipe.warmup,
        recipe.warmup_level,
        **recipe.schedule_args,
    )


def network(recipe: Recipe) -> Any:
    shape, classes = datasets.get(recipe.data).sizes(recipe.data_args)
    return keras_models.build(recipe.model, shape, classes, **recipe.model_args)


@every_named
def test_named_recipes_are_made_of_what_there_is(name: str, scale: str) -> None:
    recipe = get_recipe(name, scale)
    assert (recipe.name, scale in SCALES) == (name, True)
    assert recipe.model in keras_models.names()
    assert recipe.data in DATASETS
    assert recipe.source
    assert scale in recipe.costs or scale == "smoke"


@every_named
def test_no_two_options_of_a_recipe_have_one_name(name: str, scale: str) -> None:
    for schedule in lr.SCHEDULES:  # any of which --schedule may name
        recipe = get_recipe(name, scale).override(schedule=schedule)
        options = [field.name for kind in (Recipe, Options) for field in dataclasses.fields(kind)]
        options += [*recipe.model_args, *recipe.data_args, *recipe.schedule_args]
        assert len(options) == len(set(options))


def test_recipes_of_different_names_and_scales_have_different_fingerprints() -> None:
    fingerprints = [recipe.fingerprint for scales in RECIPES.values() for recipe in scales.values()]
    # on CIFAR-100: at smoke scale both read one set
    same = len(("allconv", "footnote5", "leaky", "allcnn", "whitened", "densenet"))
    assert len(set(fingerprints)) == len(fingerprints) - same


@pytest.mark.parametrize("name", RECIPES)
def test_smoke_recipes_build_their_network(name: str) -> None:
    model = network(get_recipe(name, "smoke"))
    assert len(model.output_shape) == 2
    assert sum(math.prod(v.shape) for v in model.trainable_variables) < 1_000_000


@pytest.mark.parametrize("name", RECIPES)
def test_smoke_differs_in_size_only(name: str) -> None:
    smoke, cpu = get_recipe(name, "smoke"), get_recipe(name)
    assert smoke.steps <= 10
    assert smoke.train_examples <= 256
    kept = {field.name for field in dataclasses.fields(Recipe)}
    kept -= {"model_args", "steps", "train_examples", "batch_size", "data"}
    small = "cifar" in cpu.data or cpu.data in ("imagenet32", "tiny-imagenet")
    assert smoke.data == ("synthetic" if small else cpu.data)  # no download
    assert [getattr(smoke, key) for key in kept] == [getattr(cpu, key) for key in kept]


@every_published
def test_cpu_differs_from_paper_in_size_only(name: str) -> None:
    cpu, paper = get_recipe(name), get_recipe(name, "paper")
    kept = {field.name for field in dataclasses.fields(Recipe)}
    kept -= {"model_args", "steps", "epochs", "batch_size", "train_examples"}
    if name == "alexnet-imagenet":  # a narrow one starts at another scale of weights and pixels
        cpu = cpu.override(data_args={"byte_scale": True})
    assert [getattr(cpu, key) for key in kept] == [getattr(paper, key) for key in kept]
    assert cpu.model_args.keys() == paper.model_args.keys()
    assert cpu.steps < length(paper) / 30


@every_published
def test_a_batch_of_the_sample_of_imagenet_is_enough(name: str) -> None:
    for scale in ("smoke", "cpu"):
        recipe = get_recipe(name, scale)
        assert recipe.data != "imagenet2012" or recipe.batch_size <= 32


def test_the_tables_are_reported() -> None:
    table = {**HM_TABLE_2, **LY_TABLE_1, "resnet34-imagenet": 25.03}
    table |= {"allcnn-cifar10-whitened": 7.25, "allcnn-cifar100-whitened": 33.71}
    papers = {name: get_recipe(name, "paper").reported for name in PUBLISHED}
    assert papers.pop("allconv-imagenet32") == {}  # our proxy
    seen = [name for name, numbers in papers.items() if HALF_BEST in numbers]  # while training
    assert {name: papers.pop(name)[HALF_BEST] for name in seen} == {
        **dict.fromkeys(FOOTNOTE5, 6.38),
        "allconv-cifar100-footnote5": 24.64,
        "allconv-cifar100-leaky": 24.64,
    }
    assert {name: numbers["test_error_pct"] for name, numbers in papers.items()} == table
    assert get_recipe("allconv-imagenet").reported["test_top5_error_pct"] == 14.17


# Batch, first rate, decay, steps on our cut of the data, (step, rate) after every drop.
AS_PUBLISHED = {
    "allconv-cifar10": (128, 0.05, 1e-4, 64_000, [(30_000, 0.005), (50_000, 0.0005)]),
    "resnet-cifar10": (128, 0.01, 1e-4, 64_000, [(400, 0.1), (32_000, 0.01), (48_000, 0.001)]),
    "resnet-cifar100": (128, 0.01, 1e-4, 64_000, [(400, 0.1), (32_000, 0.01)]),
    "skip56-single": (128, 0.1, 1e-4, 64_000, [(32_000, 0.01), (48_000, 0.001)]),
    "allcnn-cifar10": (128, 0.05, 1e-3, 350 * 351, [(200 * 351, 5e-3), (300 * 351, 5e-5)]),
    "densenet-cifar10": (64, 0.1, 1e-4, 300 * 703, [(150 * 703, 0.01), (225 * 703, 0.001)]),
    "allcnn-imagenet": (64, 0.01, 5e-4, 450_000, [(200_000, 1e-3), (400_000, 1e-4)]),
    "resnet-imagenet": (256, 0.1, 1e-4, 600_000, [(150_000, 0.01), (450_000, 1e-4)]),
    "alexnet-imagenet": (128, 0.01, 5e-4, 90 * 9_909, [(445_905, 1e-4)]),
    "allconv-imagenet": (256, 0.1, 1e-4, 700_000, [(10_010, 0.094), (20_019, 0.08836)]),
}


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_settings_are_the_papers(name: str) -> None:
    batch, first, decay, steps, drops = AS_PUBLISHED[name]
    recipe = get_recipe(name, "paper")
    assert (recipe.batch_size, recipe.weight_decay, recipe.momentum) == (batch, decay, 0.9)
    found = rates(recipe)
    assert (len(found), recipe.augment) == (steps, True)
    assert found[0] == pytest.approx(first, rel=1e-12)
    for step, rate in drops:
        assert found[step] == pytest.approx(rate, rel=1e-12)
        assert found[step - 1] != pytest.approx(rate, rel=1e-4)


def test_imagenet_drops_every_two_epochs() -> None:
    # An epoch of 1,281,167 pictures is 5004.56 steps of 256: stairs at 10009.1, 20018.2, ...
    found = rates(get_recipe("allconv-imagenet", "paper"))
    stairs = np.flatnonzero(np.diff(found)) + 1
    assert stairs[:3].tolist() == [10_010, 20_019, 30_028]
    assert len(stairs) == 69  # of 139.87 epochs
    assert found[-1] == pytest.approx(0.1 * 0.94**69)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_the_proxy_of_imagenet_has_its_schedule_and_the_network_of_cifar(scale: str) -> None:
    proxy, imagenet = get_recipe("allconv-imagenet32", scale), get_recipe("allconv-imagenet", scale)
    assert proxy.model_args == get_recipe("allconv-cifar10", scale).model_args
    kept = ("learning_rate", "schedule", "schedule_args", "warmup", "momentum", "weight_decay")
    assert [getattr(proxy, key) for key in kept] == [getattr(imagenet, key) for key in kept]
    assert "proxy" in proxy.source
    if scale == "paper":
        assert (proxy.steps, proxy.batch_size) == (imagenet.steps, imagenet.batch_size)


def test_the_stand_in_on_tiny_imagenet_has_the_form_and_the_stairs_of_hm() -> None:
    largest, imagenet = get_recipe("allconv-tiny-imagenet", "hours"), get_recipe("allconv-imagenet")
    paper = get_recipe("allconv-imagenet", "paper")
    changed = {"stem", "stem_width", "widths"}
    kept = paper.model_args.keys() - changed
    assert {k: largest.model_args[k] for k in kept} == {k: paper.model_args[k] for k in kept}
    stages = zip(paper.model_args["widths"], largest.model_args["widths"], strict=True)
    assert all(wide == 4 * narrow for wide, narrow in stages)
    same = ("learning_rate", "schedule", "momentum", "weight_decay", "augment", "warmup")
    assert [getattr(largest, key) for key in same] == [getattr(paper, key) for key in same]
    assert largest.reported == {}  # nobody reports it
    assert imagenet.reported
    pictures = 89_994  # without those kept for validation
    epochs = largest.steps * largest.batch_size / pictures
    assert largest.schedule_args["drops"] == pytest.approx(epochs / 2, rel=1e-3)
    assert {"smoke", "cpu", "hours"} == RECIPES["allconv-tiny-imagenet"].keys()
    cpu = get_recipe("allconv-tiny-imagenet")
    assert cpu.override(model_args=largest.model_args, steps=largest.steps) == largest


def test_only_densenet_has_nesterov_and_nobody_accumulates() -> None:
    papers = [get_recipe(name, "paper") for name in PUBLISHED]
    assert {r.name for r in papers if r.nesterov} == {"densenet-cifar10", "densenet-cifar100"}
    assert not any(recipe.accumulate > 1 for recipe in papers)


def test_cifar100_differs_in_its_classes_and_error() -> None:
    for name in ("allconv", "allcnn", "densenet"):
        for scale in RECIPES[f"{name}-cifar10"]:
            ten, hundred = (get_recipe(f"{name}-cifar{n}", scale) for n in (10, 100))
            assert hundred.data == ten.data.replace("cifar10", "cifar100")
            assert hundred.override(data=ten.data).fingerprint == ten.fingerprint


def test_footnote_5_is_the_network_and_the_rates_of_hm_with_its_pictures_and_evaluation() -> None:
    base, paper = (get_recipe(name, "paper") for name in ("allconv-cifar10", FOOTNOTE5[0]))
    assert (paper.shift, paper.data_args, paper.validation) == (2, {"standardized": False}, False)
    assert (len(rates(paper)), paper.test_every) == (56_000, 1_000)
    np.testing.assert_array_equal(rates(paper), rates(base)[:56_000])  # drops at 30,000 and 50,000
    assert paper.model_args == {**base.model_args, "standardize": True}
    kept = ("model", "augment", "batch_size", "momentum", "nesterov", "weight_decay", "precision")
    assert [getattr(paper, key) for key in kept] == [getattr(base, key) for key in kept]


def test_the_recipes_beside_footnote_5_differ_in_one_thing_each() -> None:
    paper, shift4, rounded, leaky = (get_recipe(name, "paper") for name in FOOTNOTE5)
    assert shift4.override(shift=2).fingerprint == paper.fingerprint
    assert rounded.override(precision="float32").fingerprint == paper.fingerprint
    own = {"leak": 0.1, "outer_relus": True, "zeros": "around", "logits_bias": True}
    assert leaky.model_args == {**paper.model_args, **own}
    same = dataclasses.replace(leaky, model_args=paper.model_args)
    assert same.fingerprint == paper.fingerprint


def test_pictures_move_as_far_as_published() -> None:
    shifts = {name: get_recipe(name, "paper").shift for name in PUBLISHED if "cifar" in name}
    others = {name: 5 for name in shifts if name.startswith("allcnn")}
    others |= {name: 2 for name in shifts if name.endswith(("footnote5", "float32", "leaky"))}
    assert {name: shift for name, shift in shifts.items() if shift != 4} == others


def test_what_is_whitened_differs_in_its_pixels_only() -> None:
    for name in ("allcnn-cifar10", "allcnn-cifar100"):
        whitened = get_recipe(f"{name}-whitened", "paper")
        assert whitened.data_args == {"whitened": True}
        plain = dataclasses.replace(whitened, data_args={})
        assert plain.fingerprint == get_recipe(name, "paper").fingerprint


def test_photographs_are_cut_and_tested_as_published() -> None:
    found = {name: get_recipe(name, "paper").data_args for name in PUBLISHED if "imagenet" in name}
    he = {"crops": "side256-480", "colours": True}
    assert {name: arguments for name, arguments in found.items() if arguments} == {
        "resnet-imagenet": he,
        "resnet34-imagenet": he | {"ten_crops": True},
        "alexnet-imagenet": he | {"crops": "side256", "ten_crops": True, "byte_scale": True},
    }


def test_the_plain_twin_differs_in_its_shortcuts_only() -> None:
    plain, residual = get_recipe("plain-digits"), get_recipe("allconv-digits")
    changed = plain.override(model_args={"shortcut": "identity", "init": "small"})
    assert changed.fingerprint == residual.fingerprint


def test_the_three_networks_of_ly_differ_in_their_skips_only() -> None:
    papers = [get_recipe(name, "paper") for name in LY_TABLE_1]
    assert len({r.override(model_args={"variant": "single"}).fingerprint for r in papers}) == 1


MILLIONS = {  # trainable parameters, as their papers give them
    "allconv-cifar10": 13.54, "allconv-imagenet": 35.69, "resnet-cifar10": 1.73,
    "resnet-cifar100": 1.73, "resnet-imagenet": 60.2, "resnet34-imagenet": 21.8,
    "skip56-vanilla": 0.85, "allcnn-cifar10": 1.37, "allcnn-imagenet": 9.4,
    "densenet-cifar10": 27.2, "alexnet-imagenet": 61.0,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MILLIONS)
def test_networks_have_their_published_size(name: str) -> None:
    found = sum(math.prod(v.shape) for v in network(get_recipe(name, "paper")).trainable_variables)
    assert found / 1e6 == pytest.approx(MILLIONS[name], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(get_recipe(n).data)) for n in PUBLISHED]
)
def test_smoke_recipes_train(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.running.run import run

    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    metrics = run(get_recipe(name, "smoke")).metrics
    assert 0 <= metrics["test_error_pct"] <= 100
    assert math.isfinite(metrics["train_loss"])


@pytest.mark.parametrize(
    ("name", "scale", "says"),
    [
        ("allconv-digit", "cpu", "A recipe .* 'allconv-digit'. Did you mean allconv-digits"),
        ("x", "cpu", "Received: 'x'. All: python -m pipelines list"),
        ("allconv-digits", "paper", "The scale of allconv-digits .* 'paper'. Choices: cpu, smoke."),
        ("allconv-cifar10", "papr", r"Did you mean paper\? Choices: cpu, paper, smoke."),
    ],
)
def test_unknown_recipes_and_scales_list_the_choices(name: str, scale: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        get_recipe(name, scale)
