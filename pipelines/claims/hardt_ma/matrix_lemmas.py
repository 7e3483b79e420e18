"""Three statements on matrices that the proofs of HM use.

A.1: a rotation is a product of 2q orthogonal matrices within pi/q of the identity: q turn the
angles below pi, q turn the pairs of -1.

Measured: random rotations, and rotations with one pair of -1 and all else 1. `rotation_ratio` is
the largest |W_j - I| over pi/q, `rotation_error` the largest error of the product. `normal_error`
is |S D S^T - N| / |N| for random normal matrices of real and complex eigenvalues, two equal.
`product_ratio` is |AB|_F over s_min(A) |B|_F, the least of `pairs` Gaussian ones; `product_gap` its
distance from 1 where it is an equality, B of one column along the last right singular vector of A.

Run: python -m pipelines run matrix-lemmas
     python -m pipelines sweep matrix-lemmas --grid d=2:20:2 --grid q=1:64:2x
Expect: rotation_ratio 0.9999, rotation_error 2e-14, normal_error 3e-15, product_ratio 1 (at d = 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.errors import check_sizes
from pipelines.measurement.claim import Theorem
from pipelines.measurement.grid import Array, Cells, Curves, Measured, group_by, stack, stack_rows
from pipelines.measurement.quotation import FAILS, Quotation
from pipelines.measurement.verdict import always
from pipelines.recipes.cost import seconds
from theory.factorization import compose, max_norm, rotation_layers
from theory.normal_matrices import normal_form

MATRIX = (-2, -1)  # axes of one


@dataclass(frozen=True)
class Setting:
    """Sizes."""

    d: tuple[int, ...] = (1, 2, 3, 8, 32)
    """Matrix dimensions."""
    q: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Factors for each of the two kinds of angles."""
    pairs: int = 100
    """Products of two Gaussian matrices."""

    def __post_init__(self) -> None:
        check_sizes(1, d=self.d, q=self.q, pairs=(self.pairs,))


def instance(rng: np.random.Generator, d: int, pairs: int) -> tuple[Array, Array, Array]:
    """Return two rotations [2, d, d], a normal matrix [d, d], factors A, B [2, pairs, d, d]."""
    O = np.linalg.qr(rng.normal(size=(d, d)))[0]  # noqa: E741 - an orthogonal matrix
    O[:, 0] *= np.linalg.det(O)
    flips = np.where(np.arange(d) < 2 * (d > 1), -1.0, 1.0)  # one pair of -1
    values = rng.normal(size=d)
    values[-2:] = values[-1]
    N = np.diag(values)
    for i in range(0, d - 1, 4):  # every other pair of axes turns and grows
        a, b = rng.normal(size=2)
        N[i : i + 2, i : i + 2] = [[a, -b], [b, a]]
    return np.stack([O, O * flips @ O.T]), O @ N @ O.T, rng.normal(size=(2, pairs, d, d))


def measure(cells: Cells) -> Curves:
    """Return the three statements; those without q are the same at every step; [n, q]."""
    Q, N, factors = cells.draw(instance, "d", "pairs")
    columns = [rotation_numbers(rotation_layers(Q, q), Q) for q in cells.shared("q")]
    curves = stack_rows(columns, axis=-1)
    constant = {"normal_error": normal_error(N), **product_curves(factors[:, 0], factors[:, 1])}
    shape = curves["rotation_ratio"].shape
    return cells.shared("q"), curves | {
        name: np.broadcast_to(values[:, None], shape) for name, values in constant.items()
    }


def rotation_numbers(W: Array, Q: Array) -> dict[str, Array]:
    """Return distances from I of factors I + W [n, 2, 2q, d, d], of their products from Q; [n]."""
    largest = max_norm(W).max(axis=-1)
    error = np.linalg.norm(compose(W) - Q, axis=MATRIX).max(axis=-1)
    return {"rotation_ratio": largest * W.shape[-3] / (2 * np.pi), "rotation_error": error}


def normal_error(N: Array) -> Array:
    """Return |S D S^T - N| / |N|; [n]."""
    S, D = normal_form(N)
    size = partial(np.linalg.norm, axis=MATRIX)
    return np.asarray(size(S @ D @ S.mT - N) / size(N))


