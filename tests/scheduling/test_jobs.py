"""Jobs as people describe them, when they are due, and what is refused."""

import contextlib
import itertools
import json
import re
import sqlite3
import threading
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from croniter import croniter

from pipelines.cli.schedule_command import _whole_paths, schedule_command
from pipelines.errors import UserError
from pipelines.runtime import notify
from pipelines.scheduling import engine, jobs, schedule, times
from pipelines.scheduling.jobs import ScheduledJob


def a_job(**fields: Any) -> ScheduledJob:
    common = {"name": "x", "words": ("pipelines", "list"), "tz": "Europe/Berlin"}
    return ScheduledJob(**{**common, "cron": "0 3 * * *"} | fields)


def moments(job: ScheduledJob, first_day: str, days: int) -> list[datetime]:
    start = datetime.fromisoformat(first_day).replace(tzinfo=job.zone)
    end, found = start + timedelta(days=days), [start - timedelta(seconds=1)]
    while (moment := job.next_due(found[-1])) and moment < end:
        found.append(moment)
    return found[1:]


@pytest.mark.parametrize("day", ["2026-03-27", "2026-10-23"])
def test_a_job_at_half_past_two_is_due_once_on_each_day_of_a_clock_change(day: str) -> None:
    days = [moment.date().isoformat() for moment in moments(a_job(cron="30 2 * * *"), day, 4)]
    assert days == sorted(set(days))
    assert len(days) == 4


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_an_hourly_job_is_due_as_often_as_the_day_has_hours(day: str, hours: int) -> None:
    due = [moment.astimezone(UTC) for moment in moments(a_job(cron="30 * * * *"), day, 1)]
    assert len(due) == hours
    assert all(b - a == timedelta(hours=1) for a, b in itertools.pairwise(due))


@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "0 3 * * *", "30 * * * *", "*/20 * * * *", "0 */6 * * *", "5 1-3 * * *"]
)
def test_the_engine_fires_all_due_times_of_a_clock_change(cron: str, day: str) -> None:
    """DBOS asks croniter when to fire; what it fires beyond our due times is skipped."""
    job, start = a_job(cron=cron), datetime.fromisoformat(day)
    fires = croniter(cron, start.replace(tzinfo=job.zone) - timedelta(seconds=1))
    fired = {fires.get_next(datetime).astimezone(UTC) for _ in range(200)}
    due = moments(job, day, 2)
    assert {moment.astimezone(UTC) for moment in due} <= fired
    assert all(times.is_due(job.cron, job.zone, moment) for moment in due)


