"""The server of a schedule: one workflow a due time, in all servers that share a database.

DBOS starts it once, keeps its result, and repeats what a killed server had begun. Ours are the
rules of a job: due times while it runs, missed ones, further attempts. An attempt is a process of
its own (attempt.py), so that a server holds neither MLflow nor TensorFlow.
DBOS at the top: import this module inside the functions that need it.
"""

import contextlib
import dataclasses
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from dbos import DBOS, DBOSClient, SetWorkflowID, WorkflowSchedule, WorkflowStatus
from dbos._utils import INTERNAL_QUEUE_NAME as INTERNAL_QUEUE

from pipelines.errors import Unavailable, short, without_password
from pipelines.runtime import heartbeat
from pipelines.runtime.durations import format_duration
from pipelines.scheduling import attempt, engine, jobs, schedule, times
from pipelines.scheduling.attempt import KILLED, AttemptSpec
from pipelines.scheduling.jobs import ScheduledJob
from pipelines.tracking import store

MISSED, SKIPPED = "missed", "skipped"
RUNNING = "running"  # phase of a workflow that has begun
NOT_SERVED = "nothing served the schedule then"
MISSED_DUE, RUN_BY_HAND = "missed ticks", "tick by hand"  # other workflows than jobs.DUE
BY_HAND = "near-identity-by-hand"  # the application of jobs that a person runs
APPLICATIONS = [engine.SCHEDULE, BY_HAND]
MISSED_AFTER = timedelta(seconds=60)  # what begins later than this after its due time was missed
RECOVERY_S = 5.0  # between two searches for workflows of servers that were killed
FINAL_CODES = (2, 3)  # exit codes that another attempt would give too: a mistake, a regression
OPEN_STATES = ["ENQUEUED", "PENDING", "DELAYED"]  # states of a workflow that is not over

_stopping = threading.Event()


@DBOS.workflow(name=jobs.DUE)
def run_due(at: datetime, context: dict[str, Any]) -> dict[str, Any]:
    """Run a job whose time has come, by its rules, and return a row of the history."""
    job = ScheduledJob.of(context)
    row: dict[str, Any] | None = DBOS.run_step({"name": "decide"}, _apply_rules, job, at)
    return row or _run_attempts(job, at)


@DBOS.workflow(name=MISSED_DUE)
def record_missed_times(
    at: datetime, context: dict[str, Any], until: str, count: int
) -> dict[str, Any]:
    """Return one row of the history for several due times at which no server ran."""
    return _row(MISSED, NOT_SERVED) | {"until": until, "ticks": count}


@DBOS.workflow(name=RUN_BY_HAND)
def run_by_hand(at: datetime, context: dict[str, Any]) -> dict[str, Any]:
    """Run a job once for a person, who sees its log meanwhile."""
    _mark_running(ScheduledJob.of(context))
    return _run_attempts(dataclasses.replace(ScheduledJob.of(context), retries=0), at, echo=True)


def _run_attempts(job: ScheduledJob, at: datetime, echo: bool = False) -> dict[str, Any]:
    """Make attempts until one succeeds or no further one is allowed; return the last one's row."""
    number = 1
    while True:
        result = DBOS.run_step({"name": "attempt"}, _run_attempt, job, at, number, echo)
        if result["state"] == attempt.RAN or number > job.retries or result["code"] in FINAL_CODES:
            return result
        end_s = DBOS.run_step(
            {"name": "pause"}, lambda pause_s: time.time() + pause_s, job.pause_s(number)
        )
        _wait(end_s - time.time())  # a server that repeats it waits no longer
        number += 1


def _wait(seconds: float) -> None:
    """Wait; a server that is told to stop leaves the workflow open, and the next one repeats it."""
    if _stopping.wait(seconds):
        raise SystemExit


