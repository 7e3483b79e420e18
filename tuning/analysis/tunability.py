"""Tunability: how hard a network is to tune, from the trials of a study.

Errors are validation errors in percent. Bands are 5-95 % of bootstrap resamples of the trials.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuning.analysis import importances, trial_results

Array = NDArray[np.float64]
SEED, RESAMPLES = 0, 2_000  # bootstrap that gives the bands
BAND = (0.05, 0.95)
TOLERANCE = 0.1  # share of the way from the best error to chance, up to which a trial is good
RESOLUTION = 0.5  # decades of learning rate


class Estimate(NamedTuple):
    """A number with the ends of its band."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class BestOfK:
    """Least error of k trials, k = 1..n: expected, and where nine searches of ten end; [n] each."""

    expected: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Good:
    """The trials within the tolerance of the best: their share, and their peak rates."""

    limit_pct: float  # errors up to here are good
    share: Estimate  # among the trials that the sampler drew
    decades: Estimate  # width of the region of good peak rates
    regions: list[tuple[float, float]]  # its parts, as least and greatest rate


@dataclass(frozen=True)
class Paper:
    """The place of the published default among the finished trials."""

    error_pct: float
    rank: int  # 1 + the number of trials that are strictly better
    percentile: float  # percent of the other trials that it beats; ties count half
    trials_to_match: int | None  # random trials expected to do as well; None: all drawn did not


@dataclass(frozen=True)
class Tunability:
    """The numbers of one study; what cannot be computed is NaN, None or empty."""

    states: dict[str, int]
    diverged: int
    drawn: int  # finished trials that the sampler chose
    best: Any  # the best complete trial, None without one
    best_pct: float  # its error; without one, the least that a pruned trial reported
    curve: BestOfK  # computed from the drawn trials
    good: Good
    paper: Paper | None
    importances: dict[str, float]
    no_importances: str  # why there are none
    device_h: float  # device-hours of all trials that ended
    device_h_to_best: float  # the same until the best had ended
    device_s_mean: float  # device-seconds a trial
    front: list[Any]
    searched: dict[str, str]

    @property
    def finished_count(self) -> int:
        return self.states.get("COMPLETE", 0) + self.states.get("PRUNED", 0)


def measure(
    trials: Sequence[Any], *, chance_pct: float, good_pct: float | None = None
) -> Tunability:
    """Return all of it; `chance_pct` is the error of guessing, 100 (1 - 1/classes).

    `good_pct`: the error up to which a trial is good, as of `find_good`.
    """
    done = trial_results.finished_trials(trials)
    best = trial_results.best_trial(trials)
    errors = finished_errors(trials)
    least = trial_results.error_pct(best) if best else float(errors.min(initial=math.inf))
    curve = best_of_k(errors[[trial_results.is_sampled(trial) for trial in done]])
    states = [trial.state.name for trial in trials]
    return Tunability(
        states={state: states.count(state) for state in sorted(set(states))},
        diverged=sum(trial_results.has_diverged(trial) for trial in done),
        drawn=curve.expected.size,
        best=best,
        best_pct=least if math.isfinite(least) else math.nan,
        curve=curve,
        good=find_good(trials, chance_pct, good_pct),
        paper=rank_paper(trials, curve),
        importances=importances.fanova(trials),
        no_importances=importances.reason_none(trials),
        front=trial_results.pareto_front(trials),
        searched=trial_results.describe_ranges(trials),
        **_cost(trials, best),
    )


def finished_errors(trials: Sequence[Any]) -> Array:
    """Return one error a finished trial, percent, in the order they finished; shape [n].

    A pruned trial counts with the last error that it reported, an upper estimate of its own.
    """
    return np.array(
        [trial_results.error_pct(trial) for trial in trial_results.finished_trials(trials)],
        np.float64,
    )


def best_of_k(found: Array) -> BestOfK:
    """Return the expected least error of k of n trials, k = 1..n, and its band.

    Dodge et al. 2019 (Show Your Work) in the unbiased form of Tang et al. 2020, for subsets without
    repetition: sum over i of v_i C(n-i, k-1) / C(n, k), v sorted. The band is of running minima
    over resamples with repetition: one search, not the mean of many; it cannot pass the best error
    found. A sampler that learns draws no exchangeable trials: the curve is then of trials like
    these in any order, which may need more of them than the search itself did.
    """
    n = found.size
    if n == 0:
        return BestOfK(found, found, found)
    order, k = np.sort(found), np.arange(n)
    factors = np.maximum(n - k[1:, None] - k, 0) / (n - k)  # [n - 1, n]
    beyond = np.cumprod(factors, axis=1)  # P(the least of k + 1 is none of the i best)
    draws = np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n))
    runs = np.minimum.accumulate(found[draws], axis=1)
    low, high = np.quantile(runs, BAND, axis=0)
    return BestOfK(order[0] + np.diff(order) @ beyond, low, high)


