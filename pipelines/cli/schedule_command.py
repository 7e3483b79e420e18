"""`python -m pipelines schedule ...`: commands of ours at their times."""

import dataclasses
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from pipelines.cli.parsing import (
    Json,
    Option,
    add_command,
    call,
    command,
    name_parameter,
    new_app,
    options_of,
    take,
)
from pipelines.cli.shell import print_answer
from pipelines.data.own import packing
from pipelines.errors import UserError
from pipelines.runtime.durations import format_distance
from pipelines.scheduling import jobs, times

PROG = "python -m pipelines schedule"
STORAGE_TEXT = "The schedule's database (None: SCHEDULE_STORAGE, else schedule.db beside the runs)."
Storage = Annotated[str | None, Parameter(help=STORAGE_TEXT, metavar="URL")]
JobName = Annotated[str, Parameter(help="Name of the job; `schedule list` shows them.")]
app = new_app(
    PROG,
    """Run commands of this project at their times.

    serve runs them; list, add, remove, pause and resume are about jobs; run-now runs one at once;
    history says what became of every time at which one was due. A job is a command line of this
    project; a new schedule has none.""",
)


def schedule_command(arguments: list[str]) -> None:
    """Run one of the commands below; what follows `--` is the command line of a job."""
    if "--" in arguments:
        cut = arguments.index("--")
        words = _whole_paths(arguments[cut + 1 :])
        arguments = [*arguments[:cut], "--command", shlex.join(words)]
    call(app, arguments)


def _whole_paths(words: Sequence[str]) -> list[str]:
    """Return the words of a job, files and folders of a person's own by their whole path.

    A job runs in another folder than that where it is added.
    """
    return [
        str(Path(word).resolve())
        if (word.endswith(".py") or (before == "--data" and packing.is_own(word)))
        and Path(word).exists()
        else word
        for before, word in pairwise(["", *words])
    ]


@command(app)
def serve(*, storage: Storage = None) -> None:
    """Run the jobs at their times, until SIGTERM or Ctrl-C ends what runs; the next server repeats
    it. Several servers share the jobs of a database."""
    from pipelines.scheduling import server

    server.serve(storage)


@command(app, "list")
def list_command(*, json: Json = False, storage: Storage = None) -> None:
    """Show the jobs, when each is due next, how it went last, and which jobs can be added."""
    from pipelines.scheduling import engine, schedule_report

    with engine.open_client(storage) as client:
        rows = schedule_report.list_jobs(client)
    print_answer(rows, json, schedule_report.show_jobs)


@dataclasses.dataclass(frozen=True)
class When:
    """The times of a job, and what is done when it fails or is late.

    What is left out is as a job of that name has it that comes with the project, else as said here.
    """

    cron: str = ""
    """Minute, hour, day, month, weekday, in the time zone --tz."""
    every: str = ""
    """Instead of that, the time after which it is due again, which divides a minute, an hour or a
    day: 20s, 5m, 6h, 1d."""
    tz: str | None = None
    """A name of the IANA database (None: this machine's own)."""
    timeout: str | None = None
    """Time that the command may take: 90s, 20m, 6h (None: as long as it takes)."""
    retries: int | None = None
    """Further attempts where the command fails or is killed; not after a mistake or a regression,
    exit codes 2 and 3 (None: 0)."""
    backoff: str | None = None
    """Before the first further attempt; twice as long before each next one (None: 60s)."""
    missed: Literal["once", "skip"] | None = None
    """Where it was due and nothing served: run it once, late, or not at all (None: once)."""
    notify: str = ""
    """A URL, to which a document is posted, or a command, which gets it on standard input: for
    every attempt that fails or is killed."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of a job that were given; UserError for an invalid one."""
        from pipelines.runtime import notify

        if self.notify:
            notify.check(self.notify)
        if self.cron and self.every:
            raise UserError(
                "A job has either a cron expression or an interval. Received: both. Give one: "
                "--cron '0 3 * * *' or --every 20m."
            )
        values = {
            "cron": times.cron_of_interval(self.every) if self.every else self.cron or None,
            "tz": str(times.find_zone(self.tz)) if self.tz else None,
            "timeout_s": times.parse_seconds(self.timeout) if self.timeout else None,
            "backoff_s": times.parse_seconds(self.backoff) if self.backoff else None,
            "notify": self.notify or None,
            **{key: getattr(self, key) for key in ("retries", "missed")},
        }
        return {key: value for key, value in values.items() if value is not None}

    def job(self, name: str, line: str) -> jobs.ScheduledJob:
        """Return the job described, or one of the project's with the given fields changed."""
        fields, tz = self.fields(), self.tz or times.local_zone()
        shipped = jobs.shipped_jobs(tz)
        if name in shipped and not line:
            return dataclasses.replace(shipped[name], **fields)
        if "cron" not in fields:
            raise UserError(
                "A job needs its times. Received: neither a cron expression nor an interval. Give "
                "one: --cron '0 3 * * *' or --every 20m."
            )
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UserError(
                f"A command's quotation marks must be closed. Received: {line}. Write it so."
            ) from error
        return jobs.ScheduledJob(name=name, words=jobs.parse_words(words), **{"tz": tz} | fields)


