"""Due times of a job: a cron expression in a time zone, on the days when clocks are moved too.

What is due at fixed times is due once on each day, as Debian's cron has it: a time that is skipped,
at the moment to which the clocks are moved; one that comes twice, when it comes first. What is due
every minute or every hour (a minute or hour that begins with *) goes by the time that passes.
"""

import difflib
import os
import re
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.errors import UserError

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")
MIN_INTERVAL_S = 10  # between two due times: a command takes seconds to begin


def next_due(cron: str, zone: zoneinfo.ZoneInfo, after: datetime) -> datetime | None:
    """Return the first moment after another at which a job is due; None if there is none."""
    from cronsim import CronSim

    for moment in CronSim(cron, after.astimezone(zone)):
        if moment.astimezone(UTC) > after.astimezone(UTC):  # else it has come once already
            return moment
    return None


def is_due(cron: str, zone: zoneinfo.ZoneInfo, moment: datetime) -> bool:
    """Return whether a job is due at that moment."""
    utc = moment.astimezone(UTC)  # UTC repeats no time of day
    due = next_due(cron, zone, utc - timedelta(microseconds=1))
    return due is not None and due.astimezone(UTC) == utc


def check_cron(cron: str, zone: zoneinfo.ZoneInfo) -> None:
    """Raise UserError for what is no cron expression, or one whose time never comes.

    And for one that croniter, by which DBOS fires, rejects or reads in another way: it would be due
    without being run. Its due times of a year are compared, the first of each day.
    """
    from croniter import croniter
    from cronsim import CronSimError

    now, second = datetime.now(UTC), timedelta(seconds=1)
    try:
        if len(cron.split()) != 5 and not re.fullmatch(
            r"\*/\d\d( \*){5}", cron
        ):  # the second form has seconds
            raise CronSimError("Not five fields")
        if next_due(cron, zone, now) is None:
            raise CronSimError("No such day in fifty years")
        utc = zoneinfo.ZoneInfo("UTC")
        year = {next_due(cron, utc, now + timedelta(days=n)) for n in range(366)}
        for moment in filter(None, year):
            fired = croniter(cron, moment - second, second_at_beginning=True).get_next(datetime)
            if fired != moment:
                raise CronSimError(f"DBOS would not fire it at {moment:%Y-%m-%d %H:%M}")
    except (CronSimError, ValueError) as error:
        raise UserError(
            "A cron expression must be five fields: minute, hour, day, month, weekday. Received: "
            f"{cron!r}: {error}. Write, for example, '30 2 * * *', '0 4 * * SUN' or '0 4 L * *'."
        ) from error


def cron_of_interval(text: str) -> str:
    """Return the cron expression for `20s`, `5m`, `6h` or `1d`; with six fields, seconds first."""
    length_s = parse_seconds(text)
    for unit, next_unit, pattern in (
        (1, 60, "*/{} * * * * *"),
        (60, 3_600, "*/{} * * * *"),
        (3_600, 86_400, "0 */{} * * *"),
    ):
        if MIN_INTERVAL_S <= length_s < next_unit and next_unit % length_s == 0 == length_s % unit:
            return pattern.format(f"{length_s / unit:.0f}")
    if length_s == UNITS["d"]:
        return "0 0 * * *"
    raise UserError(
        "An interval must be 10 s or more and divide a minute, an hour or a day. Received: "
        f"{text!r}. Set --every 20s, 5m, 6h or 1d, for example, or the times themselves by --cron."
    )


def parse_seconds(text: str) -> float:
    """Return the seconds of `90s`, `20m`, `6h`, `1d`; UserError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if not match:
        raise UserError(
            f"A length of time must be a number with s, m, h or d. Received: {text!r}. Write, for "
            "example, 90s, 20m, 6h or 1d."
        )
    return float(match[1]) * UNITS[match[2]]


def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone of that name; UserError names those nearest."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        zones = sorted(zoneinfo.available_timezones())
        containing = [zone for zone in zones if name and name.lower() in zone.lower()]
        near = containing[:3] or difflib.get_close_matches(name, zones) or ["Europe/Berlin", "UTC"]
        raise UserError(
            f"A time zone must be a name of the IANA database. Received: {name!r}. Set --tz, for "
            f"example {' or '.join(near)}."
        ) from None


def local_zone() -> str:
    """Return the name of this machine's time zone; UTC where it has none, as the C library has it.

    Raise UserError for a zone without a name of the IANA database: none is guessed.
    """
    asked, names = os.environ.get("TZ"), zoneinfo.available_timezones()
    if asked in ("", ":") or (asked is None and not LOCALTIME.exists()):
        return "UTC"
    place = LOCALTIME if asked is None else Path(asked.removeprefix(":"))
    path = str(place.resolve() if place.is_absolute() else place)
    name = path.rpartition("/zoneinfo/")[2].removeprefix("posix/")
    if name in names - {"localtime"}:
        return name
    if place.is_absolute() and place.is_file():  # a copy, of several zones it may be
        copied, stated = place.read_bytes(), TIMEZONE.read_text() if TIMEZONE.is_file() else ""
        for name in names & {stated.strip(), "UTC"}:
            files = [Path(folder, name) for folder in zoneinfo.TZPATH]
            if any(file.is_file() and file.read_bytes() == copied for file in files):
                return name
    received = f"TZ={asked}" if asked else f"{LOCALTIME}, a copy that {TIMEZONE} does not name"
    raise UserError(
        f"The time zone of jobs must be a name of the IANA database. Received: {received}. Set "
        "--tz, or TZ, to such a name, for example Europe/Berlin."
    )
