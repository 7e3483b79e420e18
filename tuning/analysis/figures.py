"""Figures of a study that Optuna has not: best of k trials with bands, and the best schedules."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuning.analysis._optuna_figures import ERROR
from tuning.analysis.tunability import BestOfK, Tunability

TOP = 10
DASHES = ("--", ":", "-.", (0, (8, 2)), (0, (1, 3)))


class Schedule(NamedTuple):
    """A trial's table of learning rates, [steps], with what it came to."""

    label: str
    rates: NDArray[np.float64]
    error_pct: float
    published: bool = False


def own_figures(
    measured: Tunability, scheduled: Sequence[Schedule] = (), *, start: str = "published"
) -> dict[str, Any]:
    """Return {file name: matplotlib figure}; `start` is what the study's own schedule is called."""
    figures = {}
    if measured.drawn:
        own = None if measured.paper is None else measured.paper.error_pct
        figures["best_of_k.png"] = best_of_k({"drawn trials": measured.curve}, own, start)
    if scheduled:
        figures["schedules.png"] = schedules(scheduled)
    return figures


def _axes(width: float = 7, **settings: Any) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 4.5), layout="constrained").add_subplot(**settings)


def best_of_k(
    curves: Mapping[str, BestOfK], paper_pct: float | None = None, start: str = "published"
) -> Any:
    """Return the expected least error of k trials with its band, a colour a study."""
    axes = _axes(xlabel="trials k", ylabel=f"best {ERROR}")
    for label, curve in curves.items():
        k = np.arange(1, curve.expected.size + 1)
        (line,) = axes.plot(k, curve.expected, "o-", ms=3, label=label)
        axes.fill_between(k, curve.low, curve.high, color=line.get_color(), alpha=0.2, lw=0)
    if paper_pct is not None:
        axes.axhline(paper_pct, ls="--", color="grey", label=f"{start} schedule")
    axes.set_title("Expected best of k trials; bands hold 90 % of searches", fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize=9)
    return axes.figure


def schedules(scheduled: Sequence[Schedule]) -> Any:
    """Return the rates over progress of the ten best trials, and of those tried first, dashed."""
    ranked = sorted(scheduled, key=lambda each: each.error_pct)
    shown = [each for place, each in enumerate(ranked) if place < TOP or each.published]
    axes = _axes(9, yscale="log", xlabel="progress", ylabel="learning rate")
    colours, dashes = itertools.cycle(f"C{i}" for i in range(10)), itertools.cycle(DASHES)
    for each in shown:
        style = {"ls": next(dashes), "color": "k"} if each.published else {"color": next(colours)}
        progress = np.arange(len(each.rates)) / len(each.rates)
        axes.step(
            progress,
            each.rates,
            where="post",
            label=f"{each.error_pct:.2f} % {each.label}",
            **style,
        )
    peaks = [float(np.max(each.rates)) for each in shown]
    axes.set_ylim(min(peaks) / 1e3, max(peaks) * 1.5)  # the tails near 0 train no more
    axes.set_title(f"The best {min(TOP, len(ranked))}; dashed: tried first", fontsize=10)
    axes.figure.legend(loc="outside right upper", fontsize=8)
    return axes.figure
