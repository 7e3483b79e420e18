"""Samplers, which choose a study's next point, and pruners: Optuna's, set for our spaces.

Trials cost minutes, so studies have tens of them, and spaces are conditional: a schedule's family
brings its own parameters. To add a sampler or a pruner, add its name and its case.
"""

import importlib.util
import warnings
from typing import Any

from pipelines.errors import UserError, unknown
from tuning.optuna_log import silence

SAMPLERS = ("tpe", "cmaes", "gp", "random", "grid", "nsga2")
PRUNERS = ("hyperband", "median", "none")
STARTUP_TRIALS = 10  # random trials before a model of the error is believed
POPULATION = 12  # trials; Optuna's 50 would be more than most studies have
REDUCTION_FACTOR = 3  # Hyperband goes on with one trial of so many
MEDIAN_STARTUP_TRIALS = 5  # whole trials before a median is believed
ONE_OBJECTIVE = ("cmaes", "grid")


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
            "Install it: pip install torch; or choose another --sampler."
        )


def make_sampler(name: str, seed: int) -> Any:
    """Return the Optuna sampler of that name; each trial takes another seed."""
    from optuna import samplers
    from optuna.samplers.nsgaii import BLXAlphaCrossover

    if name == "gp":
        # It computes on the CPU. With TensorFlow loaded first, PyTorch 2.13 asks TensorFlow's stub
        # of CUDA for GPUs, and warns (findings/tensorflow_cuda_stub.sh).
        warnings.filterwarnings("ignore", "CUDA initialization", UserWarning)
    with silence():
        match name:
            case "tpe":  # Bergstra et al. 2011, jointly in each family; apart from running trials
                return samplers.TPESampler(
                    seed=seed,
                    n_startup_trials=STARTUP_TRIALS,
                    multivariate=True,
                    group=True,
                    constant_liar=True,
                )
            case "cmaes":  # Hansen 2016, of the parameters of all families; the others at random
                return _make_cmaes(seed)
            case "gp":  # expected improvement, of the parameters of all families
                return samplers.GPSampler(
                    seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
                )
            case "nsga2":  # Deb et al. 2002; children between and beyond two parents, never equal
                return samplers.NSGAIISampler(
                    seed=seed,
                    population_size=POPULATION,
                    crossover=BLXAlphaCrossover(),
                    crossover_prob=1.0,
                )
            case _:  # random; and grid, whose points are enqueued
                return samplers.RandomSampler(seed=seed)


def _make_cmaes(seed: int) -> Any:
    """Return CMA-ES that computes its state from the trials: Optuna's own unpickles it from one.

    Whoever wrote the trial wrote the pickle. The state is the same, but for the space: where trials
    of another family have left fewer parameters that all share, it is of those. Private names of
    Optuna's here: `_restore_optimizer`, which is called first, `_init_optimizer` and
    `_get_solution_trials`.
    """
    from optuna.samplers import CmaEsSampler

    class CmaEsFromTrials(CmaEsSampler):
        def _restore_optimizer(self, completed_trials: list[Any]) -> None:
            self._complete = completed_trials

        def _init_optimizer(self, trans: Any, direction: Any) -> Any:
            cma = super()._init_optimizer(trans, direction)
            size = cma.population_size
            while len(told := self._get_solution_trials(self._complete, cma.generation)) >= size:
                cma.tell([(trans.transform(each.params), each.value) for each in told[:size]])
            return cma

    return CmaEsFromTrials(
        seed=seed,
        n_startup_trials=STARTUP_TRIALS,
        consider_pruned_trials=True,
        warn_independent_sampling=False,
    )


def make_pruner(name: str, *, steps: int, reports: int) -> Any:
    """Return the Optuna pruner of that name.

    A trial has so many optimizer steps and reports its validation error so many times, evenly,
    the last time at its end: whoever trains does not ask then, for nothing is left to save.
    """
    from optuna import pruners

    match name:
        case "hyperband":  # Li et al. 2018, from the first report's step to the last's
            return pruners.HyperbandPruner(
                min_resource=max(1, steps // reports),
                max_resource=steps,
                reduction_factor=REDUCTION_FACTOR,
            )
        case "median":  # ends what is at its best worse than the median of the others at that step
            return pruners.MedianPruner(n_startup_trials=MEDIAN_STARTUP_TRIALS)
        case _:
            return pruners.NopPruner()
