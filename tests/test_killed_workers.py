"""A sweep whose workers are killed: real processes, which kill themselves at one setting."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from pipelines import history, sweep, work
from pipelines.errors import Unavailable
from pipelines.grid import Cells
from tests.conftest import Go
from tests.test_sweep import NAME, children, content

GRID = ("d=2,3", "gamma=0.5,1", "l=5:20:2x")
LETHAL = "d=3 gamma=0.5 seed=1"
TIMES, NOTES = "LETHAL_TIMES", "LETHAL_NOTES"  # in the environment: how often, and a file of pids
COMPUTE = work._compute


def deadly(name: str, cells: Cells) -> Any:
    """Measure as every worker does, but for the one cell that kills its process the first times."""
    point, notes = {"d": 3, "gamma": 0.5}, Path(os.environ[NOTES])
    if any(point.items() <= cell.point.items() and cell.seed == 1 for cell in cells.cells):
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(notes.read_text().splitlines()) <= int(os.environ[TIMES]):
            os.kill(os.getpid(), signal.SIGKILL)
    return COMPUTE(name, cells)


@pytest.fixture
def kills(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`kills(n)`: from now on the cell kills n workers; it returns the file that counts them."""
    monkeypatch.setattr(work, "_compute", deadly)

    def set_to(times: int) -> Path:
        get_reusable_executor().shutdown()  # joblib's workers keep their environment
        notes = home / "notes"
        notes.write_text("")
        monkeypatch.setenv(NOTES, str(notes))
        monkeypatch.setenv(TIMES, str(times))
        return notes

    return set_to


def swept(engine: str, **options: Any) -> dict[str, Any]:
    return sweep.sweep(NAME, "smoke", GRID, seeds=3, **{"engine": engine, "workers": 2, **options})


ENGINES = ["local", pytest.param("dask", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_worker_loses_and_doubles_nothing(engine: str, kills, go: Go, capfd) -> None:
    notes = kills(1)
    document = swept(engine)
    assert len(notes.read_text().splitlines()) == 2  # the worker that was killed, and the next
    assert "are measured again, one at a time" in capfd.readouterr().err
    interrupted = content(document)  # which checks that no name is there twice
    assert len(interrupted) == 12
    assert {status for status, _, _ in interrupted.values()} == {"FINISHED"}
    go("b")
    kills(0)
    straight = swept("local", workers=1)
    assert content(straight) == interrupted
    assert straight["metrics"] == document["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_setting_that_kills_three_workers_fails_by_name(engine: str, kills) -> None:
    for _ in range(2):  # the second time it is all that is left to be measured
        notes = kills(99)
        with pytest.raises(Unavailable, match=f"by each of: {LETHAL}\\. Everything else is rec"):
            swept(engine)
        assert len(notes.read_text().splitlines()) == 3
        (parent,) = history.rows(None, kind="sweep")
        assert parent.status == "FAILED"
        assert LETHAL in parent.tags["failure"]
        rows = {row.name: row for row in children({"run_id": parent.id})}
        assert len(rows) == len(children({"run_id": parent.id})) == 12
        (failed,) = (row for row in rows.values() if row.status != "FINISHED")
        assert (failed.name, failed.status) == (LETHAL, "FAILED")
        assert f"{NAME} {LETHAL}: it has killed 3 workers" in failed.tags["failure"]
    kills(0)
    document = swept(engine)
    assert document["run_id"] == parent.id
    assert {status for status, _, _ in content(document).values()} == {"FINISHED"}
    assert len(children(document)) == 12
