"""Two processes with one command: one does it, the other waits, says so, and shows its result."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.tracking import history
from tests.conftest import ROOT

SEEDS = ("seeds", "run mlp-digits --seeds 2 --steps 200 --json")
SWEEP = (
    "sweep",
    "sweep small-norm-factorization --scale smoke --workers 1 --seeds 40 --grid d=2:9:1 "
    "--grid gamma=0.5,1 --grid l=8:256:2x --json",
)


def begin(words: str, folder: Path, name: str) -> "subprocess.Popen[str]":
    """The command in a process, whose standard error is the file of that name."""
    with (folder / name).open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines", *words.split()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )


def until_waiting(pair: dict[str, "subprocess.Popen[str]"], folder: Path) -> str:
    """The name of the one that says that it waits for the other."""
    end = time.monotonic() + 120
    while True:
        for name in pair:
            if "; waiting for it." in (folder / name).read_text():
                return name
        assert time.monotonic() < end
        assert any(process.poll() is None for process in pair.values()), "both have ended"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("kind", "words"), [SEEDS, SWEEP])
def test_two_copies_leave_one_run(
    kind: str, words: str, *, killed: bool, home: Path, digits: Path, tmp_path: Path
) -> None:
    pair = {name: begin(words, tmp_path, name) for name in ("one", "two")}
    waits = until_waiting(pair, tmp_path)
    (works,) = pair.keys() - {waits}
    while not history.rows("RUNNING", kind=kind):
        time.sleep(0.02)
    if killed:
        pair[works].send_signal(signal.SIGKILL)
    answers = {name: process.communicate(timeout=300)[0] for name, process in pair.items()}
    codes = {name: process.returncode for name, process in pair.items()}
    assert codes == {waits: 0, works: -9 if killed else 0}, (tmp_path / waits).read_text()
    rows = history.rows(None)
    assert {row.status for row in rows} == {"FINISHED"}
    (parent,) = (row for row in rows if row.tags["kind"] == kind)
    assert len({row.name for row in rows}) == len(rows)
    answer = json.loads(answers[waits])
    assert answer["run_id"] == parent.id
    assert killed or answer == json.loads(answers[works]) | {"reused": True}
