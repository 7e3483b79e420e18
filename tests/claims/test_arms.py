"""Arms differ in what their claim is about and in nothing else; a diverged arm is a result."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.claims import _arms, _comparison, table2
from pipelines.claims._arm_figure import Arm
from pipelines.claims._arms import ArmBound, Arms
from pipelines.claims.li_yuan import skip_length
from pipelines.claims.networks import (
    allconv_beats_allcnn,
    batchnorm_overfits,
    depth_degrades_plain_nets,
    fixed_projection_helps,
    imagenet_underfits,
    no_need_for_dropout,
    small_init_helps,
)
from pipelines.claims.ours import (
    identity_beats_plain,
    identity_beats_plain_cifar10,
    standard_init_diverges,
)
from pipelines.errors import Diverged, UserError
from pipelines.measurement.experiment import Training
from pipelines.measurement.grid import Cell, Measured
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.running.existing import Result
from tests.claims.measured import made

NAN = math.nan
MODULES = {  # with the settings in which the arms may differ
    fixed_projection_helps: {"model_args.fixed_projection"},
    depth_degrades_plain_nets: {"model_args.shortcut", "model_args.blocks_per_stage"},
    identity_beats_plain_cifar10: {
        "model_args.shortcut",
        "model_args.init",
        "learning_rate",
        "warmup",
    },
    small_init_helps: {"model_args.init", "learning_rate"},
    batchnorm_overfits: {"model_args.batch_norm", "model_args.init"},
    imagenet_underfits: {"model_args.widths", "model_args.stem_width"},
    no_need_for_dropout: {"model_args.dropout"},
    skip_length: {"model_args.variant"},
}
SCALES = [(module, scale) for module in MODULES for scale in module.CLAIM.scales]


class Trainer:
    """A trainer whose trainings end with the errors that a function gives, or diverge where NaN.

    Its searches end with the validation error of their rate.
    """

    def __init__(
        self,
        errors: Callable[[Recipe], tuple[float, float]] = lambda recipe: (9.0, 20.0),
        val_error_pct: Callable[[float], float] = float,
    ) -> None:
        self.errors, self.val_error_pct, self.tried = errors, val_error_pct, list[Recipe]()

    def train(self, recipe: Recipe) -> Result:
        train, test = self.errors(recipe)
        if math.isnan(test):
            raise Diverged("The training loss must stay finite.", step=1)
        return Result("run", {"final_train_error_pct": train, "test_error_pct": test})

    def search(self, recipe: Recipe, lost: Mapping[str, float]) -> Result:
        self.tried.append(recipe)
        return Result("run", {"val_error_pct": self.val_error_pct(recipe.learning_rate)})


@pytest.mark.parametrize(("module", "scale"), SCALES)
def test_arms_differ_in_what_the_claim_is_about_only(module: Any, scale: str) -> None:
    recipes = module.recipes(module.CLAIM.scales[scale], seed=3)
    rows = [recipe.flat() for recipe in recipes.values()]
    keys = set().union(*rows)
    assert {k for k in keys if len({row.get(k) for row in rows}) > 1} <= MODULES[module]
    assert len({recipe.fingerprint for recipe in recipes.values()}) == len(recipes)
    first = getattr(module.CLAIM.scales[scale], "first_seed", 0)
    assert {recipe.seed for recipe in recipes.values()} == {first + 3}
    assert recipes.keys() == module.LABELS.keys()


def test_the_arms_begin_with_published_recipes() -> None:
    hms, both = (
        {"first": "allconv-cifar10"},
        {arm: f"{arm}-cifar10" for arm in ("allconv", "allcnn")},
    )
    published: dict[Any, dict[str, str]] = {
        **dict.fromkeys((fixed_projection_helps, identity_beats_plain_cifar10), hms),
        **dict.fromkeys((small_init_helps, batchnorm_overfits, no_need_for_dropout), hms),
        imagenet_underfits: {"first": "allconv-imagenet"},
        skip_length: {"first": "skip56-two-layer"},
        allconv_beats_allcnn: both,
    }
    for module, names in published.items():
        recipes = module.recipes(module.CLAIM.scales["paper"], seed=0)
        recipes["first"] = next(iter(recipes.values()))
        for arm, name in names.items():
            kept = recipes[arm].override(validation=True)  # skip-length trains on all pictures
            assert kept.fingerprint == get_recipe(name, "paper").fingerprint
    digits = identity_beats_plain.recipes(identity_beats_plain.DIGITS, seed=0)
    for arm, name in (("identity", "allconv-digits"), ("plain", "plain-digits")):
        assert digits[arm].fingerprint == get_recipe(name).fingerprint


@pytest.mark.parametrize("dropout", [0.0, 1.0, -0.1])
def test_a_rate_at_which_nothing_or_everything_is_dropped_is_rejected(dropout: float) -> None:
    with pytest.raises(UserError, match=r"dropout must be in \(0, 1\)"):
        no_need_for_dropout.Setting(**_arms.SMOKE, dropout=dropout)


def test_a_diverged_arm_has_no_error() -> None:
    base, lost = Arms().base(0), Trainer(lambda recipe: (NAN, NAN))
    errors = _comparison.train_arms(lost, {"a": base}, ("train", "test"))
    assert errors.keys() == {"a_train_error_pct", "a_test_error_pct"}
    assert all(map(math.isnan, errors.values()))
    assert _comparison.train_arms(Trainer(), {"a": base}) == {"a_test_error_pct": 20}


@pytest.mark.parametrize("rule", [{"at_least": 0.5}, {"at_most": 0.5}])
def test_a_diverged_arm_decides_nothing_and_hides_no_counterexample(rule: dict[str, float]) -> None:
    bound, every = ArmBound("x", **rule), ArmBound("x", at_least=0.1, every=True)
    assert bound.verdict([9.0, NAN, 9.0]) == bound.verdict([0.0, 0.0, NAN]) == "inconclusive"
    assert {bound.verdict([9.0, 9.1]), bound.verdict([0.0, 0.1])} == {"holds", "broken"}
    assert every.verdict([0.01, math.inf]) == "broken"
    assert every.verdict([3.0, math.inf]) == every.verdict([NAN]) == "inconclusive"


def test_width_scales_every_stage_and_bounds_the_stem() -> None:
    published = get_recipe("allconv-cifar10", "paper")
    assert _arms.scale_width(published, 64) == published
    narrow = _arms.scale_width(published, 8).model_args
    assert (narrow["widths"], narrow["stem_width"]) == ((8, 16, 32), 8)


@pytest.mark.parametrize("module", MODULES)
def test_settings_reject_what_no_run_could_have(module: Any) -> None:
    setting = module.CLAIM.scales["cpu"]
    for wrong in ({"steps": 0}, {"batch_size": 0}, {"width": 0}):
        with pytest.raises(UserError, match="Received"):
            dataclasses.replace(setting, **wrong)


def judge(
    module: Any, errors: Callable[[Recipe], tuple[float, float]], scale: str = "hours"
) -> str:
    """Return the verdict on trainings that end with those errors, a little worse each seed.

    No rate is searched.
    """
    claim = module.CLAIM
    setting = claim.scales[scale]
    if hasattr(setting, "rates"):
        setting = dataclasses.replace(setting, rates=1)
    values: dict[str, list[float]] = {}
    for seed in range(claim.seeds):
        trainer = Trainer(lambda recipe, seed=seed: tuple(e + 0.01 * seed for e in errors(recipe)))  # type: ignore[misc]
        steps, curves = module.CLAIM.measure(setting, seed, trainer)
        cell = Cell(dataclasses.asdict(setting), seed)
        for key, value in claim.metrics([Measured(cell, np.array(steps), curves, "")]).items():
            values.setdefault(key, []).append(value)
    assert {bound.metric for bound in claim.decided_by} <= values.keys()
    return str(claim.outcome(values, scale))


Ends = Sequence[tuple[float, float]]
DEPTHS = tuple((shortcut, blocks) for shortcut in ("none", "pad") for blocks in (3, 9))


def argument(name: str) -> Callable[[Recipe], Any]:
    return lambda recipe: recipe.model_args.get(name)


def depth_and_shortcut(recipe: Recipe) -> tuple[str, int]:
    return recipe.model_args["shortcut"], recipe.model_args["blocks_per_stage"]


COMPARED: dict[
    tuple[Any, Callable[[Recipe], Any], tuple[Any, ...], str], list[tuple[Ends, str]]
] = {
    # module, what tells its arms apart, its values, the scale: errors of the arms, the verdict
    (fixed_projection_helps, argument("fixed_projection"), (True, False), "hours"): [
        ([(9, 20.0), (9, 20.2)], "holds"),
        ([(9, 20.2), (9, 20.0)], "broken"),
        ([(9, 20.0), (9, 22.0)], "broken"),
        ([(60, 66.0), (60, 66.2)], "not judged (smaller run)"),
        ([(9, 20.0), (NAN, NAN)], "inconclusive"),
    ],
    (small_init_helps, argument("init"), ("small", "standard"), "hours"): [
        ([(9, 25.0), (9, 26.0)], "holds"),
        ([(9, 25.0), (9, 25.2)], "broken"),
        ([(9, 25.0), (NAN, NAN)], "inconclusive"),
        ([(75, 75.0), (90, 90.0)], "not judged (smaller run)"),
    ],
    (no_need_for_dropout, argument("dropout"), (0.0, 0.3), "paper"): [
        ([(5, 15.0), (9, 14.8)], "holds"),
        ([(5, 15.0), (9, 20.0)], "holds"),
        ([(5, 15.0), (9, 14.0)], "broken"),
        ([(9, 15.0), (9, 14.0)], "inconclusive"),  # underfits
        ([(5, 15.0), (NAN, NAN)], "inconclusive"),
        ([(0.0, 0.0), (9, 0.0)], "inconclusive"),
    ],
    (no_need_for_dropout, argument("dropout"), (0.0, 0.3), "hours"): [
        ([(5, 15.0), (9, 14.8)], "not judged (smaller run)"),
    ],
    (batchnorm_overfits, argument("batch_norm"), (False, True), "hours"): [
        ([(15, 18.0), (8, 13.0)], "not judged (smaller run)"),
        ([(61, 68.0), (59, 67.0)], "not judged (smaller run)"),
        ([(NAN, NAN), (8, 13.0)], "not judged (smaller run)"),
        ([(90, 90.0), (0.2, 50.0)], "not judged (smaller run)"),
        ([(5, 30.0), (0.2, 31.0)], "not judged (smaller run)"),
    ],
    (skip_length, argument("variant"), ("two-layer", "single", "vanilla"), "hours"): [
        ([(9, 15.0), (9, 16.0), (9, 17.0)], "holds"),
        ([(9, 15.0), (9, 15.2), (9, 17.0)], "broken"),
        ([(9, 73.0), (9, 79.0), (9, 85.0)], "not judged (smaller run)"),
        ([(9, 20.0), (9, 85.0), (9, 90.0)], "not judged (smaller run)"),
    ],
    (identity_beats_plain_cifar10, argument("shortcut"), ("identity", "none"), "hours"): [
        ([(9, 20.0), (9, 90.0)], "holds"),
        ([(9, 20.0), (9, 20.2)], "broken"),
        ([(9, 75.0), (9, 90.0)], "not judged (smaller run)"),
        ([(9, 20.0), (NAN, NAN)], "inconclusive"),
    ],
    (depth_degrades_plain_nets, depth_and_shortcut, DEPTHS, "hours"): [
        ([(12, 18.0), (16, 20.0), (11, 17.0), (9, 15.0)], "holds"),
        ([(12, 18.0), (12.2, 20.0), (11, 17.0), (9, 15.0)], "broken"),
        ([(12, 18.0), (16, 20.0), (11, 17.0), (13, 19.0)], "broken"),
        ([(12, 68.0), (16, 70.0), (11, 67.0), (9, 65.0)], "not judged (smaller run)"),
        (
            [(12, 25.0), (16, 30.0), (89, 90.0), (89, 90.0)],
            "not judged (smaller run)",
        ),  # plain ones alone
        (
            [(89, 90.0), (90, 90.0), (11, 17.0), (9, 15.0)],
            "not judged (smaller run)",
        ),  # residual ones alone
        ([(12, 18.0), (NAN, NAN), (11, 17.0), (9, 15.0)], "inconclusive"),
    ],
    (imagenet_underfits, lambda recipe: recipe.model_args["widths"][0], (80, 160), "paper"): [
        ([(32, 35.0), (25, 30.0)], "holds"),
        ([(20, 35.0), (12, 30.0)], "broken"),  # it fits: no underfitting
        ([(32, 35.0), (32.1, 34.9)], "broken"),  # width gains nothing that matters
        ([(84, 85.0), (80, 81.0)], "inconclusive"),  # neither has learned
        ([(84, 85.0), (35, 38.0)], "inconclusive"),  # the network itself has not
    ],
    (allconv_beats_allcnn, lambda recipe: recipe.model, ("allconv_resnet", "allcnn"), "paper"): [
        ([(9, 20.0), (9, 21.0)], "holds"),
        ([(9, 20.0), (9, 19.8)], "broken"),
        ([(9, 20.0), (9, 45.0)], "inconclusive"),  # All-CNN has hardly begun
        ([(9, 45.0), (9, 46.0)], "inconclusive"),
    ],
    (allconv_beats_allcnn, lambda recipe: recipe.model, ("allconv_resnet", "allcnn"), "hours"): [
        ([(9, 20.0), (9, 21.0)], "not judged (smaller run)"),
        ([(9, 45.0), (9, 46.0)], "not judged (smaller run)"),
    ],
}


@pytest.mark.parametrize(
    ("arms", "ends", "verdict"),
    [(arms, *case) for arms, cases in COMPARED.items() for case in cases],
)
def test_the_smallest_difference_that_matters_decides(
    arms: tuple[Any, Callable[[Recipe], Any], tuple[Any, ...], str], ends: Ends, verdict: str
) -> None:
    module, key, values, scale = arms
    errors = dict(zip(values, ends, strict=True))
    assert judge(module, lambda recipe: errors[key(recipe)], scale) == verdict


def test_other_pictures_say_nothing_of_imagenet() -> None:
    values = {bound.metric: [1.0, 1.1] for bound in imagenet_underfits.CLAIM.decided_by}
    values["narrow_test_error_pct"] = [35.0, 35.0]
    verdicts = [imagenet_underfits.CLAIM.outcome(values, scale) for scale in ("cpu", "paper")]
    assert verdicts == ["not judged (smaller run)", "holds"]


def test_the_rate_is_the_best_on_validation_pictures() -> None:
    """Rates above 0.03 diverge, and of the others the largest errs least."""
    recipe = Arms(learning_rate=0.04).base(3)
    trainer: Any = Trainer(val_error_pct=lambda rate: 100.0 if rate > 0.03 else 1 / rate)
    best = _arms.choose_rate(trainer, recipe, 5)
    assert best == recipe.override(learning_rate=0.02)
    assert [each.learning_rate for each in trainer.tried] == [0.04, 0.02, 0.08, 0.01, 0.005]
    assert {each.seed for each in trainer.tried} == {_arms.SEARCH_SEED}
    assert _arms.choose_rate(trainer, recipe, 1) == recipe
    assert len(trainer.tried) == 5


@pytest.mark.parametrize(
    ("stood", "rate", "diverged", "error_pct"),
    [(1.0, 0.001, 0, 38.0), (7e-4, 0.0005, 1, 43.0), (1e-4, 0.000125, 4, math.nan)],
)
def test_a_seed_that_diverges_is_trained_at_the_next_rate_of_the_search(
    stood: float, rate: float, diverged: int, error_pct: float
) -> None:
    """`stood` is the largest rate that the seed's standard start stands."""
    of_rate = {0.001: 38.0, 0.0005: 43.0, 0.00025: 45.0, 0.000125: 51.0}
    searched = {**of_rate, 0.002: 100.0, 0.1: 100.0, 0.2: 100.0, 0.05: 18.0, 0.025: 17.0}

    def errors(recipe: Recipe) -> tuple[float, float]:
        if recipe.model_args.get("init") != "standard":
            return 9.0, 16.0
        stands = recipe.learning_rate <= stood
        return 9.0, of_rate[recipe.learning_rate] if stands else math.nan

    trainer: Any = Trainer(errors, lambda rate: searched.get(rate, 20.0))
    _, curves = small_init_helps.measure(small_init_helps.CLAIM.scales["hours"], 0, trainer)
    found = {key: values[0] for key, values in curves.items()}
    assert (found["standard_rate"], found["small_rate"], found["small_diverged"]) == (
        rate,
        0.025,
        0,
    )
    assert found["standard_diverged"] == diverged
    np.testing.assert_equal(found["standard_test_error_pct"], error_pct)
    np.testing.assert_equal(found["advantage_pct"], error_pct - 16)
    assert found["rates_at_an_end"] == (rate == 0.000125)


