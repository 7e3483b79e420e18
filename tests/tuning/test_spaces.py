"""Spaces: what trials are asked, the published schedules as points of them, grids, flags."""

import math
from typing import Any

import numpy as np
import optuna
import pytest

from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes import lr
from pipelines.recipes.catalog import RECIPES, get_recipe
from pipelines.recipes.recipe import Recipe
from tests.recipes.test_recipes import read_back
from tuning.plan import SCHEDULE_FIELDS
from tuning.search import _ranges, spaces
from tuning.search._ranges import Range
from tuning.search.spaces import SPACES, grid, published_schedules, recipe

SEARCHED = [
    (name, scale)
    for name, scales in RECIPES.items()
    for scale in scales
    if datasets.get(scales[scale].data).is_classification
]
ALIKE: dict[str, list[Recipe]] = {}  # recipes that a space cannot tell apart
for searched_name, searched_scale in SEARCHED:
    each = get_recipe(searched_name, searched_scale)
    ALIKE.setdefault(repr([getattr(each, key) for key in SCHEDULE_FIELDS]), []).append(each)
every_space = pytest.mark.parametrize("space", SPACES)
every_recipe = pytest.mark.parametrize("alike", ALIKE.values(), ids=lambda alike: alike[0].name)


def study(seed: int = 0) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))


def table(of: Recipe, steps: int = 1000) -> Any:
    return lr.table(of.schedule, of.learning_rate, steps, of.warmup, **of.schedule_args)


def draw_recipes(space: str, base: Recipe, count: int, seed: int = 0) -> list[tuple[Any, Recipe]]:
    """Random trials and their recipes."""
    searched = study(seed)
    trials = [searched.ask() for _ in range(count)]
    return [(trial, recipe(space, base, trial)) for trial in trials]


def test_classification_recipes_are_searched_and_only_those() -> None:
    left_out = {(n, s) for n, scales in RECIPES.items() for s in scales} - set(SEARCHED)
    assert {name for name, _ in left_out} == {"linear-teacher", "relu-teacher"}


@every_space
@every_recipe
def test_every_draw_is_a_run_that_can_be_drawn(alike: list[Recipe], space: str) -> None:
    base = alike[0]
    lengths = {min(each.steps or 500, 10_007) for each in alike} | {10_007}
    for _, tried in draw_recipes(space, base, 12):
        for steps in lengths:
            rates = table(tried, steps)
            assert rates.min() > 0
            assert rates.max() <= tried.learning_rate
        assert tried.override(**{key: getattr(base, key) for key in SCHEDULE_FIELDS}) == base


def test_every_schedule_is_in_the_space_and_its_arguments_are_searched() -> None:
    base = get_recipe("allconv-cifar10")
    found: dict[str, set[str]] = {}
    for trial, tried in draw_recipes("lr-schedule", base, 400):
        shapes = {key for key in trial.params if key.startswith(f"{tried.schedule}.")}
        found[tried.schedule] = found.get(tried.schedule, set()) | shapes
        others = trial.params.keys() - shapes
        warm = set() if tried.schedule == "one-cycle" else {"warmup"}
        assert others == {"schedule", "learning_rate", "momentum", "weight_decay"} | warm
    assert found.keys() == lr.SCHEDULES.keys()
    drops = {"drops", "drop1", "drop2", "drop3", "drop4"}
    for family, asked in found.items():
        names = lr.defaults(family).keys()
        names = names - {"boundaries"} | drops if "boundaries" in names else names
        assert asked == {f"{family}.{name}" for name in names}


def test_a_new_schedule_is_in_the_space_without_another_edit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def new(t: Any, final: float = 0.0, unheard_of: float = 0.5) -> Any:
        return lr.cosine(t, final) * unheard_of**t

    monkeypatch.setitem(lr.SCHEDULES, "new", new)
    own = [
        (t, r)
        for t, r in draw_recipes("lr-schedule", get_recipe("mlp-digits"), 200)
        if r.schedule == "new"
    ]
    assert own
    for trial, tried in own:
        assert tried.schedule_args == {"final": trial.params["new.final"], "unheard_of": 0.5}
        assert table(tried).min() > 0


