"""The tunability of a study as metrics for its run and as one page of Markdown."""

import math

from tuning.analysis import trial_results
from tuning.analysis.tunability import RESOLUTION, TOLERANCE, Estimate, Tunability

TABLE_K = (1, 2, 5, 10, 20)  # trials, and all of them


def metrics(measured: Tunability) -> dict[str, float]:
    """Return flat numbers, bands under ci_low/ and ci_high/, without those that are not known."""
    finished = measured.finished_count
    numbers: dict[str, float] = {
        "good_limit_pct": measured.good.limit_pct,
        "diverged_share": measured.diverged / finished if finished else math.nan,
        "device_hours": measured.device_h,
        "device_hours_to_best": measured.device_h_to_best,
        "device_s_per_trial": measured.device_s_mean,
    }
    if measured.paper:
        numbers |= {
            "paper_rank": measured.paper.rank,
            "paper_percentile": measured.paper.percentile,
            "trials_to_match_paper": measured.paper.trials_to_match or math.nan,
        }
    numbers |= {f"importance_{name}": share for name, share in measured.importances.items()}
    banded = {"good_share": measured.good.share, "good_rate_decades": measured.good.decades}
    banded |= {f"best_of_{k}_pct": _best_of(measured, k) for k in TABLE_K if k <= measured.drawn}
    for name, each in banded.items():
        numbers |= {name: each.value, f"ci_low/{name}": each.low, f"ci_high/{name}": each.high}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def _best_of(measured: Tunability, k: int) -> Estimate:
    curve = measured.curve
    return Estimate(*(float(each[k - 1]) for each in (curve.expected, curve.low, curve.high)))


def markdown(measured: Tunability, title: str, start: str = "published") -> str:
    """Return one screen: what was searched, best against paper, good rates, cost, caveats.

    `start`: what the study's own schedule is called, as of Plan.
    """
    blocks = [
        f"# How hard is it to tune {title}?",
        _describe_search(measured),
        _describe_best(measured, start),
        _table(measured),
        _describe_region(measured),
        _describe_importances(measured),
        _describe_cost(measured),
        _front(measured),
        _caveats(measured),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _describe_search(measured: Tunability) -> str:
    begun = {state: count for state, count in measured.states.items() if state != "WAITING"}
    states = ", ".join(f"{count} {state.lower()}" for state, count in begun.items())
    head = (
        f"**Searched** by {_trials(sum(begun.values()))} ({states}; {measured.diverged} "
        f"diverged); the sampler drew {measured.drawn} of the {measured.finished_count} finished "
        "ones:\n"
    )
    return "\n".join(
        [head, *(f"- `{name}`: {limits}" for name, limits in measured.searched.items())]
    )


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _describe_best(measured: Tunability, start: str) -> str:
    if measured.best is None:
        return "**No trial is complete**: there is no best one."
    text = f"**Best**: {measured.best_pct:.2f} % validation error, trial {measured.best.number}."
    if measured.paper is None:
        return f"{text} The {start} schedule has no finished trial here."
    paper, place = measured.paper, f"rank {measured.paper.rank} of {measured.finished_count}"
    if measured.finished_count > 1:
        place += f"; it beats {paper.percentile:.0f} % of the other trials"
    gain = paper.error_pct - measured.best_pct
    text += f" **{start.capitalize()} schedule**: {paper.error_pct:.2f} %, "
    text += f"{gain:.2f} points more ({place})."
    if paper.trials_to_match:
        text += f" It is worth {_trials(paper.trials_to_match)} like those drawn, "
        text += "the expected best of which is as good."
    elif measured.drawn:
        text += f" None of the {_trials(measured.drawn)} drawn is as good."
    return text


def _table(measured: Tunability) -> str:
    if not measured.drawn:
        return ""
    lines = ["| best of k drawn trials | expected error (%) | 5-95 % of searches |"]
    lines += ["|---:|---:|---:|"]
    for k in sorted({k for k in TABLE_K if k <= measured.drawn} | {measured.drawn}):
        each = _best_of(measured, k)
        lines += [f"| {k} | {each.value:.2f} | {each.low:.2f} to {each.high:.2f} |"]
    return "\n".join(lines)


def _describe_region(measured: Tunability) -> str:
    good, share, width = measured.good, measured.good.share, measured.good.decades
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


def _describe_importances(measured: Tunability) -> str:
    if measured.no_importances:
        return f"**Importances**: none; {measured.no_importances}."
    shares = [f"`{name}` {100 * share:.0f} %" for name, share in measured.importances.items()]
    return f"**Importances** (fANOVA, parameters of every trial): {', '.join(shares)}."


def _describe_cost(measured: Tunability) -> str:
    if math.isnan(measured.device_h):
        return ""
    text = f"**Cost**: {device_time(measured.device_h)}, "
    text += f"{device_time(measured.device_s_mean / 3600)} a trial"
    if not math.isnan(measured.device_h_to_best):
        text += f"; {device_time(measured.device_h_to_best)} until the best had ended"
    return f"{text}."


def device_time(hours: float) -> str:
    """Return `36 device-seconds`, `12 device-minutes` or `3.2 device-hours`, as it suits."""
    if hours < 1 / 20:
        return f"{3600 * hours:.3g} device-seconds"
    return f"{60 * hours:.3g} device-minutes" if hours < 2 else f"{hours:.3g} device-hours"


def _front(measured: Tunability) -> str:
    if not measured.front:
        return ""
    head = "| trial: none is better and cheaper | error (%) | images trained on |\n|---:|---:|---:|"
    rows = [
        f"| {trial.number} | {trial_results.error_pct(trial):.2f} | {trial.values[1]:,.0f} |"
        for trial in measured.front
    ]
    return "\n".join([head, *rows])


def _caveats(measured: Tunability) -> str:
    text = (
        "**Mind**: the best of many trials is partly luck of its seed. Compare studies of one "
        "space, sampler, pruner and length only. Bands resample these trials and cannot pass the "
        "best of them. A sampler that learns draws better trials as it goes: the table is of "
        "trials like these in any order. Few trials make the region of good rates too narrow; "
        f"rates over {RESOLUTION} decades apart are not joined."
    )
    if measured.states.get("PRUNED"):
        text += " A pruned trial counts with its last error, an upper estimate: fewer seem good."
    if measured.diverged and measured.importances:
        text += f" Diverged trials count as {trial_results.DIVERGED_PCT:g} %: importances tell "
        text += "first what does."
    return text
