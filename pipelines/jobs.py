"""Jobs: commands of ours that are run at their times, and those that come with the project."""

import difflib
import math
import os
import re
import shlex
import subprocess
import sys
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pipelines.errors import UserError
from pipelines.provenance import ROOT

PACKAGES = ("pipelines", "tuning")
NAME = "[a-z0-9][a-z0-9-]{0,59}"
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
LONGEST_D = 3650  # ten years: beyond them dates end
UNKNOWN = "--no-such-option"
DATE = "{date}"  # in the words of a job: the day of the tick, in the job's time zone


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command line of ours, when it is run, and what is done when that does not go well."""

    name: str
    words: tuple[str, ...]
    """After `python -m`."""
    tz: str
    """The time zone of the cron expression, and of all times that are shown."""
    cron: str = ""
    """Minute, hour, day, month, weekday; or empty, and:"""
    every_s: float = 0.0
    """Seconds between two ticks."""
    timeout_s: float | None = None
    """After which the command is ended, and has failed."""
    retries: int = 0
    """Further attempts at a tick whose command failed or was killed."""
    backoff_s: float = 60.0
    """Before the first further attempt; twice as long before each next one."""
    overlap: Literal["skip", "queue"] = "skip"
    """What becomes of a tick while the job is still running: nothing, or it waits; one at most."""
    missed: Literal["once", "skip"] = "once"
    """Of ticks at which nothing served: the last is run, late, or none."""
    notify: str = ""
    """Told of every attempt that did not go well: a URL, or a command."""

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME, self.name):
            raise UserError(
                "The name of a job must be small letters, digits and hyphens, at most 60. "
                f"Received: {self.name!r}. Choose such a name."
            )
        if bool(self.cron) == bool(self.every_s):
            raise UserError(
                "A job has either a cron expression or an interval. Received: "
                f"cron={self.cron!r}, every={self.every_s:g} s. Give one: --cron '0 3 * * *' or "
                "--every 20m."
            )
        _check_numbers(self)

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return zone(self.tz)

    @property
    def times(self) -> str:
        """`0 3 * * * Europe/Berlin` or `every 20 m`."""
        return f"{self.cron} {self.tz}" if self.cron else f"every {spoken(self.every_s)}"

    @property
    def command(self) -> str:
        """What a person would type."""
        return f"python -m {shlex.join(self.words)}"

    def at(self, tick: float) -> tuple[str, ...]:
        """The words for a tick, in seconds since 1970."""
        day = self.local(tick).date().isoformat()
        return tuple(word.replace(DATE, day) for word in self.words)

    def local(self, seconds: float) -> datetime:
        """That moment in the job's time zone."""
        return datetime.fromtimestamp(seconds, self.zone)


def _check_numbers(job: Job) -> None:
    for name, value in {"retries": job.retries, "backoff": job.backoff_s}.items():
        if not 0 <= value < math.inf:
            raise UserError(
                f"{name} must be finite and >= 0. Received: {value:g}. Set --{name} accordingly."
            )
    lengths = {"every": job.every_s, "timeout": job.timeout_s or 0.0, "backoff": job.backoff_s}
    for name, value in lengths.items():
        if not value <= LONGEST_D * UNITS["d"]:
            raise UserError(
                f"{name} must be at most ten years. Received: {value / UNITS['d']:g} days. Set "
                f"--{name} {LONGEST_D}d or less."
            )
    if job.every_s and not job.every_s >= 1:
        raise UserError(
            f"An interval must be at least 1 s. Received: {job.every_s:g} s. Set --every 1s or "
            "more."
        )
    if job.timeout_s is not None and not job.timeout_s > 0:
        raise UserError(
            f"A timeout must be > 0. Received: {job.timeout_s:g} s. Set --timeout so, or leave it "
            "out."
        )