def test_every_row_of_shapes_is_an_argument_of_a_schedule() -> None:
    arguments = {f"{family}.{name}" for family in lr.SCHEDULES for name in lr.defaults(family)}
    arguments |= {name.partition(".")[2] for name in arguments} | {"drop"}
    assert arguments >= _ranges.SHAPES.keys()


def test_the_peak_rate_is_log_uniform_about_the_base_s() -> None:
    base = get_recipe("allconv-imagenet", "paper")
    octaves = np.log2(
        [tried.learning_rate / 0.1 for _, tried in draw_recipes("lr-only", base, 2000)]
    )
    assert (octaves.min(), octaves.max()) == (pytest.approx(-5, abs=0.1), pytest.approx(3, abs=0.1))
    counts, _ = np.histogram(octaves, bins=8, range=(-5, 3))
    assert counts.min() > 200  # 250 in each octave


def test_what_the_base_has_not_is_not_searched() -> None:
    assert get_recipe("mlp-digits").weight_decay == 0
    base = get_recipe("mlp-digits").override(momentum=0.0)
    for trial, tried in draw_recipes("lr-schedule", base, 30):
        assert not {"momentum", "weight_decay"} & trial.params.keys()
        assert (tried.momentum, tried.weight_decay) == (0, 0)


def test_one_cycle_brings_its_own_warmup() -> None:
    tried = [r for _, r in draw_recipes("lr-schedule", get_recipe("allconv-digits"), 200)]
    assert {r.warmup for r in tried if r.schedule == "one-cycle"} == {0.0}
    own = get_recipe("allconv-digits").override(schedule="one-cycle")  # with the warm-up 0.1
    (point,) = (
        p for label, p in published_schedules("lr-schedule", own).items() if label == "paper"
    )
    assert recipe("lr-schedule", own, optuna.trial.FixedTrial(point.params)) == own


@every_recipe
def test_the_neighbourhood_is_of_one_family_and_near(alike: list[Recipe]) -> None:
    base = alike[0]
    for _, tried in draw_recipes("paper-neighbourhood", base, 20):
        assert tried.schedule == base.schedule
        assert 0.5 <= tried.learning_rate / base.learning_rate <= 2
        assert abs(tried.warmup - base.warmup) <= 0.025
        assert abs(tried.momentum - base.momentum) <= 0.025
        if base.weight_decay:
            assert abs(math.log10(tried.weight_decay / base.weight_decay)) <= 0.25 + 1e-9


@every_space
@every_recipe
def test_published_schedules_are_points_of_the_space(alike: list[Recipe], space: str) -> None:
    # Warnings are errors: Optuna warns where an enqueued value is out of its range.
    base = alike[0]
    known, searched = published_schedules(space, base), study()
    assert next(iter(known)) == "paper"
    assert known["paper"].recipe == base
    for label, point in known.items():
        searched.enqueue_trial(point.params, user_attrs={spaces.PUBLISHED: label})
        trial = searched.ask()
        assert recipe(space, base, trial) == point.recipe  # exactly
        assert trial.params == point.params  # nothing was left to the sampler
        about = SPACES[space](trial, base)
        np.testing.assert_allclose(table(about), table(point.recipe), rtol=1e-9)
        np.testing.assert_allclose(table(about, 351 * 350), table(point.recipe, 351 * 350), 1e-9)
        shape = {key: getattr(base, key) for key in ("schedule", "schedule_args", "warmup")}
        assert about.override(**shape) == point.recipe.override(**shape)