def add(name: str, **values: Any) -> None:
    """Add a job: `add NAME --cron '0 3 * * *' --tz Europe/Berlin -- run CLAIM --force`.

    All that follows -- is the command line of the job. `add NAME` alone adds a job that comes with
    the project (`schedule list`), with the options that are given.
    """
    from pipelines.scheduling import engine, schedule

    line = values.get("command", "")
    job = When(**take(When, values)).job(name, line)
    if line:
        jobs.check_command(job)
    with engine.open_client(values.get("storage")) as client:
        schedule.add(client, job, values.get("replace", False))
        due = schedule.next_due_times(client)[job]
    if due:
        distance = format_distance(due, datetime.now(UTC))
        print(f"{name} is due {distance}, at {due:%Y-%m-%d %H:%M:%S} {job.tz}: {job.command}")
    print("It runs while a server does: python -m pipelines schedule serve")


COMMAND = "The command line, or, simpler, all that follows --; {date} is the day of its time."
ADD_OPTIONS = [
    *options_of(When()),
    Option("command", str, "", COMMAND),
    Option("replace", bool, False, "Put this in the place of a job of that name."),
    Option("storage", str | None, None, STORAGE_TEXT),
]
add_command(app, add, [name_parameter("Small letters, digits and hyphens."), *ADD_OPTIONS], "add")


@command(app)
def remove(name: JobName, /, *, storage: Storage = None) -> None:
    """Remove a job; its history stays, and one that runs goes on."""
    _change(storage, name, "remove")
    print(f"{name} is removed; its history stays.")


@command(app)
def pause(name: JobName, /, *, storage: Storage = None) -> None:
    """Pause a job until it is resumed; one that runs goes on."""
    _change(storage, name, "pause")
    print(f"{name} is paused until: {PROG} resume {name}")


@command(app)
def resume(name: JobName, /, *, storage: Storage = None) -> None:
    """Let a paused job run again at its times, from now on."""
    _change(storage, name, "resume")
    print(f"{name} is due again at its times, from now on.")


def _change(storage: str | None, name: str, how: str) -> None:
    from pipelines.scheduling import engine, schedule

    with engine.open_client(storage) as client:
        getattr(schedule, how)(client, name)


@command(app)
def run_now(name: JobName, /, *, storage: Storage = None) -> None:
    """Run a job once, here and now, whether or not a server runs; it ends with its exit code."""
    from pipelines.scheduling import server

    raise SystemExit(server.run_now(storage, name))


@command(app)
def history(
    name: Annotated[str | None, Parameter(help="A job, also one that is no longer there.")] = None,
    /,
    *,
    last: Annotated[int, Parameter(help="How many rows, the newest.")] = 50,
    json: Json = False,
    storage: Storage = None,
) -> None:
    """Show what became of every time at which a job was due.

    It ran, failed, was killed, skipped or missed.
    """
    from pipelines.scheduling import engine, schedule_report

    with engine.open_client(storage) as client:
        rows = schedule_report.list_history(client, name, last)
    print_answer(rows, json, schedule_report.show_history)
