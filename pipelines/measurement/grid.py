"""Grids: the settings of a claim, cell by cell, and what was measured in each.

A cell is one setting and one seed. Cells whose arrays have the same shapes are measured together,
in one vectorized call.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import MOST, UserError, unknown

Array = NDArray[np.float64]
Steps = Sequence[int] | NDArray[np.int64]
Curves = tuple[Steps, dict[str, NDArray[Any]]]  # steps [k], and by name values [n, k] of n cells
Curve = tuple[NDArray[Any], NDArray[Any]]
"""Steps [k] and values [k]."""
MAX_SETTING = 10**9  # any setting; memory ends far below such sizes
ASSUMPTION = "assumption_holds"  # the curve that says where a theorem's premise is in force


@runtime_checkable
class RecipeLike(Protocol):
    """Settings of one training, with no axes: a recipe."""

    @property
    def fingerprint(self) -> str: ...

    def flat(self) -> dict[str, str]: ...

    def override(self, **changes: Any) -> "RecipeLike": ...


@dataclass(frozen=True)
class Cell:
    """One setting, every field with its value (the inner axis whole), and one seed."""

    point: Mapping[str, Any]
    seed: int

    @property
    def params(self) -> dict[str, Any]:
        return {**self.point, "seed": self.seed}


@dataclass(frozen=True)
class Cells:
    """Cells of equal shape, for one vectorized call."""

    cells: tuple[Cell, ...]

    def __len__(self) -> int:
        return len(self.cells)

    def shared(self, name: str) -> Any:
        """Return the value of a setting that is the same in all these cells."""
        return self.cells[0].point[name]

    def values(self, name: str) -> Array:
        """Return the values of a setting, one a cell; [n]."""
        return np.array([cell.point[name] for cell in self.cells])

    def draw(self, make: Callable[..., Any], *names: str) -> Any:
        """Return `make(rng, *settings)` for each cell, stacked along a new first axis.

        The generator depends on the seed alone: settings are compared on equal draws, and two calls
        draw the same numbers, so one `make` draws all that must be independent. A tuple of arrays
        is stacked one by one.
        """
        drawn = [
            make(np.random.default_rng(cell.seed), *(cell.point[name] for name in names))
            for cell in self.cells
        ]
        if isinstance(drawn[0], tuple):
            return tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True))
        return np.stack(drawn)


@dataclass(frozen=True)
class Measured:
    """A cell with its curves [k] over integer steps [k], and how it was measured."""

    cell: Cell
    steps: NDArray[np.int64]
    curves: Mapping[str, Array]
    code: str = ""
    """The digest of the code that measured it."""
    trained: tuple[str, ...] = ()
    """The fingerprints of what was trained for it."""
    start_ms: int = 0
    end_ms: int = 0
    """Times of the measurement, in milliseconds since 1970; cells of one call share them."""

    @property
    def point(self) -> Mapping[str, Any]:
        return self.cell.point

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Return steps where the premise of the theorem is in force; [k]."""
        return np.asarray(self.curves.get(ASSUMPTION, np.ones(len(self.steps)))).astype(bool)


def select(measured: Sequence[Measured], **point: Any) -> list[Measured]:
    """Return those measured at that point, whatever their other settings and seeds."""
    return [m for m in measured if all(m.point[key] == value for key, value in point.items())]


def group_by(measured: Sequence[Measured], name: str) -> list[tuple[Any, list[Measured]]]:
    """Return the values of a setting, ascending, each with what was measured at it."""
    values = sorted({m.point[name] for m in measured})
    return [(value, select(measured, **{name: value})) for value in values]


def split_by(
    measured: Sequence[Measured], names: Iterable[str]
) -> list[tuple[tuple[str, ...], list[Measured]]]:
    """Return what was measured at each value of those settings, as (`rate=0.1`, ...) and cells."""
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for m in measured:
        groups.setdefault(tuple(f"{name}={m.point[name]}" for name in names), []).append(m)
    return list(groups.items())


def stack(measured: Sequence[Measured], name: str) -> Array:
    """Return one curve of several cells with equal steps; [n, k]."""
    return np.stack([m.curves[name] for m in measured])


