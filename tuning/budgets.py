"""Whether a cheap budget ranks settings as the full one does.

Arrays hold validation errors in percent, one entry a setting, at a short and at the full budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipelines.errors import UserError
from tuning import outcomes
from tuning.tunability import BAND

Array = NDArray[np.float64]
Numbers = dict[str, float]
ByShare = Mapping[float, Numbers]  # correlations by share of the full budget
RESAMPLES = 500
LEAST = 5  # settings; fewer are ranked alike by chance
TOP = 0.2  # share of the settings that a user would train in full


def spearman(short: Array, long: Array) -> float:
    """Rank correlation, ties at their mean rank; NaN where all errors of a budget are equal."""
    from scipy.stats import spearmanr

    return float(spearmanr(short, long).statistic) if _vary(short, long) else math.nan


def kendall(short: Array, long: Array) -> float:
    """Tau-b, which allows for the ties of trials that diverged; NaN as `spearman`."""
    from scipy.stats import kendalltau

    return float(kendalltau(short, long).statistic) if _vary(short, long) else math.nan


def _vary(*columns: Array) -> bool:
    return all(np.ptp(column) > 0 for column in columns)


def top_overlap(short: Array, long: Array) -> float:
    """Share of the best fifth in full that is in the best fifth in short; means over broken ties.

    The best fifth of n settings are max(1, round(n / 5)).
    """
    top = max(1, round(TOP * short.size))
    return float(_chance_of_top(short, top) @ _chance_of_top(long, top) / top)


def _chance_of_top(errors: Array, top: int) -> Array:
    """Of each setting, the probability to be among the `top` best, ties broken at random; [n]."""
    limit = np.sort(errors)[top - 1]
    inside, tied = errors < limit, errors == limit
    return np.asarray(np.where(tied, (top - inside.sum()) / tied.sum(), inside), dtype=np.float64)


def regret(short: Array, long: Array) -> float:
    """Points of full error that are lost by training only the best in short; mean over its ties."""
    return float((long[short == short.min()] - long.min()).mean())


MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "spearman": spearman,
    "kendall": kendall,
    "top_overlap": top_overlap,
    "regret_pct": regret,
}


def correlation(short: ArrayLike, long: ArrayLike, seed: int = 0) -> Numbers:
    """MEASURES of two budgets' errors, [n] each, bands of 5-95 % over resamples of the settings.

    {"n", "spearman", "ci_low/spearman", ...}; a correlation that does not exist is left out.
    UserError for unequal shapes or under LEAST settings. Errors that are not finite are 100.
    """
    x, y = _columns(short, long)
    draws = np.random.default_rng(seed).integers(x.size, size=(RESAMPLES, x.size))
    found: Numbers = {"n": float(x.size)}
    for name, measure in MEASURES.items():
        value = measure(x, y)
        if math.isfinite(value):
            resampled = np.array([measure(x[draw], y[draw]) for draw in draws])
            low, high = np.nanquantile(resampled, BAND)
            found |= {name: value, f"ci_low/{name}": float(low), f"ci_high/{name}": float(high)}
    return found


def _columns(short: ArrayLike, long: ArrayLike) -> tuple[Array, Array]:
    x, y = (np.asarray(errors, dtype=np.float64) for errors in (short, long))
    if x.ndim != 1 or x.shape != y.shape or x.size < LEAST:
        raise UserError(
            f"Two budgets are compared by one error each of {LEAST} settings or more. Received: "
            f"shapes {x.shape} and {y.shape}. Train the same settings at both."
        )
    bound = np.vectorize(outcomes.bounded, otypes=[np.float64])
    return bound(x), bound(y)


def from_curves(trials: Sequence[Any], seed: int = 0) -> dict[float, Numbers]:
    """{share of the run: correlation of the errors reported there with the final ones}.

    Free for every study: of its complete trials that tell their "steps", at shares in (0, 1] that
    LEAST of them reported. A trial that had diverged by then counts with 100 %. Where the study
    prunes, only survivors are compared, among which ranks agree less. Mid-run values are of rates
    that have not come down yet: a separate short run of the compressed schedule may rank better.
    """
    done = outcomes.finished(trials)
    complete = [t for t in done if t.state.name == "COMPLETE" and "steps" in t.user_attrs]
    curves = [_by_share(trial) for trial in complete]
    final = np.array([outcomes.error(trial) for trial in complete])
    found: dict[float, Numbers] = {}
    for share in sorted({share for curve in curves for share in curve}):
        values = [
            _value(trial, curve, share) for trial, curve in zip(complete, curves, strict=True)
        ]
        known = ~np.isnan(values)
        if known.sum() >= LEAST:
            found[share] = correlation(np.array(values)[known], final[known], seed)
    return found


def _by_share(trial: Any) -> dict[float, float]:
    """The reported errors by share of the trial's steps, to the percent."""
    reports, steps = trial.intermediate_values, trial.user_attrs["steps"]
    return {round(step / steps, 2): outcomes.bounded(reports[step]) for step in sorted(reports)}