def test_an_interval_is_a_cron_expression() -> None:
    expected = {"20s": "*/20 * * * * *", "60s": "*/1 * * * *", "20m": "*/20 * * * *"}
    expected |= {"6h": "0 */6 * * *", "1d": "0 0 * * *", "24h": "0 0 * * *"}
    assert {text: times.cron_of_interval(text) for text in expected} == expected
    for wrong in ("5s", "7m", "90m", "2d", "0s", "soon"):
        with pytest.raises(UserError, match=r"--every 20s|number with s, m, h or d"):
            times.cron_of_interval(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "No Name"}, "small letters"),
        ({"retries": -1}, "retries"),
        ({"timeout_s": 0.0}, "timeout"),
        ({"timeout_s": 3651 * 86_400.0}, "ten years"),
        ({"backoff_s": float("nan")}, "ten years"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_a_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        a_job(**wrong)


def test_names_are_new_and_known_and_times_come(home: Path) -> None:
    with engine.open_client() as client:
        for cron, message in {
            "30 2 * *": "five fields",
            "*/5 * * * * *": "five fields",
            "61 2 * * *": "Bad minute",
            "0 0 31 FEB *": "cron expression",
            "0 3 LW * *": "cron expression.*lw.*not acceptable",  # cronsim alone takes it
            "0 0 * * 5L": "cron expression.*5l.*not acceptable",
            "0 3 15W * *": "Bad day-of-month",  # croniter alone takes it
            "0 3 5-10 * FRI#2": "DBOS would not fire it|failed to find",  # they read it otherwise
            "0 3 * * 1/6": "DBOS would not fire it",
        }.items():
            with pytest.raises(UserError, match=message):
                schedule.add(client, a_job(cron=cron))
        schedule.add(client, a_job())
        with pytest.raises(UserError, match="--replace"):
            schedule.add(client, a_job())
        schedule.add(client, a_job(cron="0 4 * * *"), replace=True)
        assert schedule.find(client, "x") == a_job(cron="0 4 * * *")
        with pytest.raises(UserError, match="Choices: close-dead-runs, data-check, nightly-claims"):
            schedule.pause(client, "y")
        schedule.pause(client, "x")
        assert schedule.next_due_times(client)[a_job(cron="0 4 * * *")] is None
        schedule.resume(client, "x")
        assert schedule.next_due_times(client)[a_job(cron="0 4 * * *")]


@pytest.mark.parametrize(
    "cron",
    ["0 3 L * *", "0 3 1,L * *", "0 0 * * FRI#3", "0 0 29 2 *", "0 0 1 * MON", "0 0 */2 * 1"],
)
def test_an_expression_that_both_take_is_taken_and_fired_at_all_its_due_times(cron: str) -> None:
    job = a_job(cron=cron, tz="UTC")
    times.check_cron(job.cron, job.zone)
    due = moments(job, "2027-01-01", 800)
    fires = croniter(cron, due[0] - timedelta(seconds=1), second_at_beginning=True)
    assert set(due) <= {fires.get_next(datetime) for _ in range(800)}


def test_a_job_stands_until_the_one_that_replaces_it_does(home: Path) -> None:
    """Whatever is killed between: no statement leaves the schedule without it."""
    with engine.open_client() as client:
        schedule.add(client, a_job())
        schedule.pause(client, "x")
        (old,) = [each for each in client.list_schedules() if each["schedule_name"] == "x"]
        for change in (
            lambda: schedule.add(client, a_job(cron="0 4 * * *"), replace=True),
            lambda: schedule.resume(client, "x"),
        ):
            seen = list[int]()

            @sqlalchemy.event.listens_for(client._sys_db.engine, "commit")
            def look(_: Any, seen: list[int] = seen) -> None:
                with contextlib.closing(sqlite3.connect(home / "schedule.db")) as other:
                    where = "SELECT count(*) FROM workflow_schedules WHERE schedule_name = 'x'"
                    seen.append(other.execute(where).fetchone()[0])

            change()
            sqlalchemy.event.remove(client._sys_db.engine, "commit", look)
            assert set(seen) == {1}
            client.pause_schedule("x")
        new = client.get_schedule("x")
        assert (new["schedule_id"], new["schedule"]) == (old["schedule_id"], "0 4 * * *")
        assert new["automatic_backfill"]
        with pytest.raises(UserError, match="not acceptable"):
            schedule.add(client, a_job(cron="0 3 LW * *"), replace=True)
        assert schedule.find(client, "x").cron == "0 4 * * *"


def test_a_new_schedule_is_empty_and_takes_the_projects_jobs_by_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule_command(["list"])
    shown = capsys.readouterr().out
    names = list(jobs.shipped_jobs("UTC"))
    assert set(names) == {"nightly-claims", "weekly-study", "data-check", "close-dead-runs"}
    assert all(f"\n  {name} " in shown for name in names)
    with engine.open_client() as client:
        assert schedule.next_due_times(client) == {}
        with pytest.raises(
            UserError, match="Add it: python -m pipelines schedule add close-dead-runs"
        ):
            schedule.pause(client, "close-dead-runs")
    schedule_command(["add", "close-dead-runs"])
    assert re.search(
        r"close-dead-runs is due in \S+ (s|min), at .*:15:00 [A-Z]", capsys.readouterr().out
    )
    schedule_command(["list"])
    shown = capsys.readouterr().out
    assert re.search("^close-dead-runs .*\n  recover$", shown, re.M)
    assert "\n  close-dead-runs " not in shown
    with engine.open_client() as client:
        assert [job.name for job in schedule.next_due_times(client)] == ["close-dead-runs"]


def test_a_schedules_address_is_the_same_from_any_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert engine.database_url("sqlite:///x.db") == f"sqlite:///{tmp_path}/x.db"
    assert engine.database_url() == f"sqlite:///{home}/schedule.db"
    monkeypatch.setenv("SCHEDULE_STORAGE", "postgresql://me:secret@host/x")
    assert engine.database_url() == "postgresql+psycopg://me:secret@host/x"
    for wrong in (
        "sqlite://",
        "sqlite:///:memory:",
        "nonsense",
        "mysql://host/x",
        "postgresql://h:5x/d",
    ):
        with pytest.raises(UserError, match="sqlite:///FILE"):
            engine.database_url(wrong)


def test_a_shipped_job_takes_what_is_given_and_keeps_the_rest(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--notify https://me:secret@host/key --timeout 1h --retries 0"
    schedule_command(f"add nightly-claims {options}".split())
    schedule_command(["add", "close-dead-runs"])
    schedule_command(["add", "close-dead-runs", "--replace", "--every", "2h"])
    capsys.readouterr()
    schedule_command(["list", "--json"])
    printed = capsys.readouterr().out
    assert "secret" not in printed
    rows = {row["name"]: row for row in json.loads(printed)}
    claims, dead = rows["nightly-claims"], rows["close-dead-runs"]
    assert (claims["notify"], claims["timeout_s"], claims["retries"]) == ("https://host", 3600, 0)
    assert claims["cron"] == "0 3 * * *"
    assert claims["command"] == "python -m pipelines pipeline verify --force"
    assert (dead["cron"], dead["missed"]) == ("0 */2 * * *", "skip")
    with pytest.raises(UserError, match="needs a command"):
        schedule_command(["add", "mine", "--every", "2h"])
    with pytest.raises(UserError, match="Received: both"):
        schedule_command(["add", "close-dead-runs", "--every", "2h", "--cron", "0 3 * * *"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run gradient-formula --bogus 3", r": There is no option --bogus\."),
        ("reep", "reep"),
        ("run gradient-formla", "Did you mean gradient-formula"),
        ("recover --json", ""),
    ],
)
def test_a_command_is_refused_that_would_refuse_its_words(line: str, message: str) -> None:
    job = a_job(words=jobs.parse_words(line.split()))
    if not message:
        jobs.check_command(job)
        return
    with pytest.raises(UserError, match=message):
        jobs.check_command(job)


@pytest.mark.parametrize(
    "words",
    [
        ["tuning", "run", "s", "--storage", "postgresql://me:s3cret@host/studies"],
        ["tuning", "run", "s", "--storage=mysql+pymysql://me:s3cret@host/studies"],
        ["tuning", "copy", "postgresql://host/studies?user=me&password=s3cret"],
        ["pipelines", "watch", "--notify", "https://hooks.example.org/services/s3cret"],
        ["pipelines", "watch", "--notify=https://hooks.example.org/services/s3cret"],
    ],
)
def test_a_job_keeps_no_secret_of_its_command_and_the_way_out_is_said(
    words: list[str], home: Path
) -> None:
    with pytest.raises(UserError, match=r"~/\.pgpass.*OPTUNA_STORAGE.*--notify before") as caught:
        schedule_command(["add", "mine", "--every", "1d", "--", *words])
    assert "s3cret" not in str(caught.value)
    assert not (home / "schedule.db").exists()
    assert "s3cret" not in a_job(words=tuple(words)).command  # of an earlier version
    kept = ("tuning", "run", "s", "--storage", "postgresql://me@host/studies")
    assert a_job(words=kept).command.endswith("postgresql://me@host/studies")


def test_an_invalid_webhook_is_refused_without_a_part_of_its_password() -> None:
    with pytest.raises(UserError, match="no valid URL") as caught:
        notify.check("https://me:s3cret/x@host/y")
    assert "s3cret" not in str(caught.value)


def test_a_command_line_may_begin_as_people_type_it() -> None:
    typed = ["python -m pipelines run x --force", "-m pipelines run x --force", "run x --force"]
    typed += [".venv/bin/python3.11 -m pipelines run x --force", "near-identity run x --force"]
    assert {jobs.parse_words(line.split()) for line in typed} == {
        ("pipelines", "run", "x", "--force")
    }
    assert jobs.parse_words(["tuning", "run", "y"]) == ("tuning", "run", "y")
    with pytest.raises(UserError, match="after --"):
        jobs.parse_words(["python", "-m"])


def test_the_day_of_a_due_time_is_that_of_the_jobs_time_zone() -> None:
    job = a_job(words=("tuning", "run", "weekly-{date}"), tz="Asia/Tokyo")
    words = job.words_at(datetime(2026, 11, 21, 19, tzinfo=UTC))
    assert words == ("tuning", "run", "weekly-2026-11-22")


def test_lengths_and_zones_are_read() -> None:
    assert [times.parse_seconds(text) for text in ("90s", "20m", "1.5h", "1d")] == [
        90,
        1200,
        5400,
        86400,
    ]
    for wrong in ("90", "m", "-1s", "1 week"):
        with pytest.raises(UserError, match="number with s, m, h or d"):
            times.parse_seconds(wrong)
    with pytest.raises(UserError, match="Europe/Berlin"):
        times.find_zone("Europe/Berlim")
    assert times.find_zone(times.local_zone())


ZONES = Path(zoneinfo.TZPATH[0])


@pytest.mark.parametrize(
    ("tz", "localtime", "expected"),
    [
        (":Asia/Kolkata", "", "Asia/Kolkata"),
        (str(ZONES / "Asia/Kolkata"), "", "Asia/Kolkata"),
        (f":{ZONES}/Asia/Kolkata", "", "Asia/Kolkata"),
        ("EST5EDT", "", "EST5EDT"),  # POSIX's and IANA's: the same
        ("", "Asia/Tokyo", "UTC"),
        (None, "", "UTC"),
        (None, "link to Asia/Kolkata", "Asia/Kolkata"),
        (None, "Asia/Thimphu of another version", "!a copy that"),
        (None, "Asia/Kolkata named in Asia/Kolkata", "Asia/Kolkata"),
        (None, "Asia/Kolkata named in Europe/Berlin", "!a copy that"),
        (None, "Etc/UTC", "UTC"),
        (None, "Asia/Kolkata", "!a copy that"),
        ("IST-5:30", "", "!TZ="),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "", "!TZ="),
        ("Asia/Nowhere", "", "!TZ="),
        ("/etc/hostname", "", "!TZ="),
    ],
)
def test_the_machine_s_time_zone_is_read_or_demanded_and_never_guessed(
    *,
    tz: str | None,
    localtime: str,
    expected: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    localtime, _, named = localtime.partition(" named in ")
    (home / "timezone").write_text(f"{named}\n")
    place, (name, *more) = home / "localtime", localtime.removeprefix("link to ").split(" ")
    if localtime.startswith("link"):
        place.symlink_to(ZONES / name)
    elif localtime:
        place.write_bytes((ZONES / name).read_bytes() + " ".join(more).encode())
    monkeypatch.setattr(times, "LOCALTIME", place)
    monkeypatch.setattr(times, "TIMEZONE", home / "timezone")
    monkeypatch.delenv("TZ", raising=False)
    if tz is not None:
        monkeypatch.setenv("TZ", tz)
    if not expected.startswith("!"):
        assert times.local_zone() == expected
        return
    with pytest.raises(UserError, match=rf"Received: .*{expected[1:]}.*Set --tz"):
        schedule_command(["add", "mine", "--cron", "0 3 * * *", "--", "list"])
    schedule_command(["add", "mine", "--cron", "0 3 * * *", "--tz", "Asia/Kolkata", "--", "list"])
    printed = capsys.readouterr()
    assert "03:00:00 Asia/Kolkata" in printed.out
    schedule_command(["add", "close-dead-runs", "--tz", "Asia/Kolkata"])
    with engine.open_client() as client:
        assert {job.name for job in schedule.next_due_times(client)} == {"mine", "close-dead-runs"}


def test_no_attempt_begins_while_a_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.scheduling import attempt, server

    stopping = threading.Event()
    stopping.set()
    monkeypatch.setattr(server, "_stopping", stopping)
    monkeypatch.setattr(attempt, "run_in_process", lambda *_: pytest.fail("it began"))
    job = a_job()
    with pytest.raises(SystemExit):
        server._run_attempt(job, datetime.now(UTC), 1, False)


def test_a_job_names_ones_own_files_by_their_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    (tmp_path / "flowers").mkdir()
    (tmp_path / "net.py").write_text("")
    line = ["run", "x", "--data", "flowers", "--model", "net.py", "--data", "digits", "no.py"]
    whole = [str(tmp_path / "flowers"), "--model", str(tmp_path / "net.py")]
    assert _whole_paths(line) == [*line[:3], *whole, *line[6:]]
