"""What a study came to: trials by origin, the best of each family, the gain and its interval."""

import json
import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from pipelines.errors import UserError
from pipelines.running.seed_statistics import difference_interval, standard_deviation
from pipelines.tracking import history, store
from tuning.analysis import trial_results
from tuning.plan import OBJECTIVE, StudyPlan
from tuning.search import spaces

SEED_KIND = "trial seed"  # the runs below a trial's that has several seeds
NORMAL = 1.96  # standard deviations on either side that hold 95 % of a normal distribution
HARDLY_LEARNED = 0.8  # times the error of guessing: a best trial above it says little
COLUMNS = ("best of each family", "validation error", "trial")
Interval = tuple[float, float]


def count_trials(trials: Sequence[Any]) -> dict[str, int]:
    """Return how many finished trials are published schedules, and how many were chosen."""
    finished = trial_results.finished_trials(trials)
    chosen = sum(map(trial_results.is_sampled, finished))
    return {"published_trials": len(finished) - chosen, "chosen_trials": chosen}


def describe_counts(counts: Mapping[str, int], start: str, sampler: str) -> str:
    """Return `8 trials: 5 published schedules, 3 that tpe chose`."""
    published, chosen = counts["published_trials"], counts["chosen_trials"]
    total, first = published + chosen, describe_first(published, start)
    return f"{total} trial{'' if total == 1 else 's'}: {first}, {chosen} that {sampler} chose"


def describe_budget(budget: float) -> str:
    """Return `, 0.5 of the steps`; empty of a study of whole trainings."""
    return "" if budget == 1 else f", {budget:g} of the steps"


def describe_first(count: int, start: str) -> str:
    """Return how many schedules a study begins with, of which the recipe's own may be given."""
    given = start == "given" and count > 0
    published = f"{count - given} published schedule{'' if count - given == 1 else 's'}"
    if not given:
        return published
    return "the given schedule" + (f" and {published}" if count > 1 else "")


