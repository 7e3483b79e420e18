"""Optuna's own pictures of a study, without what pyplot leaves behind."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tuning import importances, outcomes
from tuning.database import quiet

ERROR = "validation error (%)"
MOST = 6  # parameters that one picture can show
BEST = 5  # trials that have colours among their curves
STYLE = {"figure.constrained_layout.use": True}
Figures = dict[str, Any]


@contextmanager
def _pyplot() -> Iterator[None]:
    """Optuna draws by pyplot: on Agg, and its style and backend are the caller's again afterwards.

    Its warnings that these functions are experimental are dropped.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    backend = mpl.get_backend(auto_select=False)
    with warnings.catch_warnings(), quiet(), mpl.rc_context(STYLE):
        warnings.simplefilter("ignore")
        plt.switch_backend("agg")
        try:
            yield
        finally:
            if backend:
                plt.switch_backend(backend)


def figures(trials: Sequence[Any], seed: int = 0) -> Figures:
    """{file name: figure} of every picture that these trials allow; shows the first objective.

    History, slice and parallel coordinates need a complete trial, importances what fANOVA needs,
    intermediate values two reports of a trial, the Pareto front two objectives.
    """
    complete = _complete(trials)
    converged = [trial for trial in complete if not outcomes.diverged(trial)]
    reported = any(len(trial.intermediate_values) > 1 for trial in outcomes.finished(trials))
    wanted: list[tuple[str, bool, Callable[[], Any]]] = [
        ("history.png", bool(complete), lambda: _history(trials)),
        ("slice.png", bool(common(complete)), lambda: _slice(trials)),
        ("parallel.png", bool(common(converged)), lambda: _parallel(trials)),
        ("importances.png", not importances.obstacle(trials), lambda: _importances(trials, seed)),
        ("intermediate.png", reported, lambda: _intermediate(trials)),
        ("pareto.png", bool(outcomes.front(trials)), lambda: _pareto(trials)),
    ]
    return {name: _drawn(draw) for name, possible, draw in wanted if possible}


def common(complete: Sequence[Any]) -> list[str]:
    """At most `MOST` parameters, those that most trials have first; none of under half of them.

    Parameters of one schedule family would be lines to nowhere for all the others.
    """
    held = [name for trial in complete for name in trial.params]
    often = [name for name in dict.fromkeys(held) if 2 * held.count(name) >= len(complete)]
    return sorted(often, key=lambda name: -held.count(name))[:MOST]


def _complete(trials: Sequence[Any]) -> list[Any]:
    return [trial for trial in trials if trial.state.name == "COMPLETE"]


def _drawn(draw: Callable[[], Any]) -> Any:
    """The figure of what `draw` returns, laid out in Optuna's style and unknown to pyplot."""
    from matplotlib import pyplot as plt

    with _pyplot():
        figure = np.ravel(draw())[0].figure
        figure.draw_without_rendering()  # ticks take their style as they are first drawn
        plt.close(figure)
    return figure


def _history(trials: Sequence[Any]) -> Any:
    from optuna.visualization.matplotlib import plot_optimization_history

    axes = plot_optimization_history(importances.study_of(trials), target_name=ERROR)
    axes.figure.set_size_inches(8, 4)
    axes.set_title("Complete trials")
    axes.legend(fontsize=9)
    return axes


def _slice(trials: Sequence[Any]) -> Any:
    from optuna.visualization.matplotlib import plot_slice

    names = common(_complete(trials))
    study = importances.study_of(trials)
    all_axes = np.ravel(plot_slice(study, params=names, target_name=ERROR))
    all_axes[0].figure.suptitle("Complete trials")
    for axes in all_axes:
        axes.set_title("")
        for label in axes.get_xticklabels(which="both"):
            label.set(rotation=45, ha="right", rotation_mode="anchor", fontsize=9)
    return all_axes


def _parallel(trials: Sequence[Any]) -> Any:
    """Without those that diverged, whose 100 % would leave one colour for all the others."""
    from optuna.visualization.matplotlib import plot_parallel_coordinate

    kept = [trial for trial in _complete(trials) if not outcomes.diverged(trial)]
    names = common(kept)
    study = importances.study_of(kept)
    axes = plot_parallel_coordinate(study, params=names, target_name=ERROR)
    axes.figure.set_size_inches(4 + 1.8 * len(names), 5)
    axes.set_title("Complete trials that did not diverge", y=1.03)
    axes.tick_params(axis="x", labelrotation=0)
    for label in [label for other in axes.figure.axes for label in other.get_yticklabels()]:
        label.set_bbox({"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 1})
    return axes


def _importances(trials: Sequence[Any], seed: int) -> Any:
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization.matplotlib import plot_param_importances

    axes = plot_param_importances(
        importances.study_of(trials),
        FanovaImportanceEvaluator(seed=seed),
        importances.shared(_complete(trials)),
        target_name=ERROR,
    )
    axes.set_title("fANOVA importance", loc="left")
    axes.set(xlabel="share of the explained variance", ylabel="")
    axes.get_legend().remove()
    return axes


def _intermediate(trials: Sequence[Any]) -> Any:
    """The complete ones that ended best in colours of their own, all others grey."""
    from optuna.visualization.matplotlib import plot_intermediate_values

    axes = plot_intermediate_values(importances.study_of(trials))
    axes.figure.set_size_inches(8, 4.5)
    axes.set(title="Complete and pruned trials", ylabel=ERROR)
    lines = {line.get_label(): line for line in axes.lines}
    for line in axes.lines:
        line.set(color="0.6", lw=0.8, ms=3, zorder=1)
    best = sorted(_complete(trials), key=outcomes.error)
    shown = [f"Trial{trial.number}" for trial in best if trial.intermediate_values][:BEST]
    for colour, label in enumerate(shown):
        lines[label].set(color=f"C{colour}", lw=1.5, zorder=2)
    if shown:
        handles = [lines[label] for label in shown]
        axes.legend(handles, shown, title="best", fontsize=8)
    return axes


def _pareto(trials: Sequence[Any]) -> Any:
    from optuna.visualization.matplotlib import plot_pareto_front

    kept = [trial for trial in trials if not outcomes.diverged(trial)]
    names = [ERROR, "images trained on"]
    axes = plot_pareto_front(importances.study_of(kept, objectives=2), target_names=names)
    axes.set_title("Error against cost, diverged trials left out")
    return axes
