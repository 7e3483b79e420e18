"""Random unit vectors are nearly orthogonal in dimensions of 13.9 log r; 4 log r are too few.

HM section 3 remarks on the vectors that stand for the labels; k is the dimension, r their number.

It is so with another constant (ours): of r(r-1)/2 pairs as many are expected to reach 0.5 as the
beta distribution gives each (theory.unit_vectors), and that number is an upper bound of the
probability that any pair does. It falls as (3/4)^(k/2): dimensions of 4/log(4/3) = 13.9 times log r
are needed, and suffice. The base of the logarithm is not stated: the smallest k above 4 log r is
measured for the natural one and for base 2, which gives more dimensions. Read of each pair alone,
not of all, the remark holds for 99.7 % of them at r = 1000; but then r would not occur in it. HM's
Theorem 3.2, which uses such vectors, needs other constants only.

Measured, over r (the chart's step), in `draws` draws: `natural_log_pairs` and `log2_pairs`, mean
numbers of pairs of at least 0.5 at these k; `z`, the mean count less what is expected, over its
standard deviation, the larger of both; `needed_k`, the least k at which at most `failure` pairs are
expected; `failing_draws` of that k, in which a pair reaches 0.5, and `failing_p`, the probability
of so many or more if each fails with the probability `failure`; `expected_at_factor`, the pairs
expected at k = 13.9 log r, rounded up.

Run: python -m pipelines run random-vectors-nearly-orthogonal
     python -m pipelines sweep random-vectors-nearly-orthogonal --grid failure=0.1,0.01,0.001
Expect: at r = 1000 natural_log_pairs 1437 ± 5 (k = 28, 1,435 expected), log2_pairs 218 ± 2 (k =
40), needed_k 107; expected_at_factor 0.059 at r = 10 and falling; failing_p 0.33 ± 0.30, z 1.6 ±
0.6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import UserError, check_counts, check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cell, Cells, Curves, Measured, join, stack, stack_rows
from pipelines.measurement.quotation import STEP, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.unit_vectors import (
    count_pairs,
    expected_pairs,
    logarithm_factor,
    needed_dimension,
    random_unit_vectors,
    reaching_probability,
)

PRINTED_FACTOR = 4  # multiplies log r
BASES = {"natural_log": np.e, "log2": 2.0}


@dataclass(frozen=True)
class Setting:
    """The vectors, and how often they are drawn."""

    r: tuple[int, ...] = (10, 30, 100, 300, 1000)
    """Numbers of vectors."""
    failure: float = 0.01
    """Probability that may remain for some pair to reach 0.5."""
    draws: int = 100
    """Draws of all vectors."""

    def __post_init__(self) -> None:
        check_sizes(3, r=self.r)
        check_counts(draws=self.draws)
        if not 0 < self.failure < 1:
            raise UserError(
                f"failure must be in (0, 1). Received: failure={self.failure:g}. Set --failure."
            )


def printed_dimension(r: int, base: float) -> int:
    """Return the smallest whole number above 4 log r."""
    return int(PRINTED_FACTOR * np.log(r) / np.log(base)) + 1


def measure(cells: Cells) -> Curves:
    """Return counts and dimensions at every r; [n, r]."""
    r = cells.shared("r")
    rows = []
    for cell in cells.cells:
        rng = np.random.default_rng(cell.seed)
        rows.append([measure_count(rng, count, cell) for count in r])
    return r, stack_rows([stack_rows(row) for row in rows])


def measure_count(rng: np.random.Generator, r: int, cell: Cell) -> dict[str, float]:
    """Return the numbers of r vectors."""
    from scipy.stats import binom

    draws, failure = cell.point["draws"], cell.point["failure"]
    numbers, z = {}, []
    for name, base in BASES.items():
        k = printed_dimension(r, base)
        numbers[f"{name}_pairs"] = float(np.mean(draw_counts(rng, r, k, draws)))
        expected, p = float(expected_pairs(r, k)), float(reaching_probability(k))
        sd = np.sqrt(expected * (1 - p) / draws)
        z.append(abs(numbers[f"{name}_pairs"] - expected) / sd)
        numbers[f"{name}_expected"] = expected
    k = needed_dimension(r, failure)
    failing = np.count_nonzero(draw_counts(rng, r, k, draws))
    return numbers | {
        "z": max(z),
        "needed_k": k,
        "failing_draws": failing,
        "failing_p": float(binom.sf(failing - 1, draws, failure)),
        "expected_at_factor": float(expected_pairs(r, np.ceil(logarithm_factor() * np.log(r)))),
    }


def draw_counts(rng: np.random.Generator, r: int, k: int, draws: int) -> Array:
    """Return in each draw of r vectors in R^k the pairs of at least 0.5; [draws]."""
    return np.array([count_pairs(random_unit_vectors(rng, r, k)) for _ in range(draws)])


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the fewest pairs at 4 log r over r and bases, and numbers at the largest r."""
    pairs = [join(measured, f"{name}_pairs") for name in BASES]
    last = {
        key: float(np.mean([m.curves[key][-1] for m in measured]))
        for key in (*(f"{name}_pairs" for name in BASES), "needed_k")
    }
    return {"fewest_pairs": float(np.min(pairs)), **last}


