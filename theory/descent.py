"""Gradient descent on deep linear networks, its eigenvalue recursion, and power projection; B.

The loss is 1/2 ||Theta_L...Theta_1 - Phi||_F^2. Layers are Theta [..., l, d, d], Theta_1 first; the
target is Phi [..., d, d]. Leading axes broadcast, against those of the rate too, so that a sweep
over seeds and settings of one shape is one call. Shapes that disagree, and a depth that is not an
integer >= 1, raise a ValueError. Gradient descent that diverges ends in inf and nan, silently.

Negative eigenvalues of Phi hold descent back while all layers are equal, and rounding acts like
noise in the start. Diagonal layers stay diagonal, and without a penalty equal; otherwise descent
may escape after some hundred steps, so use `eigenvalue_recursion` for long runs.
"""

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import accumulate, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory._polar import Depth, check_depth, check_layers, check_square
from theory.factorization import balanced

Array = NDArray[np.float64]
Penalty = Callable[[Array], Array]  # Theta -> the gradient of a penalty there, as in penalties.py
_quiet = np.errstate(over="ignore", invalid="ignore")  # divergence is a result, not a warning


@_quiet
def product(Theta: ArrayLike) -> Array:
    """Return Theta_L...Theta_1 of layers [..., l, d, d]; shape [..., d, d]."""
    T = np.moveaxis(check_layers(Theta, "Theta"), -3, 0)
    return reduce(lambda P, M: M @ P, T, np.broadcast_to(np.eye(T.shape[-1]), T.shape[1:]))


def check_network(Theta: ArrayLike, Phi: ArrayLike) -> tuple[Array, Array]:
    """Return Theta [..., l, d, d], l >= 1, and Phi [..., d, d] in float64. ValueError otherwise."""
    Theta, Phi = check_layers(Theta, "Theta"), np.asarray(Phi, dtype=np.float64)
    if Theta.shape[-3] == 0 or Phi.shape[-2:] != Theta.shape[-2:]:
        raise ValueError(
            "Theta and Phi must be [..., l, d, d] and [..., d, d] with one d, l >= 1. "
            f"Received: shapes {Theta.shape} and {Phi.shape}. Make the last axes agree."
        )
    return Theta, Phi


