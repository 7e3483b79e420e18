"""What commands load and hold: what only reads neither loads MLflow nor makes a database."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runtime import places
from tests.conftest import ROOT, needs

# Runs a command as its process would, then says what it has loaded, and its memory: not what
# `getrusage` says, which of a process that has just been started is what its parent held.
PROGRAM = (
    "import pathlib, re, runpy, sys\n"
    "package, sys.argv = sys.argv[1], sys.argv[1:]\n"
    "try:\n"
    "    runpy.run_module(package, run_name='__main__', alter_sys=True)\n"
    "finally:\n"
    "    status = pathlib.Path('/proc/self/status').read_text()\n"
    "    held = re.search(r'VmHWM:\\s*(\\d+) kB', status)[1]\n"
    "    heavy = {'tensorflow', 'keras', 'mlflow', 'torch', 'jax'} & set(sys.modules)\n"
    "    print(held, *sorted(heavy), file=sys.stderr)\n"
)


def cost(words: str, home: Path) -> tuple[list[str], float]:
    """What heavy libraries a command has loaded in the end, and the most megabytes it held."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()],
        cwd=ROOT,
        env={**os.environ, places.HOME: str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kilobytes, *heavy = done.stderr.splitlines()[-1].split()
    return heavy, int(kilobytes) / 1e3


@pytest.fixture
def new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a home, which is not there."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "new"


@pytest.mark.parametrize(
    ("words", "megabytes"),
    [
        ("pipelines report", 300),
        ("pipelines evidence check", 300),
        ("tuning list", 200),
    ],
)
def test_what_only_reads_loads_no_mlflow_and_makes_no_database(
    words: str, megabytes: float, new_home: Path
) -> None:
    loaded, held = cost(words, new_home)
    assert (loaded, held < megabytes) == ([], True), held
    assert not [*new_home.rglob("*.db*")]


def test_the_doctor_loads_no_backend_unless_it_is_thorough(new_home: Path) -> None:
    loaded, held = cost("pipelines doctor", new_home)
    assert ("tensorflow" in loaded, held < 350) == (False, True), held


def test_the_evidence_is_imported_in_a_small_memory_and_database(new_home: Path) -> None:
    _, held = cost("pipelines evidence import", new_home)
    database = sum(file.stat().st_size for file in new_home.glob("mlflow.db*"))
    assert (held < 450, database < 30e6) == (True, True), (held, database)
    _, held = cost("pipelines report", new_home)
    assert held < 450


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "megabytes"),
    [
        pytest.param("allconv-cifar10", 2_000, marks=needs("cifar10")),
        pytest.param("allconv-tiny-imagenet", 3_500, marks=needs("tiny_imagenet/64x64")),
    ],
)
def test_a_training_holds_so_much(words: str, megabytes: float, new_home: Path) -> None:
    _, held = cost(f"pipelines run {words} --steps 30", new_home)
    assert held < megabytes
