"""The tunability of a study as metrics for its run and as one page of Markdown."""

import math

from tuning.analysis import trial_results
from tuning.analysis.tunability import RESOLUTION, TOLERANCE, Estimate, Paper, Tunability

TABLE_K = (1, 2, 5, 10, 20)  # trials, and all of them


def metrics(found: Tunability) -> dict[str, float]:
    """Flat numbers, bands under ci_low/ and ci_high/; what could not be computed is left out."""
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
    """One screen: what was searched, best against paper, best-of-k, good region, cost, caveats.

    `start`: what the study's own schedule is called, as of Plan.
    """
    parts = (_table, _region, _importances, _cost, _front, _caveats)
    blocks = [
        _describe_search(found),
        _describe_best(found, start),
        *(part(found) for part in parts),
    ]
    return "\n\n".join([f"# How hard is it to tune {title}?", *filter(None, blocks)]) + "\n"


def _describe_search(found: Tunability) -> str:
    states = ", ".join(f"{count} {state.lower()}" for state, count in found.states.items())
    lines = [
        f"**Searched** by {_trials(sum(found.states.values()))} ({states}; {found.diverged} "
        f"diverged); the sampler drew {found.drawn} of the {found.finished} finished ones:",
        "",
        *(f"- `{name}`: {limits}" for name, limits in found.searched.items()),
    ]
    return "\n".join(lines)


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _describe_best(found: Tunability, start: str) -> str:
    if found.best is None:
        return "**No trial is complete**: there is no best one."
    best = f"**Best**: {found.best_pct:.2f} % validation error, trial {found.best.number}."
    if found.paper is None:
        return f"{best} The {start} schedule has no finished trial here."
    return " ".join([best, *_compare_paper(found, found.paper, start)])


def _compare_paper(found: Tunability, paper: Paper, start: str) -> list[str]:
    place = f"rank {paper.rank} of {found.finished}"
    if found.finished > 1:
        place += f"; it beats {paper.percentile:.0f} % of the other trials"
    gain = paper.error_pct - found.best_pct
    named = f"**{start.capitalize()} schedule**"
    said = [f"{named}: {paper.error_pct:.2f} %, {gain:.2f} points more ({place})."]
    if paper.trials_to_match:
        like = "the expected best of which is as good"
        said += [f"It is worth {_trials(paper.trials_to_match)} like those drawn, {like}."]
    elif found.drawn:
        said += [f"None of the {_trials(found.drawn)} drawn is as good."]
    return said


def _table(found: Tunability) -> str:
    if not found.drawn:
        return ""
    lines = ["| best of k drawn trials | expected error (%) | 5-95 % of searches |"]
    lines += ["|---:|---:|---:|"]
    for k in sorted({k for k in TABLE_K if k <= found.drawn} | {found.drawn}):
        each = _best_of(found, k)
        lines += [f"| {k} | {each.value:.2f} | {each.low:.2f} to {each.high:.2f} |"]
    return "\n".join(lines)


def _region(found: Tunability) -> str:
    good, share, width = found.good, found.good.share, found.good.decades
    if math.isnan(good.limit_pct):
        return ""
    said = [f"**Good** is up to {good.limit_pct:.2f} %: the best plus {100 * TOLERANCE:.0f} % of"]
    said += ["the way to chance."]
    if not math.isnan(share.value):
        low, high = 100 * share.low, 100 * share.high
        said += [f"Good are {100 * share.value:.0f} % ({low:.0f} to {high:.0f} %) of those drawn."]
    if good.regions and not math.isnan(width.value):
        parts = ", ".join(f"{low:.2g} to {high:.2g}" for low, high in good.regions)
        band = f"{width.low:.2f} to {width.high:.2f}"
        said += [f"Good peak rates span {width.value:.2f} decades ({band}): {parts}."]
    return " ".join(said)


def _importances(found: Tunability) -> str:
    if found.no_importances:
        return f"**Importances**: none; {found.no_importances}."
    shares = [f"`{name}` {100 * share:.0f} %" for name, share in found.importances.items()]
    return f"**Importances** (fANOVA, parameters of every trial): {', '.join(shares)}."


def _cost(found: Tunability) -> str:
    if math.isnan(found.device_h):
        return ""
    said = f"**Cost**: {found.device_h:.3g} device-hours, {found.device_s_mean:.3g} device-seconds"
    if math.isnan(found.device_h_to_best):
        return f"{said} a trial."
    return f"{said} a trial; {found.device_h_to_best:.3g} device-hours until the best had ended."


def _front(found: Tunability) -> str:
    if not found.front:
        return ""
    lines = ["| trial: none is better and cheaper | error (%) | images trained on |"]
    lines += ["|---:|---:|---:|"]
    for trial in found.front:
        lines += [
            f"| {trial.number} | {trial_results.error_pct(trial):.2f} | {trial.values[1]:,.0f} |"
        ]
    return "\n".join(lines)


def _caveats(found: Tunability) -> str:
    said = [
        "**Mind**: the best of many trials is partly luck of its seed. Compare studies of one",
        "space, sampler, pruner and length only. Bands resample these trials and cannot pass the",
        "best of them. A sampler that learns draws better trials as it goes: the table is of",
        "trials like these in any order. Few trials make the region of good rates too narrow;",
        f"rates over {RESOLUTION} decades apart are not joined.",
    ]
    if found.states.get("PRUNED"):
        said += ["A pruned trial counts with its last error, an upper estimate: fewer seem good."]
    if found.diverged and found.importances:
        said += [
            f"Diverged trials count as {trial_results.DIVERGED_PCT:g} %: importances tell first"
        ]
        said += ["what does."]
    return " ".join(said)
