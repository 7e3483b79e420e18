"""The rules of a job, applied to due times in a real database.

Attempts as processes: test_attempt.py; servers as processes: test_server.py.
"""

import dataclasses
import json
import threading
import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, SetWorkflowID

from pipelines.cli.schedule_command import schedule_command
from pipelines.errors import UserError
from pipelines.runtime import heartbeat
from pipelines.scheduling import attempt, engine, schedule, schedule_report, server
from pipelines.scheduling.attempt import Outcome
from pipelines.scheduling.jobs import ScheduledJob
from pipelines.tracking import history
from tests.scheduling.test_jobs import a_job


def last_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


@pytest.fixture
def workflows(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the engine run, which fires nothing by itself."""
    monkeypatch.setattr(engine, "LISTEN_S", 0.1)  # between two looks DBOS does not end
    with engine.open_client() as client:
        for entry in client.list_schedules():
            client.delete_schedule(entry["schedule_name"])
    with engine.serve_workflows(engine.SCHEDULE):
        yield


def start(job: ScheduledJob, at: datetime) -> Any:
    with SetWorkflowID(f"sched-{job.name}-{at.isoformat()}"):
        return DBOS.start_workflow(server.run_due, at, dataclasses.asdict(job))


def test_of_due_times_that_nothing_served_the_last_is_run_or_none(
    workflows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "run_in_process", lambda *_: Outcome("ran", code=0))
    for missed, last in (("once", "ran"), ("skip", "missed")):
        job = a_job(name=missed, cron="0 * * * *", missed=missed)
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
        now = datetime.now(UTC) - hour
        states = [start(job, hour - n * timedelta(hours=1)).get_result()["state"] for n in (3, 2)]
        assert states == ["missed", "missed"]
        assert now > timedelta(hours=1)
        late = dataclasses.replace(job, cron=f"{hour.minute} {hour.hour} * * *", tz="UTC")
        assert start(late, hour).get_result()["state"] == last
    with engine.open_client() as client:
        rows = schedule_report.list_history(client, "once", 10)
    assert [row["state"] for row in rows] == ["ran", "missed", "missed"]


def test_due_times_of_days_at_which_nothing_served_are_one_row_but_for_the_last(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LISTEN_S", 0.1)
    job, now = a_job(cron="*/20 * * * * *", missed="skip"), datetime.now(UTC)
    before = now.replace(second=0, microsecond=0) - timedelta(days=1)
    with engine.open_client() as client:
        schedule.add(client, job)
        client._sys_db.update_last_fired_at("x", before.isoformat())
        for _ in range(2):  # two servers begin
            server.record_missed(client, schedule.read_jobs(client))
        with engine.serve_workflows(engine.SCHEDULE):
            while (
                not (rows := schedule_report.list_history(client, "x", 10))
                or rows[-1]["state"] == "queued"
            ):
                time.sleep(0.1)
        row = rows[-1]
        assert (row["state"], row["due"]) == ("missed", job.next_due(before).isoformat())  # type: ignore[union-attr]
        until = datetime.fromisoformat(row["until"])
        assert row["due_times"] == (until - before) / timedelta(seconds=20)
        assert now - timedelta(seconds=120) < until < now - timedelta(seconds=60)


def test_another_time_zone_repeats_no_due_time_that_ran(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DBOS knows a due time by its time with the zone's offset, and fires what it finds missing."""
    monkeypatch.setattr(engine, "LISTEN_S", 0.1)
    ran = list[str]()
    monkeypatch.setattr(
        attempt, "run_in_process", lambda spec, *_: ran.append(spec.job) or Outcome("ran", code=0)
    )
    moment = last_minute() - timedelta(hours=2)
    before = (moment - timedelta(hours=1)).isoformat()

    def daily(name: str, tz: str) -> ScheduledJob:
        local = moment.astimezone(zoneinfo.ZoneInfo(tz))
        return a_job(name=name, tz=tz, cron=f"{local.minute} {local.hour} * * *")

    with engine.open_client() as client:
        for shipped in schedule.next_due_times(client):
            schedule.remove(client, shipped.name)

        def serve(*names: str) -> None:
            for name in names:  # a server was killed before it wrote down that it had fired
                client._sys_db.update_last_fired_at(name, before)
            with engine.serve_workflows(engine.SCHEDULE):
                while not {names[0], names[-1]} <= set(ran):
                    time.sleep(0.1)

        schedule.add(client, daily("moved", "Europe/Berlin"))
        serve("moved")
        client._sys_db.update_last_fired_at("moved", before)
        schedule.add(client, daily("moved", "Asia/Tokyo"), replace=True)
        for name in ("before", "then"):  # DBOS looks for missing due times of one job after another
            schedule.add(client, daily(name, "UTC"))
        serve("before", "then")
        rows = schedule_report.list_history(client, None, 20)
    assert sorted(row["job"] for row in rows) == sorted(ran) == ["before", "moved", "then"]


def test_a_time_that_comes_twice_when_clocks_are_moved_is_run_once(workflows: None) -> None:
    job = a_job(cron="30 2 * * *")
    second = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)  # 02:30 in winter time
    result = start(job, second).get_result()
    assert result["state"] == "skipped"
    assert "clocks are moved" in result["why"]


