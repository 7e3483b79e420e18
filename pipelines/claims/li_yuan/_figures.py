"""Pictures of the two-layer ReLU network's descent that claims share; LY Figures 3, 4 and 8."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.claims._figures import panels, place_legend_below
from pipelines.measurement.grid import Array, Measured, select
from theory.circulant import SCALES, circulant_measures, circulant_start
from theory.two_phases import SECOND_PHASE

POINTS = 49  # on each axis of the plane
WIDEST = 1500  # network whose plane is drawn: wider ones look the same
CURVES = {
    "distance": "distance |W - W*|_F",
    "inner_product": "inner product <-grad, W* - W>",
    "potential": "potential g",
    "loss": "loss",
}
STYLES = {"true": "-", "printed": ":", "sgd": "."}
TURN = "turn_at_trace_"  # begins the curves that say where other starts turn
WAYS = {"true": "by the gradient", "printed": "by π times it, as printed", "sgd": "by batches"}


def first_step(m: Measured, holds: NDArray[np.bool_]) -> float:
    """Return the first step at which a condition, given at every step, holds; inf if at none."""
    return float(m.steps[holds.argmax()]) if holds.any() else np.inf


def measure_plane(d: int, sizes: Array, traces: Array) -> dict[str, Array]:
    """Return `circulant_measures` of W = a S + (tr/d) I, S skew, |S|_F = 1; [traces, sizes]."""
    columns, rows = sizes[:, None] * circulant_start(d, 1.0, 0.0), []
    for trace in traces:
        columns[:, 0] = trace / d  # where that of a skew S is 0
        rows.append(circulant_measures(columns))
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def height_above_chords(loss: Array, sizes: Array, traces: Array) -> Array:
    """Return how far a line from W* = 0 to a point is below the loss, > 0 if it is not convex."""
    from scipy.interpolate import RectBivariateSpline

    smooth = RectBivariateSpline(traces, sizes, loss)
    share = np.linspace(0.05, 0.95, 19)[:, None, None]
    x, y = np.broadcast_arrays(share * sizes, share * traces[:, None])
    return np.asarray(np.max(smooth.ev(y, x) - share * loss, axis=0))


def draw_landscape(
    axes: Any, d: int, widest: float, lowest: float, *, chords: bool = False
) -> None:
    """Draw the loss by skew part, up to `widest`, and trace, from `lowest`; W* = 0, d <= WIDEST.

    Red where the gradient points away from W*; with `chords`, orange where the loss is above a line
    from W*.
    """
    sizes, traces = np.linspace(-widest, widest, POINTS), np.linspace(lowest, -lowest / 5, POINTS)
    plane = measure_plane(min(d, WIDEST), sizes, traces)
    levels = np.geomspace(0.02, 40, 15)
    colours = {"norm": "log", "cmap": "Blues", "alpha": 0.8, "extend": "both"}
    axes.contourf(sizes, traces, plane["loss"], levels, **colours)
    if chords:
        above = height_above_chords(plane["loss"], sizes, traces)
        axes.contourf(sizes, traces, above, [0, np.inf], colors="C1", alpha=0.5)
        axes.fill_between([], [], color="C1", alpha=0.5, label="not convex: above a line to W*")
    axes.contourf(sizes, traces, plane["inner_product"], [-np.inf, 0], colors="C3", alpha=0.5)
    axes.fill_between([], [], color="C3", alpha=0.5, label="-grad points away from W*")
    axes.contour(sizes, traces, plane["potential"], [SECOND_PHASE], colors="k", linestyles="--")
    axes.plot([], [], "k--", label=f"g = {SECOND_PHASE:g}, less above")
    axes.plot(0, 0, "k*", markersize=10, linestyle="none", label="teacher W* = 0")
    axes.set(xlabel="skew part of W: ± its Frobenius norm", ylabel="tr W")
    axes.set_title(f"loss at d = {min(d, WIDEST)}, darker is more", fontsize=10)


def draw_phases(measured: Sequence[Measured]) -> Any:
    """Draw LY Figure 8a with all descents; one to convergence; its path on the loss, Figure 3.

    Beside them, the iteration of the change of sign against the trace at the start.
    """
    d, seed = max(m.point["d"] for m in measured), measured[0].cell.seed
    chosen = [m for m in select(measured, d=d) if m.cell.seed == seed]
    chosen.sort(key=lambda m: int(m.steps[-1]))
    picture, (first, whole, plane, turns) = panels(4, 20, 5.6)
    for m in chosen:
        _draw_start(first, m)
    first.axhline(0, color="k", linewidth=0.8)
    first.set(xlabel="iteration", xlim=(0, 100), title=f"d = {d}; colours as beside")
    for colour, (key, label) in enumerate(CURVES.items()):
        values = chosen[-1].curves[key]
        line = np.where(values > 0, values, np.nan)
        whole.plot(chosen[-1].steps + 1, line, f"C{colour}", label=label)
    whole.set(xscale="log", yscale="log", xlabel="iteration + 1")
    whole.set_title(f"to convergence, {WAYS[chosen[-1].point['descent']]}")
    _draw_path(plane, chosen[-1], d)
    _draw_turns(turns, select(measured, d=d, descent="sgd"))
    for axes in (first, whole, plane, turns):
        place_legend_below(axes)
    return picture


def _draw_turns(axes: Any, measured: Sequence[Measured]) -> None:
    """Draw by seed the iteration of the change of sign by batches against tr W / |W|_F^2."""
    for m in measured:
        others = {-int(key.removeprefix(TURN)) / 100: key for key in m.curves if TURN in key}
        turns = {trace: float(m.curves[key][0]) for trace, key in others.items()}
        turns[m.point["trace"]] = first_step(m, m.curves["inner_product"] > 0)
        traces = sorted(turns)
        axes.plot(traces, [turns[each] for each in traces], "C0o-", markersize=4, alpha=0.7)
        axes.set_xticks(traces, [f"{each:g}" for each in traces], rotation=45)
    axes.plot([], [], "C0o-", label="by batches, a seed each")
    axes.axhline(15, color="k", linestyle="--", linewidth=1, label="LY Figure 8: about 15")
    axes.set(xlabel="tr W / |W|_F² at the start, which LY do not state", ylabel="iteration")
    axes.set_title("where the inner product turns positive", fontsize=10)


def _draw_start(axes: Any, m: Measured) -> None:
    """Draw four curves, inner products on the true scale; a ring where these turn positive."""
    way, early = m.point["descent"], m.steps <= 100
    true = {"inner_product": SCALES["true"] / SCALES["printed" if way == "printed" else "true"]}
    for colour, key in enumerate(CURVES):
        values = true.get(key, 1) * m.curves[key][early]
        axes.plot(m.steps[early], values, f"C{colour}{STYLES[way]}", markersize=4)
    change = first_step(m, m.curves["inner_product"] > 0)
    label = f"{WAYS[way]}: inner product > 0 at {change:.0f}"
    axes.plot([], [], f"k{STYLES[way]}", label=label if change < np.inf else WAYS[way])
    if change < np.inf:
        axes.plot(change, 0, "ko", fillstyle="none", markersize=9)


def _draw_path(axes: Any, m: Measured, d: int) -> None:
    """Draw the path of a descent over the loss, its phases told apart."""
    trace, g = m.curves["trace"], m.curves["potential"]
    size = np.sqrt(np.maximum(m.curves["distance"] ** 2 - trace**2 / d, 0))
    draw_landscape(axes, d, 1.15 * float(size.max()), 1.15 * float(trace.min()))
    away, last = m.curves["inner_product"] < 0, g <= SECOND_PHASE
    axes.plot(size[away], trace[away], "C3", linewidth=3, label="first phase: g falls")
    axes.plot(size[~away], trace[~away], "C8", linewidth=3)
    axes.plot(size[last], trace[last], "C2", linewidth=3, label="second phase: W converges")
    axes.plot(size[0], trace[0], "ko", label="start")
    axes.set_title(f"the path over the {axes.get_title()}", fontsize=10)
