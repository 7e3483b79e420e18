"""At HM's size, depth and rate the usual initial weights diverge where HM's do not.

The convolutions have the kernel size k and c output channels.

Measured: the loss of the first 20 steps of HM's network as published (55 convolutions of 64 to 256
channels, 13.5 million weights, batches of 128 augmented pictures, rate 0.05 without warm-up), from
either start, with the same seeds, pictures and order. A training has diverged where, within these
steps, a batch's cross entropy is no longer finite or more than 10 times that of the first batch.
`standard_diverged` and `small_diverged` are the shares of the seeds, `standard_finite_steps` and
`small_finite_steps` the steps whose loss was finite. Most of the seeds must diverge from the usual
start, and not most from the small one, by the exact one-sided binomial interval of 95 %: five of
five are a share of 0.55 or more, three of three leave it open. How the two compare at rates that
each stands is `small-init-helps`. HM do not say that the usual start diverges: the claim is ours.
Its seeds begin at 200, for some of those before have been looked at.

This is the source's own network on its own data, so there is no limit of learning.

Run: python -m pipelines run standard-init-diverges
Expect: all five diverge from the standard start, whose loss is finite for two steps and never
after; from the small one none does, and all 20 losses are finite.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._arms import Arms
from pipelines.claims._figures import panels
from pipelines.errors import Diverged
from pipelines.measurement.experiment import Experiment, Trainer
from pipelines.measurement.grid import Curves, Measured
from pipelines.measurement.verdict import Bound
from pipelines.recipes.cost import hours
from pipelines.recipes.recipe import Recipe
from pipelines.running.seed_statistics import CONFIDENCE

LABELS = {"small": "1/(k² c)", "standard": "1/(k √c)"}
TIMES = 10.0  # the first batch's loss: batches of one network differ by far less
MOST = 0.5  # share of the seeds


@dataclass(frozen=True)
class ShareBound(Bound):
    """A bound on the share of seeds of which something is true, 0 or 1 a seed."""

    def mean_interval(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the ends of the two exact one-sided binomial intervals."""
        from scipy.stats import binomtest

        count, n = round(sum(values)), len(values)
        above, below = (
            binomtest(count, n, alternative=side).proportion_ci(CONFIDENCE)
            for side in ("greater", "less")
        )
        return above.low, below.high


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The network as published, and its first steps."""

    steps: int = 20
    """Optimizer steps, all of them at the published schedule's first rate."""


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return the first steps from small and from standard initial weights."""
    small = setting.base(seed).override(schedule="constant")
    return {"small": small, "standard": small.override(model_args={"init": "standard"})}


def measure(setting: Setting, seed: int, trainer: Trainer) -> Curves:
    """Return the loss of every batch from either start."""
    arms = recipes(setting, seed)
    curves = {f"{arm}_loss": batch_losses(recipe) for arm, recipe in arms.items()}
    return range(1, setting.steps + 1), curves


def batch_losses(recipe: Recipe) -> NDArray[np.float64]:
    """Return the cross entropy of every batch [steps], infinite once the loss is not finite.

    No test picture is read, and of the validation pictures one batch.
    """
    from pipelines.data import datasets
    from pipelines.runtime import backend

    backend.keras()
    from pipelines.training import devices
    from pipelines.training.job import build_job
    from pipelines.training.train import train

    splits = datasets.load(recipe.data)
    few = dataclasses.replace(splits, val=splits.val.head(recipe.batch_size))
    losses = np.full(recipe.steps or 0, np.inf)

    def log(metrics: Mapping[str, float], step: int) -> None:
        if "batch_loss" in metrics:
            losses[step - 1] = metrics["batch_loss"]

    with contextlib.suppress(Diverged):
        train(build_job(recipe, few, devices.place(recipe.devices)), log, test=False)
    return losses


def has_diverged(losses: NDArray[np.float64]) -> bool:
    """Return whether a loss is not finite, or more than TIMES the first."""
    return bool(np.any(~np.isfinite(losses) | (losses > TIMES * losses[0])))


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the shares of diverged trainings and the means of their finite steps."""
    losses = {arm: [m.curves[f"{arm}_loss"] for m in measured] for arm in LABELS}
    shares = {
        f"{arm}_diverged": float(np.mean([*map(has_diverged, losses[arm])])) for arm in LABELS
    }
    finite = {
        f"{arm}_finite_steps": float(np.mean([np.isfinite(curve).sum() for curve in losses[arm]]))
        for arm in LABELS
    }
    return shares | finite


def figure(measured: Sequence[Measured]) -> Any:
    """Draw the loss of every batch from either start, a line a seed, up to its last finite one."""
    picture, axes = panels(1, 6, 4)
    axes.set(xlabel="step", ylabel="cross entropy of the batch", yscale="log")
    for colour, (arm, label) in zip(("C0", "C1"), LABELS.items(), strict=True):
        for m in measured:
            curve = m.curves[f"{arm}_loss"]
            axes.plot(
                m.steps, np.where(np.isfinite(curve), curve, np.nan), "o-", color=colour, ms=3
            )
        diverged = sum(has_diverged(m.curves[f"{arm}_loss"]) for m in measured)
        axes.plot([], [], "o-", color=colour, ms=3, label=f"{label}: {diverged} diverged")
    axes.set_xlim(0, len(measured[0].steps) + 1)
    axes.set_xticks(range(0, len(measured[0].steps) + 1, max(1, len(measured[0].steps) // 4)))
    axes.set_title(f"{len(measured)} seeds; lines end with the last finite loss", fontsize=10)
    axes.legend(fontsize=9)
    return picture


CLAIM = Experiment(
    source="ours, after HM section 4.1",
    says="HM's network at HM's rate diverges from initial weights of standard deviation 1/(k √c) "
    "in the residual convolutions, and not from 1/(k² c)",
    formula=r"\begin{split} &\Pr[\text{diverged} \mid \sigma = 1/(k \sqrt{c})] \ge \tfrac12,\quad "
    r"\Pr[\text{diverged} \mid \sigma = 1/(k^2 c)] \le \tfrac12, \\ "
    r"&\text{diverged: in 20 steps some } L_t \text{ is not finite or } L_t > 10\, L_1, \\ "
    r"&\text{each by the exact one-sided binomial interval of } 95\,\% \end{split}",
    scales={
        "smoke": Setting(data="digits", steps=4, batch_size=32, blocks_per_stage=1, width=4),
        "cpu": Setting(first_seed=200),
    },
    decided_by=(
        ShareBound("standard_diverged", at_least=MOST),
        ShareBound("small_diverged", at_most=MOST),
    ),
    unjudged_scales=("smoke",),
    costs={"cpu": hours(1, 2)},
    measure=measure,
    derive=lambda *_: ([], {}),  # it records no training
    recipes=recipes,
    extra_metrics=extra_metrics,
    figure=lambda measured, _: figure(measured),
    charts=(("standard_loss", "small_loss"),),
)
