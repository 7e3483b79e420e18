"""The figure of arms: how each learns, and beside it the errors in which its seeds end."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.measurement.experiment import Training
from pipelines.measurement.grid import Array, Curve, mean_curve

LEARNING = {  # curve: what the legend calls it, line, opacity of the band
    "val_error_pct": ("validation error", "-", 0.15),
    "train_error_pct": ("training error, mean of an epoch", "--", 0.07),
    "seen_test_error_pct": ("test error, looked at while training", "-.", 0.15),
}
LABEL_CHARS, LEGEND_CHARS = 22, 40  # letters in a line of an arm's label
SPLIT_ROWS, SEED_ROWS = 0.4, 0.05  # distances between splits and between seeds, in arms


@dataclass(frozen=True)
class Arm:
    """The numbers of an arm that are drawn."""

    label: str
    errors: Mapping[str, Array]
    """Errors at the end by split, one a seed; NaN where the training diverged."""
    trainings: Sequence[Training | None]
    """Trainings, one a seed; None where none was recorded."""
    reported: Mapping[str, float] = field(default_factory=dict)
    """Errors that a source reports, by split."""

    def curves(self, metric: str, diverged: bool) -> list[Curve]:
        """Return a curve of every seed that has it, of those that diverged or of the others."""
        curves = [
            read_curve(training, metric)
            for training, error in zip(self.trainings, self.errors["test"], strict=True)
            if training and metric in training.curves and np.isnan(error) == diverged
        ]
        return [(steps, values) for steps, values in curves if len(steps)]


def read_curve(training: Training, metric: str) -> Curve:
    """Return the finite points of a curve.

    A training error is the mean of an epoch: that of an unfinished last one, of a few steps maybe,
    is left out.
    """
    finite = np.isfinite(training.curves[metric])
    steps, values = training.steps[finite], training.curves[metric][finite]
    is_cut = metric == "train_error_pct" and len(steps) > 1 and steps[-1] - steps[-2] < steps[0]
    return (steps[:-1], values[:-1]) if is_cut else (steps, values)


def draw(
    arms: Sequence[Arm], seeds: Sequence[int], beside: Callable[[Any], None] | None = None
) -> Any:
    """Draw the learning curves of the arms, where there are some, and their errors at the end.

    `beside` draws into a third panel, on learning curves too.
    """
    shown = [curve for arm in arms for metric in LEARNING for curve in arm.curves(metric, False)]
    learns = any(len(steps) > 1 for steps, _ in shown)
    lines = max(len(textwrap.wrap(arm.label, LABEL_CHARS)) for arm in arms)
    height = 1.3 + len(arms) * max(0.3 + 0.4 * len(arms[0].errors), 0.1 + 0.16 * lines)
    if not learns:
        picture, ends = panels(1, 7, height)
    else:
        extra = 1 if beside else 0
        size = 11.6 + 5 * extra, max(height + 0.9, 4.6)
        ratios = (5, 5, 4) if beside else (5, 4)
        picture, (learning, *others, ends) = panels(2 + extra, *size, width_ratios=ratios)
        draw_learning(learning, arms)
        if beside:
            beside(others[0])
        picture.legend(loc="outside lower center", ncols=3, fontsize=9)
    draw_ends(ends, arms, seeds)
    return picture


def draw_learning(axes: Any, arms: Sequence[Arm]) -> None:
    """Draw the mean and band of every arm's curves, and by itself what diverged, to a cross."""
    lost = [arm.curves(metric, diverged=True) for arm in arms for metric in LEARNING]
    for number, arm in enumerate(arms):
        colour = f"C{number}"
        for metric, (_, line, opacity) in LEARNING.items():
            for steps, values in arm.curves(metric, diverged=True):
                axes.plot(steps, values, line, color=colour, lw=1, alpha=0.5)
                axes.plot(steps[-1], values[-1], "x", color=colour)
            if curves := arm.curves(metric, diverged=False):
                steps, mean, sd = mean_curve(curves)
                axes.plot(steps, mean, line if len(steps) > 1 else ".", color=colour, lw=1.5)
                axes.fill_between(steps, mean - sd, mean + sd, color=colour, alpha=opacity, lw=0)
        axes.plot([], [], color=colour, label=textwrap.fill(arm.label, LEGEND_CHARS))
    for metric, (label, line, _) in LEARNING.items():
        if any(arm.curves(metric, diverged) for arm in arms for diverged in (False, True)):
            axes.plot([], [], f"k{line}", label=label)
    if any(lost):
        axes.plot([], [], "kx", label="diverged")
    axes.set(xlabel="step", ylabel="error (%)")
    axes.set_title("learning curves: mean ± sd over seeds", fontsize=10)


def draw_ends(axes: Any, arms: Sequence[Arm], seeds: Sequence[int]) -> None:
    """Draw a row an arm and split: a dot a seed, mean ± sd, and both as numbers beside it.

    A line joins what a seed has from arm to arm.
    """
    splits = list(arms[0].errors)
    shifts = SEED_ROWS * (np.arange(len(seeds)) - (len(seeds) - 1) / 2)
    for i, split in enumerate(splits):
        places = np.arange(len(arms)) + SPLIT_ROWS * (i - (len(splits) - 1) / 2)
        errors = np.array([arm.errors[split] for arm in arms])  # [arms, seeds]
        axes.plot(errors, places[:, None] + shifts, color="0.87", lw=0.7, zorder=0)
        for number, (arm, place) in enumerate(zip(arms, places, strict=True)):
            colour = f"C{number}"
            face = "none" if split == "train" else colour
            axes.scatter(errors[number], place + shifts, 22, ec=colour, fc=face, alpha=0.6)
            draw_mean(axes, place, errors[number], colour)
            if split in arm.reported:
                ends = (place - 0.2, place + 0.2)
                axes.vlines(arm.reported[split], *ends, color="k", ls="--", label="reported")
            text = describe(errors[number], seeds)
            beside = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            axes.annotate(f"{split} {text}", (1, place), (6, 0), va="center", fontsize=9, **beside)
    labels = [textwrap.fill(arm.label, LABEL_CHARS) for arm in arms]
    axes.set_yticks(range(len(arms)), labels, fontsize=9)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xlabel(f"{' and '.join(splits)} error (%)")
    dashes = "; dashes: as reported" if any(arm.reported for arm in arms) else ""
    axes.set_title(f"at the end: a dot a seed (n = {len(seeds)}), mean ± sd{dashes}", fontsize=10)


def draw_mean(axes: Any, place: float, errors: Array, colour: str) -> None:
    """Draw the mean of the errors [seeds] that are numbers, and a band of ± sd."""
    finite = errors[np.isfinite(errors)]
    if len(finite):
        axes.scatter(finite.mean(), place, 300, color=colour, marker="|", lw=2.5)
    if len(finite) > 1:
        mean, sd = finite.mean(), finite.std(ddof=1)
        axes.hlines(place, mean - sd, mean + sd, color=colour, lw=10, alpha=0.2)


def describe(errors: Array, seeds: Sequence[int]) -> str:
    """Return `4.89 ± 1.19 %` of the errors [seeds] that are numbers, and which diverged."""
    finite = errors[np.isfinite(errors)]
    if not len(finite):
        return "diverged with every seed"
    spread = f" ± {finite.std(ddof=1):.2f}" if len(finite) > 1 else ""
    lost = [str(seed) for seed, error in zip(seeds, errors, strict=True) if np.isnan(error)]
    names = f"\nseed{'s' * (len(lost) > 1)} {', '.join(lost)} diverged" if lost else ""
    return f"{finite.mean():.2f}{spread} %{names}"