@pytest.mark.parametrize("module", [small_init_helps, identity_beats_plain_cifar10])
def test_what_a_search_trains_is_checked_beforehand(module: Any) -> None:
    setting = module.CLAIM.scales["hours"]
    every = module.CLAIM.recipes(setting, 0)
    assert module.recipes(setting, 0).items() <= every.items()
    searched = [recipe for name, recipe in every.items() if "search" in name]
    assert len(searched) in (setting.rates, 2 * setting.rates)
    with pytest.raises(UserError, match="rates must be <= 5"):
        dataclasses.replace(setting, rates=6)


def test_deciding_seeds_are_others_than_those_looked_at() -> None:
    claim = skip_length.CLAIM
    seeds = {
        scale: {skip_length.recipes(claim.scales[scale], s)["single"].seed for s in range(12)}
        for scale in ("cpu", "hours")
    }
    assert not seeds["cpu"] & seeds["hours"]
    assert skip_length.recipes(claim.scales["hours"], 0)["single"].learning_rate == 0.1


@pytest.mark.parametrize(
    ("standard", "small", "verdict"),
    [
        ([9, 20, np.inf], [3, 2.5, 2.4], "holds"),
        ([9, 20, 91], [3, 2.5, 2.4], "holds"),  # more than ten times the first loss
        ([9, 20, 80], [3, 2.5, 2.4], "broken"),
        ([9, 20, np.inf], [3, 40, np.inf], "broken"),
    ],
)
def test_divergence_is_judged_as_such(
    standard: list[float], small: list[float], verdict: str
) -> None:
    claim = standard_init_diverges.CLAIM
    each = claim.metrics([made({"standard_loss": standard, "small_loss": small})])
    values = {key: [value] * 5 for key, value in each.items()}
    assert claim.outcome(values, "cpu") == verdict
    assert each["standard_finite_steps"] == np.isfinite(standard).sum()