def join(measured: Sequence[Measured], name: str) -> Array:
    """Return one curve of several cells, one after another; [all their steps]."""
    return np.concatenate([m.curves[name] for m in measured])


def mean_curve(curves: Sequence[Curve]) -> tuple[NDArray[Any], Array, Array]:
    """Return the steps [k] that all curves have, and there their mean [k] and deviation [k].

    One curve has the deviation 0; where a curve is infinite, the deviation is NaN.
    """
    steps = functools.reduce(np.intersect1d, (steps for steps, _ in curves))
    values = np.array([each[np.isin(own, steps)] for own, each in curves])  # [seeds, k]
    with np.errstate(invalid="ignore"):
        sd = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(steps))
    return steps, values.mean(axis=0), sd


def flatten(settings: Any) -> dict[str, Any]:
    """Return every setting by name; of a recipe all but the seed, with its mappings flattened."""
    if isinstance(settings, RecipeLike):
        return {key: value for key, value in settings.flat().items() if key != "seed"}
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def sort_axes(settings: Any) -> Any:
    """Return the settings with every axis in ascending order, each value once."""
    if isinstance(settings, RecipeLike):
        return settings
    fields = flatten(settings).items()
    axes = {key: tuple(sorted(set(v))) for key, v in fields if isinstance(v, tuple)}
    return dataclasses.replace(settings, **axes)


