"""Architectures by module name: every public module of this package is one, with `build`."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import keras


def names() -> list[str]:
    """Names of all architectures, found without importing any of them."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in modules if not name.startswith("_"))


def build(name: str, input_shape: Sequence[int], classes: int, **kw: Any) -> keras.Model:
    """Network of the module `name`; `kw` are that module's own arguments of `build`."""
    if name not in names():
        choices = ", ".join(_nearest_first(name, names()))
        raise ValueError(
            f"An architecture is named after its module. Received: name={name!r}. "
            f"Choose one of: {choices}."
        )
    builder = importlib.import_module(f"{__name__}.{name}").build
    _check_arguments(name, builder, {"input_shape": input_shape, "classes": classes, **kw})
    model: keras.Model = builder(input_shape=input_shape, classes=classes, **kw)
    return model


def _check_arguments(name: str, builder: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Turn what would be a TypeError of the call into a sentence with the accepted arguments."""
    signature = inspect.signature(builder)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        unknown = [key for key in arguments if key not in signature.parameters]
        accepted = _nearest_first(unknown[0] if unknown else "", signature.parameters)
        raise ValueError(
            f"{name!r} must be built with its own arguments. Received: {error}. "
            f"It accepts: {', '.join(accepted)}."
        ) from None


def _nearest_first(received: str, choices: Iterable[str]) -> list[str]:
    """The choices, those spelled most like `received` first, the others in their own order."""
    choices = list(choices)
    near = difflib.get_close_matches(str(received), choices, n=3, cutoff=0.5)
    return near + [choice for choice in choices if choice not in near]
