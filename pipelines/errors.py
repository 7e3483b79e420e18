"""Errors that end a command with one sentence instead of a traceback."""

import difflib
import errno
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

DAMAGE_ERRORS = (  # raised by zipfile, json, NumPy and h5py for bytes that are not theirs
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError),
    *(ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError),
)
SECRETS = "passw(?:or)?d|pwd|token|secret|api_?key|signature"  # names of values in a URL
RECOVERING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
MOST = 100_000  # things counted out one by one: seeds, trials
WORKERS = 1_024  # processes on one machine
FEW = 8  # names: no more are listed in a sentence
LISTED_BY = "python -m pipelines list"  # claims, recipes, models, schedules


class UserError(ValueError):
    """A mistake of the person at the keyboard: one sentence that says how to fix it."""

    code = 2  # the exit code of a command that it ends


class Unavailable(RuntimeError):
    """Something that a command needs is not there now: a store, a machine, memory, room on a disk.

    One sentence; the same command may succeed later, without anything else being typed.
    """

    code = 1


def disk_error(error: OSError) -> type[UserError] | type[Unavailable]:
    """Return what a file that cannot be read or written is: a mistake, unless the disk may recover.

    Where a disk is full or fails, the same command may succeed later; a place that is not there, or
    not ours to write, is a person's choice.
    """
    return Unavailable if error.errno in RECOVERING else UserError


def unknown(what: str, received: str, choices: Iterable[str], listed_by: str = "") -> UserError:
    """Return the error for a name that is not one of `choices`, with the nearest one.

    Where they are many it names the command that lists them, or the first few.
    """
    choices = sorted(set(choices))
    prefixed = [name for name in choices if received and name.startswith(received)]
    near = difflib.get_close_matches(received, choices, n=1) or prefixed
    hint = f"Did you mean {near[0]}? " if near else ""
    listed = f"Choices: {', '.join(choices[:FEW])}." if choices else "There is none yet."
    if len(choices) > FEW:
        listed = f"All: {listed_by}" if listed_by else f"{listed[:-1]}, ... ({len(choices)})."
    return UserError(f"{what} must be a known name. Received: {received!r}. {hint}{listed}")


def check_names(what: str, names: Iterable[str], choices: Iterable[str]) -> None:
    """Raise UserError for the first of these names that is not one of `choices`."""
    for name in names:
        if name not in choices:
            raise unknown(what, name, choices)


def short(error: BaseException) -> str:
    """Return what an error of another library says, in one line; its name where it says nothing."""
    line = next(iter(str(error).splitlines()), type(error).__name__)
    plain = re.sub(r"\{\{.*?\}\} | \[Op:.*", "", line)  # TensorFlow's names of operations
    return hide_passwords(plain)[:300]


def describe_damage(error: BaseException) -> str:
    """Return in one line why bytes cannot be read, without NumPy's advice to read pickles."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return str(error.args[0])
    if isinstance(error, TypeError | AttributeError):
        return "it is of another form"
    return "it holds no arrays of numbers" if "pickle" in str(error) else short(error)


def foreign_worker(worker: str, difference: str) -> UserError:
    """Return the error for a worker that would give other numbers."""
    return UserError(
        f"Every worker must have this code and the same packages. Received: {worker} {difference}. "
        "Start `python -m dask worker` there in a checkout of the same commit, with the same "
        "environment and KERAS_BACKEND."
    )


def missing_driver(url: str, error: ImportError) -> UserError:
    """Return the sentence for a database whose driver is not installed."""
    return UserError(
        f"A database needs its driver. Received: {without_password(url)}: {short(error)}. Install "
        "it, for mysql+pymysql:// by: pip install pymysql."
    )


def without_password(url: str) -> str:
    """Return a URL as people may read it, wherever in it a password or a token stands."""
    without = re.sub(r"(?i)(https?:/+)[^/]*@", r"\1***@", url)  # a token may be the name, too
    without = re.sub(r"((?:^|//)[^/@:]*):(?!//).*@", r"\1:***@", without)
    without = re.sub(r"(//[^/@:]*)%3a[^/@]*@", r"\1:***@", without, flags=re.I)
    without = re.sub(r"(//[^/@:]*):(?!\d*(?:[/?]|$))[^/@]*$", r"\1:***", without)  # without a host
    return re.sub(rf"(?i)([?&][a-z_]*(?:{SECRETS})=)[^&]*", r"\1***", without)


def hide_passwords(text: str) -> str:
    """Return a text without the passwords of the URLs in it."""
    return re.sub(r"\S+:/+[^\s'\"]+", lambda url: without_password(url[0]), text)


def check_sizes(least: float, **lists: Sequence[float]) -> None:
    """Reject an empty list of sizes, or one with an entry that is not finite or under `least`."""
    for name, sizes in lists.items():
        if not sizes or not all(least <= size < float("inf") for size in sizes):
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{name} must be one or more finite numbers >= {least}. Received: {sizes}. "
                f"Set {flag} accordingly."
            )


def check_counts(most: float = math.inf, /, **counts: int) -> None:
    """Reject a number of things to do, by the name of its option, under 1 or over `most`."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(
                f"{name} must be >= 1. Received: {name}={count}. Set --{name} 1 or more."
            )
        if count > most:
            raise UserError(
                f"{name} must be <= {most:,}. Received: {name}={count}. Set --{name} lower."
            )


def check_minutes(max_minutes: float | None) -> None:
    """Reject a time after which a command pauses that is not positive and finite; None is none."""
    if max_minutes is not None and not 0 < max_minutes < math.inf:
        raise UserError(
            f"max_minutes must be finite and > 0. Received: max_minutes={max_minutes}. Set "
            "--max-minutes accordingly, or leave it out."
        )


def check_words(words: Iterable[str]) -> None:
    """Reject an empty word of a command line, which a path or a name would read as something."""
    before = ""
    for word in words:
        if not word.strip() or (word.startswith("--") and word.endswith("=")):
            place = f" after {before}" if before.startswith("-") else f": {word!r}" if word else ""
            raise UserError(
                f"A word of a command must not be empty. Received an empty one{place}. Write what "
                "is meant, or leave the option out."
            )
        before = word


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

    code = 1

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step
