"""Smooth invertible maps with their Jacobians: Henon's map, x + c tanh(Wx), a pendulum's flow,
and (x, b + f(x)), which carries a function f: R^d -> R that no map of R^d could invert.

Each knows on the ball |x| <= radius the constants of B's theorem, in closed form and never too
small: alpha, the Lipschitz constant of its Jacobian, and M, that of its inverse on the image.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory._polar import check_depth, check_square

Array = NDArray[np.float64]
Map = Callable[[Array], Array]


@dataclass(frozen=True)
class SmoothMap:
    """A map of points [..., n, d], itself callable; leading axes are those of its parameters."""

    function: Map  # [..., n, d] -> [..., n, d]
    jacobian: Map  # [..., n, d] -> [..., n, d, d]
    constants: Callable[[float], tuple[Array, Array]]  # radius -> alpha and M, [...] each
    dimension: int = 2

    def __call__(self, x: Array) -> Array:
        return self.function(x)


def normalize(h: SmoothMap, x0: ArrayLike) -> SmoothMap:
    """Return g(x) = Dh(x0)^{-1} (h(x0 + x) - h(x0)), so that g(0) = 0 and Dg(0) = I; x0 [..., d].

    Its constants are ||Dh(x0)^{-1}|| alpha and ||Dh(x0)|| M of h on a ball that holds the one about
    x0. ValueError as in `derivative`.
    """
    x0, J = np.asarray(x0, dtype=np.float64), derivative(h, x0)
    shift, K = x0[..., None, :], np.linalg.inv(J)
    start = h.function(shift)

    def constants(radius: float) -> tuple[Array, Array]:
        alpha, M = h.constants(radius + float(np.max(np.linalg.norm(x0, axis=-1))))
        sizes = [np.linalg.norm(X, 2, axis=(-2, -1)) for X in (K, J)]
        return np.asarray(sizes[0] * alpha), np.asarray(sizes[1] * M)

    return SmoothMap(
        lambda x: (h.function(shift + x) - start) @ K.mT,
        lambda x: K[..., None, :, :] @ h.jacobian(shift + x),
        constants,
        h.dimension,
    )


def derivative(h: SmoothMap, x0: ArrayLike) -> Array:
    """Return Dh(x0) at x0 [..., d]; shape [..., d, d].

    ValueError unless det Dh(x0) > 0: no layer near the identity reverses the orientation.
    """
    J = check_square(
        h.jacobian(np.asarray(x0, dtype=np.float64)[..., None, :])[..., 0, :, :], "Dh(x0)"
    )
    if not np.all((det := np.linalg.det(J)) > 0):
        raise ValueError(
            "h must keep the orientation, det Dh(x0) > 0, as all layers within eps < 1 of the "
            f"identity do. Received: det Dh(x0)={np.min(det):.3g}. Follow h by a reflection, or "
            "choose other parameters (Henon's map: b < 0)."
        )
    return J


def _shear(size: float) -> Array:
    """Return the spectral norm of [[1, 0], [size, 1]]."""
    return np.asarray(size / 2 + np.hypot(1, size / 2))


def _normal_henon(a: float) -> SmoothMap:
    def jacobian(x: Array) -> Array:
        J = np.broadcast_to(np.eye(2), (*x.shape, 2)).copy()
        J[..., 1, 0] = -2 * a * x[..., 0]
        return J

    return SmoothMap(
        lambda x: np.stack([x[..., 0], x[..., 1] - a * x[..., 0] ** 2], axis=-1),
        jacobian,
        lambda radius: (np.asarray(2 * abs(a)), _shear(2 * abs(a) * radius)),
    )


A = 1.4  # Henon's usual parameter
HENON = _normal_henon(A)
"""(x1, x2 - 1.4 x1^2): Henon's map normalized, the same at every point x0 and for every b < 0."""


def henon_largest(layers: int, schedule: str = "uniform", radius: float = 1.0) -> float:
    """Return max ||h_i - Id||_L of HENON's m layers, exactly; the equal steps are the uniform ones.

    2aR/m if uniform; 2aR max(ln m / m, 1 - (ln m / m)^{1/(m-1)}) if geometric, for m >= 2.
    ValueError for another schedule, or if layers is not an integer >= 1.
    """
    m = int(check_depth(layers))
    if schedule not in ("uniform", "geometric", "equalised"):
        raise unknown_schedule(schedule)
    if m == 1 or schedule != "geometric":
        return 2 * A * radius / m
    first = np.log(m) / m
    return float(2 * A * radius * max(first, 1 - first ** (1 / (m - 1))))


def unknown_schedule(schedule: str) -> ValueError:
    """Return the sentence for a schedule that is none."""
    return ValueError(
        f"schedule must be uniform, geometric or equalised. Received: {schedule!r}. Choose one."
    )


def henon_map(a: float = A, b: float = -0.3) -> SmoothMap:
    """Return Henon's map (x1, x2) -> (1 - a x1^2 + x2, b x1); it keeps orientation if b < 0."""

    def jacobian(x: Array) -> Array:
        J = np.zeros((*x.shape, 2))
        J[..., 0, 0], J[..., 0, 1], J[..., 1, 0] = -2 * a * x[..., 0], 1, b
        return J

    def constants(radius: float) -> tuple[Array, Array]:
        backward = [[0, 1 / b], [1, 2 * a * radius / abs(b)]]
        return np.asarray(2 * abs(a)), np.asarray(np.linalg.norm(backward, 2))

    return SmoothMap(
        lambda x: np.stack([1 - a * x[..., 0] ** 2 + x[..., 1], b * x[..., 0]], axis=-1),
        jacobian,
        constants,
    )