def figure(measured: Sequence[Measured]) -> Any:
    """Draw pairs at 4 log r, measured and expected; dimensions needed, and 4 and 13.9 log r."""
    picture, (left, right) = panels(2)
    r = measured[0].steps
    for colour, (name, base) in enumerate(BASES.items()):
        label = "natural logarithm" if base == np.e else "base 2"
        left.plot(r, measured[0].curves[f"{name}_expected"], f"C{colour}--")
        pairs = stack(measured, f"{name}_pairs").mean(axis=0)
        left.plot(r, pairs, f"C{colour}o", label=f"k > 4 log r, {label}")
        right.plot(r, [printed_dimension(n, base) for n in r], f"C{colour}s-", markersize=4)
    right.plot(r, measured[0].curves["needed_k"], "C2o-", markersize=4)
    right.plot(r, logarithm_factor() * np.log(r), "k:")
    left.plot(r, measured[0].curves["expected_at_factor"], "k:", label="k = 13.9 log r")
    left.plot(
        r,
        np.array([expected_pairs(n, needed_dimension(n, measured[0].point["failure"])) for n in r]),
        "C2--",
        label="the k that is needed",
    )
    left.set(xscale="log", yscale="log", xlabel="vectors r", ylabel="pairs of at least 0.5")
    left.set_title("points: measured; lines: expected", fontsize=10)
    left.legend(fontsize=8)
    right.set(xscale="log", xlabel="vectors r", ylabel="dimension k", ylim=(0, None))
    right.set_title("dimensions, colours as beside", fontsize=10)
    return picture


CLAIM = Theorem(
    source="HM section 3",
    says="In dimensions k of about 13.9 log r, r random unit vectors have inner products below "
    "0.5; in 4 log r dimensions many pairs reach it",
    formula=r"\begin{split} "
    r"&q_1, \dots, q_r \text{ uniform on the unit sphere of } \mathbb{R}^k: \\ "
    r"&\mathbb{E}\, \# \{ i < j: \langle q_i, q_j \rangle \ge \tfrac12 \} "
    r"= \frac{r (r - 1)}{4}\, I_{3/4} \Bigl( \frac{k - 1}{2}, \frac12 \Bigr) "
    r"\ge P \bigl( \max_{i < j} \langle q_i, q_j \rangle \ge \tfrac12 \bigr), \\ "
    r"&k_\varepsilon(r) = \min \{ k: \mathbb{E}\, \# \le \varepsilon \} "
    r"\sim \frac{4}{\log \frac43}\, \log\, r = 13.9 \log\, r \end{split}",
    family="linear theory",
    scales={"smoke": Setting((10, 100), draws=30), "cpu": Setting()},
    decided_by=(
        always("z", at_most=5),
        always("failing_p", at_least=1e-6),
        always("expected_at_factor", at_most=0.1),
    ),
    printed=(
        Quotation(
            words="In high dimensions (technically, if k > 4 log r) random unit vectors "
            "q1, ..., qr are pair-wise uncorrelated with inner product less than < 0.5.",
            place="HM section 3",
            needs={"k and r": True},
            bounds=(always("fewest_pairs", at_most=0),),
            broken=STEP,
            note="a remark; the fewest pairs of at least 0.5 over r and over the natural logarithm "
            "and base 2. It holds with 13.9 in place of 4",
        ),
    ),
    costs={"cpu": seconds(9)},
    measure=measure,
    extra_metrics=extra_metrics,
    shown=("natural_log_pairs", "log2_pairs", "needed_k"),
    figure=figure,
    inner="r",
    charts=(("natural_log_pairs", "log2_pairs", "natural_log_expected", "log2_expected"),),
)
