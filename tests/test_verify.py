"""The pipeline `verify` run by the schedule, end to end, on the quickstart's claims."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import history, schedule, store, timetable
from pipelines.jobs import Job
from pipelines.quickstart import CLAIMS
from pipelines.timetable import ENDED, FAILED, RAN, Tick
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def project(home: Path, digits: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the project, served."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
        (place := tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place)
    out = str(tmp_path / "report")
    words = ("pipelines", "pipeline", "verify", "--scale", "smoke", "--out", out)
    with schedule.opened(timetable.place()) as found:
        for job in found.jobs():
            found.remove(job.name)
        found.add(Job(name="verify", words=words, tz="UTC", every_s=1.0, retries=2, backoff_s=1.0))
        found.pause("verify")
    serve = [sys.executable, "-m", "pipelines", "schedule", "serve"]
    server = subprocess.Popen(serve, cwd=tmp_path / "project", stderr=subprocess.DEVNULL)
    yield tmp_path / "project"
    server.terminate()
    server.wait()


def one_tick(after: int) -> Tick:
    """Let the job have a tick; what becomes of it."""
    with schedule.opened(timetable.place()) as found:
        found.resume("verify")
        began = timetable.TICKS.c.started > 0
        while len(timetable.select(found.engine, began)) == after:
            time.sleep(0.1)
        found.pause("verify")
        while (tick := timetable.select(found.engine, began)[0]).state not in ENDED:
            time.sleep(0.1)
        assert not timetable.select(found.engine, timetable.TICKS.c.attempt > 1)
        return tick


def test_a_claim_broken_on_purpose_flips_its_verdict_and_the_watch_says_so(project: Path) -> None:
    first = one_tick(0)
    assert (first.state, first.why) == (RAN, "")
    parent = history.row(str(first.run_id))
    assert parent.status == "FINISHED"
    steps = ["data", *CLAIMS, "report", "watch"]
    assert [k for k, v in parent.tags.items() if k.startswith("step.") and v.startswith("done")]
    assert {f"step.{name}" for name in steps} <= parent.tags.keys()
    below = {row.tags.get("claim"): row for row in history.rows(**{store.PARENT: parent.id})}
    assert {*CLAIMS} <= below.keys()

    claim = project / "pipelines" / "claims" / "small_norm_factorization.py"
    text = claim.read_text()
    assert '"ratio", at_most=1,' in text
    claim.write_text(text.replace('"ratio", at_most=1,', '"ratio", at_most=0.01,'))
    second = one_tick(1)
    difference = "small-norm-factorization (smoke): verdict reproduced -> refuted"
    assert (second.state, second.code) == (FAILED, 3)  # and there is no other attempt
    assert difference in second.why
    parent = history.row(str(second.run_id))
    assert parent.status == "FAILED"
    assert difference in parent.tags["failure"]
    assert parent.tags["step.watch"].startswith("failed")
    assert b"refuted" in (store.artifact(parent.id, "steps/watch.json") or b"")
    assert b"refuted" in (store.artifact(parent.id, "log.txt") or b"")