def _run_attempt(job: ScheduledJob, at: datetime, number: int, echo: bool) -> dict[str, Any]:
    """Run one attempt in a process of its own and return its row of the history."""
    _wait(0)
    workflow = str(DBOS.workflow_id)
    folder = store.home() / "scheduled" / f"{re.sub('[^a-z0-9T]+', '-', workflow)}-{number}"
    spec = AttemptSpec(
        job=job.name,
        words=job.words_at(at),
        due=at.astimezone(job.zone).isoformat(),
        attempt=number,
        workflow=workflow,
        timeout_s=job.timeout_s,
        notify=job.notify,
    )
    title = f"{job.name} of {at.astimezone(job.zone):%Y-%m-%d %H:%M:%S} {job.tz}"
    print_line(f"{title}: {'started' if number == 1 else f'attempt {number}'}")
    began = time.time()
    outcome = attempt.run_in_process(spec, folder, echo)
    if _stopping.is_set() and outcome.state == KILLED:
        raise SystemExit  # the workflow stays open, and the next server repeats it
    shutil.rmtree(folder, ignore_errors=True)
    why = f": {outcome.why}" if outcome.why else ""
    print_line(f"{title}: {outcome.state} after {format_duration(time.time() - began)}{why}")
    times_s = {"started": began, "ended": time.time()}
    return dataclasses.asdict(outcome) | times_s | {"attempt": number}


def _apply_rules(job: ScheduledJob, at: datetime) -> dict[str, Any] | None:
    """Return the row of a due time at which a rule leaves its job out; None if it is to run."""
    if not times.is_due(job.cron, job.zone, at):
        return _row(SKIPPED, "not due: the clocks are moved, or day and weekday must agree")
    now = datetime.now(UTC)
    if now - at > MISSED_AFTER:
        if job.missed == "skip":
            return _row(MISSED, NOT_SERVED)
        if (later := job.next_due(at)) and later <= now:
            return _row(MISSED, f"{NOT_SERVED}, and a later due time stands for it")
    began = _mark_running(job)
    if any(_began(row) < began for row in _open_runs(job)):
        return _row(SKIPPED, "the job was still running")
    return None


def _row(state: str, why: str) -> dict[str, Any]:
    return {"state": state, "why": why}


def _mark_running(job: ScheduledJob) -> tuple[float, str]:
    """Record that the workflow that runs now has begun, for other processes to read; and when."""
    workflow, now = str(DBOS.workflow_id), time.time()
    attributes = {"job": job.name, "phase": RUNNING, "beat": now, "began": now}
    DBOS.update_workflow_attributes(workflow, attributes)
    return now, workflow


def _began(row: WorkflowStatus) -> tuple[float, str]:
    """Return when a workflow has begun; of two that begin at once the order of their names."""
    return (row.attributes or {}).get("began", 0.0), row.workflow_id


def _open_runs(job: ScheduledJob) -> list[WorkflowStatus]:
    """Return the other workflows of a job that have begun, or are to be repeated."""
    rows = DBOS.list_workflows(status=OPEN_STATES, application_name=APPLICATIONS, load_input=False)
    return [
        row
        for row in rows
        if isinstance(row.attributes, dict)
        and row.attributes.get("job") == job.name
        and row.workflow_id != DBOS.workflow_id
        and not (row.application_name == BY_HAND and reason_dead(row))  # nobody goes on with it
    ]


def reason_dead(row: WorkflowStatus) -> str | None:
    """Return why the process of an open workflow must have ended; None if it may live."""
    if row.status != "PENDING" or not row.executor_id:
        return None
    beat = (row.attributes or {}).get("beat") or (row.updated_at or 0) / 1000
    return engine.reason_dead(row.executor_id, beat)


