"""Whether a cheap budget ranks settings as the full one does.

Arrays hold validation errors in percent, one entry a setting, at a short and at the full budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipelines.errors import UserError, check_counts
from pipelines.recipes import checks
from pipelines.recipes.recipe import Recipe
from pipelines.running.run import run
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import tracked_run
from tuning import catalog
from tuning.analysis import trial_results
from tuning.analysis.tunability import BAND
from tuning.execution.trial import UNWATCHED
from tuning.plan import OBJECTIVE, Plan, shorten
from tuning.storage import storage

Array = NDArray[np.float64]
Numbers = dict[str, float]
RESAMPLES = 500
MIN_SETTINGS = 5  # settings; fewer are ranked alike by chance
TOP_SHARE = 0.2  # share of the settings that a user would train in full


def spearman(short: Array, long: Array) -> float:
    """Return the rank correlation, ties at their mean rank; NaN where all errors are equal."""
    from scipy.stats import rankdata

    if not (np.ptp(short) and np.ptp(long)):
        return math.nan
    return float(np.corrcoef(rankdata([short, long], axis=1))[0, 1])


def top_overlap(short: Array, long: Array) -> float:
    """Return the share of the best fifth in full that is in the best fifth in short.

    The best fifth of n settings are max(1, round(n / 5)); the mean over broken ties.
    """
    top = max(1, round(TOP_SHARE * short.size))
    return float(_chance_of_top(short, top) @ _chance_of_top(long, top) / top)


def _chance_of_top(errors: Array, top: int) -> Array:
    """Return the probability of each setting to be among the `top` best, ties at random; [n]."""
    limit = np.sort(errors)[top - 1]
    inside, tied = errors < limit, errors == limit
    return np.asarray(np.where(tied, (top - inside.sum()) / tied.sum(), inside), dtype=np.float64)


def regret(short: Array, long: Array) -> float:
    """Return the points of full error that are lost by training only the best in short.

    Of several that are best in short the mean.
    """
    return float((long[short == short.min()] - long.min()).mean())


MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "spearman": spearman,
    "top_overlap": top_overlap,
    "regret_pct": regret,
}


def correlation(short: ArrayLike, long: ArrayLike, seed: int = 0) -> Numbers:
    """Return MEASURES of two budgets' errors, [n] each, with bands over resamples of the settings.

    {"n", "spearman", "ci_low/spearman", ...}; a correlation that does not exist is left out. Raise
    UserError for unequal shapes or under MIN_SETTINGS settings. Errors that are not finite are 100.
    """
    x, y = (np.asarray(errors, dtype=np.float64) for errors in (short, long))
    if x.ndim != 1 or x.shape != y.shape or x.size < MIN_SETTINGS:
        raise UserError(
            f"Two budgets are compared by one error each of {MIN_SETTINGS} settings or more. "
            f"Received: shapes {x.shape} and {y.shape}. Train the same settings at both."
        )
    x, y = map(np.vectorize(trial_results.clip_error, otypes=[np.float64]), (x, y))
    draws = np.random.default_rng(seed).integers(x.size, size=(RESAMPLES, x.size))
    numbers: Numbers = {"n": float(x.size)}
    for name, measure in MEASURES.items():
        value = measure(x, y)
        if math.isfinite(value):
            resampled = np.array([measure(x[draw], y[draw]) for draw in draws])
            low, high = np.nanquantile(resampled, BAND)
            numbers |= {name: value, f"ci_low/{name}": float(low), f"ci_high/{name}": float(high)}
    return numbers


def markdown(by_share: Mapping[float, Numbers]) -> str:
    """Return a table of the correlations by share of the full budget, and how to read it."""
    lines = [
        "# Can a cheap budget be trusted?",
        "",
        "| share | settings | Spearman | best fifth shared | points lost |",
        "|---:|---:|---:|---:|---:|",
        *(_row(share, by_share[share]) for share in sorted(by_share)),
        "",
        "Bands are 5-95 % of resamples. Spearman: 1 ranks as the full budget does, 0 as chance. "
        "Best fifth shared: of the best fifth in full, what the cheap budget would have kept; "
        "chance keeps about a fifth. Resamples repeat settings, which lowers its low end: to 0.67 "
        "for 12 settings that both budgets rank alike. Points lost: final error of the one it puts "
        "first, less the best there is. Trust it to discard settings where the low ends are well "
        "above chance, and to choose the last one only where the points lost are few. Pruned "
        "trials are not among them.",
    ]
    return "\n".join(lines) + "\n"


def _row(share: float, numbers: Numbers) -> str:
    cells = [f"{share:.2g}", f"{numbers['n']:.0f}"]
    for name in MEASURES:
        low, high = numbers.get(f"ci_low/{name}"), numbers.get(f"ci_high/{name}")
        band = f"{numbers[name]:.2f} ({low:.2f} to {high:.2f})" if name in numbers else ""
        cells.append(band)
    return f"| {' | '.join(cells)} |"


def compare_budgets(
    name: str, shares: Sequence[float], count: int, where: str | None = None
) -> dict[str, Any]:
    """Train `count` of the study's trials, evenly by rank, at these shares of its budget.

    Return how their errors rank against the full ones, by share. What has been trained is not
    repeated.
    """
    check_counts(trials=count)
    if not shares or not all(0 < share < 1 for share in shares):
        raise UserError(
            "A short run takes a share of the study's budget, between 0 and 1. Received: "
            f"{list(shares)}. Set --shares accordingly."
        )
    study, shares = catalog.load(name, storage.resolve_url(where)), list(dict.fromkeys(shares))
    plan = Plan.to_continue(study)
    checks.check_here(plan.base)
    finished = trial_results.finished_trials(study.get_trials(deepcopy=False))
    complete = sorted(
        (t for t in finished if t.state.name == "COMPLETE"), key=trial_results.error_pct
    )
    count = min(count, len(complete))
    if count < MIN_SETTINGS:
        raise UserError(
            f"Ranks are compared of {MIN_SETTINGS} trials or more. Received: {count} of study "
            f"{name}, which has {len(complete)} complete ones. Set --trials higher, or resume it."
        )
    # evenly by rank, the best and the worst among them
    trials = [complete[round(i * (len(complete) - 1) / (count - 1))] for i in range(count)]
    recipes = {  # UserError before a run is opened
        (share, trial.number): shorten(plan.recipe_of(trial), share)
        for share in shares
        for trial in trials
    }
    full = [trial_results.error_pct(trial) for trial in trials]
    with tracked_run.track(
        f"{name} budgets",
        experiment=catalog.EXPERIMENT,
        kind="budgets",
        params={"shares": shares, "trials": len(trials)},
        tags={"study": name},
    ) as tracked:
        by_trial = _train_all(recipes, plan.seeds, tracked)
        errors = {share: [by_trial[share, trial.number] for trial in trials] for share in shares}
        ranked = {share: correlation(errors[share], full) for share in shares}
        text = markdown(ranked)
        tracked.text(text, "budgets.md")
        for share, numbers in ranked.items():
            tracked.log(numbers, round(100 * share))
    return {
        "study": name,
        "run_id": tracked.id,
        "trials": [trial.number for trial in trials],
        "full": full,
        "short": {str(share): {"errors": errors[share], **ranked[share]} for share in shares},
        "text": text,
    }


def _train_all(
    recipes: Mapping[tuple[float, int], Recipe], seeds: int, tracked: tracked_run.Run
) -> dict[tuple[float, int], float]:
    """Return the validation error by share and trial, the mean over its seeds."""
    errors: dict[tuple[float, int], float] = {}
    with progress_bar("short runs", len(recipes), "runs") as advance:
        for (share, number), recipe in recipes.items():
            options: dict[str, Any] = {"title": f"trial {number} at {share:g}", "watch": UNWATCHED}
            each = [recipe.override(seed=recipe.seed + i) for i in range(seeds)]
            results = [run(one, parent=tracked, kind="short", **options) for one in each]
            errors[share, number] = mean(result.metrics[OBJECTIVE] for result in results)
            advance(1, len(errors))
    return errors
