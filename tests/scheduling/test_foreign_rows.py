"""A schedule whose rows this project has not written: none runs code, and the rest goes on."""

import base64
import contextlib
import json
import pickle
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dbos
import pytest
from dbos import DBOS, DBOSClient

from pipelines.cli.schedule_command import schedule_command
from pipelines.errors import UserError
from pipelines.scheduling import engine, jobs, schedule, server
from tests.scheduling.test_jobs import a_job
from tests.tuning.test_foreign_studies import Touch

LATER = datetime(2026, 11, 1, 2, tzinfo=UTC)


@pytest.fixture
def pickled(tmp_path: Path) -> str:
    return base64.b64encode(pickle.dumps(Touch(tmp_path / "it ran"))).decode()


def edit(home: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(home / "schedule.db")) as database, database:
        assert database.execute(statement, values).rowcount > 0


def enqueue(client: DBOSClient, name: str) -> None:
    """Enqueue a due time of a job, as DBOS does."""
    queue = server.INTERNAL_QUEUE
    options: Any = {"workflow_name": jobs.DUE, "queue_name": queue, "workflow_id": f"sched-{name}"}
    client.enqueue(options, LATER, a_job(name=name).entry["context"])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def history(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    schedule_command(["history", "--json"])
    return {row["job"]: row for row in json.loads(capsys.readouterr().out)}


def test_no_pickle_of_a_schedule_is_read_by_list_history_server_and_pipelines(
    home: Path,
    tmp_path: Path,
    pickled: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "LISTEN_S", 0.1)  # between two looks DBOS does not end
    with engine.open_client() as client:
        for name in ("good", "bad"):
            enqueue(client, name)
        schedule.add(client, a_job())
        schedule.add(client, a_job(name="y"))
    values = "serialization = 'py_pickle', schedule_name = 'x', output = ?"
    where = "workflow_uuid = 'sched-bad'"
    edit(home, f"UPDATE workflow_status SET {values} WHERE {where}", pickled)  # noqa: S608
    edit(home, f"UPDATE workflow_input SET inputs = ? WHERE {where}", pickled)  # noqa: S608
    edit(home, "UPDATE workflow_schedules SET context = ? WHERE schedule_name = 'x'", pickled)
    rows = history(capsys)
    assert (rows["good"]["state"], rows["x"]["state"]) == ("queued", "unreadable")
    assert "py_pickle is not read" in rows["x"]["why"]
    schedule_command(["list"])
    printed = capsys.readouterr()
    assert "y  " in printed.out
    assert "Job x is left out: not in JSON" in printed.err
    with engine.open_client() as client:
        schedule.pause(client, "x")  # as a server does first
    with engine.serve_workflows(
        engine.SCHEDULE
    ):  # the server takes both due times from their queue
        wait(lambda: history(capsys)["good"]["state"] == "missed")
        with engine.open_client() as client:
            wait(lambda: client.list_workflows(workflow_ids=["sched-bad"])[0].status == "ERROR")
            assert history(capsys)["x"]["state"] == "unreadable"
    edit(home, "UPDATE operation_outputs SET output = ?, serialization = 'py_pickle'", pickled)
    with engine.serve_workflows(server.BY_HAND):
        (step,) = DBOS.list_workflow_steps("sched-good")
        assert step["output"] == pickled
    assert not (tmp_path / "it ran").exists()


def test_every_pickle_of_dbos_is_read_by_the_class_that_refuses_here(
    tmp_path: Path, pickled: str
) -> None:
    unpickling = re.compile(r"^\s*import pickle|pickle\.loads?\(", re.MULTILINE)
    sources = Path(dbos.__file__).parent.glob("**/*.py")
    found = {path.name for path in sources if unpickling.search(path.read_text())}
    assert found == {"_serialization.py"}
    for read in (
        dbos._serialization.deserialize_value,
        dbos._serialization.deserialize_args,
        dbos._serialization.deserialize_exception,
    ):
        with pytest.raises(TypeError, match="py_pickle"):
            read(pickled, "py_pickle", engine.Json())
    assert not (tmp_path / "it ran").exists()


def test_rows_of_a_schedule_edited_by_hand_are_named_and_the_rest_is_listed_and_served(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LISTEN_S", 0.1)
    context = a_job(name="a").entry["context"]
    wrong = {
        "a": json.dumps(["no", "mapping"]),
        "b": json.dumps({}),
        "c": json.dumps({**context, "name": "c", "words": 5}),
        "d": json.dumps({**context, "name": "d", "cron": "soon"}),
        "e": json.dumps({**context, "name": "e", "tz": "Mars/Phobos"}),
        "f": json.dumps({**context, "name": "f", "later": "field"}),
        "g": "null",
    }
    with engine.open_client() as client:
        for name, text in wrong.items():
            schedule.add(client, a_job(name=name))
            enqueue(client, name)
            where = "UPDATE workflow_schedules SET context = ? WHERE schedule_name = ?"
            edit(home, where, text, name)
            inputs = json.dumps({"args": [{"datetime": LATER.isoformat()}, json.loads(text)]})
            where = "UPDATE workflow_input SET inputs = ? WHERE workflow_uuid = ?"
            edit(home, where, inputs, f"sched-{name}")
        schedule.add(client, a_job(name="data-check"))
        schedule.add(client, a_job(name="h"))
        edit(home, "UPDATE workflow_schedules SET cron_timezone = 'X/Y' WHERE schedule_name = 'h'")
        schedule.add(client, a_job(name="i"))
        edit(home, "UPDATE workflow_schedules SET last_fired_at = '?' WHERE schedule_name = 'i'")
        schedule_command(["list"])
        printed = capsys.readouterr()
        assert "\ndata-check " in printed.out
        named = re.findall(r"^Job (\w) is left out: ", printed.err, re.MULTILINE)
        assert named == [*wrong, "h", "i"]
        assert {row["state"] for row in history(capsys).values()} == {"unreadable"}
        for name in ("a", "c"):
            with pytest.raises(UserError, match="not in JSON"):
                server.run_now(None, name)
        schedule.remove(client, "a")
        schedule.add(client, a_job(name="c"), replace=True)
    monkeypatch.setattr(server, "_stopping", stopped := threading.Event())
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    stopped.set()
    server.serve(None)
    serving = capsys.readouterr().err.partition("serving")[2]
    assert "c (" in serving
    assert "data-check (" in serving
    with engine.open_client() as client:
        paused = {entry["schedule_name"] for entry in client.list_schedules(status="PAUSED")}
    assert paused == {"b", "d", "e", "f", "g", "h", "i"}  # at whose rows DBOS fires nothing


def test_a_job_of_which_due_times_waited_in_earlier_versions_is_refused_in_a_sentence(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "UPDATE workflow_schedules SET context = ? WHERE schedule_name = ?"
    with engine.open_client() as client:
        for name, overlap in (("one", "skip"), ("two", "queue")):
            schedule.add(client, a_job(name=name))
            context = {**a_job(name=name).entry["context"], "overlap": overlap}
            edit(home, where, json.dumps(context), name)
        assert schedule.find(client, "one") == a_job(name="one")
        with pytest.raises(UserError, match=r"overlap queue.*--replace"):
            schedule.find(client, "two")
    schedule_command(["list"])
    printed = capsys.readouterr()
    assert "Job two is left out: A job that still runs when it is due again" in printed.err
    assert "one" in printed.out
