"""Optuna's own figures of a study, interactive, on one page of HTML that needs no network."""

import html
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from tuning import importances, outcomes
from tuning.plan import METRICS
from tuning.storage import quiet
from tuning.tunability import Tunability

ERROR = METRICS[0]
MOST = 6  # parameters that one figure can show
FLATTENED = 2.0  # times the median: errors beyond it flatten all others on a linear axis


def page(title: str, charts: dict[str, Any]) -> str:
    """Return figures as one page of HTML, with Plotly's program in it once."""
    parts = [
        chart.to_html(full_html=False, include_plotlyjs=not place, div_id=name)
        for place, (name, chart) in enumerate(charts.items())
    ]
    head = f"<head><meta charset='utf-8'><title>{html.escape(title)}</title></head>"
    return f"<!DOCTYPE html>\n<html>{head}<body>\n{''.join(parts)}\n</body></html>\n"


def charts(
    trials: Sequence[Any], measured: Tunability, start: str = "published", seed: int = 0
) -> dict[str, Any]:
    """Return {name: Plotly figure} of every figure that these trials allow.

    History, ranks, slice and parallel coordinates need a complete trial, importances what fANOVA
    needs, intermediate values two reports of a trial, the Pareto front two objectives.
    """
    complete = _complete(trials)
    converged = [trial for trial in complete if not outcomes.diverged(trial)]
    reported = any(len(trial.intermediate_values) > 1 for trial in outcomes.finished(trials))
    wanted: list[tuple[str, bool, Callable[[], Any]]] = [
        ("history", bool(complete), lambda: _history(trials)),
        ("ranks", bool(complete), lambda: _ranks(complete, measured, start)),
        ("slice", bool(common(complete)), lambda: _slice(trials)),
        ("parallel", bool(common(converged)), lambda: _parallel(converged)),
        ("importances", not importances.obstacle(trials), lambda: _importances(trials, seed)),
        ("intermediate", reported, lambda: _intermediate(trials)),
        ("pareto", bool(outcomes.front(trials)), lambda: _pareto(trials)),
    ]
    with quiet():
        return {name: draw() for name, possible, draw in wanted if possible}


def common(complete: Sequence[Any]) -> list[str]:
    """Return at most `MOST` parameters, those that most trials have first; none of under half.

    Parameters of one schedule family would be lines to nowhere for all the others.
    """
    held = [name for trial in complete for name in trial.params]
    often = [name for name in dict.fromkeys(held) if 2 * held.count(name) >= len(complete)]
    return sorted(often, key=lambda name: -held.count(name))[:MOST]


def _complete(trials: Sequence[Any]) -> list[Any]:
    return [trial for trial in trials if trial.state.name == "COMPLETE"]


def scale(values: Iterable[float]) -> str:
    """Return the scale of an axis of errors: "log" where a few bad ones would flatten the rest."""
    errors = [outcomes.bounded(value) for value in values]
    flattened = min(errors) > 0 and max(errors) > FLATTENED * median(errors)
    return "log" if flattened else "linear"


def _history(trials: Sequence[Any]) -> Any:
    from optuna.visualization import plot_optimization_history

    chart = plot_optimization_history(importances.study_of(trials), target_name=ERROR)
    chart.update_layout(title="Complete trials in their order")
    return chart.update_yaxes(type=scale(map(outcomes.error, _complete(trials))))


def _ranks(complete: Sequence[Any], measured: Tunability, start: str) -> Any:
    """Return the share of trials up to each error, with the place of the study's own schedule."""
    from optuna.visualization import plot_edf

    chart = plot_edf(importances.study_of(complete), target_name=ERROR)
    chart.update_layout(title="Share of the complete trials up to an error")
    chart.update_xaxes(type=scale(map(outcomes.error, complete)))
    if measured.paper:
        place = f"{start}: rank {measured.paper.rank} of {measured.finished}"
        chart.add_vline(measured.paper.error_pct, line_dash="dash", annotation_text=place)
    return chart


def _slice(trials: Sequence[Any]) -> Any:
    from optuna.visualization import plot_slice

    complete = _complete(trials)
    study = importances.study_of(trials)
    chart = plot_slice(study, params=common(complete), target_name=ERROR)
    chart.update_layout(title="Error by each parameter, complete trials")
    return chart.update_yaxes(type=scale(map(outcomes.error, complete)))


def _parallel(converged: Sequence[Any]) -> Any:
    """Return it without the trials that diverged, which would leave one colour for the others."""
    from optuna.visualization import plot_parallel_coordinate

    study = importances.study_of(converged)
    chart = plot_parallel_coordinate(study, params=common(converged), target_name=ERROR)
    return chart.update_layout(title="Complete trials that did not diverge")


def _importances(trials: Sequence[Any], seed: int) -> Any:
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import plot_param_importances

    chart = plot_param_importances(
        importances.study_of(trials),
        evaluator=FanovaImportanceEvaluator(seed=seed),
        params=importances.shared(_complete(trials)),
    )
    return chart.update_layout(title="Share of the explained variance, by fANOVA")


def _intermediate(trials: Sequence[Any]) -> Any:
    from optuna.visualization import plot_intermediate_values

    study = importances.study_of(trials)
    values = [value for trial in study.trials for value in trial.intermediate_values.values()]
    chart = plot_intermediate_values(study)
    chart.update_layout(title="Complete and pruned trials", xaxis_title="step")
    return chart.update_yaxes(title=ERROR, type=scale(values))


def _pareto(trials: Sequence[Any]) -> Any:
    from optuna.visualization import plot_pareto_front

    kept = [trial for trial in trials if not outcomes.diverged(trial)]
    chart = plot_pareto_front(importances.study_of(kept, objectives=2))
    chart.update_layout(title="Error against cost, diverged trials left out")
    return chart.update_xaxes(type=scale(map(outcomes.error, _complete(kept))))
