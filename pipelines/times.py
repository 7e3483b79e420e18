"""When a job is due: APScheduler's triggers, of which the one for cron expressions is ours.

APScheduler at the top: import this module inside the functions that need it.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger
from cronsim import CronSim, CronSimError

from pipelines import jobs
from pipelines.errors import UserError


class Cron(BaseTrigger):
    """A cron expression in a time zone, on the days when clocks are moved as Debian's cron has it.

    What is due at fixed times is due once on each day: a time that is skipped, at the moment to
    which the clocks are moved; one that comes twice, when it comes first. APScheduler's own trigger
    leaves out the one and runs the other twice. What is due every minute or every hour (a minute or
    hour that begins with *) goes by the time that passes.
    """

    def __init__(self, expression: str, tz: str) -> None:
        self.expression, self.tz = expression, tz

    def get_next_fire_time(
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        """The first moment after the previous one, or from now on; None if there is none."""
        after = previous_fire_time or now - timedelta(microseconds=1)
        begin = after.astimezone(jobs.zone(self.tz))
        for found in CronSim(self.expression, begin):
            if found.astimezone(UTC) > after.astimezone(UTC):  # else its first coming is over
                return found
        return None

    def __str__(self) -> str:
        return f"{self.expression} {self.tz}"


def trigger(job: jobs.Job, start: datetime) -> Any:
    """The trigger of a job that is added at `start`; UserError for an expression without a time."""
    if not job.cron:
        return IntervalTrigger(
            seconds=job.every_s, start_date=start.replace(microsecond=0), timezone=job.zone
        )
    found = Cron(job.cron, job.tz)
    try:
        if len(job.cron.split()) != 5:
            raise CronSimError("Not five fields")
        if found.get_next_fire_time(None, start) is None:
            raise CronSimError("No such day in fifty years")
    except CronSimError as error:
        raise UserError(
            "A cron expression must be five fields: minute, hour, day, month, weekday. Received: "
            f"{job.cron!r}: {error}. Write, for example, '30 2 * * *' or '0 4 * * SUN'."
        ) from error
    return found


def between(trigger: Any, first: datetime, now: datetime) -> list[float]:
    """The ticks from the first, which is one, until now, in seconds since 1970."""
    found, tick = [], first
    while tick is not None and tick <= now:
        found.append(tick.timestamp())
        tick = trigger.get_next_fire_time(tick, now)
    return found