def test_losses_after_a_divergence_are_infinite(digits: Path) -> None:
    setting = standard_init_diverges.CLAIM.scales["smoke"]
    recipe = standard_init_diverges.recipes(setting, 0)["standard"]
    losses = standard_init_diverges.batch_losses(recipe)
    assert np.all(np.isfinite(losses))
    lost = standard_init_diverges.batch_losses(recipe.override(learning_rate=1e9))
    assert lost[0] == losses[0]
    assert np.isinf(lost[-1])


def test_reported_errors_are_judged_at_paper_scale_only() -> None:
    cell = table2.RESNET_CIFAR10
    assert cell.verdict({"test_error_pct": [6.5, 6.6, 6.7]}, "paper") == "reproduced"
    worse = {"test_error_pct": [12.0, 12.1, 12.2]}
    assert cell.verdict(worse, "paper") == "not reproduced"
    assert cell.verdict(worse, "cpu") == "not judged (smaller run)"


def test_the_figure_says_which_arms_diverged(tmp_path: Path) -> None:
    errors = {"fixed_test_error_pct": 20.0, "trained_test_error_pct": NAN}
    measured = [made(errors, seed=seed) for seed in (0, 1)]
    picture = fixed_projection_helps.CLAIM.figure(measured, [[], []])
    (axes,) = picture.axes
    assert {text.get_text() for text in axes.texts} == {
        "test 20.00 ± 0.00 %",
        "test diverged with every seed",
    }
    picture.savefig(tmp_path / "figure.png")


