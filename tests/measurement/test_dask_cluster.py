"""Sweeps on Dask workers: the local numbers, each once, and plain words for what goes wrong.

Everything is real: a scheduler and workers in processes of their own.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import distributed
import pytest

from pipelines.errors import Unavailable, UserError
from pipelines.measurement import sweep
from pipelines.measurement.grid import Cell, Cells
from pipelines.measurement.workers import dask_cluster, executor
from tests.conftest import ROOT, Go, free_port
from tests.measurement.test_sweep import NAME, content, settings_in

SPECS = ("d=2,3", "gamma=0.1:1:0.1", "l=8:128:2x")


@pytest.mark.parametrize(
    ("name", "workers", "expected"),
    [(NAME, 2, "--workers 2"), ("identity-beats-plain", None, "A cluster measures theorems")],
)
def test_options_that_do_not_fit_are_one_sentence(name: str, workers, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        sweep.sweep(name, "smoke", (), workers=workers, scheduler="tcp://a:1")


def test_workers_of_a_claim_that_trains_are_refused() -> None:
    with pytest.raises(UserError, match=r"Workers measure theorems\. Received: --workers 4"):
        sweep.sweep("identity-beats-plain", "smoke", (), workers=4)


@pytest.mark.parametrize(
    "address", ["nonsense", "tcp://127.0.0.1:{free}", "tcp://127.0.0.1:{mute}"]
)
def test_without_a_scheduler_there_is_a_sentence_in_time(address: str, monkeypatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        at = address.format(free=free_port(), mute=mute.getsockname()[1])
        with (
            pytest.raises(Unavailable, match="A Dask scheduler must answer"),
            dask_cluster.connect(at, NAME),
        ):
            pass


def test_a_process_of_other_code_measures_nothing() -> None:
    with pytest.raises(UserError, match="instead of another"):
        executor._measure_batch(NAME, "another", 0, Cells((Cell({}, 0),)))


@contextmanager
def start_process(*words: str, folder: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
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
def scheduler() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a scheduler that has no workers yet, on loopback, and its process."""
    port = str(free_port())
    with start_process("scheduler", "--host", "127.0.0.1", "--port", port) as process:
        yield f"tcp://127.0.0.1:{port}", process


def worker(address: str, folder: Path = ROOT) -> contextlib.AbstractContextManager:
    return start_process("worker", address, "--nthreads", "1", "--no-nanny", folder=folder)


def wait_for_worker(address: str) -> None:
    """Return once the scheduler knows a worker: one that comes later is checked by its tasks."""
    with distributed.Client(address, timeout=60) as client:
        client.wait_for_workers(1, timeout=60)


def when_recorded(home: Path, count: int, act: Callable[[], None]) -> list[int]:
    """Act once so many settings are recorded; return a list that then holds their number."""
    recorded: list[int] = []

    def watch() -> None:
        while settings_in(home / "mlflow.db") < count:
            time.sleep(0.01)
        act()
        recorded.append(settings_in(home / "mlflow.db"))

    threading.Thread(target=watch, daemon=True).start()
    return recorded


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_records_what_this_machine_would(home: Path, go: Go) -> None:
    with scheduler() as (address, _), worker(address) as lost, worker(address):
        recorded = when_recorded(home, 1, lost.kill)
        document = sweep.sweep(NAME, "smoke", SPECS, seeds=10, scheduler=address)
    assert 1 <= recorded[0] < 200
    assert settings_in(home / "mlflow.db") == 200
    remotely = content(document)
    assert len(remotely) == 200
    go("b")
    local = sweep.sweep(NAME, "smoke", SPECS, seeds=10, workers=2)
    assert content(local) == remotely
    assert (local["metrics"], local["verdict"]) == (document["metrics"], document["verdict"])


@pytest.mark.slow
def test_a_scheduler_that_goes_is_one_sentence_and_the_sweep_goes_on(home: Path) -> None:
    with scheduler() as (address, process), worker(address):
        recorded = when_recorded(home, 1, process.kill)  # before all is measured
        with pytest.raises(Unavailable, match="must answer to the end"):
            sweep.sweep(NAME, "smoke", SPECS, seeds=10, scheduler=address)
    assert 1 <= recorded[0] < 200
    assert len(sweep.sweep(NAME, "smoke", SPECS, seeds=10, workers=2)["settings"]) == 200
    assert settings_in(home / "mlflow.db") == 200


@pytest.mark.slow
def test_a_worker_of_other_code_or_of_none_is_refused(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for package in ("pipelines", "theory", "keras_models"):
        shutil.copytree(ROOT / package, other / package)
    changed = other / "theory" / "factorization.py"
    changed.write_text(changed.read_text().replace("np.expm1(", "2 * np.expm1("))
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, expected in ((other, "with code "), (empty, "with code missing")):
        with (
            scheduler() as (address, _),
            worker(address, folder),
            pytest.raises(UserError, match=expected) as refused,
        ):
            wait_for_worker(address)
            sweep.sweep(NAME, "smoke", ("d=2",), seeds=1, scheduler=address)
        assert "python -m dask worker" in str(refused.value)
        assert "Received: tcp://127.0.0.1:" in str(refused.value)
    assert settings_in(home / "mlflow.db") == 0