def test_the_families_start_from_those_of_the_papers() -> None:
    hm, imagenet = get_recipe("allconv-cifar10", "paper"), get_recipe("allconv-imagenet", "paper")
    found = published_schedules("lr-schedule", imagenet)
    assert list(found) == ["paper", "HM CIFAR-10", "He et al.", "cosine"]  # not its own again
    assert list(published_schedules("lr-schedule", hm)) == [
        "paper",
        "HM ImageNet",
        "He et al.",
        "cosine",
    ]
    first = found["HM CIFAR-10"].recipe
    assert (first.learning_rate, first.steps) == (0.1, 700_000)  # the base's own
    assert table(first)[[0, 468, 469, 781, 782]].tolist() == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001]
    )
    cosine = get_recipe("allconv-cifar10").override(schedule="cosine")
    assert list(published_schedules("lr-schedule", cosine)) == [
        "paper",
        "HM CIFAR-10",
        "HM ImageNet",
        "He et al.",
    ]
    assert (
        list(published_schedules("lr-only", hm))
        == list(published_schedules("paper-neighbourhood", hm))
        == ["paper"]
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"warmup": 0.5, "momentum": 0.999},
        {"schedule_args": {"boundaries": (0.01, 0.02, 0.5, 0.51, 0.9, 0.99), "factor": 0.9}},
        {"schedule_args": {"boundaries": ()}},
        {"schedule": "staircase", "schedule_args": {"drops": 0.5, "factor": 0.01}},
        {"schedule": "exponential", "schedule_args": {"final": 1.0}},
        {"schedule": "cosine-restarts", "schedule_args": {"cycles": 40, "stretch": 0.5}},
    ],
)
@every_space
def test_ranges_widen_to_hold_any_base(space: str, changes: dict[str, Any]) -> None:
    base = get_recipe("allconv-cifar10").override(**changes)
    searched = study()
    for label, point in published_schedules(space, base).items():
        searched.enqueue_trial(point.params, user_attrs={spaces.PUBLISHED: label})
        assert recipe(space, base, searched.ask()) == point.recipe
    for _, tried in draw_recipes(space, base, 20):
        assert table(tried).min() > 0


def test_a_trial_is_described_by_its_boundaries_and_its_stairs() -> None:
    steps = {"schedule": "steps", "learning_rate": 0.05, "steps.drops": 2}
    steps |= {"steps.drop1": 0.5, "steps.drop2": 0.5}
    assert spaces.describe(steps) == "schedule steps, rate 0.05, boundaries 0.5 0.75"
    stairs = {"schedule": "staircase", "learning_rate": 0.05, "staircase.drops": 70.0}
    assert spaces.describe(stairs) == "schedule staircase, rate 0.05, drops 70"


def test_boundaries_come_back_from_their_shares() -> None:
    assert _ranges.shares_of((0.5, 0.75, 0.875)) == [0.5, 0.5, 0.5]
    assert _ranges.boundaries_of([0.5, 0.5, 0.5]) == (0.5, 0.75, 0.875)
    rng = np.random.default_rng(0)
    for count in range(5):
        boundaries = np.sort(rng.uniform(0, 1, count))
        assert _ranges.boundaries_of(_ranges.shares_of(boundaries)) == pytest.approx(
            boundaries, abs=1e-14
        )


def test_a_finished_trial_gives_its_recipe_again() -> None:
    base, searched = get_recipe("allconv-digits"), study()
    before = []
    for label in [None] * 20 + ["cosine"]:
        if label:
            params = published_schedules("lr-schedule", base)[label].params
            searched.enqueue_trial(params, user_attrs={spaces.PUBLISHED: label})
        trial = searched.ask()
        before.append(recipe("lr-schedule", base, trial))
        searched.tell(trial, 0.0)
    assert [recipe("lr-schedule", base, trial) for trial in searched.trials] == before


def test_a_label_that_is_not_known_is_refused() -> None:
    trial = study().ask()
    trial.set_user_attr(spaces.PUBLISHED, "cosin")
    with pytest.raises(UserError, match=r"A published schedule .*'cosin'. Did you mean cosine\?"):
        recipe("lr-schedule", get_recipe("allconv-digits"), trial)


@pytest.mark.parametrize(
    ("name", "scale"), [("allconv-digits", "cpu"), ("allcnn-cifar10", "paper")]
)
def test_lengths_are_shares_of_the_base_s(name: str, scale: str) -> None:
    base, searched = get_recipe(name, scale), study()
    for label, point in published_schedules("lr-only", base, lengths=True).items():
        searched.enqueue_trial(point.params, user_attrs={spaces.PUBLISHED: label})
        assert recipe("lr-only", base, searched.ask(), lengths=True) == point.recipe
    for _ in range(20):
        trial = searched.ask()
        tried = recipe("lr-only", base, trial, lengths=True)
        share = trial.params["length"]
        assert 0.25 <= share <= 1
        if base.steps:
            assert (tried.steps, tried.epochs) == (round(share * base.steps), None)
        else:
            assert (tried.steps, tried.epochs) == (None, share * base.epochs)
    assert "length" not in published_schedules("lr-only", base)["paper"].params


