"""Errors that end a command with one sentence instead of a traceback."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any


class UserError(ValueError):
    """A mistake of the person at the keyboard: one sentence that says how to mend it."""


def unknown(what: str, received: str, choices: Iterable[str]) -> UserError:
    """The sentence for a name that is not one of `choices`, nearest names first."""
    choices = sorted(set(choices))
    near = difflib.get_close_matches(received, choices, n=3)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return UserError(
        f"{what} must be a known name. Received: {received!r}. {hint}Choices: {', '.join(choices)}."
    )


def short(error: Exception) -> str:
    """What an error of another library says, in one line of ours."""
    return str(error).splitlines()[0][:300]


def without_password(url: str) -> str:
    """A URL as people may read it, wherever in it a password stands."""
    without = re.sub(r"((?:^|//)[^/@:]*):(?!//).*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][a-z_]*passw(?:or)?d=)[^&]*", r"\1***", without)


def check_sizes(least: float, **lists: Sequence[float]) -> None:
    """Reject an empty list of sizes, or one with an entry that is not finite or under `least`."""
    for name, sizes in lists.items():
        if not sizes or not all(least <= size < float("inf") for size in sizes):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{name} must be one or more finite numbers >= {least}. Received: {sizes}. "
                f"Set {flag} accordingly."
            )


def check_counts(**counts: int) -> None:
    """Reject a number of things to do, by the name of its option, that is not at least 1."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(
                f"{name} must be >= 1. Received: {name}={count}. Set --{name} 1 or more."
            )


class Undelivered(RuntimeError):
    """A run has ended and its store does not take it now; the message says where it is kept."""


class Pruned(RuntimeError):
    """A search has ended a training after `step`: others do better there."""

    def __init__(self, step: int) -> None:
        super().__init__(f"The search ended this training after step {step}.")
        self.step = step


class Paused(RuntimeError):
    """The time of --max-minutes is over, after that much; no failure: it goes on when repeated."""

    def __init__(self, after: str) -> None:
        super().__init__(
            f"Paused after {after}: the time of --max-minutes is over. The same command goes on."
        )


class Ended(RuntimeError):
    """A command of ours in a process of its own has failed, with that exit code, and said why.

    `document` is what it printed all the same; None where that was no JSON document.
    """

    def __init__(self, message: str, code: int, document: Any = None) -> None:
        super().__init__(message)
        self.code, self.document = code, document


class Diverged(RuntimeError):
    """The loss is no longer finite, at `step`; the message names it and the learning rate."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step
