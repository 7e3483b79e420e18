"""The tunability of a study as metrics for its run and as one page of Markdown."""

import math

from tuning.analysis import trial_results
from tuning.analysis.tunability import RESOLUTION, TOLERANCE, Estimate, Tunability

TABLE_K = (1, 2, 5, 10, 20)  # trials, and all of them


def metrics(found: Tunability) -> dict[str, float]:
    """Return flat numbers, bands under ci_low/ and ci_high/, without those that are not known."""
    numbers: dict[str, float] = {
        "good_limit_pct": found.good.limit_pct,
        "diverged_share": found.diverged / found.finished if found.finished else math.nan,
        "device_hours": found.device_h,
        "device_hours_to_best": found.device_h_to_best,
        "device_s_per_trial": found.device_s_mean,
    }
    if found.paper:
        numbers |= {
            "paper_rank": found.paper.rank,
            "paper_percentile": found.paper.percentile,
            "trials_to_match_paper": found.paper.trials_to_match or math.nan,
        }
    numbers |= {f"importance_{name}": share for name, share in found.importances.items()}
    banded = {"good_share": found.good.share, "good_rate_decades": found.good.decades}
    banded |= {f"best_of_{k}_pct": _best_of(found, k) for k in TABLE_K if k <= found.drawn}
    for name, each in banded.items():
        numbers |= {name: each.value, f"ci_low/{name}": each.low, f"ci_high/{name}": each.high}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def _best_of(found: Tunability, k: int) -> Estimate:
    curve = found.curve
    return Estimate(*(float(each[k - 1]) for each in (curve.expected, curve.low, curve.high)))


def markdown(found: Tunability, title: str, start: str = "published") -> str:
    """Return one screen: what was searched, best against paper, good rates, cost, caveats.

    `start`: what the study's own schedule is called, as of Plan.
    """
    blocks = [
        f"# How hard is it to tune {title}?",
        _describe_search(found),
        _describe_best(found, start),
        _table(found),
        _describe_region(found),
        _describe_importances(found),
        _describe_cost(found),
        _front(found),
        _caveats(found),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _describe_search(found: Tunability) -> str:
    states = ", ".join(f"{count} {state.lower()}" for state, count in found.states.items())
    head = (
        f"**Searched** by {_trials(sum(found.states.values()))} ({states}; {found.diverged} "
        f"diverged); the sampler drew {found.drawn} of the {found.finished} finished ones:\n"
    )
    return "\n".join([head, *(f"- `{name}`: {limits}" for name, limits in found.searched.items())])


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _describe_best(found: Tunability, start: str) -> str:
    if found.best is None:
        return "**No trial is complete**: there is no best one."
    text = f"**Best**: {found.best_pct:.2f} % validation error, trial {found.best.number}."
    if found.paper is None:
        return f"{text} The {start} schedule has no finished trial here."
    paper, place = found.paper, f"rank {found.paper.rank} of {found.finished}"
    if found.finished > 1:
        place += f"; it beats {paper.percentile:.0f} % of the other trials"
    gain = paper.error_pct - found.best_pct
    text += f" **{start.capitalize()} schedule**: {paper.error_pct:.2f} %, "
    text += f"{gain:.2f} points more ({place})."
    if paper.trials_to_match:
        text += f" It is worth {_trials(paper.trials_to_match)} like those drawn, "
        text += "the expected best of which is as good."
    elif found.drawn:
        text += f" None of the {_trials(found.drawn)} drawn is as good."
    return text


def _table(found: Tunability) -> str:
    if not found.drawn:
        return ""
    lines = ["| best of k drawn trials | expected error (%) | 5-95 % of searches |"]
    lines += ["|---:|---:|---:|"]
    for k in sorted({k for k in TABLE_K if k <= found.drawn} | {found.drawn}):
        each = _best_of(found, k)
        lines += [f"| {k} | {each.value:.2f} | {each.low:.2f} to {each.high:.2f} |"]
    return "\n".join(lines)


def _describe_region(found: Tunability) -> str:
    good, share, width = found.good, found.good.share, found.good.decades
    if math.isnan(good.limit_pct):
        return ""
    text = f"**Good** is up to {good.limit_pct:.2f} %: the best plus {100 * TOLERANCE:.0f} % of "
    text += "the way to chance."
    if not math.isnan(share.value):
        low, high = 100 * share.low, 100 * share.high
        text += f" Good are {100 * share.value:.0f} % ({low:.0f} to {high:.0f} %) of those drawn."
    if good.regions and not math.isnan(width.value):
        parts = ", ".join(f"{low:.2g} to {high:.2g}" for low, high in good.regions)
        band = f"{width.low:.2f} to {width.high:.2f}"
        text += f" Good peak rates span {width.value:.2f} decades ({band}): {parts}."
    return text


def _describe_importances(found: Tunability) -> str:
    if found.no_importances:
        return f"**Importances**: none; {found.no_importances}."
    shares = [f"`{name}` {100 * share:.0f} %" for name, share in found.importances.items()]
    return f"**Importances** (fANOVA, parameters of every trial): {', '.join(shares)}."


def _describe_cost(found: Tunability) -> str:
    if math.isnan(found.device_h):
        return ""
    text = f"**Cost**: {found.device_h:.3g} device-hours, {found.device_s_mean:.3g} device-seconds"
    if math.isnan(found.device_h_to_best):
        return f"{text} a trial."
    return f"{text} a trial; {found.device_h_to_best:.3g} device-hours until the best had ended."


def _front(found: Tunability) -> str:
    if not found.front:
        return ""
    head = "| trial: none is better and cheaper | error (%) | images trained on |\n|---:|---:|---:|"
    rows = [
        f"| {trial.number} | {trial_results.error_pct(trial):.2f} | {trial.values[1]:,.0f} |"
        for trial in found.front
    ]
    return "\n".join([head, *rows])


def _caveats(found: Tunability) -> str:
    text = (
        "**Mind**: the best of many trials is partly luck of its seed. Compare studies of one "
        "space, sampler, pruner and length only. Bands resample these trials and cannot pass the "
        "best of them. A sampler that learns draws better trials as it goes: the table is of "
        "trials like these in any order. Few trials make the region of good rates too narrow; "
        f"rates over {RESOLUTION} decades apart are not joined."
    )
    if found.states.get("PRUNED"):
        text += " A pruned trial counts with its last error, an upper estimate: fewer seem good."
    if found.diverged and found.importances:
        text += f" Diverged trials count as {trial_results.DIVERGED_PCT:g} %: importances tell "
        text += "first what does."
    return text
