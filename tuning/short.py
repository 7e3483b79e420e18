"""A study's schedules trained for shares of its budget: does the short run rank them alike?"""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from pipelines.errors import UserError, check_counts
from pipelines.recipes.recipe import Recipe
from pipelines.run import run
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import tracked_run
from tuning import budgets, catalogue, outcomes, storage
from tuning.plan import OBJECTIVE, PLAN, Plan, shortened
from tuning.trial import UNWATCHED

Each = dict[tuple[float, int], list[Recipe]]  # by share and trial, one a seed


def check(
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
    study = catalogue.load(name, storage.place(where))
    plan, trials = Plan.going_on(study.user_attrs[PLAN]), study.get_trials(deepcopy=False)
    chosen = _spread(name, trials, count)
    each = _recipes(plan, chosen, list(dict.fromkeys(shares)))
    return _compared(name, chosen, each)


def _compared(name: str, chosen: Sequence[Any], each: Each) -> dict[str, Any]:
    """Train them in a run of its own, with its report; return the answer as one document."""
    shares = list(dict.fromkeys(share for share, _ in each))
    full = [outcomes.error(trial) for trial in chosen]
    with tracked_run.tracked(
        f"{name} budgets",
        experiment=catalogue.EXPERIMENT,
        kind="budgets",
        params={"shares": shares, "trials": len(chosen)},
        tags={"study": name},
    ) as tracked:
        by_trial = _errors(each, tracked)
        errors = {share: [by_trial[share, trial.number] for trial in chosen] for share in shares}
        ranked = {share: budgets.correlation(errors[share], full) for share in shares}
        text = budgets.markdown(ranked)
        tracked.text(text, "budgets.md")
        for share, numbers in ranked.items():
            tracked.log(numbers, round(100 * share))
    return {
        "study": name,
        "run_id": tracked.id,
        "trials": [trial.number for trial in chosen],
        "full": full,
        "short": {str(share): {"errors": errors[share], **ranked[share]} for share in shares},
        "text": text,
    }


def _spread(name: str, trials: Sequence[Any], count: int) -> list[Any]:
    """So many complete trials, evenly by rank, the best and the worst among them."""
    complete = [t for t in outcomes.finished(trials) if t.state.name == "COMPLETE"]
    ranked = sorted(complete, key=outcomes.error)
    count = min(count, len(ranked))
    if count < budgets.LEAST:
        raise UserError(
            f"Ranks are compared of {budgets.LEAST} trials or more. Received: {count} of study "
            f"{name}, which has {len(ranked)} complete ones. Set --trials higher, or resume it."
        )
    return [ranked[round(i * (len(ranked) - 1) / (count - 1))] for i in range(count)]


def _recipes(plan: Plan, chosen: Sequence[Any], shares: Sequence[float]) -> Each:
    """What these trials trained, with all its seeds, at each share of its length."""
    found: Each = {}
    for share in shares:
        for trial in chosen:
            whole = plan.tried(trial)
            short = shortened(whole, share)
            seeds = range(short.seed, short.seed + plan.seeds)
            found[share, trial.number] = [short.override(seed=seed) for seed in seeds]
    return found


def _errors(each: Each, tracked: tracked_run.Run) -> dict[tuple[float, int], float]:
    """Validation error by share and trial, the mean over its seeds."""
    found: dict[tuple[float, int], float] = {}
    with progress_bar("short runs", len(each), "runs") as advance:
        for (share, number), recipes in each.items():
            title = f"trial {number} at {share:g}"
            found[share, number] = mean(_error(recipe, tracked, title) for recipe in recipes)
            advance(1, len(found))
    return found


def _error(recipe: Recipe, tracked: tracked_run.Run, title: str) -> float:
    result = run(recipe, parent=tracked, kind="short", watch=UNWATCHED, title=title)
    return result.metrics[OBJECTIVE]
