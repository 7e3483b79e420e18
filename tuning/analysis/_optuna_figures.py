"""Optuna's own figures of a study, interactive, on one page of HTML that needs no network."""

import html
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import median
from typing import Any

from tuning.analysis import _importances, outcomes
from tuning.analysis.tunability import Tunability
from tuning.optuna_log import quiet
from tuning.plan import METRICS

ERROR = METRICS[0]
MOST = 6  # parameters that one figure can show
TITLES = {
    "history": "Complete trials in their order",
    "ranks": "Share of the complete trials up to an error",
    "slice": "Error by each parameter, complete trials",
    "parallel": "Complete trials that did not diverge",
    "importances": "Share of the explained variance, by fANOVA",
    "intermediate": "Complete and pruned trials by step",
    "pareto": "Error against cost, diverged trials left out",
}
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
    needs, intermediate values two reports of a trial, the Pareto front two objectives. `start` is
    what the study's own schedule is called.
    """
    from optuna import visualization as optunas
    from optuna.importance import FanovaImportanceEvaluator

    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    converged = [trial for trial in complete if not outcomes.diverged(trial)]
    with quiet():
        drawn: dict[str, Any] = {}
        study = _importances.study_of(trials)
        if complete:
            errors = scale(map(outcomes.error, complete))
            drawn["history"] = optunas.plot_optimization_history(study, target_name=ERROR)
            drawn["history"].update_yaxes(type=errors)
            drawn["ranks"] = optunas.plot_edf(study, target_name=ERROR)
            drawn["ranks"].update_xaxes(type=errors)
        if names := common(complete):
            drawn["slice"] = optunas.plot_slice(study, params=names, target_name=ERROR)
            drawn["slice"].update_yaxes(type=errors)
        if names := common(converged):  # one that diverged would leave the others one colour
            drawn["parallel"] = optunas.plot_parallel_coordinate(
                _importances.study_of(converged), params=names, target_name=ERROR
            )
        if not _importances.obstacle(trials):
            drawn["importances"] = optunas.plot_param_importances(
                study,
                evaluator=FanovaImportanceEvaluator(seed=seed),
                params=_importances.shared(complete),
            )
        values = [trial.intermediate_values.values() for trial in outcomes.finished(study.trials)]
        if any(len(each) > 1 for each in values):
            drawn["intermediate"] = optunas.plot_intermediate_values(study)
            drawn["intermediate"].update_yaxes(title=ERROR, type=scale(chain(*values)))
        if front := outcomes.front(trials):
            kept = _importances.study_of(converged, objectives=len(front[0].values))
            drawn["pareto"] = optunas.plot_pareto_front(kept)
    titles = dict(TITLES)
    if complete and (own := measured.paper):
        drawn["ranks"].add_vline(own.error_pct, line_dash="dash")
        titles["ranks"] += f"; dashed: {start}, rank {own.rank} of {measured.finished}"
    return {name: each.update_layout(title=titles[name]) for name, each in drawn.items()}


def common(complete: Sequence[Any]) -> list[str]:
    """Return at most `MOST` parameters, those that most trials have first; none of under half.

    Parameters of one schedule family would be lines to nowhere for all the others.
    """
    held = [name for trial in complete for name in trial.params]
    often = [name for name in dict.fromkeys(held) if 2 * held.count(name) >= len(complete)]
    return sorted(often, key=lambda name: -held.count(name))[:MOST]


def scale(values: Iterable[float]) -> str:
    """Return the scale of an axis of errors: "log" where a few bad ones would flatten the rest."""
    errors = [outcomes.bounded(value) for value in values]
    flattened = min(errors) > 0 and max(errors) > FLATTENED * median(errors)
    return "log" if flattened else "linear"
