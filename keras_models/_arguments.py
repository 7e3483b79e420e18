"""Arguments of the architectures, checked without Keras, whose import takes seconds.

The types of an architecture's arguments are those of its `build`, read from its source. What they
must fulfil together is below.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import _own
from ._start_weights import singular_values

MOST = 100_000  # the largest size: no network of this package comes near it
LARGEST = 10**9  # the largest other number
WIDEST = 100  # times the published channels

Types = Mapping[str, str]  # keys: arguments; values: types as the source writes them
DIMENSIONS = {  # how many an input has
    **dict.fromkeys(("alexnet", "allcnn", "allconv_resnet", "densenet", "resnet", "skip56"), 3),
    **dict.fromkeys(("linear_resnet", "two_layer"), 1),
}


def check(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError unless `build` of the architecture `name` can be called with `arguments`."""
    kinds, values = _signature(name)
    takes_all = _find_build(name).args.kwarg is not None
    if unknown := [key for key in arguments if key not in kinds and not takes_all]:
        raise ValueError(
            f"{name!r} must be built with its own arguments. Received: {unknown[0]!r}. "
            f"It accepts: {', '.join(nearest_first(unknown[0], kinds))}."
        )
    for key, value in arguments.items():
        if kinds.get(key) == "int" and _own.is_own(name):  # which may be 0, or less
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{key} must be an integer. Received: {key}={value!r}.")
        else:
            _check_type(key, value, kinds.get(key, ""))
    given = SimpleNamespace(**{**values, **arguments})
    _check_shared(name, given)
    _check_residual(name, given)
    _check_sizes(name, given)


@functools.cache
def _find_build(name: str) -> ast.FunctionDef:
    """Return `build` of an architecture. Raise ValueError where a person's own has none."""
    if _own.is_own(name):
        source = _own.read(name)
    else:
        source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"An architecture must be Python. Received: {name}: {error}.") from error
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    build = next((node for node in functions if node.name == "build"), None)
    names = {each.arg for each in (*build.args.args, *build.args.kwonlyargs)} if build else set()
    if build is None or not names >= {"input_shape", "classes"}:
        raise ValueError(
            "An architecture must have a function build(input_shape, classes, ...) that returns a "
            f"keras.Model. Received: {name} with {'another build' if build else 'none'}. Add it."
        )
    return build


@functools.cache
def _signature(name: str) -> tuple[Types, Mapping[str, Any]]:
    """Return the types of the arguments of `build`, and the values of those that have defaults.

    A type is empty where none is written, and a default left out that is no literal.
    """
    build = _find_build(name).args
    arguments = (*build.args, *build.kwonlyargs)
    kinds = {x.arg: ast.unparse(x.annotation) if x.annotation else "" for x in arguments}
    placed = build.args[len(build.args) - len(build.defaults) :]
    pairs = [*zip(placed, build.defaults, strict=True)]
    pairs += [(k, v) for k, v in zip(build.kwonlyargs, build.kw_defaults, strict=True) if v]
    values = {}
    for argument, value in pairs:
        with contextlib.suppress(ValueError):
            values[argument.arg] = ast.literal_eval(value)
    return kinds, values


def defaults(name: str) -> dict[str, Any]:
    """Return the arguments of `build` that have defaults, with these."""
    return dict(_signature(name)[1])


def types(name: str) -> dict[str, str]:
    """Return the types of the arguments of `build`, as its source writes them; empty for none."""
    return dict(_signature(name)[0])


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


def check_widening(shortcut: str, widths: Sequence[int], **before: int) -> None:
    """Raise ValueError for stages that zero padding cannot reach; `before`: the width ahead."""
    if any(first > second for first, second in pairwise((*before.values(), *widths))):
        received = "".join(f"{name}={width}, " for name, width in before.items())
        raise ValueError(
            f"With {shortcut} no stage may be narrower than the one before it, because zero "
            f"padding can only add channels. Received: {received}widths={tuple(widths)}. "
            "Widen it, or take shortcut='projection' of allconv_resnet or resnet."
        )


def _check_shared(name: str, a: Any) -> None:
    """Raise ValueError for what is wrong with arguments that several architectures have."""
    given = vars(a)
    if name in DIMENSIONS:
        check_shape("input_shape", a.input_shape, DIMENSIONS[name])
    if isinstance(given.get("blocks_per_stage"), Sequence):  # one number for every stage
        check_shape("blocks_per_stage", a.blocks_per_stage, len(a.widths))
    if not 0 <= given.get("dropout", 0) < 1 and a.dropout is not True:  # whether there is any
        raise ValueError(f"dropout must be in [0, 1). Received: dropout={a.dropout!r}.")
    if name in ("alexnet", "allcnn") and not 0 < a.width <= WIDEST:
        bound = f"at most {WIDEST}" if a.width > 0 else "> 0"
        raise ValueError(f"width must be {bound}. Received: width={a.width!r}.")


def _check_residual(name: str, a: Any) -> None:
    """Raise ValueError for stages that their shortcuts cannot reach."""
    if name == "allconv_resnet" and a.shortcut == "identity":
        check_widening("shortcut='identity'", a.widths, stem_width=a.stem_width)
    if name == "allconv_resnet" and a.batch_norm and a.use_bias:
        raise ValueError(
            "batch_norm excludes use_bias, because normalization takes a bias away and adds its "
            "own. Received: both. Drop use_bias."
        )
    if name == "allconv_resnet" and not 0 <= a.leak < 1:
        raise ValueError(f"leak must be in [0, 1). Received: leak={a.leak!r}.")
    if name == "allconv_resnet" and a.logits_bias and not a.fixed_projection:
        raise ValueError(
            "logits_bias is for a fixed projection; trained logits have one by use_bias. Received: "
            "logits_bias=True with fixed_projection=False. Set use_bias=True."
        )
    if name == "resnet" and a.shortcut == "pad":
        check_widening("shortcut='pad'", a.widths)
    if name == "skip56" and a.variant != "vanilla":
        check_widening(f"variant={a.variant!r}", a.widths)


def _check_sizes(name: str, a: Any) -> None:
    """Raise ValueError for sizes that an architecture cannot have."""
    if name == "alexnet":
        check_pixels(a.input_shape, 64)  # they leave one pixel after the last pooling
    if name == "allcnn":
        check_pixels(a.input_shape, {"cifar": 9, "imagenet": 57}[a.form], f"With form={a.form!r}")
    if name == "densenet":
        if not 0 < a.compression <= 1:
            raise ValueError(
                f"compression must be in (0, 1]. Received: compression={a.compression!r}."
            )
        convolutions = 6 if a.bottleneck else 3
        if a.depth <= 4 or (a.depth - 4) % convolutions:
            raise ValueError(
                f"depth must be {convolutions}n + 4, n >= 1, with bottleneck={a.bottleneck}. "
                f"Received: depth={a.depth}."
            )
    if name == "linear_resnet" and tuple(a.input_shape) != (a.classes,):
        raise ValueError(
            "A linear residual network has as many outputs as inputs. Received: input_shape="
            f"{tuple(a.input_shape)} and classes={a.classes}. Use data of which both are of one "
            "size."
        )
    if name == "two_layer":
        units = a.hidden if a.variant == "three-block" else a.input_shape[0]
        if units % a.classes:
            raise ValueError(
                "The units must divide evenly among the classes, whose sums they make. Received: "
                f"{units} units and classes={a.classes}. Use another number of units, or one class."
            )
        if a.variant != "three-block":
            singular_values(a.input_shape[0], a.start_norm, a.start_frobenius)
