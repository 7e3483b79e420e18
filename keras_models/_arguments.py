"""Arguments of the architectures, checked without Keras, whose import takes seconds.

The types of an architecture's arguments are those of its `build`, read from its source. What its
arguments must fulfil together is a function below that bears its name; it receives all of them.
"""

from __future__ import annotations

import ast
import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ._start_weights import singular_values

MOST = 100_000  # of a size: no network of this package comes near it
LARGEST = 10**9  # of any other number
WIDEST = 100  # times the published channels

Types = Mapping[str, str]  # by argument, as the source writes them
Rule = Callable[..., None]


def check(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError unless `build` of the architecture `name` can be called with `arguments`."""
    types, defaults = _signature(name)
    _check_names(name, types, arguments)
    for key, value in arguments.items():
        _check_type(key, value, types[key])
    if name in RULES:
        RULES[name](**{**defaults, **arguments})


@functools.cache
def _find_build(name: str) -> ast.FunctionDef:
    source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return next(node for node in functions if node.name == "build")


@functools.cache
def _signature(name: str) -> tuple[Types, Mapping[str, Any]]:
    """Return the types of the arguments of `build`, and the values of those that have defaults."""
    build = _find_build(name).args
    types = {
        each.arg: ast.unparse(each.annotation)
        for each in (*build.args, *build.kwonlyargs)
        if each.annotation
    }
    defaults = zip(build.kwonlyargs, build.kw_defaults, strict=True)
    return types, {each.arg: ast.literal_eval(value) for each, value in defaults if value}


def describe(name: str) -> dict[str, str]:
    """Return what the docstring of `build` says of its arguments: `name`: ..., each on a line."""
    entries = re.findall(
        r"^`(\w+)`: (.*?)(?=^`\w+`: |^$|\Z)",
        ast.get_docstring(_find_build(name)) or "",
        re.M | re.S,
    )
    return {argument: " ".join(text.split()) for argument, text in entries}


def choices(name: str) -> dict[str, list[str]]:
    """Return the values that those arguments of `build` may have that are one of a few words."""
    words = {key: kind.removeprefix("Literal") for key, kind in _signature(name)[0].items()}
    return {key: ast.literal_eval(text) for key, text in words.items() if text.startswith("[")}


def _check_names(name: str, types: Types, arguments: Mapping[str, Any]) -> None:
    unknown = [key for key in arguments if key not in types]
    if unknown:
        raise ValueError(
            f"{name!r} must be built with its own arguments. Received: {unknown[0]!r}. "
            f"It accepts: {', '.join(nearest_first(unknown[0], types))}."
        )


def _check_type(name: str, value: object, kind: str) -> None:
    """Raise ValueError unless the value is of the type that the source of `build` names.

    Other types than these are not checked.
    """
    if kind.startswith("Literal["):
        check_choice(ast.literal_eval(kind.removeprefix("Literal")), **{name: value})
    elif kind == "Sequence[int]":
        check_shape(name, value)
    elif kind == "bool":
        check_choice((True, False), **{name: value})
    elif kind == "float":
        check_finite(**{name: value})
    elif kind == "int" or (kind == "int | Sequence[int]" and not isinstance(value, list | tuple)):
        check_positive(**{name: value})  # how long a list must be is for a rule


def nearest_first(received: str, choices: Iterable[str]) -> list[str]:
    """Return the choices, those spelled most like `received` first, the others in their order."""
    choices = list(choices)
    near = difflib.get_close_matches(str(received), choices, n=3, cutoff=0.5)
    return near + [choice for choice in choices if choice not in near]


def check_positive(**sizes: object) -> None:
    """Raise ValueError for sizes that are not positive integers, or that no network has."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be an integer > 0. Received: {name}={size!r}.")
        if size > MOST:
            raise ValueError(f"{name} must be at most {MOST:,}. Received: {name}={size!r}.")


def check_finite(**numbers: object) -> None:
    """Raise ValueError for anything but finite numbers."""
    for name, value in numbers.items():
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not math.isfinite(value):  # type: ignore[arg-type]
            raise ValueError(f"{name} must be a finite number. Received: {name}={value!r}.")
        if abs(value) > LARGEST:  # type: ignore[arg-type]
            raise ValueError(f"{name} must be at most {LARGEST:,}. Received: {name}={value!r}.")


def check_rate(**rates: float) -> None:
    """Raise ValueError for rates of dropout outside [0, 1)."""
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"{name} must be in [0, 1). Received: {name}={rate!r}.")


def check_multiple(width: float) -> None:
    """Raise ValueError for a multiple of the published channels that leaves none, or too many."""
    if not width > 0:
        raise ValueError(f"width must be > 0. Received: width={width!r}.")
    if width > WIDEST:
        raise ValueError(f"width must be at most {WIDEST}. Received: width={width!r}.")


def check_shape(name: str, shape: object, dimensions: int | None = None) -> None:
    """Raise ValueError for anything but positive integers, `dimensions` of them if given."""
    wanted = "one or more" if dimensions is None else str(dimensions)
    sentence = f"{name} must be {wanted} integers > 0. Received: {name}={shape!r}."
    if isinstance(shape, str) or not isinstance(shape, Sequence) or not shape:
        raise ValueError(sentence)
    if len(shape) != (dimensions or len(shape)):
        raise ValueError(sentence)
    check_positive(**{f"{name}[{i}]": size for i, size in enumerate(shape)})


