"""Samples y = h(x) + noise of a teacher h, drawn in memory: regression without a stored data set.

A teacher is a function (dimension, data_seed, *, its own arguments) -> h, where h maps inputs
[n, d] to targets [n, k]; to add one, write the function and name it in TEACHERS and in datasets.py.
Where h has a method `of_model`, its numbers of the network that learns are recorded
(task_metrics.py).
Inputs are x ~ N(0, Sigma). All arrays are pure functions of a recipe's `data_args`. Each is drawn
from a random stream of its own: another noise, or another size of one part, leaves the rest as it
was.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import keras_models
from pipelines.data.datasets import DataSet, Splits, check_fits
from pipelines.data.splits import Split
from pipelines.data.task_metrics import REGRESSION
from pipelines.errors import UserError

Array = NDArray[np.float64]
Map = Callable[[Array], Array]
Args = Mapping[str, Any]

KINDS: Mapping[type, tuple[str, Sequence[type]]] = {  # what a default of that type allows
    bool: ("True or False", (bool,)),
    int: ("an integer", (int,)),
    float: ("a number", (int, float)),
}
LARGEST = 10**9
SIZES = ("train_size", "val_size", "test_size")
TEACHER, COVARIANCE, INPUTS, NOISE = range(4)  # the random streams of a data_seed
REFERENCE = 10_000  # inputs by whose moments a teacher of blocks is normalized
DEVIATION = 7.0  # its targets' deviation, that of LY's `relu` at dimension 100


def linear(dimension: int, data_seed: int, *, gamma: float = 0.5) -> Map:
    """Return x -> R x of HM section 2, with the R of `linear_target`; [n, d] -> [n, d]."""
    R = linear_target(dimension, gamma, data_seed)
    return lambda x: x @ R.T


def linear_target(dimension: int, gamma: float, data_seed: int) -> Array:
    """Return R [d, d] with det R > 0 and theory.factorization.conditioning(R) = gamma.

    R = U K V^T with independent uniform rotations U, V and log K uniform, scaled to the largest
    |log K_jj| = gamma. UserError unless gamma is finite and >= 0.
    """
    from scipy.stats import special_ortho_group

    _check_gamma(gamma)
    rng = np.random.default_rng([data_seed, TEACHER])
    U, V = special_ortho_group(dimension).rvs(size=2, random_state=rng).reshape(2, *[dimension] * 2)
    logs = rng.uniform(-1, 1, dimension)
    return np.asarray(U * np.exp(gamma * logs / np.abs(logs).max()) @ V.T)


def relu(
    dimension: int,
    data_seed: int,
    *,
    teacher_norm: float = 0.6,
    teacher_frobenius: float = 1.6,
    teacher_identity: bool = True,
) -> Map:
    """Return x -> sum_i relu(<b_i, x>) of LY section 5.2, B of `relu_target`; [n, d] -> [n, 1]."""
    return ReluSum(
        relu_target(dimension, data_seed, teacher_norm, teacher_frobenius, teacher_identity)
    )


@dataclass(frozen=True)
class ReluSum:
    """x -> sum_i relu(<b_i, x>), with the columns b_i of B [d, d]; [n, d] -> [n, 1]."""

    B: Array

    def __call__(self, x: Array) -> Array:
        return np.asarray(np.maximum(x @ self.B, 0).sum(axis=1, keepdims=True))

    def of_model(self, model: Any) -> dict[str, float]:
        """Return `distance` |B' - B|_F of a student with matrix B', and both norms of its W."""
        from keras_models.two_layer import matrix, weights

        if (B := matrix(model)) is None:
            return {}
        W = weights(model)
        return {
            "distance": float(np.linalg.norm(B - self.B)),
            "frobenius_norm": float(np.linalg.norm(W)),
            "spectral_norm": float(np.linalg.norm(W, 2)),
        }


def three_blocks(dimension: int, data_seed: int, *, hidden: int = 500) -> Map:
    """Return a teacher of the structure of LY's 3-Block, [n, d] -> [n, 1].

    Three times random linear map, normalization and ReLU, then the sum; normalized once and for
    all by the moments at random inputs, and scaled to the standard deviation DEVIATION.
    """
    rng = np.random.default_rng([data_seed, TEACHER])
    x, blocks = rng.standard_normal((REFERENCE, dimension)), []
    for width in (dimension, hidden, hidden):
        W = rng.standard_normal((width, hidden))
        mean, deviation = (x @ W).mean(axis=0), (x @ W).std(axis=0)
        blocks.append((W / deviation, mean / deviation))
        x = np.maximum(x @ blocks[-1][0] - blocks[-1][1], 0)
    scale = DEVIATION / x.sum(axis=1).std()

    def sums(x: Array) -> Array:
        for W, shift in blocks:
            x = np.maximum(x @ W - shift, 0)
        return np.asarray(scale * x.sum(axis=1, keepdims=True))

    def parts(x: Array) -> Array:  # few rows at a time: each makes `hidden` numbers a block
        return np.concatenate([sums(x[i : i + REFERENCE]) for i in range(0, len(x), REFERENCE)])

    return parts


def relu_target(
    dimension: int, data_seed: int, norm: float, frobenius: float, identity: bool
) -> Array:
    """Return B [d, d]: W* of `keras_models.draw_relu_weights`, with `identity` I + W*.

    Raise UserError if no W* has these norms.
    """
    _check_norms(dimension, norm, frobenius)
    rng = np.random.default_rng([data_seed, TEACHER])
    W = keras_models.draw_relu_weights(dimension, norm, frobenius, rng)
    return W + np.eye(dimension) if identity else W


def covariance(dimension: int, condition: float, data_seed: int) -> Array:
    """Return Sigma [d, d] of the inputs: random axes, eigenvalues from 1 to 1/condition."""
    root = _covariance_root(dimension, condition, data_seed)
    return np.asarray(root @ root)


def _covariance_root(dimension: int, condition: float, data_seed: int) -> Array:
    """Return the symmetric root of Sigma; eigenvalues in geometric progression."""
    from scipy.stats import ortho_group

    rng = np.random.default_rng([data_seed, COVARIANCE])
    U = ortho_group(dimension).rvs(random_state=rng).reshape(dimension, dimension)
    return np.asarray(U * condition ** -np.linspace(0, 0.5, dimension) @ U.T)


@dataclass(frozen=True)
class Samples(DataSet):
    """Samples of a teacher."""

    is_classification = False
    teacher: str  # a function of this module
    outputs: int | None = None
    """Targets of an example; None: as many as inputs."""
    of_model: bool = False
    """Whether numbers of the network that learns are recorded."""

    @property
    def _teacher(self) -> Callable[..., Map]:
        return TEACHERS[self.teacher]

    def sizes(self, data_args: Args) -> tuple[tuple[int, ...], int]:
        dimension = {**self.defaults(), **data_args}["dimension"]
        return (dimension,), self.outputs or dimension

    def defaults(self) -> dict[str, Any]:
        """Return all data arguments with their default values."""
        parameters = [*_keyword_only(draw), *_keyword_only(self._teacher)]
        return {parameter.name: parameter.default for parameter in parameters}

    def start(self, given: Args) -> dict[str, Any]:
        """Return the data arguments of a recipe that goes over to this data set: the defaults."""
        return self.defaults()

    def check_arguments(self, data_args: Args) -> None:
        """Raise UserError unless samples can be drawn with these data arguments."""
        super().check_arguments(data_args)
        known = self.defaults()
        for key, value in data_args.items():
            rule, kinds = KINDS[type(known[key])]
            _check(key, value, rule, type(value) in kinds)
            _check(key, value, f"at most {LARGEST:,} in size", not abs(value) > LARGEST)
        _check_draw(self.name, {**known, **data_args})

    def unsuitable_settings(self) -> dict[str, str]:
        settings = {"augment": "--no-augment", "label_smoothing": "--label-smoothing 0"}
        settings["pictures"] = "--pictures host"
        return settings | ({"ema": "--ema 0"} if self.of_model else {})

    def examples(self, data_args: Args, validation: bool = True) -> int:
        return int({**self.defaults(), **data_args}["train_size"])

    def load(self, train_examples: int | None, data_args: Args, validation: bool = True) -> Splits:
        """Draw the three parts; without `validation` the second is left empty."""
        splits = draw(self.name, self._teacher, train_examples, **data_args)
        return splits if validation else dataclasses.replace(splits, val=splits.val.head(0))

    def check(self, required: bool = False) -> dict[str, Any]:
        """Return the sizes of the parts: what is drawn in memory is always there."""
        sizes = {part: self.defaults()[f"{part}_size"] for part in ("train", "val", "test")}
        return {"name": self.name, "prepared": True, "state": "generated", **sizes}


def draw(
    name: str,
    teacher: Callable[..., Map],
    train_examples: int | None,
    *,
    dimension: int = 8,
    condition: float = 1.0,
    noise: float = 0.1,
    train_size: int = 4096,
    val_size: int = 4096,
    test_size: int = 4096,
    data_seed: int = 0,
    **own: Any,
) -> Splits:
    """Draw y = h(x) + noise * xi, x ~ N(0, Sigma) [n, d], xi ~ N(0, I) [n, k]; float32.

    `condition` is the largest over the smallest eigenvalue of Sigma; 1: Sigma = I. The least
    expected squared error, summed over the k outputs, is k * noise^2.
    """
    sizes = {"train_size": train_size, "val_size": val_size, "test_size": test_size}
    h = teacher(dimension, data_seed, **own)
    root = _covariance_root(dimension, condition, data_seed)

    def part(number: int, size: int) -> Split:
        inputs, errors = (
            np.random.default_rng([data_seed, stream, number]) for stream in (INPUTS, NOISE)
        )
        x = inputs.standard_normal((size, dimension)) @ root
        y = h(x)
        y = y + noise * errors.standard_normal(y.shape)
        return Split(x.astype(np.float32), y.astype(np.float32))

    sizes["train_size"] = min(train_size, train_examples or train_size)
    parts = [part(number, size) for number, size in enumerate(sizes.values())]
    task = dataclasses.replace(REGRESSION, of_model=getattr(h, "of_model", None))
    return Splits(name, parts[0].y.shape[1], *parts, task=task)


TEACHERS: dict[str, Callable[..., Map]] = {
    "linear": linear,
    "relu": relu,
    "three_blocks": three_blocks,
}


def _check_draw(name: str, args: Args) -> None:
    """Raise UserError unless samples can be drawn with all these data arguments."""
    sizes = [args[key] for key in SIZES]
    for key in ("dimension", "hidden", *SIZES):
        _check(key, args.get(key, 1), "> 0", args.get(key, 1) > 0)
    _check("condition", args["condition"], "finite and >= 1", 1 <= args["condition"] < math.inf)
    _check("noise", args["noise"], "finite and >= 0", 0 <= args["noise"] < math.inf)
    _check("data_seed", args["data_seed"], ">= 0", args["data_seed"] >= 0)
    if "gamma" in args:
        _check_gamma(args["gamma"])
    check_fits(name, (args["dimension"], 8), sum(sizes) + args["dimension"])  # 8 bytes a number
    check_fits(name, (args.get("hidden", 1), 8), REFERENCE + args.get("hidden", 1))
    if "teacher_norm" in args:
        _check_norms(args["dimension"], args["teacher_norm"], args["teacher_frobenius"])


def _check_gamma(gamma: float) -> None:
    _check("gamma", gamma, "finite and >= 0, at most 100", 0 <= gamma <= 100)


def _check_norms(dimension: int, norm: float, frobenius: float) -> None:
    """Raise UserError where no W* has these norms."""
    try:
        keras_models.singular_values(dimension, norm, frobenius)
    except ValueError as error:
        raise UserError(f"{error} They are --teacher-frobenius, --teacher-norm.") from error


def _keyword_only(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _check(name: str, value: float, rule: str, holds: bool) -> None:
    if not holds:
        raise UserError(
            f"{name} must be {rule}. Received: {name}={value!r}. "
            f"Set --{name.replace('_', '-')} accordingly."
        )