def find_families(plan: StudyPlan, trials: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the best complete trial of each family of schedules, that of least error first.

    Of trials with equal errors the one that ended first is taken; `equal` are the others' numbers.
    """
    families: dict[str, list[Any]] = {}
    for trial in trial_results.finished_trials(trials):
        if trial.state.name == "COMPLETE":
            families.setdefault(family_of(plan, trial), []).append(trial)
    rows = []
    for family, members in families.items():
        best = min(members, key=trial_results.error_pct)  # the first of equals
        error = trial_results.error_pct(best)
        equal = [t.number for t in members if trial_results.error_pct(t) == error and t != best]
        rows.append(
            {
                "family": family,
                "trial": best.number,
                "label": label_of(plan, best),
                OBJECTIVE: error,
                "equal": sorted(equal),
                "settings": spaces.describe(best.params),
            }
        )
    return sorted(rows, key=lambda row: row[OBJECTIVE])


def family_of(plan: StudyPlan, trial: Any) -> str:
    """Return the schedule of a trial, by name: that of the recipe, where it is not searched."""
    return str(trial.params.get("schedule", plan.base.schedule))


def label_of(plan: StudyPlan, trial: Any) -> str:
    """Return the name of a schedule that the study began with; empty of other trials."""
    label = str(trial.user_attrs.get(spaces.PUBLISHED, ""))
    return plan.start if label == spaces.PAPER else label


def find_gain(plan: StudyPlan, trials: Sequence[Any]) -> dict[str, Any] | None:
    """Return the best trial beside the best of the published schedules, and what is gained.

    None while one of them is not known. The interval is of the difference of these two trials, and
    leaves out that both are the best of several.
    """
    begun = [trial for trial in trials if not trial_results.is_sampled(trial)]
    best, published = trial_results.best_trial(trials), trial_results.best_trial(begun)
    if best is None or published is None:
        return None
    error = trial_results.error_pct(best)
    equal = [
        t for t in trials if t.state.name == "COMPLETE" and trial_results.error_pct(t) == error
    ]
    gain = {
        "trial": best.number,
        "label": label_of(plan, best),
        "family": family_of(plan, best),
        OBJECTIVE: error,
        "chance_pct": _chance_pct(plan),
        "equal": sorted(trial.number for trial in equal if trial != best),
        "over_trial": published.number,
        "over": label_of(plan, published),
        f"over_{OBJECTIVE}": trial_results.error_pct(published),
        "points": trial_results.error_pct(published) - error,
        "ci_low": None,
        "ci_high": None,
        "basis": "",
    }
    if best == published:
        return gain
    old, new = (_errors_of(plan, trial) for trial in (published, best))
    examples = None if plan.seeds > 1 else count_examples(best.user_attrs.get("run_id"), "val")
    interval, basis = gain_interval(old, new, examples, "validation")
    low, high = interval or (None, None)
    return gain | {"ci_low": low, "ci_high": high, "basis": basis}


def _chance_pct(plan: StudyPlan) -> float | None:
    """Return the error of guessing; None where data of one's own are no longer here."""
    try:
        return plan.chance_pct
    except UserError:
        return None


def gain_interval(
    old: Sequence[float], new: Sequence[float], examples: int | None, part: str
) -> tuple[Interval | None, str]:
    """Return the 95 % interval of mean `old` less mean `new`, in percent, and what it rests on.

    With two seeds or more it is Welch's; with one, that of two shares of so many examples, which
    leaves out how much seeds differ. None where neither is known.
    """
    if min(len(old), len(new)) > 1:
        samples = [(mean(errors), standard_deviation(errors), len(errors)) for errors in (new, old)]
        if not any(sd for _, sd, _ in samples):
            return None, f"no interval: all {len(new)} seeds have the same error"
        return difference_interval(*samples), f"Welch, {len(new)} seeds each"
    if not examples:
        return None, "no interval: one seed each"
    deviation = math.sqrt(sum(error * (100 - error) / examples for error in (old[0], new[0])))
    centre, half = old[0] - new[0], NORMAL * deviation
    basis = f"binomial, {examples:,} {part} pictures; one seed each, so without their spread"
    return (centre - half, centre + half), basis


def count_examples(run_id: str | None, part: str) -> int | None:
    """Return how many examples a part of the data has, as a training recorded it; None if not."""
    row = history.find(run_id) if run_id else None
    for each in store.client().get_run(row.id).inputs.dataset_inputs if row else ():
        count = json.loads(each.dataset.profile or "{}").get(part)
        return int(count) if count else None
    return None


def _errors_of(plan: StudyPlan, trial: Any) -> list[float]:
    """Return the validation error of each seed of a trial, or the one that is known."""
    if plan.seeds > 1 and (run_id := trial.user_attrs.get("run_id")):
        rows = history.rows(None, kind=SEED_KIND, **{store.PARENT: run_id})
        if errors := [row.metrics[OBJECTIVE] for row in rows if OBJECTIVE in row.metrics]:
            return list(map(trial_results.clip_error, errors))
    return [trial_results.error_pct(trial)]


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the COLUMNS of a row of `find_families`."""
    trial = name(row["trial"], row["label"])
    equal = f"; equal: {', '.join(map(str, row['equal']))}" if row["equal"] else ""
    return [row["family"], f"{row[OBJECTIVE]:.2f} %", f"{trial.removeprefix('trial ')}{equal}"]


def sentences(document: Mapping[str, Any]) -> list[str]:
    """Return what a study found, of its JSON document or its parts: best, gain, test errors."""
    gain, metrics = document["gain"], document["metrics"]
    if gain is None:
        return []
    best, over = name(gain["trial"], gain["label"]), name(gain["over_trial"], gain["over"])
    error = gain[OBJECTIVE]
    lines = [f"Best by validation error: {best}, {gain['family']}, {error:.2f} %."]
    if gain["equal"]:
        others = ", ".join(map(str, gain["equal"]))
        plural = "s" if len(gain["equal"]) > 1 else ""
        lines[0] += f" Equal: trial{plural} {others}; the first that ended is taken."
    kind = "given" if gain["over"] == "given" else "published"
    if gain["trial"] == gain["over_trial"]:
        lines.append(f"No gain shown: no trial has a lower error than this {kind} schedule.")
    else:
        title = "The given schedule" if kind == "given" else "Best published schedule"
        gained = _format_gain(gain["points"], gain["ci_low"], gain["ci_high"])
        lines.append(
            f"{title}: {over}, {gain[f'over_{OBJECTIVE}']:.2f} %. Gain over it: {gained} "
            f"({gain['basis']}). The best of several trials is partly luck, so this gain is an "
            "upper estimate."
        )
    if gain["chance_pct"] and error > HARDLY_LEARNED * gain["chance_pct"]:
        lines.append(
            f"No trial has learned much: guessing has an error of {gain['chance_pct']:.0f} %. "
            "Search at a larger --scale, or with a larger --budget."
        )
    if (test := metrics.get("test_error_pct")) is not None:
        lines.append(f"Test error with new seeds: {test:.2f} % by the best")
        if (of_start := metrics.get("baseline_test_error_pct")) is not None:
            low, high = (metrics.get(f"{end}/test_gain_pct") for end in ("ci_low", "ci_high"))
            gained = _format_gain(of_start - test, low, high)
            lines[-1] += f", {of_start:.2f} % by {_of_start(document['start'])}. Gain: {gained}"
        lines[-1] += "."
    return lines


def _of_start(start: str) -> str:
    return "the given schedule" if start == "given" else "the recipe's own schedule"


def name(number: int, label: str) -> str:
    """Return `trial 6`; of one that the study began with `trial 4 (published: cosine)`."""
    if label in ("", "published", "given"):
        return f"trial {number}" + (f" ({label})" if label else "")
    return f"trial {number} (published: {label})"


def _format_gain(points: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{points:.2f} points"
    shown = "" if low > 0 else ": no gain shown"
    return f"{points:.2f} points, 95 % interval {low:.2f} to {high:.2f}{shown}"