@every_space
def test_flags_train_what_the_trial_trains(space: str) -> None:
    for name, scale in (("allconv-digits", "cpu"), ("densenet-cifar10", "paper")):
        base, searched = get_recipe(name, scale), study()
        points = list(published_schedules(space, base, lengths=True).values())
        for point in points:
            searched.enqueue_trial(point.params)
        for _ in range(len(points) + 20):
            tried = recipe(space, base, searched.ask(), lengths=True)
            assert read_back(base, tried.flags(base)).fingerprint == tried.fingerprint


def by_name(points: list[dict[str, Any]], name: str) -> list[Any]:
    return sorted({point[name] for point in points if name in point})


def test_a_grid_of_one_range_is_even_in_its_scale() -> None:
    points = grid("lr-only", get_recipe("allconv-imagenet", "paper"), 8)
    rates = by_name(points, "learning_rate")  # the middle of each octave
    np.testing.assert_allclose(rates, 0.1 * 2.0 ** np.arange(-4.5, 3), rtol=1e-12)
    assert len(points) == 8
    (middle,) = grid("lr-only", get_recipe("allconv-imagenet", "paper"), 1)
    assert middle["learning_rate"] == pytest.approx(0.1 / 2)


@pytest.mark.parametrize("most", [11, 12, 40, 150, 1000])
def test_a_grid_is_all_combinations_and_no_more_than_asked(most: int) -> None:
    base = get_recipe("allconv-cifar10")
    points = grid("lr-schedule", base, most)
    assert len({tuple(sorted(p.items())) for p in points}) == len(points) <= most
    assert {p["schedule"] for p in points} == lr.SCHEDULES.keys()
    for family in lr.SCHEDULES:
        own = [p for p in points if p["schedule"] == family and p.get("steps.drops", 1) == 1]
        if family != "steps":  # whose drops are of many numbers
            names = {name for p in own for name in p}
            assert len(own) == math.prod(len(by_name(own, name)) for name in names)
    if most == 1000:
        assert len(by_name(points, "learning_rate")) >= 2
        assert len(points) > 500


def test_a_grid_s_points_are_trials() -> None:
    base, searched = get_recipe("allconv-cifar10"), study()
    for point in grid("lr-schedule", base, 100):
        searched.enqueue_trial(point)
        trial = searched.ask()
        assert table(recipe("lr-schedule", base, trial)).min() > 0
        assert trial.params == point


def test_a_grid_that_cannot_be_that_small_says_the_least() -> None:
    sentence = "grid of lr-schedule must have 11 points or more, .* trials for 10. Raise --trials"
    with pytest.raises(UserError, match=sentence):
        grid("lr-schedule", get_recipe("allconv-cifar10"), 10)
    assert len(grid("lr-schedule", get_recipe("allconv-cifar10"), 11)) == 11


def test_points_and_neighbourhoods_of_ranges() -> None:
    assert Range(0, 1).points(1) == [0.5]
    assert Range(0, 1).points(2) == [0.25, 0.75]
    assert Range(1, 256, log=True).points(4) == pytest.approx([2, 8, 32, 128])
    assert Range(1, 4, whole=True).points(2) == [2, 4]
    assert Range(1, 4, whole=True).points(4) == [1, 2, 3, 4]
    for size in range(1, 9):  # whole numbers are points of their own, all of them in the end
        found = [Range(1, size, whole=True).points(count) for count in range(1, size + 1)]
        assert [len(set(points)) for points in found] == list(range(1, size + 1))
        assert found[-1] == list(range(1, size + 1))
    assert (Range(1, 4, whole=True).most, Range(0, 1).most, Range(1, 1).most) == (4, math.inf, 1)
    near = Range(1, 256, log=True).near(32)
    assert (near.low, near.high) == (pytest.approx(16), pytest.approx(64))
    assert Range(0, 0.2).near(0.0) == Range(0, 0.025)
    assert Range(2, 6, whole=True).near(3) == Range(2, 4, whole=True)
    assert Range(0, 1).widen_to(2) == Range(0, 2)