def tanh_map(W: ArrayLike, c: float) -> SmoothMap:
    """Return x + c tanh(Wx), W [..., d, d]; alpha = 4 |c| ||W|| max |w_j| / sqrt(27), w_j W's rows.

    M = 1 / (1 - |c| ||W||). ValueError unless |c| ||W|| < 1.
    """
    W = check_square(W, "W")
    norm = np.linalg.norm(W, 2, axis=(-2, -1))
    if not np.all(abs(c) * norm < 1):
        raise ValueError(
            "x + c tanh(Wx) is invertible if |c| ||W|| < 1. Received: |c| ||W||="
            f"{np.max(abs(c) * norm):.3g}. Scale c or W down."
        )
    curvature = 4 / np.sqrt(27) * np.max(np.linalg.norm(W, axis=-1), axis=-1)  # max |tanh''|

    def jacobian(x: Array) -> Array:
        slope = 1 - np.tanh(x @ W.mT) ** 2
        return np.asarray(np.eye(W.shape[-1]) + c * slope[..., None] * W[..., None, :, :])

    return SmoothMap(
        lambda x: x + c * np.tanh(x @ W.mT),
        jacobian,
        lambda radius: (np.asarray(abs(c) * norm * curvature), 1 / (1 - abs(c) * norm)),
        W.shape[-1],
    )


def bump(centre: Array, x: Array) -> Array:
    """Return exp(-|x - c|^2/2) at x [..., n, d], c [..., d], from R^d to R; [..., n]."""
    return np.asarray(np.exp(-np.sum((x - centre[..., None, :]) ** 2, axis=-1) / 2))


def graph_map(centre: ArrayLike) -> SmoothMap:
    """Return (x, b) -> (x, b + f(x)) of R^{d+1}, f the `bump` about c [..., d]: f(x) at b = 0.

    Its inverse is (x, b - f(x)); alpha = max |f''| = 1, and M that of a shear by max |f'| = 0.61.
    """
    c = np.asarray(centre, dtype=np.float64)
    d = c.shape[-1]

    def lift(z: Array) -> Array:
        top = (z[..., -1] + bump(c, z[..., :-1]))[..., None]
        x = np.broadcast_to(z[..., :-1], (*top.shape[:-1], d))
        return np.concatenate([x, top], axis=-1)

    def jacobian(z: Array) -> Array:
        x = z[..., :-1]
        slope = bump(c, x)[..., None] * (c[..., None, :] - x)
        J = np.broadcast_to(np.eye(d + 1), (*slope.shape[:-1], d + 1, d + 1)).copy()
        J[..., -1, :-1] = slope
        return J

    return SmoothMap(
        lift,
        jacobian,
        lambda radius: (np.asarray(1.0), _shear(np.exp(-0.5))),
        d + 1,
    )


def pendulum(damping: float = 0.2, time: float = 1.5, steps: int = 24) -> SmoothMap:
    """Return the flow of (angle, v)' = (v, -sin angle - damping v), by Runge-Kutta of order 4.

    The Jacobian integrates the variational equation by the same steps: it is that of the computed
    flow. With the logarithmic norms mu of the right-hand side and nu of its negative,
    alpha = e^{mu t} (e^{mu t} - 1) / mu and M = e^{nu t}; both are of the exact flow. ValueError
    unless steps >= 1 and time >= 0.
    """
    if not (steps >= 1 and 0 <= time < np.inf):
        raise ValueError(
            "A flow is that of a finite time >= 0 in steps >= 1. "
            f"Received: {time=}, {steps=}. Set both so."
        )
    root = np.hypot(damping, 2)
    mu, nu = (root - damping) / 2, (root + damping) / 2
    alpha, M = np.exp(mu * time) * np.expm1(mu * time) / mu, np.exp(nu * time)

    def flow(state: Array) -> Array:
        k = time / steps
        for _ in range(steps):
            a = _swing(state, damping)
            b = _swing(state + k / 2 * a, damping)
            c = _swing(state + k / 2 * b, damping)
            state = state + k / 6 * (a + 2 * (b + c) + _swing(state + k * c, damping))
        return state

    def jacobian(x: Array) -> Array:
        tangents = np.broadcast_to(np.eye(2), (*x.shape, 2))
        return flow(np.concatenate([x[..., None], tangents], axis=-1))[..., 1:]

    return SmoothMap(
        lambda x: flow(x[..., None])[..., 0],
        jacobian,
        lambda radius: (np.asarray(alpha), np.asarray(M)),
    )


def _swing(state: Array, damping: float) -> Array:
    """Return d/dt of [..., 2, k]: the first column is a point, the others its tangents."""
    angle, speeds = state[..., 0, :1], state[..., 1, :]
    pull = np.concatenate([np.sin(angle), np.cos(angle) * state[..., 0, 1:]], axis=-1)
    return np.stack([speeds, -pull - damping * speeds], axis=-2)