def check_choice(choices: Iterable[object], **received: object) -> None:
    """Raise ValueError for an argument that is none of its choices."""
    choices = list(choices)
    for name, value in received.items():
        if value not in choices:
            listed = ", ".join(map(str, choices))
            raise ValueError(f"{name} must be one of: {listed}. Received: {name}={value!r}.")


def check_pixels(input_shape: Sequence[int], smallest: int, of: str = "") -> None:
    """Raise ValueError for images that end before the last convolution."""
    if min(input_shape[:2]) < smallest:
        raise ValueError(
            f"{of + ' images' if of else 'Images'} must be {smallest}x{smallest} pixels or larger. "
            f"Received: input_shape={tuple(input_shape)}."
        )


def check_stages(blocks_per_stage: int | Sequence[int], widths: Sequence[int]) -> None:
    """Raise ValueError unless a sequence of numbers of blocks has one for every stage."""
    if isinstance(blocks_per_stage, Sequence):
        check_shape("blocks_per_stage", blocks_per_stage, dimensions=len(widths))


def check_widening(shortcut: str, widths: Sequence[int], **before: int) -> None:
    """Raise ValueError for stages that zero padding cannot reach; `before`: the width ahead."""
    if any(first > second for first, second in pairwise((*before.values(), *widths))):
        received = "".join(f"{name}={width}, " for name, width in before.items())
        raise ValueError(
            f"With {shortcut} no stage may be narrower than the one before it, because zero "
            f"padding can only add channels. Received: {received}widths={tuple(widths)}. "
            "Widen it, or take shortcut='projection' of allconv_resnet or resnet."
        )


def _alexnet(*, input_shape: Sequence[int], width: float, dropout: float, **_: Any) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    check_multiple(width)
    check_rate(dropout=dropout)
    check_pixels(input_shape, 64)  # they leave one pixel after the last pooling


def _allcnn(*, input_shape: Sequence[int], form: str, width: float, **_: Any) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    check_multiple(width)
    check_pixels(input_shape, {"cifar": 9, "imagenet": 57}[form], f"With form={form!r}")


def _allconv_resnet(
    *,
    input_shape: Sequence[int],
    blocks_per_stage: int | Sequence[int],
    widths: Sequence[int],
    stem_width: int,
    shortcut: str,
    use_bias: bool,
    batch_norm: bool,
    dropout: float,
    **_: Any,
) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    check_stages(blocks_per_stage, widths)
    check_rate(dropout=dropout)
    if shortcut == "identity":
        check_widening("shortcut='identity'", widths, stem_width=stem_width)
    if batch_norm and use_bias:
        raise ValueError(
            "batch_norm excludes use_bias, because normalization takes a bias away and adds its "
            "own. Received: both. Drop use_bias."
        )


def _densenet(
    *,
    input_shape: Sequence[int],
    depth: int,
    bottleneck: bool,
    compression: float,
    dropout: float,
    **_: Any,
) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    if not 0 < compression <= 1:
        raise ValueError(f"compression must be in (0, 1]. Received: compression={compression!r}.")
    check_rate(dropout=dropout)
    convolutions = 6 if bottleneck else 3
    if depth <= 4 or (depth - 4) % convolutions:
        raise ValueError(
            f"depth must be {convolutions}n + 4, n >= 1, with bottleneck={bottleneck}. "
            f"Received: depth={depth}."
        )


def _linear_resnet(*, input_shape: Sequence[int], classes: int, **_: Any) -> None:
    check_shape("input_shape", input_shape, dimensions=1)
    if tuple(input_shape) != (classes,):
        raise ValueError(
            "A linear residual network has as many outputs as inputs. Received: input_shape="
            f"{tuple(input_shape)} and classes={classes}. Use data of which both are of one size."
        )


def _resnet(
    *,
    input_shape: Sequence[int],
    blocks_per_stage: int | Sequence[int],
    widths: Sequence[int],
    shortcut: str,
    **_: Any,
) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    check_stages(blocks_per_stage, widths)
    if shortcut == "pad":
        check_widening("shortcut='pad'", widths)


def _skip56(
    *,
    input_shape: Sequence[int],
    variant: str,
    blocks_per_stage: int | Sequence[int],
    widths: Sequence[int],
    **_: Any,
) -> None:
    check_shape("input_shape", input_shape, dimensions=3)
    check_stages(blocks_per_stage, widths)
    if variant != "vanilla":
        check_widening(f"variant={variant!r}", widths)


def _two_layer(
    *,
    input_shape: Sequence[int],
    classes: int,
    variant: str,
    start_norm: float,
    start_frobenius: float,
    hidden: int,
) -> None:
    check_shape("input_shape", input_shape, dimensions=1)
    units = hidden if variant == "three-block" else input_shape[0]
    if units % classes:
        raise ValueError(
            "The units must divide evenly among the classes, whose sums they make. Received: "
            f"{units} units and classes={classes}. Use another number of units, or one class."
        )
    if variant != "three-block":
        singular_values(input_shape[0], start_norm, start_frobenius)


RULES: Mapping[str, Rule] = {
    "alexnet": _alexnet,
    "allcnn": _allcnn,
    "allconv_resnet": _allconv_resnet,
    "densenet": _densenet,
    "linear_resnet": _linear_resnet,
    "resnet": _resnet,
    "skip56": _skip56,
    "two_layer": _two_layer,
}