def axis_values(
    settings: Any, inner: str | None, varied: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """Return every field of the settings with its values in the grid; `inner` has one: all."""
    fields = flatten(settings)
    stated = {k: v if isinstance(v, tuple) and k != inner else (v,) for k, v in fields.items()}
    return stated | dict(varied)


def settings_at(settings: Any, cell: Cell, varied: Iterable[str]) -> Any:
    """Return the settings of one cell of their grid, of which these fields are `varied`."""
    if isinstance(settings, RecipeLike):
        return settings.override(**{key: cell.point[key] for key in varied})
    return type(settings)(**cell.point)


def list_cells(axes: Mapping[str, Sequence[Any]], seeds: int, first_seed: int = 0) -> list[Cell]:
    """Return all cells of a grid with so many seeds from the first on, which are innermost.

    Raise UserError if there are more than MOST, or one has a number larger than MAX_SETTING.
    """
    for name, values in axes.items():
        for value in itertools.chain(*(v if isinstance(v, tuple) else (v,) for v in values)):
            if isinstance(value, int | float) and not abs(value) <= MAX_SETTING:
                raise UserError(
                    f"{name} must be between -{MAX_SETTING:,} and {MAX_SETTING:,}. Received: "
                    f"{name}={value}. Set --{name.replace('_', '-')} accordingly."
                )
    _check_count(math.prod(len(values) for values in axes.values()) * seeds)
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return [Cell(point, seed) for point in points for seed in range(first_seed, first_seed + seeds)]


def _check_count(count: int) -> None:
    if count > MOST:
        raise UserError(
            f"A grid must have at most {MOST:,} settings times seeds. Received: {count:,}. "
            "Choose fewer values."
        )


def split_batches(todo: Sequence[Cell], batch_by: Sequence[str], size: int) -> Iterator[Cells]:
    """Yield up to `size` cells at a time, equal in the settings `batch_by`: array shapes."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo:
        groups.setdefault(tuple(cell.point[name] for name in batch_by), []).append(cell)
    for group in groups.values():
        for start in range(0, len(group), size):
            yield Cells(tuple(group[start : start + size]))


def cell_title(cell: Cell, axes: Mapping[str, Sequence[Any]]) -> str:
    """Return `d=8 gamma=1 seed=0`: what differs between the cells of a grid."""
    differing = [key for key, values in axes.items() if len(values) > 1]
    return " ".join([*(f"{key}={cell.point[key]}" for key in differing), f"seed={cell.seed}"])


def apply_specs(settings: Any, specs: Sequence[str]) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    """Return settings with the axes of `NAME=VALUES` specs, and axes of single-valued fields.

    VALUES is a list `8,64`, a range `0.1:0.5:0.1` (the end included) or a geometric one
    `8:256:2x`. Raise UserError for a name that is no setting or values that it cannot take.
    """
    given: dict[str, tuple[Any, ...]] = {}
    for spec in specs:
        name, values = _parse_axis(settings, spec)
        if name in given:
            raise UserError(
                f"A grid axis is given once. Received: {name} twice. Write all its values in one."
            )
        given[name] = values
    many = {k: v for k, v in given.items() if isinstance(getattr(settings, k), tuple)}
    varied = {k: v for k, v in given.items() if k not in many}
    _check_count(math.prod(map(len, varied.values())))
    settings = dataclasses.replace(settings, **many)
    for values in itertools.product(*varied.values()):  # rejects what the settings reject
        dataclasses.replace(settings, **dict(zip(varied, values, strict=True)))
    return settings, varied


def _parse_axis(settings: Any, spec: str) -> tuple[str, tuple[Any, ...]]:
    """Return name and values of one spec, in ascending order, each value once."""
    name, _, text = (part.strip() for part in spec.partition("="))
    name = name.replace("-", "_")  # options are written so
    names = [field.name for field in dataclasses.fields(settings)]
    if name not in names:
        raise unknown("A grid axis", name, names)
    before = getattr(settings, name)
    like = before[0] if isinstance(before, tuple) else before
    if not isinstance(like, bool | int | float | str):
        plain = [key for key in names if isinstance(getattr(settings, key), int | float | str)]
        raise unknown("A grid axis that is a number or a word", name, plain)
    values: set[Any] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        several = _parse_range(part, spec) if part.count(":") == 2 else [part]
        values |= {_convert(like, value, spec) for value in several}
    if not values:
        raise _malformed_spec(spec)
    return name, tuple(sorted(values))


def _parse_range(part: str, spec: str) -> list[float]:
    """Return the values of `a:b:step` or `a:b:2x`."""
    first, last, step = part.split(":")
    try:
        low, high, by = float(first), float(last), float(step.removesuffix("x"))
    except ValueError as error:
        raise _malformed_spec(spec) from error
    geometric = step.endswith("x")
    bottom, least_step = (0, 1) if geometric else (-math.inf, 0)
    if not (bottom < low <= high < math.inf and by > least_step):
        raise _malformed_spec(spec)
    length = math.log(high / low) / math.log(by) if geometric else (high - low) / by
    if not length < MOST:
        raise _malformed_spec(spec)
    count = math.floor(length + 1e-9) + 1
    return [low * by**i if geometric else low + by * i for i in range(count)]


def _convert(example: Any, value: str | float, spec: str) -> Any:
    """Return the value as the type of its field: 8 for an integer also where a range gave 8.0."""
    kind = type(example)
    if kind is bool:
        if value not in ("True", "False"):
            raise UserError(
                f"{spec.partition('=')[0]} must be True or False. Received: {value} from {spec!r}. "
                "Write it so."
            )
        return value == "True"
    try:
        number = kind(float(value)) if kind in (int, float) else kind(value)
    except (ValueError, OverflowError) as error:
        raise _malformed_spec(spec) from error
    if kind is float and not math.isfinite(number):
        raise _malformed_spec(spec)
    if kind is int and number != float(value):
        raise UserError(
            f"{spec.partition('=')[0]} must be integers. Received: {value} from {spec!r}. "
            "Choose a range that gives integers."
        )
    return round(number, 12) if kind is float else number


def _malformed_spec(spec: str) -> UserError:
    return UserError(
        "A grid axis must be NAME=VALUES, with VALUES a list 8,64, a range 0.1:0.5:0.1 or a "
        f"geometric range 8:256:2x of at most {MOST:,} finite values. Received: {spec!r}. Write it "
        "so."
    )


def stack_rows(rows: Sequence[Mapping[str, Any]], axis: int = 0) -> dict[str, NDArray[Any]]:
    """Return by name the numbers or curves of several rows, stacked along a new axis."""
    return {key: np.stack([row[key] for row in rows], axis=axis) for key in rows[0]}


def measure_at(
    name: str, measure_one: Callable[[Cell, Any], dict[str, float]]
) -> Callable[[Cells], Curves]:
    """Return `measure` of a claim: the numbers of every cell at each value of its inner axis."""

    def measure(cells: Cells) -> Curves:
        values = cells.shared(name)
        rows = [stack_rows([measure_one(cell, each) for each in values]) for cell in cells.cells]
        return values, stack_rows(rows)

    return measure
