"""The pipeline `verify` run by the schedule, end to end, on the quickstart's claims."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.pipeline_command import CLAIMS
from pipelines.scheduling import engine, schedule, schedule_report
from pipelines.scheduling.jobs import ScheduledJob
from pipelines.tracking import history, store
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
EVERY_10_S = "*/10 * * * * *"


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
    job = ScheduledJob(
        name="verify", words=words, tz="UTC", cron=EVERY_10_S, retries=2, backoff_s=1.0
    )
    with engine.open_client() as client:
        for shipped in schedule.next_due_times(client):
            schedule.remove(client, shipped.name)
        schedule.add(client, job)
        schedule.pause(client, "verify")
    serve = [sys.executable, "-m", "pipelines", "schedule", "serve"]
    server = subprocess.Popen(serve, cwd=tmp_path / "project", stderr=subprocess.DEVNULL)
    yield tmp_path / "project"
    server.terminate()
    server.wait()


def one_due_time() -> dict[str, Any]:
    """Let the job have a due time; what becomes of it."""
    with engine.open_client() as client:
        before = len(begun(client))
        schedule.resume(client, "verify")
        while len(begun(client)) == before:
            time.sleep(0.1)
        schedule.pause(client, "verify")
        while (moment := begun(client)[before])["state"] not in ("ran", "failed", "killed"):
            time.sleep(0.1)
        return moment


def begun(client: Any) -> list[dict[str, Any]]:
    """Return the due times whose command has begun, the oldest first."""
    rows = schedule_report.list_history(client, None, 100)
    return [row for row in reversed(rows) if row["state"] not in ("queued", "skipped", "missed")]


def test_a_claim_broken_on_purpose_flips_its_verdict_and_the_watch_says_so(project: Path) -> None:
    first = one_due_time()
    assert (first["state"], first["why"]) == ("ran", "")
    parent = history.row(first["run_id"])
    assert parent.status == "FINISHED"
    below = {row.tags.get("claim"): row for row in history.rows(**{store.PARENT: parent.id})}
    assert {*CLAIMS} <= below.keys()

    claim = project / "pipelines" / "claims" / "hardt_ma" / "small_norm_factorization.py"
    text = claim.read_text()
    bound = 'always("ratio", at_most=1)'
    assert bound in text
    claim.write_text(text.replace(bound, bound.replace("=1", "=0.01")))
    second = one_due_time()
    difference = "small-norm-factorization (smoke): verdict holds -> refuted"
    expected = {"state": "failed", "code": 3, "attempt": 1}  # and there is no other attempt
    assert expected.items() <= second.items()
    assert difference in second["why"]
    parent = history.row(second["run_id"])
    assert parent.status == "FAILED"
    assert difference in parent.tags["failure"]
    (pipeline, _) = history.rows(None, kind="pipeline")
    assert (pipeline.status, pipeline.tags[store.PARENT]) == ("FAILED", parent.id)
    assert b"refuted" in (store.artifact(pipeline.id, "steps/watch.json") or b"")
    assert b"refuted" in (store.artifact(parent.id, "log.txt") or b"")
