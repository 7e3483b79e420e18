"""The examples of how a schedule is deployed: what they start is there."""

import json
import re
import shlex

import yaml

from pipelines.scheduling.jobs import ScheduledJob, check_command, parse_words
from tests.conftest import ROOT

SERVICE = ROOT / "deploy" / "near-identity.service"
CRONJOB = ROOT / "deploy" / "nightly-claims.cronjob.yaml"
IMAGE = ROOT / "deploy" / "Dockerfile"


def test_the_service_starts_a_server() -> None:
    (line,) = [t for t in SERVICE.read_text().splitlines() if t.startswith("ExecStart=")]
    found = parse_words(shlex.split(line.removeprefix("ExecStart=")))
    assert found[:3] == ("pipelines", "schedule", "serve")
    check_command(ScheduledJob(name="x", words=found, tz="UTC", cron="0 3 * * *"))


def test_the_cron_job_of_kubernetes_does_what_ours_does() -> None:
    spec = yaml.safe_load(CRONJOB.read_text())["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)", IMAGE.read_text(), re.M)
    found = parse_words([*json.loads(entrypoint), *pod["containers"][0]["args"]])
    check_command(ScheduledJob(name="x", words=found, tz=spec["timeZone"], cron=spec["schedule"]))
