"""Jobs: commands of ours that are run at their times, and those that come with the project."""

import dataclasses
import os
import re
import shlex
import subprocess
import sys
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pipelines.errors import UserError
from pipelines.runtime.provenance import ROOT
from pipelines.scheduling import times

TICK = "tick"  # the workflow of a job whose time has come
PACKAGES = ("pipelines", "tuning")
NAME_PATTERN = "[a-z0-9][a-z0-9-]{0,59}"
HOUR_S = 3_600.0
MAX_LENGTH_S = 3650 * 86_400.0  # ten years: beyond them dates end
UNKNOWN_OPTION = "--no-such-option"
DATE_PLACEHOLDER = "{date}"  # in the words of a job: the day of the tick, in the job's time zone


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command line of ours, when it is run, and what is done when that does not go well."""

    name: str
    words: tuple[str, ...]
    """After `python -m`."""
    tz: str
    """The time zone of the cron expression, and of all times that are shown."""
    cron: str
    """Minute, hour, day, month, weekday; with six fields, seconds first."""
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
        if not re.fullmatch(NAME_PATTERN, self.name):
            raise UserError(
                "The name of a job must be small letters, digits and hyphens, at most 60. "
                f"Received: {self.name!r}. Choose such a name."
            )
        for name, value in {"retries": self.retries, "backoff": self.backoff_s}.items():
            if not 0 <= value <= MAX_LENGTH_S:
                raise UserError(
                    f"{name} must be between 0 and ten years. Received: {value:g}. Set --{name} "
                    "accordingly."
                )
        if self.timeout_s is not None and not 0 < self.timeout_s <= MAX_LENGTH_S:
            raise UserError(
                f"A timeout must be > 0 and at most ten years. Received: {self.timeout_s:g} s. Set "
                "--timeout so, or leave it out."
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Job":
        """Return the job that a document describes, which was made by dataclasses.asdict."""
        return cls(**{**document, "words": tuple(document["words"])})

    @property
    def entry(self) -> dict[str, Any]:
        """What DBOS keeps of it."""
        return {
            "schedule_name": self.name,
            "workflow_name": TICK,
            "schedule": self.cron,
            "context": dataclasses.asdict(self),
            "automatic_backfill": True,  # of ticks at which nothing served
            "cron_timezone": self.tz,
        }

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return times.find_zone(self.tz)

    @property
    def times(self) -> str:
        """`0 3 * * * Europe/Berlin`."""
        return f"{self.cron} {self.tz}"

    @property
    def command(self) -> str:
        """What a person would type."""
        return f"python -m {shlex.join(self.words)}"

    def words_at(self, tick: datetime) -> tuple[str, ...]:
        """Return the words for a tick."""
        day = tick.astimezone(self.zone).date().isoformat()
        return tuple(word.replace(DATE_PLACEHOLDER, day) for word in self.words)

    def next_tick(self, after: datetime) -> datetime | None:
        """Return when it is due next after that moment."""
        return times.next_tick(self.cron, self.zone, after)

    def pause_s(self, attempt: int) -> float:
        """Return the seconds before the next attempt: twice as many each time, up to a day."""
        return min(self.backoff_s * 2.0 ** min(attempt - 1, 20), max(self.backoff_s, 86_400.0))


def parse_words(line: Sequence[str]) -> tuple[str, ...]:
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
    words = [sys.executable, "-m", *job.words, UNKNOWN_OPTION]
    wide = os.environ | {"COLUMNS": "1000"}
    done = subprocess.run(words, cwd=ROOT, env=wide, capture_output=True, text=True, check=False)
    lines = [line.strip("│╭╮╰╯─ ") for line in done.stderr.splitlines()]  # tyro may frame them
    if any(f"Unrecognized options: {UNKNOWN_OPTION}" in line for line in lines):
        return
    said = [line for line in lines if line and not line.startswith("For full helptext")]
    faults = [line for line in said if line.startswith(("error: ", "Unrecognized options: "))]
    why = [*said, *faults][-1].removeprefix("error: ") if said else "there is no such command"
    raise UserError(
        f"A job runs a command of ours. Received: {job.command}: "
        f"{why.replace(f', {UNKNOWN_OPTION}', '').rstrip('.')}. Try it by itself first; "
        f"python -m {job.words[0]} --help lists what there is."
    )


def default_jobs(tz: str) -> dict[str, Job]:
    """The jobs that a new schedule begins with, in that time zone."""
    found = (
        Job(
            name="nightly-claims",
            words=("pipelines", "pipeline", "verify", "--force"),
            tz=tz,
            cron="0 3 * * *",
            timeout_s=6 * HOUR_S,
            retries=1,
        ),
        Job(
            name="weekly-study",
            words=parse_words(
                f"tuning run weekly-{DATE_PLACEHOLDER} --recipe allconv-digits --trials 40".split(),
            ),
            tz=tz,
            cron="0 4 * * SUN",
            timeout_s=12 * HOUR_S,
            retries=2,
        ),
        Job(
            name="data-check",
            words=("pipelines", "data", "check"),
            tz=tz,
            cron="30 2 * * *",
            timeout_s=HOUR_S,
        ),
        Job(
            name="reap",
            words=("pipelines", "reap"),
            tz=tz,
            cron="15 * * * *",
            timeout_s=HOUR_S,
            missed="skip",
        ),
    )
    return {job.name: job for job in found}