@pytest.mark.parametrize("module", MODULES)
def test_the_figure_shows_every_seed_and_mean(module: Any, tmp_path: Path) -> None:
    claim = module.CLAIM
    keys = {f"{arm}_{split}_error_pct" for arm in module.LABELS for split in ("train", "test")}
    point = dataclasses.asdict(claim.scales["paper"])
    measured = [made(dict.fromkeys(keys, 10.0 + seed), point, seed=seed) for seed in (0, 1, 2)]
    picture = claim.figure(measured, [[], [], []])
    (axes,) = picture.axes
    splits = len(getattr(module, "SPLITS", ("test",)))
    assert len(axes.lines) == 3 * splits
    assert {text.get_text() for text in axes.texts} <= {
        "train 11.00 ± 1.00 %",
        "test 11.00 ± 1.00 %",
    }
    picture.savefig(tmp_path / "figure.png")


def test_an_arm_is_found_by_its_name_or_by_the_error_that_it_ended_in() -> None:
    def training(arm: str, error: float) -> Training:
        return Training(arm, np.array([8]), {"test_error_pct": np.array([error])})

    errors = {"named": 20.0, "found": 20.5, "shared": 21.0, "lost": NAN}
    measured = made({f"{arm}_test_error_pct": error for arm, error in errors.items()})
    trainings = [
        training("named", 20.0),
        training("", 20.5),
        training("of another claim", 21.0),
        training("named", 20.5),
        training("", 30.0),
    ]
    found = {arm: _comparison.find_training(arm, measured, trainings) for arm in errors}
    shown = dict(zip(("named", "found", "shared"), trainings, strict=False))
    assert found == {**shown, "lost": None}


