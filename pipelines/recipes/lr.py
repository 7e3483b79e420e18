"""Learning-rate schedules: plain functions of a run's progress, and their table for every step.

A schedule maps progress t in [0, 1] to a multiplier in [0, 1] of the peak rate, array in, array
out. To add one, write the function and name it in SCHEDULES.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipelines.errors import LISTED_BY, UserError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
MOMENTS = (0.0, 0.5, 1 - 1e-6)  # progress at which a schedule is tried
ROUNDING = 1e-12  # a step this little before a boundary, in progress, is at it


def constant(t: ArrayLike) -> Array:
    """Return the peak rate throughout."""
    return np.ones_like(t, dtype=np.float64)


def steps(
    t: ArrayLike, boundaries: Sequence[float] = (0.46875, 0.78125), factor: float = 0.1
) -> Array:
    """Multiply by `factor` from each boundary on; HM's drops at 30k and 50k steps (section 4.1).

    The step at a boundary has the new rate already (Keras's PiecewiseConstantDecay: still the old).
    """
    edges = np.asarray(boundaries, dtype=np.float64)
    if edges.ndim != 1 or not (np.all((edges > 0) & (edges < 1)) and np.all(np.diff(edges) > 0)):
        raise UserError(
            "boundaries must be increasing fractions of the run, between 0 and 1. "
            f"Received: boundaries={boundaries!r}. Divide steps by the total number of steps."
        )
    _check_fraction(factor=factor)
    levels = np.cumprod([1.0] + [factor] * edges.size)
    return np.asarray(levels[np.searchsorted(edges - ROUNDING, np.asarray(t), side="right")])


def staircase(t: ArrayLike, drops: float = 70.0, factor: float = 0.94) -> Array:
    """Multiply by `factor` `drops` times, at equal distances; HM's ImageNet schedule (section 4.2).

    `drops` is the length of the run over that of a stair: HM drop every two epochs of about 140.
    """
    if not (np.isfinite(drops) and drops > 0):
        raise UserError(
            f"drops must be finite and > 0. Received: drops={drops!r}. "
            "Divide the epochs of the run by those between two drops."
        )
    _check_fraction(factor=factor)
    edges = np.arange(1, np.floor(drops) + 1) / drops - ROUNDING
    return np.asarray(float(factor) ** np.searchsorted(edges, np.asarray(t), side="right"))


def linear(t: ArrayLike) -> Array:
    """Return a straight line from the peak rate to 0."""
    return 1 - np.asarray(t, dtype=np.float64)


def polynomial(t: ArrayLike, power: float = 2.0, final: float = 0.0) -> Array:
    """Return the `power` of what is left of the run, down to `final` (Keras's PolynomialDecay)."""
    _check_between(0.1, 10, power=power)
    _check_between(0, 1, final=final)
    return np.asarray(final + (1 - final) * linear(t) ** power)


def cosine(t: ArrayLike, final: float = 0.0) -> Array:
    """Return half a cosine, from the peak rate to `final` (Loshchilov & Hutter 2017)."""
    _check_between(0, 1, final=final)
    return final + (1 - final) * _half_wave(t)


def cosine_restarts(
    t: ArrayLike, cycles: int = 3, stretch: float = 2.0, damping: float = 1.0, final: float = 0.0
) -> Array:
    """Return a cosine in each of `cycles`, from peak to `final` (Loshchilov & Hutter 2017: SGDR).

    Each is `stretch` times as long as the one before and its peak, over `final`, `damping` times as
    high. A step in the last ten-millionth of a cycle begins the next: rounding makes no rate 0.
    """
    if not isinstance(cycles, int | np.integer):
        raise _refusal("cycles", "an integer", cycles)
    _check_between(1, 100, cycles=cycles)
    _check_between(0.1, 10, stretch=stretch)
    _check_fraction(damping=damping)
    _check_between(0, 1, final=final)
    t = np.asarray(t, dtype=np.float64)
    lengths = float(stretch) ** np.arange(cycles)
    lengths /= lengths.sum()
    ends = np.cumsum(lengths)
    cycle = np.searchsorted((ends - 1e-7 * lengths)[:-1], t, side="right")
    done = np.clip(1 - (ends[cycle] - t) / lengths[cycle], 0, 1)
    return np.asarray(final + (1 - final) * float(damping) ** cycle * _half_wave(done))


def warmup_stable_decay(t: ArrayLike, decay: float = 0.2, final: float = 0.0) -> Array:
    """Return the peak rate until, in the last `decay` of the run, a straight line falls to `final`.

    Named by Hu et al. 2024 (arXiv 2404.06395); linear as the cooldown of Zhai et al. 2022
    (2106.04560). The warm-up is that of `table`.
    """
    _check_fraction(decay=decay)
    _check_between(0, 1, final=final)
    return np.asarray(final + (1 - final) * np.minimum(1, linear(t) / decay))


def one_cycle(t: ArrayLike, rise: float = 0.3, start: float = 0.04, final: float = 0.0) -> Array:
    """Rise from `start` to the peak rate in the first `rise` of the run, then fall to `final`.

    Smith & Topin 2018 (arXiv 1708.07120), in half waves of the cosine for their straight lines.
    """
    _check_fraction(rise=rise, start=start)
    _check_between(0, 1, final=final)
    t = np.asarray(t, dtype=np.float64)
    up = start + (1 - start) * _half_wave(1 - t / rise)
    down = final + (1 - final) * _half_wave((t - rise) / max(1 - rise, ROUNDING))
    return np.where(t < rise, up, down)


def inverse_sqrt(t: ArrayLike, timescale: float = 0.1) -> Array:
    """Return the peak rate until `timescale`, then sqrt(timescale / t) of it.

    With a warm-up as long it is that of Vaswani et al. 2017 (section 5.3), who count steps from 1.
    """
    _check_fraction(timescale=timescale)
    return np.asarray(np.sqrt(timescale / np.maximum(timescale, t)))


def exponential(t: ArrayLike, final: float = 0.01) -> Array:
    """Return a geometric decay from the peak rate to `final` times the peak rate."""
    _check_fraction(final=final)
    return np.asarray(np.power(float(final), np.asarray(t, dtype=np.float64)))


SCHEDULES: dict[str, Callable[..., Array]] = {
    "constant": constant,
    "steps": steps,
    "staircase": staircase,
    "linear": linear,
    "polynomial": polynomial,
    "cosine": cosine,
    "cosine-restarts": cosine_restarts,
    "exponential": exponential,
    "warmup-stable-decay": warmup_stable_decay,
    "one-cycle": one_cycle,
    "inverse-sqrt": inverse_sqrt,
}


def defaults(schedule: str) -> dict[str, Any]:
    """Return a schedule's own arguments with their default values. UserError for another name."""
    if schedule not in SCHEDULES:
        raise unknown("A schedule", schedule, SCHEDULES, LISTED_BY)
    shape = list(inspect.signature(SCHEDULES[schedule]).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in shape}


def check(schedule: str, shape: Mapping[str, Any]) -> None:
    """Raise UserError unless the schedule is known and gives rates with these arguments."""
    accepted = defaults(schedule)
    for name in shape.keys() - accepted.keys():
        raise unknown(f"An argument of the schedule {schedule}", name, accepted or ["none"])
    try:
        rates = SCHEDULES[schedule](np.array(MOMENTS), **shape)
    except (TypeError, OverflowError) as error:
        raise UserError(
            f"Arguments of a schedule must be numbers. Received: {dict(shape)} for {schedule}. "
            "Set them accordingly."
        ) from error
    if not np.all(rates > 0):
        raise UserError(
            f"A schedule must leave rates > 0. Received: {schedule} with {dict(shape)}, whose "
            "rates are too small for any number. Set its arguments larger."
        )


def table(
    schedule: str,
    peak: float,
    total_steps: int,
    warmup: float = 0.0,
    warmup_level: float = 0.0,
    **shape: Any,
) -> Array:
    """Return the learning rate of every step of a run; shape [total_steps].

    Step i has progress i / total_steps, so progress 1 is the end of the last step and a rate that
    falls to 0 is never quite 0. Warm-up takes the first w = round(warmup * total_steps) steps and
    multiplies them by 1/w, 2/w, ..., 1 on top of the schedule, which sees the progress of the WHOLE
    run: warm-up moves no boundary. A `warmup_level` above 0 multiplies them by itself instead, as
    He et al. 2015 (section 4.2) train at 0.01 before 0.1. `shape` are the schedule's own arguments.
    """
    _check_run(peak, total_steps, warmup)
    check(schedule, shape)
    rates = peak * SCHEDULES[schedule](np.arange(total_steps) / total_steps, **shape)
    w = round(warmup * total_steps)
    rates[:w] *= warmup_level or np.arange(1, w + 1) / max(w, 1)
    return rates


def figure(rates: ArrayLike) -> Figure:
    """Draw a table: rate against step, logarithmic rate axis; touches no global state."""
    from matplotlib.figure import Figure

    rates = np.asarray(rates, dtype=np.float64)
    if rates.ndim != 1 or rates.size == 0 or not np.all(rates > 0):
        raise UserError(
            "A table must be a non-empty vector of rates > 0. "
            f"Received: shape {rates.shape}. Make it with table(...)."
        )
    drawing = Figure(figsize=(6, 3), layout="constrained")
    axes = drawing.add_subplot(xlabel="step", ylabel="learning rate", yscale="log")
    axes.step(np.arange(rates.size), rates, where="post")
    return drawing


def _check_run(peak: float, total_steps: int, warmup: float) -> None:
    """Reject a peak rate, length or warm-up that no run can have."""
    if not (np.isfinite(peak) and peak > 0):
        raise UserError(f"peak must be a finite rate > 0. Received: peak={peak!r}.")
    if not isinstance(total_steps, int | np.integer) or total_steps < 1:
        raise UserError(
            f"total_steps must be an integer > 0. Received: total_steps={total_steps!r}."
        )
    if not 0 <= warmup < 1:
        raise UserError(
            "warmup must be a fraction of the run, 0 <= warmup < 1. "
            f"Received: warmup={warmup!r}. Divide steps by the total number of steps."
        )


def _half_wave(t: ArrayLike) -> Array:
    """Fall from 1 at progress 0 to 0 at progress 1, along half a period of the cosine."""
    return np.asarray((1 + np.cos(np.pi * np.asarray(t, dtype=np.float64))) / 2)


def _check_fraction(**fractions: float) -> None:
    """Reject a multiplier, or a share of the run, outside (0, 1]."""
    for name, value in fractions.items():
        if not 0 < value <= 1:
            raise _refusal(name, f"a fraction, 0 < {name} <= 1", value)


def _check_between(least: float, most: float, **numbers: float) -> None:
    """Reject an argument of a schedule outside [least, most]."""
    for name, value in numbers.items():
        if not least <= value <= most:
            raise _refusal(name, f"{least:g} <= {name} <= {most:g}", value)


def _refusal(name: str, rule: str, value: float) -> UserError:
    return UserError(
        f"{name} must be {rule}. Received: {name}={value!r}. Set --{name} accordingly."
    )
