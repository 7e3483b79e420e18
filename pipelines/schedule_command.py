"""`python -m pipelines schedule ...`: commands of ours at their times.

serve runs them; list, add, remove, pause and resume are about jobs; run-now and history about
their ticks. A job is a command line of this project; a tick is a moment at which it is due."""

import dataclasses
import shlex
from collections.abc import Callable
from typing import Annotated, Any, Literal

import tyro

from pipelines import jobs
from pipelines.shell import print_json

PROG = "python -m pipelines schedule"
Storage = Annotated[str | None, tyro.conf.arg(metavar="URL")]
app = tyro.extras.SubcommandApp()


def schedule_command(arguments: list[str]) -> None:
    """Read one of the commands below; what follows `--` is the command line of a job."""
    if "--" in arguments:
        cut = arguments.index("--")
        arguments = [*arguments[:cut], "--command", shlex.join(arguments[cut + 1 :])]
    app.cli(args=arguments, prog=PROG, description=__doc__)


@app.command
def serve(
    on_stop: Literal["wait", "hand-over"] = "wait",
    storage: Storage = None,
) -> None:
    """Run the jobs at their times, until SIGTERM or Ctrl-C: it then waits for those that run, or
    hands them over to the next server, which finds them. A second server is refused."""
    from pipelines import server

    server.serve(_place(storage), on_stop)


@app.command(name="list")
def list_command(json: bool = False, storage: Storage = None) -> None:
    """Show the jobs, when each is due next, and how its last tick went."""
    from pipelines import schedule, schedule_report

    with schedule.opened(_place(storage)) as found:
        rows = schedule_report.jobs(found)
    print_json(rows) if json else schedule_report.show_jobs(rows)


@dataclasses.dataclass(frozen=True)
class When:
    """When a job runs, and what is done when that does not go well.

    What is left out is as a shipped job of that name has it, else as it is said here.
    """

    cron: str = ""
    """Minute, hour, day, month, weekday, in the time zone --tz."""
    every: str = ""
    """Instead of that, the time between two ticks: 20s, 5m, 6h, 1d."""
    tz: str | None = None
    """A name of the IANA database (None: this machine's own)."""
    timeout: str | None = None
    """How long the command may take: 90s, 20m, 6h (None: as long as it takes)."""
    retries: int | None = None
    """Further attempts where the command fails or is killed; not after a mistake or a regression,
    exit codes 2 and 3 (None: 0)."""
    backoff: str | None = None
    """Before the first further attempt; twice as long before each next one (None: 60s)."""
    overlap: Literal["skip", "queue"] | None = None
    """What becomes of a tick while the job still runs: nothing, or it waits, one at most (None:
    skip)."""
    missed: Literal["once", "skip"] | None = None
    """Of the ticks at which nothing served, run the last one, late, or none (None: once)."""
    notify: str = ""
    """A URL, to which a document is posted, or a command, which gets it on standard input: for
    every attempt that does not go well."""

    def given(self) -> dict[str, Any]:
        """The fields of a job that were given; UserError for one that cannot be."""
        from pipelines import notify

        if self.notify:
            notify.check(self.notify)
        lengths = {"timeout_s": self.timeout, "backoff_s": self.backoff}
        found: dict[str, Any] = {
            "tz": str(jobs.zone(self.tz)) if self.tz else None,
            "notify": self.notify or None,
            **{key: jobs.seconds(text) for key, text in lengths.items() if text is not None},
            **{key: getattr(self, key) for key in ("retries", "overlap", "missed")},
        }
        if self.cron or self.every:
            found |= {"cron": self.cron, "every_s": jobs.seconds(self.every) if self.every else 0.0}
        return {key: value for key, value in found.items() if value is not None}

    def job(self, name: str, line: str) -> jobs.Job:
        """The job that was described, or one of the shipped ones with what was given changed."""
        from pipelines import schedule

        given, tz = self.given(), schedule.local_zone()
        shipped = jobs.shipped(tz)
        if name in shipped and not line:
            return dataclasses.replace(shipped[name], **given)
        return jobs.Job(name=name, words=jobs.words(shlex.split(line)), **{"tz": tz} | given)


@app.command
def add(
    name: tyro.conf.Positional[str],
    when: tyro.conf.OmitArgPrefixes[When],
    command: str = "",
    replace: bool = False,
    storage: Storage = None,
) -> None:
    """Add a job: `add NAME --cron '0 3 * * *' --tz Europe/Berlin -- run CLAIM --force`; `add NAME`
    brings a shipped job back, with the options that are given.

    Args:
        name: Small letters, digits and hyphens.
        when: When it runs.
        command: The command line, or, simpler, all that follows --; {date} is the day of the tick.
        replace: Put this in the place of a job of that name.
        storage: The schedule's database (None: SCHEDULE_STORAGE, else schedule.db beside the runs).
    """
    from pipelines import schedule

    job = when.job(name, command)
    if command:
        jobs.check_command(job)
    with schedule.opened(_place(storage)) as found:
        found.add(job, replace)
        due = next(due for each, due in found.jobs().items() if each.name == name)
    print(f"{name} is due next at {due:%Y-%m-%d %H:%M:%S} {job.tz}: {job.command}")


@app.command
def remove(name: tyro.conf.Positional[str], storage: Storage = None) -> None:
    """Take a job away; its history stays."""
    _change(storage, lambda found: found.remove(name))


@app.command
def pause(name: tyro.conf.Positional[str], storage: Storage = None) -> None:
    """Let a job have no ticks until it is resumed; one that runs goes on."""
    _change(storage, lambda found: found.pause(name))


@app.command
def resume(name: tyro.conf.Positional[str], storage: Storage = None) -> None:
    """Let a paused job have ticks again, from now on."""
    _change(storage, lambda found: found.resume(name))


@app.command(name="run-now")
def run_now(name: tyro.conf.Positional[str], storage: Storage = None) -> None:
    """Run a job once, here and now, whether or not a server runs; it ends with its exit code."""
    from pipelines import by_hand

    raise SystemExit(by_hand.run_now(_place(storage), name))


@app.command
def history(
    name: tyro.conf.Positional[str | None] = None,
    last: int = 50,
    json: bool = False,
    storage: Storage = None,
) -> None:
    """Show what became of every tick, of all jobs or one: ran, failed, killed, skipped or missed.

    Args:
        name: A job, also one that is no longer there.
        last: How many rows, the newest.
    """
    from pipelines import schedule_report, timetable

    with timetable.connected(_place(storage)) as engine:
        rows = schedule_report.history(engine, name, last)
    print_json(rows) if json else schedule_report.show_history(rows)


def _change(storage: str | None, change: Callable[[Any], None]) -> None:
    from pipelines import schedule

    with schedule.opened(_place(storage)) as found:
        change(found)


def _place(storage: str | None) -> str:
    from pipelines import timetable

    return timetable.place(storage)