def serve(storage: str | None) -> None:
    """Serve a schedule until SIGTERM or SIGINT ends this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stopping.set())
    with engine.open_client(storage) as client:
        found = list(schedule.read_jobs(client))
        readable = {job.name: job.times for job, _ in found}
        for entry in client.list_schedules(status="ACTIVE"):
            if entry["schedule_name"] not in readable:  # DBOS would fire no job any more
                client.pause_schedule(entry["schedule_name"])
        record_missed(client, found)
    with engine.serve_workflows(engine.SCHEDULE, storage):
        url = without_password(engine.database_url(storage))
        names = ", ".join(f"{name} ({when})" for name, when in readable.items())
        print_line(f"serving {url}: {names or 'no job'}")
        while not _stopping.wait(RECOVERY_S):
            try:
                _recover_workflows()
            except Exception as error:  # a database or a disk may answer again
                print_line(f"waits for its database and disk: {short(error)}")
        count = attempt.end_all()
        rest = f"; the next server repeats {count} that were running" if count else ""
        print_line(f"stopped{rest}")


def record_missed(
    client: DBOSClient, found: Iterable[tuple[ScheduledJob, WorkflowSchedule]]
) -> None:
    """Record all but the last of the due times at which no server ran as one row a job.

    DBOS would fire each of them, a tenth of a second one after another.
    """
    limit = datetime.now(UTC) - MISSED_AFTER
    for job, entry in found:
        if entry["status"] != "ACTIVE" or not entry["last_fired_at"]:
            continue
        before = moment = datetime.fromisoformat(entry["last_fired_at"])
        moments = []
        while (moment := job.next_due(moment) or limit) < limit:
            moments.append(moment)
        if len(moments) > 1:
            first, last = moments[0], moments[-2].isoformat()
            options = {"workflow_name": MISSED_DUE, "queue_name": INTERNAL_QUEUE}
            options["workflow_id"] = f"missed-{job.name}-{before.isoformat()}"
            client.enqueue(options, first, entry["context"], last, len(moments) - 1)  # type: ignore[arg-type]
            client._sys_db.update_last_fired_at(job.name, last)


def _recover_workflows() -> None:
    """Record signs of life of the workflows here; take over those of servers that were killed."""
    for row in DBOS.list_workflows(
        status="PENDING", application_name=APPLICATIONS, load_input=False
    ):
        if row.executor_id == DBOS.executor_id:
            beat = {"beat": time.time()}
            if time.time() - (row.attributes or beat)["beat"] > heartbeat.BEAT_S:
                DBOS.update_workflow_attributes(row.workflow_id, beat, merge=True)
        elif reason := reason_dead(row):
            if row.application_name == engine.SCHEDULE:
                print_line(f"{row.workflow_id}: {reason}; it is repeated here")
                DBOS._recover_pending_workflows([str(row.executor_id)])
            else:
                DBOS.cancel_workflow(row.workflow_id)


def run_now(storage: str | None, name: str) -> int:
    """Run a job in this terminal, with its log, and return its exit code.

    Raise Unavailable if the job is running already.
    """
    with engine.open_client(storage) as client:
        job = schedule.find(client, name)
    with engine.serve_workflows(BY_HAND, storage):
        if any(not reason_dead(row) for row in _open_runs(job)):
            raise Unavailable(
                f"A job runs once at a time. Received: {name}, which is running. Wait for its end: "
                f"python -m pipelines schedule history {name}"
            )
        at = datetime.now(UTC)
        workflow = f"now-{name}-{at.isoformat()}"
        try:
            with SetWorkflowID(workflow):
                result = run_by_hand(at, dataclasses.asdict(job))
        except (KeyboardInterrupt, SystemExit):
            DBOS.cancel_workflow(workflow)
            raise
    why = f": {result['why']}" if result["why"] else ""
    print(f"{name}: {result['state']}{why}", file=sys.stderr)
    code = result["code"]
    if code is None:
        return 0 if result["state"] == attempt.RAN else 1
    return 128 - code if code < 0 else int(code)


def print_line(text: str) -> None:
    """Print a line of the server's log."""
    with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
        print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", file=sys.stderr, flush=True)