def product_curves(A: Array, B: Array) -> dict[str, Array]:
    """Return |AB|_F / s_min(A) |B|_F of pairs [n, pairs, d, d], and its error at equality; [n]."""
    s, last = np.linalg.svdvals(A)[..., -1], np.linalg.svd(A)[2][..., -1:, :].mT
    size = partial(np.linalg.norm, axis=MATRIX)
    return {
        "product_ratio": np.min(size(A @ B) / (s * size(B)), axis=-1),
        "product_gap": np.max(np.abs(size(A @ last) / s - 1), axis=-1),
    }


def figure(measured: Sequence[Measured]) -> Any:
    """Draw q |W_j - I| against q in every dimension; the least |AB|_F over its bound."""
    picture, (left, right) = panels(2)
    for d, chosen in group_by(measured, "d"):
        mean = np.pi * stack(chosen, "rotation_ratio").mean(axis=0)
        left.plot(chosen[0].steps, mean, "o-", markersize=3, label=f"d = {d}")
        ratios = stack(chosen, "product_ratio")[:, 0]
        right.plot(np.full(len(ratios), d), ratios, "o", markersize=4)
    left.axhline(np.pi, color="k", linestyle="--", linewidth=1, label="π")
    left.set(xscale="log", xlabel="q", ylabel="q · max |W_j - I|", ylim=(-0.1, 3.4))
    left.legend(fontsize=8)
    right.axhline(1, color="k", linestyle="--", linewidth=1)
    right.set(xscale="log", xlabel="d", ylabel="least |AB|_F / (s_min(A) |B|_F)", ylim=(0, None))
    pairs = measured[0].point["pairs"]
    right.set_title(f"the least of {pairs} pairs, one point a seed", fontsize=10)
    return picture


NORMAL = always("normal_error", at_most=1e-12)
PRODUCT = always("product_ratio", at_least=1 - 1e-12)
CLAIM = Theorem(
    source="HM Claims A.1, C.1, C.2",
    says="A rotation is a product of 2q matrices within pi/q of the identity; a real normal matrix "
    "is orthonormally similar to blocks of at most 2 x 2; |AB|_F >= s_min(A) |B|_F",
    formula=r"\begin{split} "
    r"Q \in SO(d) &\;\Longrightarrow\; Q = W_{2q} \cdots W_1,\quad W_j^\top W_j = I,\; "
    r"\lVert W_j - I \rVert \le \frac{\pi}{q}, \\ "
    r"N N^\top = N^\top N &\;\Longrightarrow\; N = S \operatorname{diag}(D_1, \dots, D_m) "
    r"S^\top,\; S^\top S = I,\; D_i \text{ at most } 2 \times 2, \\ "
    r"\lVert A B \rVert_F &\ge s_{\min}(A)\, \lVert B \rVert_F \end{split}",
    family="linear theory",
    scales={"smoke": Setting((1, 4), (1, 2, 8), 20), "cpu": Setting()},
    decided_by=(
        always("rotation_ratio", at_most=1),
        always("rotation_error", at_most=1e-12),
        NORMAL,
        PRODUCT,
        always("product_gap", at_most=1e-9),
    ),
    printed=(
        Quotation(
            words="Let U be a real normal matrix (that is, it satisfies U U^T = U^T U). Then, "
            "there exists an orthonormal matrix S such that U = S D S^T, where D is a real block "
            "diagonal matrix that consists of blocks with size at most 2 x 2. [...]",
            place="HM Claim C.1",
            needs={"the premise": True},
            broken=FAILS,
            bounds=(NORMAL,),
        ),
        Quotation(
            words="For any two matrices A, B, we have that |AB|_F >= sigma_min(A) |B|_F.",
            place="HM Claim C.2",
            needs={"the premise": True},
            broken=FAILS,
            bounds=(PRODUCT,),
        ),
    ),
    costs={"cpu": seconds(8)},
    measure=measure,
    figure=figure,
    inner="q",
    charts=(("rotation_ratio",), ("product_ratio",)),
    batch_by=("d", "pairs"),
)
