"""Pictures of a study: error against peak rate, best of k trials, the best schedules."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuning import optuna_figures, outcomes
from tuning.optuna_figures import ERROR, Figures
from tuning.tunability import BestOfK, Tunability

TOP = 10
DASHES = ("--", ":", "-.", (0, (8, 2)), (0, (1, 3)))


class Schedule(NamedTuple):
    """A trial's table of learning rates, [steps], with what it came to."""

    label: str
    rates: NDArray[np.float64]
    error_pct: float
    published: bool = False


def all_of(
    trials: Sequence[Any],
    found: Tunability,
    scheduled: Sequence[Schedule] = (),
    *,
    start: str = "published",
    seed: int = 0,
) -> Figures:
    """{file name: matplotlib figure}, Optuna's and ours; what the trials do not allow is left out.

    `found` measures these trials; `start` is what the study's own schedule is called, as of Plan.
    No figure belongs to pyplot.
    """
    pictures = optuna_figures.figures(trials, seed)
    if outcomes.finished(trials):
        pictures["rates.png"] = rates(trials, found, start)
    if found.drawn:
        own = None if found.paper is None else found.paper.error_pct
        pictures["best_of_k.png"] = best_of_k({"drawn trials": found.curve}, own, start)
    if scheduled:
        pictures["schedules.png"] = schedules(scheduled)
    return {name: picture for name, picture in pictures.items() if picture is not None}


def _axes(width: float = 7, **settings: Any) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 4.5), layout="constrained").add_subplot(**settings)


def best_of_k(
    curves: Mapping[str, BestOfK], paper_pct: float | None = None, start: str = "published"
) -> Any:
    """Expected least error of k trials with its band, a colour a study; the paper's, dashed."""
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


def rates(trials: Sequence[Any], found: Tunability, start: str = "published") -> Any:
    """Error against peak rate, a colour a schedule family, the region of good rates shaded.

    Pruned trials are hollow, diverged ones crosses, those that the study began with ringed. None
    without rates.
    """
    done = [trial for trial in outcomes.finished(trials) if "learning_rate" in trial.params]
    if not done:
        return None
    axes = _axes(8.5, xscale="log", xlabel="peak learning rate", ylabel=ERROR)
    for low, high in found.good.regions:
        if low < high:
            axes.axvspan(low, high, color="tab:green", alpha=0.12, lw=0)
    axes.axhline(found.good.limit_pct, color="tab:green", lw=1, label="good up to here")
    if found.paper:
        axes.axhline(found.paper.error_pct, ls="--", color="grey", label=f"{start} schedule")
    families = sorted({_family(trial) for trial in done})
    for colour, family in enumerate(families):
        _scatter(axes, [t for t in done if _family(t) == family], f"C{colour % 10}", family)
    _published(axes, done)
    axes.set_title("hollow: pruned; x: diverged; ringed: tried first", fontsize=10)
    axes.figure.legend(loc="outside right upper", fontsize=8)
    return axes.figure


def _family(trial: Any) -> str:
    return str(trial.params.get("schedule", "trials"))


def _scatter(axes: Any, trials: Sequence[Any], colour: str, label: str) -> None:
    """The trials of a family by how they ended; the family is named once."""
    for trial in trials:
        mark = "x" if outcomes.diverged(trial) else "o"
        face = "none" if trial.state.name == "PRUNED" else colour
        place = outcomes.rate(trial), outcomes.error(trial)
        axes.plot(*place, mark, color=colour, mfc=face, ms=6)
    axes.plot([], [], "o", color=colour, label=label)


def _published(axes: Any, trials: Sequence[Any]) -> None:
    ringed = [trial for trial in trials if not outcomes.drawn(trial)]
    places = [(outcomes.rate(trial), outcomes.error(trial)) for trial in ringed]
    if places:
        axes.plot(*zip(*places, strict=True), "o", color="k", mfc="none", ms=11)


def schedules(scheduled: Sequence[Schedule]) -> Any:
    """Learning rate over progress of the ten of least error, and of those tried first, dashed."""
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
