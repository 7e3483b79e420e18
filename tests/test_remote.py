"""Sweeps on Dask workers: each batch once, the local numbers, and nothing left of what was killed.

Everything is real: a scheduler and workers in processes of their own, or in threads of this one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipelines import claim, dask_cluster, remote, sweep
from pipelines.errors import Unavailable, UserError
from pipelines.grid import Cell, Cells
from pipelines.order import Order
from tests.conftest import ROOT, Go, command, free_port
from tests.test_sweep import NAME, content, settings_in

SPECS = ("d=2,3", "gamma=0.1:1:0.1", "l=8:128:2x")
WORDS = ["pipelines", "sweep", NAME, "--scale", "smoke", "--engine", "dask"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (NAME, {"engine": "spark"}, "Choices: dask, local"),
        (NAME, {"scheduler": "tcp://a:1"}, "Set --engine dask"),
        (NAME, {"engine": "dask", "scheduler": "tcp://a:1", "workers": 2}, "--workers 2"),
        (NAME, {"engine": "dask", "workers": 0}, "workers must be >= 1"),
        ("identity-beats-plain", {"engine": "dask"}, "A cluster measures theorems"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(name, options, expected) -> None:
    with pytest.raises(UserError, match=expected):
        sweep.sweep(name, "smoke", (), **options)


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:{port}"])
def test_without_a_scheduler_there_is_a_sentence_in_time(address: str, monkeypatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    with (
        pytest.raises(Unavailable, match="A Dask scheduler must answer"),
        dask_cluster.connected(address.format(port=free_port()), 1),
    ):
        pass


@pytest.mark.parametrize("workers", [0, 1, 2, 7, 500])
@pytest.mark.parametrize("batch_s", [1e-6, 0.01, 0.2, 30.0])
def test_tasks_are_all_the_batches_and_shorten_towards_the_end(workers: int, batch_s) -> None:
    left, tasks = 1_000, []
    while left:
        tasks.append(remote.size(left, workers, batch_s, 1e4))
        left -= tasks[-1]
        assert left >= 0
    assert sum(tasks) == 1_000
    assert tasks == sorted(tasks, reverse=True)
    assert tasks[-1] == 1
    assert max(tasks) == 1 or max(tasks) * batch_s <= remote.TASK_S
    assert len(tasks) >= min(1_000, 4 * workers)  # every worker has several


def test_a_task_of_large_results_is_short() -> None:
    assert remote.size(1_000, 2, 1e-3, remote.TASK_BYTES / 3) == 3
    assert remote.size(1_000, 2, 1e-3, remote.TASK_BYTES * 3) == 1


def seeds_of(name: str, cells: Cells) -> list[int]:
    time.sleep(0.001 * (cells.cells[0].seed % 7))
    return [cell.seed for cell in cells.cells]


def test_every_batch_comes_back_once_from_workers_that_differ() -> None:
    import distributed

    batches = [Cells((Cell({}, seed),)) for seed in range(300)]
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        order = Order(
            name=NAME,
            scale="smoke",
            settings=claim.load(NAME).scales["smoke"],
            seeds=1,
            engine="dask",
            scheduler=cluster.scheduler_address,
        )
        with remote.engine(order, seeds_of, len(batches)) as results:
            some = list(results(batches))
        assert not cluster.scheduler.tasks  # nothing is kept there
    assert sorted(seed for found in some for (seed,) in found) == list(range(300))
    assert 1 < len(some) < 300


@contextmanager
def started(*words: str, folder: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """A part of a Dask cluster, as a person starts it; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *words, "--no-dashboard"],
        cwd=folder,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def scheduler() -> Iterator[str]:
    """The address of a scheduler that has no workers yet, on loopback."""
    port = str(free_port())
    with started("scheduler", "--host", "127.0.0.1", "--port", port):
        yield f"tcp://127.0.0.1:{port}"


def worker(address: str, folder: Path = ROOT) -> contextlib.AbstractContextManager:
    return started("worker", address, "--nthreads", "1", "--no-nanny", folder=folder)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_records_what_this_machine_would(home: Path, go: Go) -> None:
    with scheduler() as address, worker(address) as lost, worker(address):
        recorded = []

        def kill() -> None:
            while settings_in(home / "mlflow.db") < 40:
                time.sleep(0.01)
            os.kill(lost.pid, signal.SIGKILL)
            recorded.append(settings_in(home / "mlflow.db"))

        threading.Thread(target=kill, daemon=True).start()
        document = sweep.sweep(NAME, "smoke", SPECS, seeds=10, engine="dask", scheduler=address)
    assert 40 <= recorded[0] < 200
    assert settings_in(home / "mlflow.db") == 200
    remotely = content(document)
    assert len(remotely) == 200
    go("b")
    local = sweep.sweep(NAME, "smoke", SPECS, seeds=10, workers=2)
    assert content(local) == remotely
    assert local["metrics"] == document["metrics"]


@pytest.mark.slow
def test_a_worker_of_other_code_or_of_none_is_refused(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for package in ("pipelines", "theory", "keras_models"):
        shutil.copytree(ROOT / package, other / package)
    changed = other / "theory" / "factorization.py"
    changed.write_text(changed.read_text().replace("np.expm1(", "2 * np.expm1("))
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, expected in ((other, "with code "), (empty, "without this project")):
        with (
            scheduler() as address,
            worker(address, folder),
            pytest.raises(UserError, match=expected) as refused,
        ):
            sweep.sweep(NAME, "smoke", ("d=2",), seeds=1, engine="dask", scheduler=address)
        assert "python -m dask worker" in str(refused.value)
        assert "Received: tcp://127.0.0.1:" in str(refused.value)
    assert settings_in(home / "mlflow.db") == 0


@pytest.mark.slow
def test_killed_with_its_workers_it_leaves_none_and_goes_on(home: Path) -> None:
    words = [*WORDS, "--workers", "2", "--seeds", "6", "--json"]
    words += [word for spec in SPECS for word in ("--grid", spec)]
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while settings_in(home / "mlflow.db") < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(workers, timeout=10)[1] == []
    before = settings_in(home / "mlflow.db")
    assert 8 <= before < 120
    again = command(*words)
    assert again.returncode == 0, again.stderr
    assert f"{before} of 120 settings are recorded already" in again.stderr
    assert len(again.stderr.splitlines()) == 2, again.stderr  # this, and that a run was settled
    assert settings_in(home / "mlflow.db") == 120