def test_a_due_time_while_the_job_runs_is_skipped(
    workflows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def carry_out(*_: Any) -> Outcome:
        assert may_end.wait(60)
        return Outcome("ran", code=0)

    monkeypatch.setattr(attempt, "run_in_process", carry_out)
    job = a_job(cron="*/10 * * * * *", tz="UTC")
    now = datetime.now(UTC).replace(microsecond=0)
    last = now - timedelta(seconds=now.second % 10)
    first = start(job, last - timedelta(seconds=10))
    while not first.get_status().attributes:
        time.sleep(0.1)
    assert start(job, last).get_result()["state"] == "skipped"
    may_end.set()
    assert first.get_result()["state"] == "ran"


def test_of_two_late_due_times_that_begin_at_once_one_runs(
    workflows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, both = threading.Event(), threading.Barrier(2, timeout=60)
    mark = server._mark_running

    def mark_both(job: ScheduledJob) -> tuple[float, str]:
        began = mark(job)
        both.wait()  # either has begun before one of them looks for others
        return began

    def carry_out(*_: Any) -> Outcome:
        assert may_end.wait(60)
        return Outcome("ran", code=0)

    monkeypatch.setattr(server, "_mark_running", mark_both)
    monkeypatch.setattr(attempt, "run_in_process", carry_out)
    job = a_job(cron="*/10 * * * * *", tz="UTC")
    now = datetime.now(UTC).replace(microsecond=0)
    last = now - timedelta(seconds=now.second % 10)
    handles = [start(job, last - timedelta(seconds=10 * n)) for n in (1, 0)]
    while not [h for h in handles if h.get_status().status == "SUCCESS"]:
        time.sleep(0.1)
    may_end.set()
    assert sorted(each.get_result()["state"] for each in handles) == ["ran", "skipped"]


def test_a_server_that_is_told_to_stop_waits_for_no_pause_between_attempts(
    workflows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([Outcome("failed", "no", 1), Outcome("ran", code=0)])
    began = time.time()
    monkeypatch.setattr(attempt, "run_in_process", lambda *_: next(outcomes))
    job = a_job(cron="* * * * *", retries=1, backoff_s=5.0)
    handle = start(job, last_minute())
    while "pause" not in [
        step["function_name"] for step in DBOS.list_workflow_steps(handle.workflow_id)
    ]:
        time.sleep(0.1)
    server._stopping.set()  # as SIGTERM does: it leaves the workflow open
    try:
        with pytest.raises(SystemExit):
            handle.get_result()
    finally:
        server._stopping.clear()
    (handle,) = DBOS._recover_pending_workflows([DBOS.executor_id])  # as the next server does
    result = handle.get_result()
    assert (result["state"], result["attempt"]) == ("ran", 2)
    assert result["started"] - began >= 5  # the pause is made to its end


@pytest.mark.parametrize("codes", [(1, 1, 1), (1, 2), (3,)])
def test_a_failed_attempt_is_made_again_but_not_after_a_mistake_or_a_regression(
    workflows: None, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...]
) -> None:
    outcomes = iter([Outcome("failed", "no", code) for code in codes])  # and no further attempt
    monkeypatch.setattr(attempt, "run_in_process", lambda *_: next(outcomes))
    job = a_job(cron="* * * * *", retries=2, backoff_s=0.01)
    result = start(job, last_minute()).get_result()
    expected = {"state": "failed", "why": "no", "code": codes[-1], "attempt": len(codes)}
    assert expected.items() <= result.items()


@pytest.mark.slow
@pytest.mark.parametrize("codes", [(2,), (3,), (1, 0)])
def test_a_real_command_is_repeated_after_code_1_and_neither_after_2_nor_after_3(
    workflows: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "job.py").write_text(
        f"file = open({str(calls)!r}, 'r+'); number = len(file.read()); file.write('x')\n"
        f"print('error: no', flush=True); raise SystemExit({codes}[number])"
    )
    job = a_job(words=("job",), cron="* * * * *", retries=2, backoff_s=0.01)
    result = start(job, last_minute()).get_result()
    state, why = ("ran", "") if codes[-1] == 0 else ("failed", "no")
    expected = {"state": state, "why": why, "code": codes[-1], "attempt": len(codes)}
    assert expected.items() <= result.items()
    assert len(calls.read_text()) == len(codes)
    runs = [row.tags for row in reversed(history.rows(None, kind="scheduled"))]
    recorded = [(tags["attempt"], tags["exit_code"]) for tags in runs]
    assert recorded == [(str(n), str(code)) for n, code in enumerate(codes, 1)]


def test_the_pause_before_an_attempt_doubles_up_to_a_day() -> None:
    job = a_job(backoff_s=60.0)
    assert [job.pause_s(number) for number in (1, 2, 3, 40)] == [60, 120, 240, 86_400]


def test_the_history_of_a_job_that_never_was_is_refused(
    workflows: None, capsys: pytest.CaptureFixture[str]
) -> None:
    start(a_job(name="gone"), datetime(2026, 11, 1, 2, tzinfo=UTC)).get_result()
    schedule_command(["history", "gone", "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["due"], row["state"]) == ("2026-11-01T03:00:00+01:00", "missed")
    with pytest.raises(UserError, match=r"Did you mean gone\?"):
        schedule_command(["history", "gon"])


def test_what_the_database_holds_is_json_and_comes_back_as_it_was() -> None:
    values = {"at": [last_minute()], "n": None, "text": "x"}
    kept = engine.Json().serialize(values)
    assert json.loads(kept)
    assert engine.Json().deserialize(kept) == values
    error = engine.Json().deserialize(engine.Json().serialize(ValueError("wrong")))
    assert repr(error) == "RuntimeError('ValueError: wrong')"
    with pytest.raises(TypeError, match="JSON"):
        engine.Json().serialize(object())


def test_an_executor_of_a_machine_that_was_started_again_is_dead() -> None:
    host, boot, *space = heartbeat.machine().split(" ")
    now = datetime.now(UTC).timestamp()
    here = f"{heartbeat.machine()}, {heartbeat.tags()[heartbeat.PROCESS]}, sqlite"
    again = " ".join([host, "other-boot", *space]) + ", 1 0, sqlite"
    elsewhere = " ".join(["other-host", boot, *space]) + ", 1 0, sqlite"
    assert engine.reason_dead(here, now) is None
    assert engine.reason_dead(again, now) == "its machine has been started again"
    assert engine.reason_dead(again.replace("sqlite", "postgresql"), now) is None  # a namesake
    assert engine.reason_dead(elsewhere, now) is None
    assert engine.reason_dead(elsewhere, now - 2 * heartbeat.LOST_S)


def test_jobs_are_due_in_so_long(capsys: pytest.CaptureFixture[str]) -> None:
    def moment(minutes: float) -> str:
        return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()

    job = {"name": "nightly", "times": "0 3 * * * UTC", "command": "python -m pipelines list"}
    last = {"due": moment(-180), "state": "ran"}
    rows = [
        {**job, "next": moment(7), "last": last},
        {**job, "name": "never", "next": None, "last": None},
    ]
    schedule_report.show_jobs(rows)
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1:5] == [
        "nightly 0 3 * * * UTC in 7 min ran 3.0 h ago",
        "list",
        "never 0 3 * * * UTC paused -",
        "list",
    ]


def test_the_history_names_its_one_time_zone(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"job": "nightly-claims", "due": "2026-11-01T03:00:00+01:00", "state": "ran"}
    row |= {"until": row["due"], "wall_s": 3_000.0, "run_id": "0" * 32, "why": ""}
    berlin: dict[str, Any] = row | {"due_times": 1, "attempt": 1, "tz": "Europe/Berlin"}
    missed = berlin | {"state": "missed", "due_times": 3, "why": "nothing served the schedule then"}
    schedule_report.show_history([berlin, missed])
    head, first, note, last = capsys.readouterr().out.splitlines()
    assert head.startswith("due (Europe/Berlin) ")
    assert first.startswith("2026-11-01 03:00:00  nightly-claims  missed ")
    assert note.strip() == (
        "3 times that it was due, until 2026-11-01 03:00:00; nothing served the schedule then"
    )
    assert last.endswith("50 min  00000000")
    assert max(map(len, (head, first, last))) <= 80
    schedule_report.show_history([berlin, berlin | {"tz": "UTC"}])
    head, first, _ = capsys.readouterr().out.splitlines()
    assert head.startswith("due (UTC) ")
    assert first.startswith("2026-11-01 02:00:00 ")