def test_the_exact_interval_of_a_share_decides() -> None:
    most, few = standard_init_diverges.CLAIM.decided_by
    assert [most.verdict([1.0] * n) for n in (2, 3, 4, 5)] == ["inconclusive"] * 3 + ["holds"]
    assert most.verdict([0.0] * 5) == few.verdict([1.0] * 5) == "broken"
    assert most.verdict([1.0] * 4 + [0.0]) == "inconclusive"
    assert few.verdict([0.0] * 5) == "holds"


@pytest.mark.parametrize(
    ("gap", "fit", "outcome"), [(1.5, 6.4, "holds"), (0.3, 6.4, "broken"), (1.5, 0.2, "broken")]
)
def test_only_hms_size_decides_what_batch_normalization_does(
    gap: float, fit: float, outcome: str
) -> None:
    claim = batchnorm_overfits.CLAIM
    values = {"better_fit_pct": [fit] * 3, "wider_gap_pct": [gap] * 3}
    values |= {f"{arm}_test_error_pct": [8.0] * 3 for arm in batchnorm_overfits.LABELS}
    assert claim.outcome(values, "paper") == outcome
    assert claim.outcome(values, "hours") == "not judged (smaller run)"


def test_gaps_are_compared_where_both_fit_alike() -> None:
    steps = np.array([10, 20, 30])

    def arm(label: str, fit: list[float], error: list[float]) -> Arm:
        curves = {"train_error_pct": np.array(fit), "val_error_pct": np.array(error)}
        return Arm(label, {"test": np.zeros(1)}, [Training(label, steps, curves)])

    slow = arm("slow", [60.0, 40.0, 20.0], [62.0, 43.0, 24.0])
    fast = arm("fast", [30.0, 10.0, 5.0], [31.0, 15.0, 14.0])
    # the slow one has reached 20 %: there it errs 24, the fast one half way from 31 to 15
    gaps = batchnorm_overfits.gaps_at_equal_fit([slow, fast])
    assert gaps == {"slow": [pytest.approx(4.0)], "fast": [pytest.approx(3.0)]}
    lost = Arm("lost", {"test": np.zeros(1)}, [None])
    assert math.isnan(batchnorm_overfits.gaps_at_equal_fit([slow, lost])["lost"][0])


