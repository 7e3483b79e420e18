"""Jobs as people describe them: what is given, what is kept, what is refused."""

import json
from pathlib import Path

import pytest

from pipelines import jobs, ticks, timetable
from pipelines.errors import UserError
from pipelines.jobs import Job
from pipelines.schedule_command import schedule_command


@pytest.mark.parametrize("name", ["every_s", "timeout_s", "backoff_s"])
def test_a_length_of_more_than_ten_years_is_refused(name: str) -> None:
    common = {"name": "x", "words": ("pipelines", "list"), "tz": "UTC", "every_s": 60.0}
    Job(**common | {name: 3650 * 86_400.0})
    for wrong in (3651 * 86_400.0, 1e300, float("inf"), float("nan")):
        with pytest.raises(UserError, match=r"--(every|timeout|backoff)"):
            Job(**common | {name: wrong})


def test_a_shipped_job_takes_what_is_given_and_keeps_the_rest(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--replace --notify https://me:secret@host/key --timeout 1h --retries 0"
    schedule_command(f"add nightly-claims {options}".split())
    schedule_command(["add", "reap", "--replace", "--every", "2h"])
    capsys.readouterr()
    schedule_command(["list", "--json"])
    said = capsys.readouterr().out
    assert "secret" not in said
    found = {row["name"]: row for row in json.loads(said)}
    claims, reap = found["nightly-claims"], found["reap"]
    assert (claims["notify"], claims["timeout_s"], claims["retries"]) == ("https://host", 3600, 0)
    assert claims["cron"] == "0 3 * * *"
    assert claims["command"] == "python -m pipelines pipeline verify --force"
    assert (reap["cron"], reap["every_s"], reap["missed"]) == ("", 7200, "skip")
    with pytest.raises(UserError, match="needs a command"):
        schedule_command(["add", "mine", "--every", "2h"])


def test_the_history_of_a_job_that_never_was_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Job(name="gone", words=("pipelines", "list"), tz="UTC", every_s=60.0)
    with timetable.connected(timetable.place()) as engine:
        ticks.enqueue(engine, gone, 5.0)
    schedule_command(["history", "gone", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 1
    schedule_command(["history", "reap", "--json"])
    assert json.loads(capsys.readouterr().out) == []
    with pytest.raises(UserError, match=r"Did you mean gone\?"):
        schedule_command(["history", "gon"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run gradient-formula --bogus 3", r"Unrecognized options: --bogus, 3\."),
        ("reep", "reep"),
        ("run gradient-formla", "Did you mean gradient-formula"),
        ("reap --json", ""),
    ],
)
def test_a_command_is_refused_that_would_refuse_its_words(line: str, said: str) -> None:
    job = Job(name="x", words=jobs.words(line.split()), tz="UTC", every_s=60.0)
    if not said:
        jobs.check_command(job)
        return
    with pytest.raises(UserError, match=said):
        jobs.check_command(job)
