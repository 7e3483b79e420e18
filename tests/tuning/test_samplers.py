"""Samplers and pruners of studies, on a function whose best points are known."""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from pipelines.errors import UserError
from tests.conftest import ROOT
from tuning.search import samplers
from tuning.storage import storage

STEPS, REPORTS = 900, 9
SHARED = {"learning_rate", "momentum"}  # parameters of `error_pct` whatever the schedule
torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: no test of gp"
)
NAMES = [pytest.param(name, marks=torch if name == "gp" else ()) for name in samplers.SAMPLERS]


def error_pct(trial: Any) -> float:
    """20 at a polynomial of power 1, rate 0.03 and momentum 0.9; more everywhere else."""
    rate = trial.suggest_float("learning_rate", 1e-4, 1, log=True)
    momentum = trial.suggest_float("momentum", 0.5, 0.99)
    common = 20 + 10 * math.log10(rate / 0.03) ** 2 + 40 * (momentum - 0.9) ** 2
    if trial.suggest_categorical("schedule", ["constant", "polynomial"]) == "constant":
        return common + 5
    return common + 4 * abs(trial.suggest_float("polynomial.power", 0.5, 3) - 1)


def train(trial: Any) -> float:
    """A trial whose error falls from 100 to its last one, none ever crossing another."""
    last = error_pct(trial)
    for report in range(1, REPORTS + 1):
        trial.report(last + (100 - last) * math.exp(-report), report * STEPS // REPORTS)
        if report < REPORTS and trial.should_prune():
            raise optuna.TrialPruned
    return last


def study(name: str, pruner: str = "none", seed: int = 0, **kw: Any) -> Any:
    """A study, new or old, with a sampler made now."""
    return optuna.create_study(
        study_name="s",
        sampler=samplers.make_sampler(name, seed),
        pruner=samplers.make_pruner(pruner, steps=STEPS, reports=REPORTS),
        load_if_exists=True,
        **kw,
    )


def points(of: Any) -> list[tuple[Any, ...]]:
    return [tuple(sorted(trial.params.items())) for trial in of.trials]


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_finds_better_points_than_its_random_start(name: str) -> None:
    found = study(name)
    found.optimize(error_pct, n_trials=30 if name == "gp" else 60)
    start = min(trial.value for trial in found.trials[: samplers.STARTUP_TRIALS])
    assert found.best_value < start
    assert found.best_value < 23
    assert found.best_params["schedule"] == "polynomial"


@torch
def test_gp_says_nothing_of_cuda_where_tensorflow_was_loaded_first() -> None:
    code = "import tensorflow, tests.tuning.test_samplers as t\n"
    code += "t.study('gp').optimize(t.error_pct, n_trials=12)"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "pruner",
    [pytest.param(p, marks=[pytest.mark.slow] * (p != "none")) for p in samplers.PRUNERS],
)
def test_a_study_goes_on_with_a_sampler_made_anew(name: str, pruner: str, tmp_path: Path) -> None:
    where = storage.connect(storage.resolve_url(f"journal:///{tmp_path}/studies"))
    study(name, pruner, storage=where).optimize(train, n_trials=14)
    study(name, pruner, seed=1, storage=where).optimize(train, n_trials=14)
    found = study(name, pruner, seed=2, storage=where)
    assert len(found.trials) == 28
    assert len(set(points(found))) == 28
    assert {trial.state.name for trial in found.trials} <= {"COMPLETE", "PRUNED"}


def test_another_seed_draws_other_points_and_the_same_one_the_same() -> None:
    drawn = []
    for seed in (3, 3, 4):
        found = study("tpe", seed=seed)
        found.optimize(error_pct, n_trials=15)
        drawn.append(points(found))
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])


def family(pruner: str, values: list[float], seed: int = 0) -> list[str]:
    """How the trials ended whose last errors are these."""
    found = study("random", pruner, seed)
    for value in values:
        trial = found.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        state = None
        for report in range(1, REPORTS):
            trial.report(value + (100 - value) * math.exp(-report), report * STEPS // REPORTS)
            if trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        found.tell(trial, None if state else value, state=state)
    return [trial.state.name for trial in found.trials]


@pytest.mark.parametrize("best", [0, 7, 25])
@pytest.mark.parametrize(("pruner", "least"), [("hyperband", 28), ("median", 40)])
def test_a_pruner_ends_the_hopeless_and_never_the_best(pruner: str, least: int, best: int) -> None:
    # Hyperband leaves the last of its brackets alone, about one trial of six.
    values = [30 + (7 * i) % 10 + i / 100 for i in range(90)]
    hopeless = range(10, 90, 2)
    for i in hopeless:
        values[i] = 90.0
    values[best] = 20.0
    ended = family(pruner, values)
    assert ended[best] == "COMPLETE"
    assert sum(ended[i] == "PRUNED" for i in hopeless) >= least


def test_hyperband_goes_from_the_first_report_to_the_last_by_threes() -> None:
    # 900 steps in 9 reports: 100, 300 and 900 steps, so three brackets.
    found = study("random", "hyperband")
    found.optimize(train, n_trials=60)
    pruned = [trial.last_step for trial in found.trials if trial.state.name == "PRUNED"]
    assert set(pruned) == {100, 300}


def test_the_median_waits_for_five_whole_trials() -> None:
    rising = [float(i) for i in range(20, 30)]  # each worse than all before it
    assert family("median", rising) == ["COMPLETE"] * 5 + ["PRUNED"] * 5


def test_cmaes_searches_what_all_families_share_from_the_first_to_the_last_trial() -> None:
    def ask(trial: Any) -> float:
        value = error_pct(trial)
        if trial.params["schedule"] == "constant":  # in all trials at first
            trial.suggest_float("warmup", 0, 0.1)
        if trial.number == 25:
            raise optuna.TrialPruned
        return value

    sampler = samplers.make_sampler("cmaes", 0)
    searched = optuna.create_study(sampler=sampler)
    for number in range(40):
        of_late = number in (25, 30)
        searched.enqueue_trial({"schedule": "polynomial" if of_late else "constant"})
    searched.optimize(ask, n_trials=40)
    assert sampler.infer_relative_search_space(searched, None).keys() == SHARED
    last = [trial.system_attrs.keys() for trial in searched.trials[-5:]]
    assert all(any(key.startswith("cma:generation") for key in keys) for keys in last)


def test_two_objectives_are_searched_by_those_that_can() -> None:
    for name in ("tpe", "random", "nsga2"):
        found = optuna.create_study(
            directions=["minimize", "minimize"],
            sampler=samplers.make_sampler(name, 0),
        )
        found.optimize(lambda t: (error_pct(t), t.suggest_float("length", 0.25, 1)), n_trials=30)
        assert len(set(points(found))) == 30


def test_what_cannot_be_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    samplers.check("tpe", "hyperband", 1)
    samplers.check("nsga2", "none", 2)
    for wrong, said in {
        ("tpee", "none", 1): "A sampler must be a known name.*Did you mean tpe",
        ("tpe", "hyperbant", 1): "A pruner must be a known name.*Did you mean hyperband",
        ("cmaes", "none", 2): "The sampler cmaes searches one objective. Received: 2",
        ("grid", "none", 2): "one objective. Received: 2",
        ("tpe", "median", 2): "pruned by one objective.*--pruner none",
    }.items():
        with pytest.raises(UserError, match=said):
            samplers.check(*wrong)
    samplers.check("gp", "none", 1)  # to read what it found needs no PyTorch
    with pytest.raises(UserError, match="pip install torch"):
        samplers.check_installed("gp")