@pytest.mark.parametrize("module", [*MODULES, allconv_beats_allcnn])
def test_no_margin_of_ours_is_called_printed(module: Any) -> None:
    """What is quoted of a comparison is its order, or a number that is reported."""
    for bound in (bound for each in module.CLAIM.printed for bound in each.bounds):
        if bound.metric not in module.CLAIM.reported:
            assert {bound.at_least, bound.at_most} - {math.inf, -math.inf} == {0}


@pytest.mark.parametrize(
    "module", [allconv_beats_allcnn, small_init_helps, identity_beats_plain_cifar10]
)
def test_rates_at_an_end_decide_nothing(module: Any) -> None:
    better, other = (f"{arm}_test_error_pct" for arm in module.LABELS)
    values = {"advantage_pct": [3.0] * 5, better: [20.0] * 5, other: [23.0] * 5}
    verdicts = [
        module.CLAIM.outcome(values | {"rates_at_an_end": [count] * 5}, "paper")
        for count in (0.0, 1.0)
    ]
    assert verdicts == ["holds", "inconclusive"]


@pytest.mark.parametrize(("best", "at_an_end"), [(0.00125, 1), (0.01, 0), (0.02, 1)])
def test_a_rate_at_an_end_of_those_tried_is_counted(best: float, at_an_end: float) -> None:
    claim = identity_beats_plain_cifar10.CLAIM
    trainer: Any = Trainer(val_error_pct=lambda rate: abs(rate - best))
    _, curves = claim.measure(claim.scales["hours"], 0, trainer)
    assert (curves["plain_rate"][0], curves["rates_at_an_end"][0]) == (best, at_an_end)
    _, curves = claim.measure(claim.scales["cpu"], 0, trainer)  # one rate, its own
    assert (curves["plain_rate"][0], curves["rates_at_an_end"][0]) == (0.05, 0)