def find_good(trials: Sequence[Any], chance_pct: float, good_pct: float | None = None) -> Good:
    """Return the trials with error <= best + TOLERANCE (chance - best), and below chance.

    `good_pct` is an error up to which trials are good instead, whatever the best one's: networks
    that reach different errors are compared by the same.

    The region of good peak rates is where the best that is known nearby is good: with x the sorted
    log10 of the good trials' rates, width = sum of x[i+1] - x[i] over the gaps <= RESOLUTION. A bad
    trial between two good ones does not interrupt it, for it may be bad by its other parameters; a
    gap of RESOLUTION without any good one does, so that a far lucky trial adds nothing, as it would
    to greatest - least. Few trials make it too narrow, never too wide by more than RESOLUTION a
    gap. All finished trials count; for the share of good ones, those that were drawn.
    """
    done = sorted(trial_results.finished_trials(trials), key=trial_results.peak_rate)
    if not done:
        nothing = Estimate(math.nan, math.nan, math.nan)
        return Good(math.nan, nothing, nothing, [])
    errors = np.array([trial_results.error_pct(trial) for trial in done])
    x = np.log10([trial_results.peak_rate(trial) for trial in done])
    drawn = np.array([trial_results.is_sampled(trial) for trial in done])
    n = errors.size
    draws = np.sort(np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n)), axis=1)
    rows = np.vstack([np.arange(n), draws])  # the trials themselves, then resamples
    best = errors[rows].min(axis=1, keepdims=True)
    limits = best + TOLERANCE * np.maximum(chance_pct - best, 0)
    limits = limits if good_pct is None else np.full_like(limits, good_pct)
    passed = (errors[rows] <= limits) & (errors[rows] < chance_pct)
    with np.errstate(invalid="ignore"):  # 0/0: no drawn trial in a resample
        shares = (passed & drawn[rows]).sum(axis=1) / drawn[rows].sum(axis=1)
    widths = good_decades(x[rows], passed)
    return Good(float(limits[0, 0]), _estimate(shares), _estimate(widths), _regions(x[passed[0]]))


def good_decades(x: Array, passed: NDArray[np.bool_]) -> Array:
    """Return the decades of good rates, of rows of sorted log10 rates: [..., n] to [...]."""
    marked = np.where(passed, x, -np.inf)
    with np.errstate(invalid="ignore"):  # -inf less -inf: two bad ones
        gaps = marked[..., 1:] - np.maximum.accumulate(marked, axis=-1)[..., :-1]
    total = np.where((gaps > 0) & (gaps <= RESOLUTION), gaps, 0.0).sum(axis=-1)
    return np.where(np.isnan(x).any(axis=-1), np.nan, total)


def _regions(x: Array) -> list[tuple[float, float]]:
    """Return the parts of the region, from the sorted log10 of good rates."""
    known = x[np.isfinite(x)]
    parts = np.split(known, np.flatnonzero(np.diff(known) > RESOLUTION) + 1)
    return [(float(10 ** part[0]), float(10 ** part[-1])) for part in parts if part.size]


def _estimate(rows: Array) -> Estimate:
    """Return the first as the value, with the band of the others."""
    others = rows[1:][np.isfinite(rows[1:])]
    low, high = np.quantile(others, BAND) if others.size else (math.nan, math.nan)
    return Estimate(float(rows[0]), float(low), float(high))


def rank_paper(trials: Sequence[Any], curve: BestOfK) -> Paper | None:
    """Return the published default's place; None where its trial has not finished.

    `curve` is of the drawn trials alone: the default itself must not help to match it.
    """
    done = trial_results.finished_trials(trials)
    paper = trial_results.paper_trial(done)
    if paper is None:
        return None
    paper_pct = trial_results.error_pct(paper)
    others = np.array([trial_results.error_pct(trial) for trial in done if trial is not paper])
    beaten = np.mean((others > paper_pct) + (others == paper_pct) / 2) if others.size else math.nan
    matched = np.flatnonzero(curve.expected <= paper_pct + 1e-9)
    return Paper(
        error_pct=paper_pct,
        rank=1 + int((others < paper_pct).sum()),
        percentile=float(100 * beaten),
        trials_to_match=int(matched[0]) + 1 if matched.size else None,
    )


def _cost(trials: Sequence[Any], best: Any) -> dict[str, float]:
    """Return the device time of the trials that ended; see Tunability."""
    ended = [trial for trial in trials if trial.datetime_complete]
    until = [t for t in ended if best and t.datetime_complete <= best.datetime_complete]
    timed = sum("device_s" in trial.user_attrs for trial in ended)
    return {
        "device_h": trial_results.total_device_s(ended) / 3600,
        "device_h_to_best": trial_results.total_device_s(until) / 3600,
        "device_s_mean": trial_results.total_device_s(ended) / timed if timed else math.nan,
    }