def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone of that name; UserError names those nearest."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        every = sorted(zoneinfo.available_timezones())
        same = [each for each in every if name and name.lower() in each.lower()]
        near = same[:3] or difflib.get_close_matches(name, every) or ["Europe/Berlin", "UTC"]
        raise UserError(
            f"A time zone must be a name of the IANA database. Received: {name!r}. Set --tz, for "
            f"example {' or '.join(near)}."
        ) from None


def seconds(text: str) -> float:
    """The seconds of `90s`, `20m`, `6h`, `1d`; UserError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if not found:
        raise UserError(
            f"A length of time must be a number with s, m, h or d. Received: {text!r}. Write, for "
            "example, 90s, 20m, 6h or 1d."
        )
    return float(found[1]) * UNITS[found[2]]


def spoken(length_s: float) -> str:
    """`20 s`, `6 h`: in the largest unit that gives a whole number."""
    unit = max((u for u, s in UNITS.items() if length_s % s == 0), key=UNITS.get, default="s")  # type: ignore[arg-type]
    return f"{length_s / UNITS[unit]:g} {unit}"


def words(line: Sequence[str]) -> tuple[str, ...]:
    """A command line of ours as words after `python -m`: it may begin with any of these parts."""
    rest = list(line)
    if rest[:1] and re.fullmatch(r"(.*/)?python[\d.]*", rest[0]):
        rest = rest[1:]
    if rest[:1] == ["-m"]:
        rest = rest[1:]
    if not rest:
        raise UserError(
            "A job needs a command of ours. Received: none. Write it after --, as in: schedule add "
            "nightly --cron '0 3 * * *' -- run gradient-formula --force"
        )
    return tuple(rest if rest[0] in PACKAGES else ["pipelines", *rest])


def check_command(job: Job) -> None:
    """Reject a command that there is not, or a name or an option that it does not know.

    It is given one more option that there is not: a command that finds fault with this alone is
    right, and has done nothing. Takes a second or two.
    """
    words = [sys.executable, "-m", *job.words, UNKNOWN]
    wide = os.environ | {"COLUMNS": "1000"}
    done = subprocess.run(words, cwd=ROOT, env=wide, capture_output=True, text=True, check=False)
    lines = [line.strip("│╭╮╰╯─ ") for line in done.stderr.splitlines()]  # tyro may frame them
    if any(f"Unrecognized options: {UNKNOWN}" in line for line in lines):
        return
    said = [line for line in lines if line and not line.startswith("For full helptext")]
    faults = [line for line in said if line.startswith(("error: ", "Unrecognized options: "))]
    why = [*said, *faults][-1].removeprefix("error: ") if said else "there is no such command"
    raise UserError(
        f"A job runs a command of ours. Received: {job.command}: "
        f"{why.replace(f', {UNKNOWN}', '').rstrip('.')}. Try it by itself first; "
        f"python -m {job.words[0]} --help lists what there is."
    )


def shipped(tz: str) -> dict[str, Job]:
    """The jobs that a new schedule begins with, in that time zone."""
    found = (
        Job(
            name="nightly-claims",
            words=("pipelines", "pipeline", "verify", "--force"),
            tz=tz,
            cron="0 3 * * *",
            timeout_s=6 * UNITS["h"],
            retries=1,
        ),
        Job(
            name="weekly-study",
            words=words(
                f"tuning run weekly-{DATE} --recipe allconv-digits --trials 40".split(),
            ),
            tz=tz,
            cron="0 4 * * SUN",
            timeout_s=12 * UNITS["h"],
            retries=2,
        ),
        Job(
            name="data-check",
            words=("pipelines", "data", "check"),
            tz=tz,
            cron="30 2 * * *",
            timeout_s=UNITS["h"],
        ),
        Job(
            name="reap",
            words=("pipelines", "reap"),
            tz=tz,
            cron="15 * * * *",
            timeout_s=UNITS["h"],
            missed="skip",
        ),
    )
    return {job.name: job for job in found}
