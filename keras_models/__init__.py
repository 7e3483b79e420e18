"""Architectures by module name: every public module of this package is one, with `build`.

A person's own, in a file or a module of another package, is one too: `_own` says how it is named.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from ._arguments import choices, defaults, describe, types
from ._own import is_own, name_own
from ._start_weights import draw as draw_relu_weights
from ._start_weights import singular_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras


__all__ = [
    "build",
    "check",
    "choices",
    "defaults",
    "describe",
    "draw_relu_weights",
    "is_own",
    "name_own",
    "names",
    "singular_values",
    "types",
]


def names() -> list[str]:
    """Return the names of all architectures, found without importing any of them."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in modules if not name.startswith("_"))


def check(name: str, input_shape: Sequence[int], classes: int, **kw: Any) -> None:
    """Raise ValueError unless `build` can be called with these; Keras is not imported for it."""
    from . import _arguments

    if not is_own(name) and name not in names():
        choices = ", ".join(_arguments.nearest_first(name, names()))
        raise ValueError(
            f"An architecture is named after its module. Received: name={name!r}. "
            f"Choose one of: {choices}."
        )
    _arguments.check(name, {"input_shape": input_shape, "classes": classes, **kw})


def build(name: str, input_shape: Sequence[int], classes: int, **kw: Any) -> keras.Model:
    """Return the network of the module `name`; `kw` are its own arguments, as `check` has them.

    Raise ValueError for arguments that it does not take, and for what a person's own raises.
    """
    check(name, input_shape, classes, **kw)
    if is_own(name):
        return _build_own(name, tuple(input_shape), classes, kw)
    builder = importlib.import_module(f"{__name__}.{name}").build
    model: keras.Model = builder(input_shape=input_shape, classes=classes, **kw)
    return model


def _build_own(
    name: str, input_shape: tuple[int, ...], classes: int, arguments: dict[str, Any]
) -> keras.Model:
    from . import _own

    builder = _own.load(name).build
    try:
        model: keras.Model = builder(input_shape=input_shape, classes=classes, **arguments)
    except Exception as error:
        raise ValueError(_own.describe_failure(name, error)) from error
    _own.check_built(name, model, input_shape, classes)
    return model
