"""Welch's confidence interval of a difference of two means, whose spreads may differ."""

import math

LEVEL = 0.95

Sample = tuple[float, float, float]
"""Mean, standard deviation, and number of values, 2 or more."""


def difference(old: Sample, new: Sample) -> tuple[float, float]:
    """The interval of the mean of `new` less that of `old`; one of the two has a spread."""
    from scipy.stats import t

    scale = max(old[1], new[1])  # of which the square need not be a finite number, nor above 0
    squares = [((sd / scale) ** 2 / n, n) for _, sd, n in (old, new)]
    total = sum(square for square, _ in squares)
    freedom = total**2 / sum(square**2 / (n - 1) for square, n in squares)
    half = float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(total) * scale
    return new[0] - old[0] - half, new[0] - old[0] + half
