"""A residual ReLU network of O(n log n + r^2) weights fits any r labels of n points.

Source: HM Theorem 3.2, Lemmas B.1 and B.2. For n unit points at squared distances of at least rho,
blocks x + V ReLU(U x + s) of width k = O(log n / rho^2) fit any labels with
k d + n (2k + 1) + r (k + 1 + r) weights.

As constructed there the network is out of reach on real data: its proof takes k = 10 ln n / rho^2,
and the nearest two of MNIST's 60,000 images have rho = 0.017 (as the proof stands even more is
needed, in the damaged copy that was read). Taking the points by decreasing norm and giving every
unit a threshold of its own (ours), distinct points are enough, and rho leaves the width.

Measured: real training images with random labels, and the network with explicit weights. `errors`
of all n are counted by its forward pass in NumPy, `keras_errors` by `predict` of the same weights
as a Keras model, `reloaded_errors` after it was saved and loaded. Two numbers certify the network
without a forward pass: `margin`, how far units are from firing wrongly, relative to the largest
|z|^2, and `error_bound`, what rounding may do to an output (`output_error`). `constant` is the
number of weights over n ln n + r^2, whose size HM leave open; 5 is our bound. Beside it, the
weights per point of the paper's count, at its k or, where that is larger, at A_0 = I. The Keras
model of the first seed and the largest n is stored with the run (to load it, `import
keras_models.memorizer` first).

The figure that convinces: weights per point against n, ours and the paper's.

Run: python -m pipelines run finite-sample-expressivity        (5 minutes on 2 cores; needs mnist)
     python -m pipelines run finite-sample-expressivity --data cifar10
Expect: 0 errors of 60,000 with k = 8 and 17.1 weights a point; the paper counts 1,579 of them with
A_0 = I, and its own k is 400,629.
"""

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipelines import data, quiet
from pipelines.claim import Bench, Experiment
from pipelines.errors import check_sizes
from pipelines.grid import Curves, Measured
from pipelines.verdict import Bound

LABELS = 10  # random ones
BATCH = 8192  # images that Keras takes at once


@dataclass(frozen=True)
class Setting:
    """Which images, and how many of them."""

    data: str = "mnist"
    """Data set of images."""
    n: tuple[int, ...] = (1_000, 5_000, 20_000, 60_000)
    """Numbers of training images; more than there are: all of them."""
    precision: Literal["float32", "float64"] = "float32"
    """Of weights and computation."""

    def __post_init__(self) -> None:
        check_sizes(2, n=self.n)
        data.check_points(self.data)


@functools.lru_cache(maxsize=1)
def images(name: str) -> NDArray[np.float32]:
    """All images for training and validation as rows of pixels in [0, 1]; [n, d]."""
    return data.load(name).untested()[0].astype(np.float32) / np.float32(255)


@functools.lru_cache
def separation(name: str, n: int) -> float:
    """rho of the first n images, brought to norm 1."""
    from theory.pairs import nearest_pair

    X = images(name)[:n]
    return nearest_pair(X / np.linalg.norm(X, axis=1, keepdims=True))[2]


def measure(setting: Setting, seed: int, bench: Bench) -> Curves:
    """Errors, weights and margin of the network for the first n images, at every n."""
    X = images(setting.data)
    sizes = sorted({min(n, len(X)) for n in setting.n})
    y = np.random.default_rng(seed).integers(LABELS, size=len(X))
    rows = []
    for n in sizes:
        stored = bench if seed == 0 and n == sizes[-1] else None
        rows.append(memorized(X[:n], y[:n], setting, stored) | paper(X[:n], setting.data))
    return sizes, {key: np.array([row[key] for row in rows]) for key in rows[0]}


def memorized(X: Any, y: Any, setting: Setting, stored: Bench | None) -> dict[str, float]:
    """The network of these points and its errors; as a Keras model it is stored on a bench."""
    from theory.memorization import memorize

    n = len(X)
    found = memorize(X, y, dtype=setting.precision)
    outputs = found.outputs(X)
    right = np.searchsorted(found.labels, y)
    error = np.abs(outputs - np.eye(LABELS)[right][:, : len(found.labels)]).max()
    keras_labels, reloaded_labels = predicted(found, X, stored)
    return {
        "errors": np.sum(outputs.argmax(axis=1) != right),
        "keras_errors": np.sum(keras_labels != right),
        "reloaded_errors": np.sum(reloaded_labels != right),
        "output_error": error,
        "error_over_bound": error / found.error,
        "width": found.width,
        "error_bound": found.error,
        "margin": found.margin,
        "weights_per_point": found.parameter_count / n,
        "constant": found.parameter_count / (n * np.log(n) + LABELS**2),
    }


