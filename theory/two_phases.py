"""Stochastic descent from near zero to near-zero weights, in two phases; LY section 3, Lemma 2.5.

In the first phase the potential g falls, while the gradient may point away from the teacher; in the
second, <-grad, W* - W> > ONE_POINT ||W* - W||_F^2 and W converges. Rates and gradients are those of
scale "printed" (relu_population), pi times the true ones. gamma bounds ||W|| and ||W*|| at the
start, `noise` the noise of the gradient; all arguments broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
ONE_POINT = 0.03  # LY Theorem 3.3, printed scale
SECOND_PHASE = 0.1  # potential at most, where Theorem 3.3 holds
FLATTEST = 197  # the first phase ends with g <= 197 gamma^2


class FirstPhase(NamedTuple):
    """The first phase of LY Theorem 3.1; each [...]."""

    rate: Array  # largest
    steps: Array  # most, at that rate: 1/(16 rate)
    potential: Array  # largest, at the end


def gradient_sizes(d: ArrayLike, gamma: ArrayLike, noise: ArrayLike = 0.0) -> tuple[Array, Array]:
    """Return G_2 = 6 d gamma + noise and G_F = 6 d^{3/2} gamma + noise, LY Theorem 3.1; [...] each.

    ValueError if d or gamma is not > 0, or if noise < 0.
    """
    d, gamma, noise = (np.asarray(x, dtype=np.float64) for x in (d, gamma, noise))
    if not (np.all(d > 0) and np.all(gamma > 0) and np.all(noise >= 0)):
        raise ValueError(
            "d and gamma must be > 0 and noise >= 0. Received: least values "
            f"{d.min():g}, {gamma.min():g} and {noise.min():g}. Take them from the network."
        )
    return 6 * d * gamma + noise, 6 * d**1.5 * gamma + noise


def first_phase(d: ArrayLike, gamma: ArrayLike, noise: ArrayLike = 0.0) -> FirstPhase:
    """Return the first phase at rate gamma^2/G_2^2, LY Theorem 3.1. Errors: `gradient_sizes`."""
    rate = (np.asarray(gamma, dtype=np.float64) / gradient_sizes(d, gamma, noise)[0]) ** 2
    return FirstPhase(rate, 1 / (16 * rate), FLATTEST * np.asarray(gamma, dtype=np.float64) ** 2)


def second_phase_error(
    d: ArrayLike, gamma: ArrayLike, steps: ArrayLike, alpha: ArrayLike, noise: ArrayLike = 0.0
) -> Array:
    """Return a bound on E||W_T - W*||_F^2 after T steps of the second phase, LY Theorem 3.1.

    `descent_error` with delta = ONE_POINT and G = G_F; inf where T is under the `least_steps` from
    the distance sqrt(d)/50. Errors as in `gradient_sizes` and `descent_error`.
    """
    G = gradient_sizes(d, gamma, noise)[1]
    start = np.sqrt(np.asarray(d, dtype=np.float64)) / 50
    error = descent_error(steps, alpha, ONE_POINT, G)
    enough = np.asarray(steps) >= least_steps(start, alpha, ONE_POINT, G)
    return np.where(enough, error, np.inf)


def descent_rate(steps: ArrayLike, alpha: ArrayLike, delta: ArrayLike) -> Array:
    """Return (1+alpha) log T/(delta T), the rate of LY Lemma 2.5 for T steps; [...].

    ValueError if T < 2, alpha < 0 or delta is not > 0.
    """
    T, alpha, delta = (np.asarray(x, dtype=np.float64) for x in (steps, alpha, delta))
    if not (np.all(T >= 2) and np.all(alpha >= 0) and np.all(delta > 0)):
        raise ValueError(
            "Lemma 2.5 needs T >= 2, alpha >= 0 and delta > 0. Received: least values "
            f"{T.min():g}, {alpha.min():g} and {delta.min():g}. Take more steps."
        )
    return np.asarray((1 + alpha) * np.log(T) / (delta * T))[()]


def descent_error(steps: ArrayLike, alpha: ArrayLike, delta: ArrayLike, G: ArrayLike) -> Array:
    """Return (1+alpha) log T G^2/(delta^2 T), LY Lemma 2.5; [...]. Errors as in `descent_rate`.

    It bounds E||W_T - W*||_F^2 of T >= `least_steps` steps at `descent_rate`, where stochastic
    gradients have E||G_t||_F^2 <= G^2 and the mean one <-grad, W* - W> >= delta ||W* - W||_F^2.
    """
    over = np.asarray(G, dtype=np.float64) ** 2 / np.asarray(delta, dtype=np.float64)
    return np.asarray(descent_rate(steps, alpha, delta) * over)[()]


def worst_share(steps: ArrayLike, alpha: ArrayLike) -> Array:
    """Return what E||W_T - W*||^2 of the worst process is of `descent_error` (ours); [...].

    1/2 + (1/r - 1/2)(1 - 2r)^T, with r = (1+alpha) log T/T. The process has equality in the premise
    of LY Lemma 2.5, E|G_t|^2 = G^2 and <-grad, W* - W> = delta |W* - W|^2, and begins as far away
    as that allows, at G/delta. There m = E|W_t - W*|^2 delta^2/G^2 obeys m <- (1 - 2r) m + r^2, of
    which r/2 is the fixed point, and the bound is r. Where 2r <= 1 no process has more. Errors as
    in `descent_rate`.
    """
    r = descent_rate(steps, alpha, 1.0)
    return np.asarray(0.5 + (1 / r - 0.5) * (1 - 2 * r) ** np.asarray(steps))[()]


def least_steps(start: ArrayLike, alpha: ArrayLike, delta: ArrayLike, G: ArrayLike) -> Array:
    """Return the least T >= 2 with T^alpha log T >= start^2 delta^2/((1+alpha) G^2), LY Lemma 2.5.

    `start` bounds ||W_0 - W*||_F. A whole number, inf if it is above 1e308.
    """
    from scipy.special import lambertw

    start, alpha, delta, G = (np.asarray(x, dtype=np.float64) for x in (start, alpha, delta, G))
    needed = (start * delta / G) ** 2 / (1 + alpha)
    positive_alpha = np.where(alpha > 0, alpha, 1.0)  # x e^{alpha x} = needed, x = log T
    x = np.where(alpha > 0, lambertw(positive_alpha * needed).real / positive_alpha, needed)
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(2.0, np.ceil(np.exp(x))))[()]
