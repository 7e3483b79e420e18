"""Optuna's own figures of a study, interactive, on one page of HTML that needs no network."""

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuning.analysis import importances, trial_results
from tuning.analysis.tunability import BestOfK, Tunability
from tuning.plan import OBJECTIVE_NAMES

ERROR = OBJECTIVE_NAMES[0]
MAX_PARAMETERS = 6  # parameters that one figure can show
TITLES = {
    "history": "Complete trials in their order",
    "ranks": "Share of the complete trials up to an error",
    "slice": "Error by each parameter, complete trials",
    "parallel": "Complete trials that did not diverge",
    "importances": "Share of the explained variance, by fANOVA",
    "intermediate": "Complete and pruned trials by step",
    "pareto": "Error against cost, diverged trials left out",
}
FLAT_FROM = 2.0  # times the median: errors beyond it flatten all others on a linear axis
MARGIN = 0.05  # of an axis, on either side


def html_page(title: str, charts: dict[str, Any]) -> str:
    """Return figures as one page of HTML, with Plotly's program in it once."""
    parts = [
        chart.to_html(full_html=False, include_plotlyjs=not place, div_id=name)
        for place, (name, chart) in enumerate(charts.items())
    ]
    head = f"<head><meta charset='utf-8'><title>{html.escape(title)}</title></head>"
    return f"<!DOCTYPE html>\n<html>{head}<body>\n{''.join(parts)}\n</body></html>\n"


def optuna_charts(
    trials: Sequence[Any], measured: Tunability, start: str = "published"
) -> dict[str, Any]:
    """Return {name: Plotly figure} of every figure that these trials allow.

    History, ranks, slice and parallel coordinates need a complete trial, importances what fANOVA
    needs, intermediate values two reports of a trial, the Pareto front two objectives. `start` is
    what the study's own schedule is called.
    """
    from optuna import visualization as optunas
    from optuna.importance import FanovaImportanceEvaluator

    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    converged = [trial for trial in complete if not trial_results.has_diverged(trial)]
    charts: dict[str, Any] = {}
    titles = dict(TITLES)
    study = importances.build_study(trials)
    if complete:
        axis, beyond = axis_range([*map(trial_results.error_pct, complete)])
        titles |= {name: titles[name] + beyond for name in ("history", "ranks", "slice")}
        charts["history"] = optunas.plot_optimization_history(study, target_name=ERROR)
        charts["history"].update_yaxes(range=axis)
        charts["ranks"] = optunas.plot_edf(study, target_name=ERROR).update_xaxes(range=axis)
        if paper := measured.paper:
            charts["ranks"].add_vline(paper.error_pct, line_dash="dash")
            rank = f"rank {paper.rank} of {measured.finished_count}"
            titles["ranks"] += f"; dashed: {start}, {rank}"
    if names := frequent_parameters(complete):
        charts["slice"] = optunas.plot_slice(study, params=names, target_name=ERROR)
        charts["slice"].update_yaxes(range=axis)
    if names := frequent_parameters(converged):  # a diverged one would leave all one colour
        charts["parallel"] = optunas.plot_parallel_coordinate(
            importances.build_study(converged), params=names, target_name=ERROR
        )
    if not measured.no_importances:
        charts["importances"] = optunas.plot_param_importances(
            study,
            evaluator=FanovaImportanceEvaluator(seed=importances.SEED),
            params=importances.shared_parameters(complete),
        )
    finished = trial_results.finished_trials(study.trials)
    reports = [trial.intermediate_values.values() for trial in finished]
    if any(len(each) > 1 for each in reports):
        charts["intermediate"] = optunas.plot_intermediate_values(study)
        charts["intermediate"].update_yaxes(title=ERROR, type=axis_scale(chain(*reports)))
    if measured.front:
        offers = importances.build_study(converged, objectives=len(measured.front[0].values))
        charts["pareto"] = optunas.plot_pareto_front(offers)
    return {name: each.update_layout(title=titles[name]) for name, each in charts.items()}


def frequent_parameters(complete: Sequence[Any]) -> list[str]:
    """Return the parameters that most trials have, at most MAX_PARAMETERS; none of under half.

    Parameters of one schedule family would be lines to nowhere for all the others.
    """
    names = [name for trial in complete for name in trial.params]
    often = [name for name in dict.fromkeys(names) if 2 * names.count(name) >= len(complete)]
    return sorted(often, key=lambda name: -names.count(name))[:MAX_PARAMETERS]


def axis_range(errors: Sequence[float]) -> tuple[list[float] | None, str]:
    """Return the ends of an axis that a few bad trials do not flatten, and what lies beyond it.

    None where no trial would flatten the others.
    """
    shown = [error for error in errors if error <= FLAT_FROM * median(errors)]
    beyond = len(errors) - len(shown)
    if not beyond:
        return None, ""
    low, high = min(shown), max(shown)
    margin = MARGIN * (high - low) or 1.0
    words = f"; beyond the axis: {beyond}, of up to {max(errors):.0f} %"
    return [low - margin, high + margin], words


def axis_scale(values: Iterable[float]) -> str:
    """Return the scale of an axis of errors: "log" where a few bad ones would flatten the rest."""
    errors = [trial_results.clip_error(value) for value in values]
    flattened = min(errors) > 0 and max(errors) > FLAT_FROM * median(errors)
    return "log" if flattened else "linear"


TOP = 10
DASHES = ("--", ":", "-.", (0, (8, 2)), (0, (1, 3)))


class Schedule(NamedTuple):
    """A trial's table of learning rates, [steps], with what it came to."""

    label: str
    rates: NDArray[np.float64]
    error_pct: float
    published: bool = False


def study_figures(
    measured: Tunability, scheduled: Sequence[Schedule] = (), *, start: str = "published"
) -> dict[str, Any]:
    """Return {file name: matplotlib figure}; `start` is what the study's own schedule is called."""
    figures = {}
    if measured.drawn:
        paper_pct = None if measured.paper is None else measured.paper.error_pct
        figures["best_of_k.png"] = draw_best_of_k(
            {"drawn trials": measured.curve}, paper_pct, start
        )
    if scheduled:
        figures["schedules.png"] = draw_schedules(scheduled)
    return figures


def _axes(width: float = 7, **settings: Any) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, 4.5), layout="constrained").add_subplot(**settings)


def draw_best_of_k(
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


def draw_schedules(scheduled: Sequence[Schedule]) -> Any:
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