def predicted(found: Any, X: Any, stored: Bench | None) -> tuple[Any, Any]:
    """What the Keras model predicts, and what it does once saved and loaded; [n], [n]."""
    quiet.keras()
    import keras

    model = found.keras_model()
    labels = model.predict(X, batch_size=BATCH, verbose=0).argmax(axis=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memorizer.keras"
        model.save(file)
        again = keras.models.load_model(file).predict(X, batch_size=BATCH, verbose=0)
    if stored:
        stored.run.model(model)
    return labels, again.argmax(axis=1)


def paper(X: Any, name: str) -> dict[str, float]:
    """The paper's width for these images, and its weights per point at that or at A_0 = I."""
    from theory.memorization import paper_width, parameter_count

    n, d = X.shape
    rho = separation(name, n)
    k = paper_width(n, rho)
    return {
        "rho": rho,
        "paper_width": k,
        "paper_weights_per_point": parameter_count(n, d, LABELS, min(k, d)) / n,
    }


def also(measured: Sequence[Measured]) -> dict[str, float]:
    """Ours and the paper's at the largest n, and the largest error of an output."""
    (m,) = measured
    side_by_side = ("width", "paper_width", "weights_per_point", "paper_weights_per_point")
    found = {key: float(m.curves[key][-1]) for key in (*side_by_side, "margin", "rho")}
    worst = {key: float(m.curves[key].max()) for key in ("output_error", "error_bound")}
    return found | worst | {"n": float(m.steps[-1])}


def figure(measured: Sequence[Measured]) -> Any:
    """Weights per point against n, ours and the paper's; beside it the margin and the width."""
    from matplotlib.figure import Figure

    first, precision = measured[0], measured[0].point["precision"]
    n, paper_k = first.steps, first.curves["paper_width"]
    picture = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = picture.subplots(1, 2)
    left.plot(n, 2 * paper_k + 1, "^--", color="C3", label="paper, k = 10 ln n / ρ²")
    literal = first.curves["paper_weights_per_point"]
    left.plot(n, literal, "s-", color="C1", label="paper, A₀ = I")
    for m in measured:
        exact = (m.curves["errors"] == 0) & (m.curves["reloaded_errors"] == 0)
        left.plot(n[exact], m.curves["weights_per_point"][exact], "o", color="C0")
        right.plot(n, m.curves["margin"], "o-", color="C0")
    left.plot([], [], "o", color="C0", label="ours: 0 errors")
    for k in (4, 8, 16):
        left.axhline(2 * k + 1, color="C0", ls=":", lw=1)
        left.annotate(
            f"k = {k}",
            (1, 2 * k + 1),
            (3, -3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
        )
    left.set(ylabel="weights per image")
    left.set_title(f"{first.point['data']}, random labels", fontsize=10)
    for x, margin, k in zip(n, first.curves["margin"], first.curves["width"], strict=True):
        right.annotate(f"k = {k:.0f}", (x, margin), (0, 6), textcoords="offset points", fontsize=8)
    rounding = 64 * np.finfo(precision).eps
    right.axhline(rounding, color="k", ls="--", lw=1, label=f"rounding of {precision}")
    right.set(ylabel="margin over the largest |z|²")
    right.set_title("what certifies the network, at the width found", fontsize=10)
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="images n")
        axes.margins(0.1)
    picture.legend(loc="outside lower center", ncols=4, fontsize=8)
    return picture


CLAIM = Experiment(
    source="HM Theorem 3.2",
    says="A residual ReLU network with O(n log n + r^2) weights fits any labels of n points",
    family="expressivity",
    scales={"smoke": Setting("digits", (100, 400)), "cpu": Setting()},
    decided_by=(
        Bound("errors", at_most=0, every=True),
        Bound("keras_errors", at_most=0, every=True),
        Bound("reloaded_errors", at_most=0, every=True),
        Bound("error_over_bound", at_most=1, every=True),
        Bound("constant", at_most=5, every=True),
    ),
    measure=measure,
    reads="data",
    also=also,
    figure=figure,
    inner="n",
    seeds=3,
    charts=(("weights_per_point", "paper_weights_per_point"), ("margin",)),
)
