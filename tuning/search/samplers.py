"""How a study chooses its next point, and which trials it ends early: Optuna's, set for our spaces.

Trials cost minutes, so studies have tens of them, and spaces are conditional: a schedule's family
brings its own parameters. To add a sampler or a pruner, write the function and name it.
"""

import importlib.util
from collections.abc import Callable, Collection
from typing import Any

from pipelines.errors import UserError, unknown
from tuning.optuna_log import silence

STARTUP_TRIALS = 10  # random trials before a model of the error is believed
POPULATION = 12  # trials; Optuna's 50 would be more than most studies have
REDUCTION_FACTOR = 3  # Hyperband goes on with one trial of so many
MEDIAN_STARTUP_TRIALS = 5  # whole trials before a median is believed
ONE_OBJECTIVE = ("cmaes", "grid")
Names = Collection[str] | None


def _tpe(seed: int, shared: Names) -> Any:
    """Return tree-structured Parzen estimators, Bergstra et al. 2011, jointly in each family.

    Points near those of running trials are avoided: several workers choose at the same time.
    """
    from optuna.samplers import TPESampler

    return TPESampler(
        seed=seed,
        n_startup_trials=STARTUP_TRIALS,
        multivariate=True,
        group=True,
        constant_liar=True,
    )


def _cmaes(seed: int, shared: Names) -> Any:
    """Return CMA-ES, Hansen 2016, of the parameters that all families share; others at random.

    Optuna would take those that the complete trials happen to share, and stop searching when a
    trial of another family makes them fewer.
    """
    from optuna.samplers import CmaEsSampler

    class SharedCmaEs(CmaEsSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            found = super().infer_relative_search_space(study, trial)
            return {k: v for k, v in found.items() if shared is None or k in shared}

    return SharedCmaEs(
        seed=seed,
        n_startup_trials=STARTUP_TRIALS,
        consider_pruned_trials=True,
        warn_independent_sampling=False,
    )


def _gp(seed: int, shared: Names) -> Any:
    """Return expected improvement under a Gaussian process, of parameters of all families."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False)


def _random(seed: int, shared: Names) -> Any:
    """Draw every point from the whole space; a grid's points are enqueued and need no other."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _nsga2(seed: int, shared: Names) -> Any:
    """Return NSGA-II, Deb et al. 2002; children between and beyond two parents, never equal."""
    from optuna.samplers import NSGAIISampler
    from optuna.samplers.nsgaii import BLXAlphaCrossover

    return NSGAIISampler(
        seed=seed, population_size=POPULATION, crossover=BLXAlphaCrossover(), crossover_prob=1.0
    )


def _hyperband(steps: int, reports: int) -> Any:
    """Return Hyperband, Li et al. 2018, from the first report's step to the last's."""
    from optuna.pruners import HyperbandPruner

    first = max(1, steps // reports)
    return HyperbandPruner(
        min_resource=first, max_resource=steps, reduction_factor=REDUCTION_FACTOR
    )


def _median(steps: int, reports: int) -> Any:
    """End trials that are at their best worse than the median of the others at that step."""
    from optuna.pruners import MedianPruner

    return MedianPruner(n_startup_trials=MEDIAN_STARTUP_TRIALS)


def _none(steps: int, reports: int) -> Any:
    from optuna.pruners import NopPruner

    return NopPruner()


SAMPLERS: dict[str, Callable[[int, Names], Any]] = {
    "tpe": _tpe,
    "cmaes": _cmaes,
    "gp": _gp,
    "random": _random,
    "grid": _random,
    "nsga2": _nsga2,
}
PRUNERS: dict[str, Callable[[int, int], Any]] = {
    "hyperband": _hyperband,
    "median": _median,
    "none": _none,
}


def check(sampler: str, pruner: str, objectives: int) -> None:
    """Raise UserError where the two cannot search so many objectives; load no Optuna."""
    for what, name, known in (("sampler", sampler, SAMPLERS), ("pruner", pruner, PRUNERS)):
        if name not in known:
            raise unknown(f"A {what}", name, known)
    if objectives > 1 and sampler in ONE_OBJECTIVE:
        others = ", ".join(name for name in SAMPLERS if name not in ONE_OBJECTIVE)
        raise UserError(
            f"The sampler {sampler} searches one objective. Received: {objectives} objectives. "
            f"Choose another --sampler ({others}), or minimize the error alone."
        )
    if objectives > 1 and pruner != "none":
        raise UserError(
            f"Trials are pruned by one objective. Received: --pruner {pruner} and {objectives} "
            "objectives. Set --pruner none, or minimize the error alone."
        )


def check_installed(sampler: str) -> None:
    """Raise UserError where this machine lacks what the sampler needs to go on with a study."""
    if sampler == "gp" and importlib.util.find_spec("torch") is None:
        raise UserError(
            "The sampler gp needs PyTorch. Received: --sampler gp, and no PyTorch is installed. "
            "Install it: pip install -r requirements-torch.txt; or choose another --sampler."
        )


def make_sampler(name: str, *, seed: int, objectives: int, shared: Names = None) -> Any:
    """Return the Optuna sampler of that name; each trial takes another seed.

    `shared` names the ranges that every family of schedules has (None: those that trials show).
    """
    check(name, "none", objectives)
    with silence():
        return SAMPLERS[name](seed, shared)


def make_pruner(name: str, *, steps: int, reports: int) -> Any:
    """Return the Optuna pruner of that name.

    A trial has so many optimizer steps and reports its validation error so many times, evenly,
    the last time at its end: whoever trains does not ask then, for nothing is left to save.
    """
    if name not in PRUNERS:
        raise unknown("A pruner", name, PRUNERS)
    with silence():
        return PRUNERS[name](steps, reports)