def _value(trial: Any, curve: Mapping[float, float], share: float) -> float:
    """What the trial had reported at that share of its run; NaN if nothing."""
    ended = trial.user_attrs.get("diverged", math.inf) / trial.user_attrs["steps"]
    return outcomes.LOST if ended <= share else curve.get(share, math.nan)


def figure(mid_run: ByShare, short_runs: ByShare, measure: str = "spearman") -> Any:
    """A measure with its band against the share of the budget, of both kinds of cheap budget."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(6.5, 4), layout="constrained").add_subplot(
        xlabel="share of the full budget", ylabel=f"{measure}, cheap against full"
    )
    kinds = {"value in mid-run": mid_run, "separate short run": short_runs}
    for (label, by_share), mark in zip(kinds.items(), ("o-", "s--"), strict=True):
        shares = sorted(share for share in by_share if measure in by_share[share])
        if shares:
            value, low, high = (
                [by_share[share][f"{end}{measure}"] for share in shares]
                for end in ("", "ci_low/", "ci_high/")
            )
            (line,) = axes.plot(shares, value, mark, label=label)
            axes.fill_between(shares, low, high, color=line.get_color(), alpha=0.15, lw=0)
            axes.vlines(shares, low, high, color=line.get_color(), lw=1)
    axes.set_xlim(0, 1.02)
    axes.axhline(0, color="grey", lw=0.8)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9)
    axes.set_title("Can a cheap budget be trusted? Bands: 5-95 % of resamples", fontsize=10)
    return axes.figure


def markdown(mid_run: ByShare, short_runs: ByShare) -> str:
    """A table of both kinds of cheap budget, and how to read it."""
    kinds = (("value in mid-run", mid_run), ("separate short run", short_runs))
    rows = [_row(label, by_share[s], s) for label, by_share in kinds for s in sorted(by_share)]
    if not rows:
        return f"No cheap budget can be judged: it takes {LEAST} complete trials that report.\n"
    lines = [
        "# Can a cheap budget be trusted?",
        "",
        "| budget | share | settings | Spearman | Kendall | best fifth shared | points lost |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        "Bands are 5-95 % of resamples. Spearman and Kendall: 1 ranks as the full budget does, 0 "
        "as chance. Best fifth shared: of the best fifth in full, what the cheap budget would have "
        "kept; chance keeps 0.2. Points lost: final error of the one it puts first, less the best "
        "there is. Trust it to discard settings where the low ends are well above chance, and to "
        "choose the last one only where the points lost are few. Pruned trials are not among them.",
    ]
    return "\n".join(lines) + "\n"


def _row(label: str, found: Numbers, share: float) -> str:
    cells = [label, f"{share:.2g}", f"{found['n']:.0f}", *(_cell(found, name) for name in MEASURES)]
    return f"| {' | '.join(cells)} |"


def _cell(found: Numbers, name: str) -> str:
    if name not in found:
        return ""
    low, high = found[f"ci_low/{name}"], found[f"ci_high/{name}"]
    return f"{found[name]:.2f} ({low:.2f} to {high:.2f})"
