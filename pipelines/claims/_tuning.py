"""Claims that one network is harder to tune than another: the same search for each, compared.

A trial is good whose validation error is at most a stated one, the same for every network. So that
this is a question of tuning, and not of what a network can reach at all, a claim is judged only
where some trial of every network has trained it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pipelines.claims._arms import SMOKE
from pipelines.claims._figures import panels
from pipelines.claims._search import Search
from pipelines.errors import UserError
from pipelines.measurement.claim import means
from pipelines.measurement.experiment import Experiment, Trainer
from pipelines.measurement.grid import Curves, Measured
from pipelines.measurement.verdict import BROKEN, HOLDS, INCONCLUSIVE, Bound, LearningLimit
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden
from pipelines.runtime.subcommands import run_json

GOOD = ("good_share", "good_rate_decades")  # not there where no trial was drawn
NUMBERS = (*GOOD, "diverged_share", "best_val_error_pct")
LEAST_SHARE = 0.2  # two of seven trials: the smallest loss that would matter
WORST_BEST = "worst_best_val_error_pct"  # the network whose best trial errs most
LEARNED_PCT = 30.0  # we judge below this error on CIFAR-10; guessing is 90


@dataclass(frozen=True, kw_only=True)
class TuningSearch(Search):
    """The network, the search that each of its variants gets, and which trials are good."""

    good_pct: float = LEARNED_PCT
    """Validation error up to which a trial is good, whichever the network."""
    trials: int = 8
    """Finished trials of a study, the published schedules among them."""
    space: Hidden[str] = "lr-only"
    sampler: Hidden[str] = "grid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.good_pct < 100:
            raise UserError(
                "good_pct must be an error in percent, 0 < good_pct < 100. Received: good_pct="
                f"{self.good_pct}. Set --good-pct accordingly."
            )


@dataclass(frozen=True)
class Unanimous(Bound):
    """A bound on which all searches must agree, for shares of seven rates come in steps of 1/7.

    If each search were the toss of a coin, three would agree one time in four, and one in eight on
    `holds`.
    """

    def verdict(self, values: Sequence[float]) -> str:
        """Return `holds` where every value holds, `broken` where none does."""
        holds = [self.at_least <= value <= self.at_most for value in values]
        if len(values) < 2 or len(set(holds)) > 1:
            return INCONCLUSIVE
        return HOLDS if holds[0] else BROKEN

    def deciding_interval(self, values: Sequence[float]) -> None:
        """Return None: every search decides."""


S = TypeVar("S", bound=TuningSearch)


def scales(kind: type[S]) -> dict[str, S]:
    """Return the settings of that kind at each scale."""
    return {
        "smoke": kind(**SMOKE, trials=3, workers=1, good_pct=89),
        "cpu": kind(steps=200, batch_size=64, blocks_per_stage=1, width=8, good_pct=80),
        "hours": kind(steps=12 * (45_000 // 128), blocks_per_stage=2, width=16),
        "paper": kind(space="lr-schedule", sampler="random", trials=100, good_pct=10),
    }


@dataclass(frozen=True)
class Variants:
    """Networks by name, of which `harder` is claimed to be harder to tune than `easier`."""

    labels: Mapping[str, str]
    harder: str
    easier: str
    recipes: Callable[[Any, int], dict[str, Recipe]]


def tuning_claim(variants: Variants, **card: Any) -> Experiment:
    """Return the claim that fewer trials train `harder` well; `card` has the fields of its own."""
    shown = [f"{arm}_{key}" for arm in variants.labels for key in NUMBERS]
    return Experiment(
        decided_by=(Unanimous("share_lost", at_least=LEAST_SHARE),),
        limits=(LearningLimit((WORST_BEST,), at_most=LEARNED_PCT),),
        measure=lambda setting, seed, trainer: measure(variants, setting, seed, trainer),
        derive=lambda *_: ([], {}),  # it records no training
        recipes=variants.recipes,
        extra_metrics=means("share_lost", "decades_lost", WORST_BEST, *shown),
        figure=lambda measured, _: figure(variants.labels, measured),
        charts=tuple((f"{arm}_best_of_k_pct",) for arm in variants.labels),
        seeds=3,
        **card,
    )


def measure(variants: Variants, setting: TuningSearch, seed: int, trainer: Trainer) -> Curves:
    """Return over k the error of the best of k trials; the numbers of all searches, constant."""
    recipes = variants.recipes(setting, seed)
    names = {arm: setting.study("tuning", each)["study"] for arm, each in recipes.items()}
    for name in names.values():
        trainer.study(name)
    comparison = run_json("tuning", "compare", *names.values(), "--good-pct", str(setting.good_pct))
    metrics = {study["study"]: study["metrics"] for study in comparison["studies"]}
    curves = {
        f"{arm}_best_of_k_pct": np.array(comparison["best_of_k"][name]["expected"])
        for arm, name in names.items()
    }
    most = min(map(len, curves.values()))  # trials whose point the sampler drew
    if most == 0:
        raise UserError(
            "A search must draw trials beside the published schedules. Received: --trials "
            f"{setting.trials}, of which it drew none. Set --trials higher."
        )
    single = compare_networks(variants, {arm: metrics[name] for arm, name in names.items()})
    constant = {key: np.full(most, value) for key, value in single.items()}
    return range(1, most + 1), {key: curve[:most] for key, curve in curves.items()} | constant


def compare_networks(
    variants: Variants, metrics: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return the numbers of all networks, and what `harder` has less of than `easier`."""
    numbers = {
        f"{arm}_{key}": (dict.fromkeys(GOOD, 0.0) | dict(metrics[arm]))[key]
        for arm in variants.labels
        for key in NUMBERS
    }
    lost = {
        name: numbers[f"{variants.easier}_{key}"] - numbers[f"{variants.harder}_{key}"]
        for name, key in zip(("share_lost", "decades_lost"), GOOD, strict=True)
    }
    worst = max(numbers[f"{arm}_best_val_error_pct"] for arm in variants.labels)
    return numbers | lost | {WORST_BEST: worst}


def figure(labels: Mapping[str, str], measured: Sequence[Measured]) -> Any:
    """Return the expected error of the best of k trials, a line a search, a colour a network."""
    picture, axes = panels(1, 7, 4.5)
    axes.set(xlabel="trials k", ylabel="best validation error (%)")
    for i, (arm, label) in enumerate(labels.items()):
        curves = [m.curves[f"{arm}_best_of_k_pct"] for m in measured]
        for m, curve in zip(measured, curves, strict=True):
            axes.plot(m.steps, curve, color=f"C{i}", alpha=0.3, lw=1)
        shortest = min(map(len, curves))
        mean = np.mean([curve[:shortest] for curve in curves], axis=0)
        share, decades = (np.mean([m.curves[f"{arm}_{key}"][0] for m in measured]) for key in GOOD)
        shown = f"{label}: {100 * share:.0f} % good, over {decades:.2f} decades of rates"
        axes.plot(np.arange(1, shortest + 1), mean, color=f"C{i}", lw=3, label=shown)
    good_pct = measured[0].cell.point["good_pct"]
    axes.axhline(good_pct, color="k", ls="--", lw=1, label=f"a good trial: {good_pct:g} %")
    axes.set_title(f"{len(measured)} searches each; thick: their mean", fontsize=10)
    axes.legend(loc="upper right", fontsize=8)
    return picture