def residual(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return E = Theta_L...Theta_1 - Phi; shape [..., d, d]."""
    Theta, Phi = check_network(Theta, Phi)
    return product(Theta) - Phi


@_quiet
def loss(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return 1/2 ||E||_F^2, B; shape [...]."""
    return np.asarray(np.sum(residual(Theta, Phi) ** 2, axis=(-2, -1)) / 2)[()]


def loss_gradient(Theta: ArrayLike, Phi: ArrayLike) -> Array:
    """Return the gradient of the loss in 3 l matrix products, B; shape [..., l, d, d].

    (Theta_L...Theta_{i+1})^T E (Theta_{i-1}...Theta_1)^T, half of linear_resnet.gradient at
    A = Theta - I, Sigma = I. That one adds A times a factor; only multiplying by Theta gives two
    equal diagonal layers equal gradients to the last bit.
    """
    Theta, Phi = check_network(Theta, Phi)
    T, G = np.moveaxis(Theta, -3, 0), []
    *P, end = accumulate(T, lambda P, M: M @ P, initial=np.eye(T.shape[-1]))
    B = end - Phi  # (Theta_L...Theta_{i+1})^T E, from i = l down
    for i in reversed(range(len(T))):
        G.append(B @ P[i].mT)
        B = T[i].mT @ B
    return np.stack(G[::-1], axis=-3)


def descent_path(
    Phi: ArrayLike,
    depth: int,
    rate: ArrayLike,
    steps: int,
    start: ArrayLike | None = None,
    *,
    penalty: Penalty | None = None,
) -> Iterator[Array]:
    """Yield Theta [..., l, d, d] at the steps 0, 1, ..., `steps` of descent on all layers at once.

    It starts at the identity unless `start` [..., l, d, d] is given, and descends the loss plus the
    penalty of which `penalty` is the gradient. ValueError if steps < 0 or if start does not have
    the depth and width given.
    """
    Theta, Phi, rate = _begin(Phi, depth, rate, steps, start)
    for _ in range(steps):
        yield Theta
        Theta = _step(Theta, Phi, rate, penalty)
    yield Theta


def gradient_descent(
    Phi: ArrayLike,
    depth: int,
    rate: ArrayLike,
    steps: int,
    start: ArrayLike | None = None,
) -> Array:
    """Return the losses [..., steps + 1] along `descent_path` without a penalty, B."""
    path = descent_path(Phi, depth, rate, steps, start)
    return np.stack([loss(Theta, Phi) for Theta in path], axis=-1)


def margin(M: ArrayLike) -> Array:
    """Return the least u^T M u over unit vectors u; [..., d, d] -> [...]."""
    M = check_square(M, "M")
    return np.asarray(np.linalg.eigvalsh((M + M.mT) / 2)[..., 0])[()]


def project_margin(M: ArrayLike, margin: ArrayLike) -> Array:
    """Return the matrix nearest to M (Frobenius) with u^T M u >= margin |u|^2, B; [..., d, d].

    It lifts eigenvalues of the symmetric part to the margin [...] and keeps the skew part.
    """
    M = check_square(M, "M")
    w, V = np.linalg.eigh((M + M.mT) / 2)
    lift = np.maximum(np.asarray(margin)[..., None] - w, 0)
    return np.asarray(M + (V * lift[..., None, :]) @ V.mT)


def projection_path(
    Phi: ArrayLike,
    depth: int,
    rate: ArrayLike,
    steps: int,
    margin: ArrayLike,
    *,
    start: ArrayLike | None = None,
) -> Iterator[Array]:
    """Yield Theta [..., l, d, d] at the steps 0, 1, ..., `steps` of `power_projection`."""
    low = np.asarray(margin, dtype=np.float64)
    if not np.all(low > 0):
        raise ValueError(f"margin must be > 0. Received: {margin=}. Take one that Phi has.")
    Theta, Phi, rate = _begin(Phi, depth, rate, steps, start, *low.shape)
    if start is None:
        Theta = Theta * low[..., None, None, None] ** (1 / depth)
    for t in range(1, steps + 1):
        yield Theta
        M = product(_step(Theta, Phi, rate))
        try:
            Theta = np.eye(M.shape[-1]) + balanced(project_margin(M, low), depth)
        except ValueError as error:
            raise ValueError(
                "Power projection must stay finite and well conditioned. Received: "
                f"{np.abs(M).max():.3g} as the largest entry at step {t}. Lower the rate."
            ) from error
    yield Theta


def power_projection(
    Phi: ArrayLike,
    depth: int,
    rate: ArrayLike,
    steps: int,
    margin: ArrayLike,
    *,
    start: ArrayLike | None = None,
) -> Array:
    """Return the losses [..., steps + 1] of power projection, B, for Phi with a positive margin.

    A step of `gradient_descent` on all layers, then `project_margin` of their product to the margin
    [...], then the `balanced` layers of the result. It starts at Theta_i = margin^{1/l} I, the
    balanced layers of margin I, unless `start` is given. ValueError if margin <= 0 or it diverges.
    """
    path = projection_path(Phi, depth, rate, steps, margin, start=start)
    return np.stack([loss(Theta, Phi) for Theta in path], axis=-1)


@_quiet
def eigenvalue_recursion(phi: ArrayLike, depth: Depth, rate: ArrayLike, steps: int) -> Array:
    """Return the layer eigenvalues lam of descent from the identity, Phi symmetric, B.

    lam <- lam + rate lam^{l-1} (phi - lam^l) from lam = 1, separately for each eigenvalue phi of
    Phi; phi, depth and rate broadcast to [...]. Shape [steps + 1, ...]. ValueError if steps < 0.
    """
    if steps < 0:
        raise ValueError(f"steps must be >= 0. Received: {steps=}. Count the iterations.")
    shape = np.broadcast_shapes(np.shape(phi), np.shape(depth), np.shape(rate))
    eigenvalues = np.empty((steps + 1, *shape))
    for k, (lam, _) in enumerate(islice(eigenvalue_path(phi, depth, rate), steps + 1)):
        eigenvalues[k] = lam
    return eigenvalues


def eigenvalue_path(phi: ArrayLike, depth: Depth, rate: ArrayLike) -> Iterator[tuple[Array, Array]]:
    """Yield lam and phi - lam^l [...] of `eigenvalue_recursion` forever, in the same two arrays."""
    phi, rate = np.asarray(phi, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    exponent = check_depth(depth) - 1.0  # integers as floats: exact signs, and no cast per step
    lam = np.ones(np.broadcast_shapes(phi.shape, exponent.shape, rate.shape))
    power, gap = np.empty_like(lam), np.empty_like(lam)
    while True:
        np.power(lam, exponent, out=power)
        np.multiply(lam, power, out=gap)
        np.subtract(phi, gap, out=gap)
        yield lam, gap
        power *= gap
        power *= rate
        lam += power


@_quiet
def _step(Theta: Array, Phi: Array, rate: Array, penalty: Penalty | None = None) -> Array:
    G = loss_gradient(Theta, Phi)
    return Theta - rate * (G + penalty(Theta) if penalty else G)


def _begin(
    Phi: ArrayLike, depth: int, rate: ArrayLike, steps: int, start: ArrayLike | None, *more: int
) -> tuple[Array, Array, Array]:
    """Return Theta at step 0, Phi, and the rate to multiply Theta by; `more` are leading axes."""
    Phi, rate = check_square(Phi, "Phi"), np.asarray(rate, dtype=np.float64)
    if steps < 0:
        raise ValueError(f"steps must be >= 0. Received: {steps=}. Count the iterations.")
    layers = (operator.index(check_depth(depth)), *Phi.shape[-2:])
    start = np.broadcast_to(np.eye(layers[-1]), layers) if start is None else np.asarray(start)
    if start.shape[-3:] != layers:
        raise ValueError(
            f"start must be [..., l, d, d] with {depth=} and the width of Phi, {layers[-1]}. "
            f"Received: shape {start.shape}. Pass one matrix for each layer."
        )
    lead = np.broadcast_shapes(Phi.shape[:-2], rate.shape, start.shape[:-3], more)
    Theta = np.array(np.broadcast_to(start, (*lead, *layers)), dtype=np.float64)
    return Theta, Phi, rate[..., None, None, None]
