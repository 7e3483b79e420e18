"""Parts of figures that claims share."""

from typing import Any


def panels(count: int, width: float = 10, height: float = 4, **shares: Any) -> tuple[Any, Any]:
    """Return a figure of that size in inches, and the axes of its panels beside one another.

    `shares` may have their `width_ratios`. One panel is its axes themselves.
    """
    from matplotlib.figure import Figure

    picture = Figure(figsize=(width, height), layout="constrained")
    return picture, picture.subplots(1, count, **shares)


def place_legend_below(axes: Any, columns: int = 2) -> None:
    """Place the legend of a panel below its horizontal axis."""
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=columns)
