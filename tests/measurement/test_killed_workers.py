"""A sweep whose workers are killed: real processes, which kill themselves at one setting."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import pytest
from joblib.externals.loky import get_reusable_executor

from pipelines.errors import Unavailable
from pipelines.measurement import sweep
from pipelines.measurement.grid import Cells
from pipelines.measurement.workers import executor
from pipelines.tracking import history
from tests.conftest import Go
from tests.measurement.test_sweep import NAME, children, content

GRID = ("d=2,3", "gamma=0.5,1", "l=5:20:2x")
LETHAL = "d=3 gamma=0.5 seed=1"
TIMES, NOTES = "LETHAL_TIMES", "LETHAL_NOTES"  # in the environment: how often, and a file of pids
COMPUTE = executor._measure_batch


def deadly(name: str, code: str, number: int, cells: Cells) -> Any:
    """Measure as every worker does, but for the one cell that kills its process the first times."""
    point, notes = {"d": 3, "gamma": 0.5}, Path(os.environ[NOTES])
    if any(point.items() <= cell.point.items() and cell.seed == 1 for cell in cells.cells):
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(notes.read_text().splitlines()) <= int(os.environ[TIMES]):
            os.kill(os.getpid(), signal.SIGKILL)
    return COMPUTE(name, code, number, cells)


@pytest.fixture
def kills(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`kills(n)`: from now on the cell kills n workers; it returns the file that counts them."""
    monkeypatch.setattr(executor, "_measure_batch", deadly)

    def set_to(times: int) -> Path:
        get_reusable_executor().shutdown()  # joblib's workers keep their environment
        notes = home / "notes"
        notes.write_text("")
        monkeypatch.setenv(NOTES, str(notes))
        monkeypatch.setenv(TIMES, str(times))
        return notes

    return set_to


@contextmanager
def workers(backend: str) -> Iterator[dict[str, Any]]:
    """Yield the options of a sweep by two processes, or by two workers of a Dask cluster."""
    if backend == "loky":
        yield {"workers": 2}
        return
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0", "allowed_failures": 0},
        silence_logs=50,
    ) as cluster:
        yield {"scheduler": cluster.scheduler_address}


def swept(**options: Any) -> dict[str, Any]:
    return sweep.sweep(NAME, "smoke", GRID, seeds=3, **options)


BACKENDS = ["loky", pytest.param("dask", marks=pytest.mark.slow)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_worker_loses_and_doubles_nothing(backend: str, kills, go: Go, capfd) -> None:
    notes = kills(1)
    with workers(backend) as options:
        document = swept(**options)
    assert len(notes.read_text().splitlines()) == 2  # the worker that was killed, and the next
    assert "are measured again, one at a time" in capfd.readouterr().err
    interrupted = content(document)  # which checks that no name is there twice
    assert len(interrupted) == 12
    assert {status for status, _, _ in interrupted.values()} == {"FINISHED"}
    go("b")
    kills(0)
    straight = swept(workers=1)
    assert content(straight) == interrupted
    assert straight["metrics"] == document["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_setting_that_kills_its_worker_again_fails_by_name(backend: str, kills) -> None:
    for _ in range(2):  # the second time it is all that is left to be measured
        notes = kills(99)
        with (
            workers(backend) as options,
            pytest.raises(Unavailable, match=f"by each of: {LETHAL}\\. Everything else is kept"),
        ):
            swept(**options)
        assert len(notes.read_text().splitlines()) in (2, 3)  # in company, in its batch, alone
        (parent,) = history.rows(None, kind="sweep")
        assert parent.status == "FAILED"
        assert LETHAL in parent.tags["failure"]
        rows = {row.name: row for row in children({"run_id": parent.id})}
        assert len(rows) == len(children({"run_id": parent.id})) == 11
        assert {row.status for row in rows.values()} == {"FINISHED"}
        assert LETHAL not in rows
    kills(0)
    with workers(backend) as options:
        document = swept(**options)
    assert document["run_id"] == parent.id
    assert {status for status, _, _ in content(document).values()} == {"FINISHED"}
    assert len(children(document)) == 12
