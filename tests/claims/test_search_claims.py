"""Claims about searches: what they compare, and doctored results that they do not reproduce."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.claims import _search, _tuning
from pipelines.claims.networks import better_schedule_exists, tuning_without_regularization
from pipelines.claims.ours import (
    better_schedule_tiny_imagenet,
    later_habits,
    tiny_imagenet_underfits,
    tuning_without_batchnorm,
)
from pipelines.cli import list_command, show_command
from pipelines.errors import UserError
from pipelines.measurement import experiment
from pipelines.measurement.grid import Cell, Measured
from pipelines.recipes.catalog import get_recipe

TUNING = (tuning_without_batchnorm, tuning_without_regularization)
SCALES = ("smoke", "cpu", "hours", "paper")


def metrics(good: float, best: float = 20.0, **more: float) -> dict[str, float]:
    return {"good_share": good, "diverged_share": 0.1, "best_val_error_pct": best, **more}


def values(module: Any, **searched: dict[str, float]) -> dict[str, list[float]]:
    """Return the numbers of three seeds, of arms that were searched so; of others as `harder`."""
    harder = searched[module.VARIANTS.harder]
    arms = dict.fromkeys(module.VARIANTS.labels, harder) | searched
    numbers = _tuning.compare_networks(module.VARIANTS, arms)
    return {key: [value] * 3 for key, value in numbers.items()}


@pytest.mark.parametrize("module", TUNING)
def test_tuning_is_harder_where_two_rates_of_seven_are_lost(module: Any) -> None:
    def verdict(harder: dict[str, float], easier: dict[str, float], scale: str = "hours") -> str:
        arms = {module.VARIANTS.harder: harder, module.VARIANTS.easier: easier}
        return str(module.CLAIM.outcome(values(module, **arms), scale))

    assert verdict(metrics(2 / 7), metrics(4 / 7)) == "holds"
    assert verdict(metrics(3 / 7), metrics(4 / 7)) == "broken"
    assert verdict(metrics(4 / 7), metrics(4 / 7)) == "broken"
    assert verdict(metrics(4 / 7), metrics(2 / 7)) == "broken"
    assert verdict(metrics(0.1, best=60.0), metrics(0.9, best=60.0)) == "not judged (smaller run)"
    unlearned = metrics(0.0, best=60.0)  # of one network no trial is good: what it reaches
    assert verdict(unlearned, metrics(0.9)) == "not judged (smaller run)"
    assert verdict(unlearned, metrics(0.9), "paper") == "inconclusive"


def test_more_loss_is_never_the_weaker_verdict() -> None:
    """Shares of seven rates: a mean of three may be certain only by their coarseness."""
    (bound,) = tuning_without_batchnorm.CLAIM.decided_by
    rising = [[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2], [2, 2, 3], [2, 3, 7]]
    verdicts = [bound.verdict([lost / 7 for lost in seeds]) for seeds in rising]
    assert verdicts == ["broken", "inconclusive", "inconclusive", *["holds"] * 3]
    assert bound.verdict([1.0]) == "inconclusive"


@pytest.mark.parametrize("module", TUNING)
def test_what_is_lost_is_what_the_easier_network_has_more(module: Any) -> None:
    arms = {
        module.VARIANTS.harder: metrics(0.25, best=40.0),  # no rates: none are good
        module.VARIANTS.easier: metrics(0.75, good_rate_decades=1.5),
    }
    numbers = values(module, **arms)
    assert (numbers["share_lost"][0], numbers["decades_lost"][0]) == (0.5, 1.5)
    assert numbers[_tuning.WORST_BEST][0] == 40
    del arms[module.VARIANTS.easier]["best_val_error_pct"]
    with pytest.raises(KeyError):
        values(module, **arms)


@pytest.mark.parametrize("scale", SCALES)
def test_what_is_searched_differs_in_what_the_claim_is_about(scale: str) -> None:
    def rows(module: Any) -> dict[str, dict[str, str]]:
        recipes = module.recipes(module.CLAIM.scales[scale], 1)
        assert recipes.keys() == module.VARIANTS.labels.keys()
        return {arm: recipe.flat() for arm, recipe in recipes.items()}

    two, four = rows(tuning_without_batchnorm), rows(tuning_without_regularization)
    assert two["plain"] == four["augmentation"]  # so that one study does for both claims
    changed = {"model_args.batch_norm": "true", "model_args.init": "standard"}
    assert two["normalized"] == two["plain"] | changed
    settings = {arm: (row["augment"], row["model_args.dropout"]) for arm, row in four.items()}
    assert settings == {
        "neither": ("false", "0.0"),
        "dropout": ("false", "0.3"),
        "augmentation": ("true", "0.0"),
        "both": ("true", "0.3"),
    }
    varied = {"augment", "model_args.dropout"}
    assert (
        len({tuple(sorted(row.items() - varied_items(row, varied))) for row in four.values()}) == 1
    )


def varied_items(row: dict[str, str], names: set[str]) -> set[tuple[str, str]]:
    return {(key, row[key]) for key in names}


def test_a_tuning_claim_asks_for_one_limit_of_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def answer(*words: str) -> dict[str, Any]:
        asked.append(words)
        names = [word for word in words if word.startswith("tuning-")]
        studies = [
            {"study": name, "metrics": metrics(i / 4)}
            for i, name in enumerate(dict.fromkeys(names))
        ]
        curves = {name: {"expected": [50.0, 40.0]} for name in names}
        return {"studies": studies, "best_of_k": curves}

    monkeypatch.setattr(_tuning, "run_json", answer)
    monkeypatch.setattr(_search, "run_study", lambda name, *_: {"study": name})
    setting = tuning_without_regularization.CLAIM.scales["hours"]
    trainer: Any = experiment.Trainer(run=Tags())  # type: ignore[arg-type]
    steps, curves = tuning_without_regularization.CLAIM.measure(setting, 0, trainer)
    (words,) = asked
    assert words[-2:] == ("--good-pct", "30.0")
    assert list(steps) == [1, 2]
    assert curves["share_lost"].tolist() == [0.75, 0.75]  # neither is the first, both the last


class Tags:
    """Stands in for a run that is tagged."""

    def link(self, *_: str) -> None:
        pass


@pytest.mark.parametrize("wrong", [{"good_pct": 0.0}, {"good_pct": 100.0}, {"dropout": 0.0}])
def test_settings_that_compare_nothing_are_refused(wrong: dict[str, float]) -> None:
    setting = tuning_without_regularization.CLAIM.scales["cpu"]
    with pytest.raises(UserError, match=next(iter(wrong))):
        dataclasses.replace(setting, **wrong)


@pytest.mark.parametrize("module", TUNING)
def test_the_figure_names_every_network_and_the_limit(module: Any, tmp_path: Path) -> None:
    curves = {
        f"{arm}_best_of_k_pct": np.array([60.0, 40.0, 35.0]) for arm in module.VARIANTS.labels
    }
    constant = {
        f"{arm}_{key}": np.full(3, 0.5) for arm in module.VARIANTS.labels for key in _tuning.GOOD
    }
    point = dataclasses.asdict(module.CLAIM.scales["hours"])
    measured = [Measured(Cell(point, s), np.arange(1, 4), curves | constant, "") for s in range(3)]
    picture = module.CLAIM.figure(measured, [])
    said = [text.get_text() for text in picture.axes[0].get_legend().get_texts()]
    assert len(said) == len(module.VARIANTS.labels) + 1
    assert all(
        label in text for label, text in zip(module.VARIANTS.labels.values(), said, strict=False)
    )
    assert said[-1] == "a good trial: 30 %"
    picture.savefig(tmp_path / "figure.png")


def test_only_imagenet_decides_whether_a_better_schedule_exists() -> None:
    claim = better_schedule_exists.CLAIM

    def verdict(gain: float, error: float, scale: str) -> str:
        errors = {
            "published_test_error_pct": [error + gain] * 3,
            "found_test_error_pct": [error] * 3,
        }
        return claim.outcome({**errors, "gain_pct": [gain] * 3}, scale)

    assert {verdict(4.0, 20.0, scale) for scale in ("smoke", "cpu", "hours")} == {
        "not judged (smaller run)"
    }
    assert verdict(1.2, 34.0, "paper") == "holds"
    assert verdict(0.5, 34.0, "paper") == "broken"  # better, not substantially
    assert verdict(9.0, 70.0, "paper") == "inconclusive"
    first = claim.scales["paper"].base(0)
    assert first.fingerprint == get_recipe("allconv-imagenet", "paper").fingerprint
    assert first.fingerprint == claim.scales["paper"].search_base().fingerprint


@pytest.mark.parametrize("module", [better_schedule_exists, later_habits])
def test_the_search_has_a_seed_that_no_arm_has(module: Any) -> None:
    for setting in module.CLAIM.scales.values():
        searched = setting.search_base()
        assert searched.steps == setting.search_steps
        assert searched.model_args["widths"][0] == setting.search_width
        seeds = {r.seed for r in module.recipes(setting, 0, {"best_changes": {}}).values()}
        assert searched.seed not in seeds


TINY = better_schedule_tiny_imagenet


def tiny_document() -> dict[str, Any]:
    """A study whose second trial is best; the third was pruned, the fourth is as good as it."""
    found = [
        {"number": 0, "val_error_pct": 70.0, "changes": {}},
        {"number": 1, "val_error_pct": 60.0, "changes": {"schedule": "cosine", "momentum": 0.8}},
        {"number": 2, "val_error_pct": 50.0, "changes": None},
        {"number": 3, "val_error_pct": 60.0, "changes": {"learning_rate": 0.3}},
    ]
    return {"study": "s", "best_changes": found[1]["changes"], "trials": found}


def test_the_finalists_are_the_best_complete_trials() -> None:
    document = tiny_document()
    ranked = [document["trials"][number]["changes"] for number in (1, 3, 0)]
    assert _search.finalists(document, 2) == ranked[:2]
    assert _search.finalists(document, 5) == ranked
    with pytest.raises(UserError, match="study s, which has none"):
        _search.finalists(document | {"best_changes": None}, 5)


class Validated(experiment.Trainer):
    """Stands in for trainings: an error by rate and schedule; notes what was trained and how."""

    def search(self, recipe: Any, lost: Any) -> Any:
        self.trained[recipe.fingerprint] = None
        error = abs(recipe.learning_rate - 0.05) * 100 + 5 * (recipe.schedule == "cosine")
        return SimpleNamespace(metrics={"val_error_pct": error})

    def train(self, recipe: Any) -> Any:
        self.arms_trained.append(recipe)  # type: ignore[attr-defined]
        return SimpleNamespace(metrics={"test_error_pct": 60.0 + len(self.trained)})


def test_validation_chooses_the_staircases_rate_and_the_best_finalist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_search, "run_study", lambda name, *_: tiny_document())
    trainer: Any = Validated(run=Tags())  # type: ignore[arg-type]
    object.__setattr__(trainer, "arms_trained", [])
    setting = TINY.CLAIM.scales["hours"]
    _, curves = TINY.CLAIM.measure(setting, 1, trainer)
    staircase, searched = trainer.arms_trained
    assert staircase == setting.base(2).override(learning_rate=0.05)
    assert searched == setting.base(2)  # of rates 0.1, 0.1 and 0.3 and a cosine the published one
    assert len(trainer.trained) == 5 + 3 - 1  # of both searches the recipe's own rate is one
    assert (curves["rates_at_an_end"][0], curves["staircase_rate"][0]) == (0, 0.05)
    assert curves["gain_pct"][0] == 0


def test_only_hours_of_tiny_imagenet_decide_and_only_where_networks_learned() -> None:
    def verdict(gain: float, error: float, scale: str = "hours", extreme: float = 0) -> str:
        values = {"staircase_test_error_pct": error + gain, "searched_test_error_pct": error}
        values |= {"gain_pct": gain, "rates_at_an_end": extreme}
        return TINY.CLAIM.outcome({key: [value] * 3 for key, value in values.items()}, scale)

    assert {verdict(4.0, 60.0, scale) for scale in ("smoke", "cpu")} == {"not judged (smaller run)"}
    assert verdict(1.2, 60.0) == "holds"
    assert verdict(0.5, 60.0) == "broken"
    for unfair in (verdict(4.0, 72.0), verdict(4.0, 60.0, extreme=1.0)):
        assert unfair not in ("holds", "broken")


def test_both_claims_on_tiny_imagenet_train_the_same_narrow_network() -> None:
    one, other = (module.CLAIM.scales["hours"] for module in (TINY, tiny_imagenet_underfits))
    arms = tiny_imagenet_underfits.recipes(other, 1)
    assert arms["narrow"].fingerprint == TINY.recipes(one, 1)["staircase"].fingerprint
    largest = get_recipe("allconv-tiny-imagenet", "hours")
    assert arms["narrow"].override(seed=largest.seed).fingerprint == largest.fingerprint
    assert arms["wide"].model_args["widths"] == (40, 84, 164, 336)
    assert (one.rates, one.trials, one.finalists) == (other.rates, 24, 5)
    assert one.search_steps == pytest.approx(one.steps / 5, abs=1)
    searched = one.search_base()
    assert searched.seed not in {TINY.recipes(one, seed)["staircase"].seed for seed in range(3)}


def test_claims_of_one_search_share_its_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "run_study", lambda name, *_: {"study": name})
    claims = [module.CLAIM.scales["hours"] for module in (better_schedule_exists, later_habits)]
    first, second = (setting.find()["study"] for setting in claims)
    assert first == second
    assert dataclasses.replace(claims[0], search_steps=700).find()["study"] != first


def test_costs_are_listed_by_scale(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in list_command.list_names()["claims"]}
    row = rows["later-habits"]
    assert row["costs"] == {k: str(cost) for k, cost in later_habits.CLAIM.costs.items()}
    assert row["costs"].keys() <= set(row["scales"])
    assert (
        list_command.state_costs({"cpu": "8 s", "hours": "2 h"}) == "It takes: cpu 8 s; hours 2 h."
    )
    assert list_command.state_costs({}) == ""
    show_command.show(show_command.describe("later-habits"))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for scale in row["scales"]:
        (line,) = (line for line in lines if line.startswith(f"{scale}: "))
        assert row["costs"].get(scale, "") in line
