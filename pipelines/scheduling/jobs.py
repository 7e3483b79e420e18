"""Jobs: commands of ours that are run at their times, and those that come with the project."""

import dataclasses
import re
import shlex
import subprocess
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pipelines.errors import UserError, short, without_password
from pipelines.runtime import notify, places, provenance, subcommands
from pipelines.scheduling import times

DUE = "tick"  # the workflow of a job whose time has come, as databases have it
NAME_PATTERN = "[a-z0-9][a-z0-9-]{0,59}"
HOUR_S = 3_600.0
MAX_LENGTH_S = 3650 * 86_400.0  # ten years: beyond them dates end
UNKNOWN_OPTION = "--no-such-option"  # makes a command check its words and end
NOT_OURS = "not in JSON as this project writes it; a py_pickle is not read, for it may run code"
DATE_PLACEHOLDER = "{date}"  # stands for the day of the due time, in the job's time zone


@dataclass(frozen=True, kw_only=True)
class ScheduledJob:
    """A command line of ours, its times, and the rules for when it fails or is late."""

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
    """Further attempts at a due time whose command failed or was killed."""
    backoff_s: float = 60.0
    """Before the first further attempt; twice as long before each next one."""
    missed: Literal["once", "skip"] = "once"
    """Run the last of the due times at which no server ran, late, or none."""
    notify: str = ""
    """A URL or a command, notified of every attempt that failed or was killed."""

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
    def of(cls, context: Any) -> "ScheduledJob":
        """Return the job of what dataclasses.asdict made of it; UserError for anything else."""
        if isinstance(context, dict) and context.get("overlap") == "queue":
            raise UserError(
                "A job that still runs when it is due again is skipped; it waits no more. "
                "Received: a job of the rule `overlap queue`. Add it anew, with --replace and "
                "without --overlap."
            )
        try:
            fields = {key: value for key, value in context.items() if key != "overlap"}
            job = cls(**{**fields, "words": tuple(context["words"])})
            hash((job, job.command, job.next_due(datetime.now(UTC))))  # each field has its type
        except Exception as error:  # whatever is there
            raise UserError(f"{NOT_OURS}: {short(error)}") from error
        return job

    @property
    def entry(self) -> dict[str, Any]:
        """Return the schedule of DBOS by which it is kept."""
        return {
            "schedule_name": self.name,
            "workflow_name": DUE,
            "schedule": self.cron,
            "context": dataclasses.asdict(self),
            "automatic_backfill": True,  # due times at which nothing served are fired late
            "cron_timezone": self.tz,
        }

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return times.find_zone(self.tz)

    @property
    def times(self) -> str:
        """Return `0 3 * * * Europe/Berlin`."""
        return f"{self.cron} {self.tz}"

    @property
    def command(self) -> str:
        """Return the command line as a person would type it, without what is secret in it."""
        return f"python -m {shlex.join(hide_secrets(self.words))}"

    def words_at(self, moment: datetime) -> tuple[str, ...]:
        """Return its words with the day of a due time in the place of {date}."""
        day = moment.astimezone(self.zone).date().isoformat()
        return tuple(word.replace(DATE_PLACEHOLDER, day) for word in self.words)

    def next_due(self, after: datetime) -> datetime | None:
        """Return the first time after that moment at which it is due; None if there is none."""
        return times.next_due(self.cron, self.zone, after)

    def pause_s(self, attempt: int) -> float:
        """Return the seconds before the next attempt: twice as many each time, up to a day."""
        return min(self.backoff_s * 2.0 ** min(attempt - 1, 20), max(self.backoff_s, 86_400.0))


def parse_words(line: Sequence[str]) -> tuple[str, ...]:
    """Return the words after `python -m` of a command line, which may begin with any of these.

    It may begin with `near-identity` instead.
    """
    words = list(line)
    if words and re.fullmatch(rf"(.*/)?(python[\d.]*|{places.NAME})", words[0]):
        words = words[1:]
    if words[:1] == ["-m"]:
        words = words[1:]
    if not words:
        raise UserError(
            "A job needs a command of ours. Received: none. Write it after --, as in: schedule add "
            "nightly --cron '0 3 * * *' -- run gradient-formula --force"
        )
    return tuple(words if words[0] in provenance.COMMANDS else ["pipelines", *words])


def hide_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command as people may read them: no password, of a webhook its host."""
    shown = [without_password(word) if "://" in word else word for word in words]
    return [re.sub("https?://.*", lambda url: notify.hide_secrets(url[0]), word) for word in shown]


def check_command(job: ScheduledJob) -> None:
    """Raise UserError for an unknown command, or a name or an option that it does not know.

    Refuse a secret too: the schedule would keep it, and the processes of every due time show it.

    The command gets one more option, an unknown one: where it rejects this one alone, the rest is
    right, and nothing was done. Takes a second or two.
    """
    if hide_secrets(job.words) != list(job.words):
        raise UserError(
            f"A job's command must hold no password and no webhook. Received: {job.command}. Leave "
            "it out: PostgreSQL reads ~/.pgpass; or set OPTUNA_STORAGE where the schedule is "
            "served; a webhook is given to the job, by --notify before --."
        )
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subcommands.start((*job.words, UNKNOWN_OPTION), {}, **streams) as child:
        error = subcommands.find_error(child.communicate()[1].decode(errors="replace"))
    why, _, rest = error.partition(f"There is no option {UNKNOWN_OPTION}.")
    why = why.replace(f" {UNKNOWN_OPTION}", "").strip(" .")
    if why or not rest:
        raise UserError(
            f"A job runs a command of ours. Received: {job.command}: {why}. Try it by "
            f"itself first; python -m {job.words[0]} --help lists what there is."
        )


def shipped_jobs(tz: str) -> dict[str, ScheduledJob]:
    """Return by name the jobs that come with the project, in that time zone; `add` takes them."""

    def job(name: str, line: str, cron: str, hours: float, **fields: Any) -> ScheduledJob:
        words = tuple(line.split())
        return ScheduledJob(
            name=name, words=words, tz=tz, cron=cron, timeout_s=hours * HOUR_S, **fields
        )

    study = f"tuning run weekly-{DATE_PLACEHOLDER} --recipe allconv-digits --trials 40"
    shipped = (
        job("nightly-claims", "pipelines pipeline verify --force", "0 3 * * *", 6, retries=1),
        job("weekly-study", study, "0 4 * * SUN", 12, retries=2),
        job("data-check", "pipelines data check", "30 2 * * *", 1),
        job("close-dead-runs", "pipelines recover", "15 * * * *", 1, missed="skip"),
    )
    return {job.name: job for job in shipped}
