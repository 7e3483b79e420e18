"""The Dask cluster of a sweep: its scheduler found, or workers of this machine started for it.

With remote.py the only door to Dask.
"""

import asyncio
import logging
import platform
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

from pipelines.errors import Unavailable, UserError, short

CONNECT_S = 10.0  # for a scheduler to answer
PYTHON = ".".join(platform.python_version_tuple()[:2])


@contextmanager
def connected(scheduler: str | None, workers: int) -> Iterator[Any]:
    """A client of that scheduler, or of as many workers of this machine, which end with the block.

    Unavailable for a scheduler that does not answer in CONNECT_S, UserError for another Python.
    """
    import distributed

    for name in ("distributed", "distributed.client"):  # what matters we say ourselves
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is None:
        with _cluster(workers) as cluster, distributed.Client(cluster) as own:
            yield own
        return
    if found := _wrong(scheduler):
        raise Unavailable(
            f"A Dask scheduler must answer. Received: {scheduler!r}: {found}. Start one with "
            "python -m dask scheduler, and give the address that it prints."
        )
    with distributed.Client(scheduler, timeout=CONNECT_S) as client:
        _check_python(client)
        yield client


def _wrong(address: str) -> str:
    """Why there is no scheduler at that address; empty where there is one.

    A client itself would wait for good where something else answers, or nothing.
    """
    try:
        kind = asyncio.run(asyncio.wait_for(_kind(address), CONNECT_S))
    except TimeoutError:
        return f"no answer in {CONNECT_S:g} s"
    except Exception as error:  # what is read from something else is misread in any way
        return short(error) if str(error) else type(error).__name__
    return "" if kind == "Scheduler" else f"a {kind} answers there"


async def _kind(address: str) -> str:
    """Which part of Dask answers at an address: Scheduler, Nanny or Worker."""
    import distributed

    secrets = distributed.Security().get_connection_args("client")
    async with distributed.rpc(address, timeout=CONNECT_S, connection_args=secrets) as there:
        return str((await there.identity())["type"])


def _check_python(client: Any) -> None:
    """UserError for a scheduler or worker of another Python, which cannot even read a task."""
    found = client.get_versions()
    theirs = {client.scheduler.address: found["scheduler"], **found["workers"]}
    for address, said in theirs.items():
        python = ".".join(said["host"]["python"].split(".")[:2])
        if python != PYTHON:
            raise foreign(address, {"python": python}, {"python": PYTHON})


def _cluster(workers: int) -> Any:
    """Workers of this machine: processes of one thread, reached by nobody else.

    They end when this process does, however it ends.
    """
    import distributed

    # what is started now inherits the mask: Ctrl-C, and a closed terminal, are for this process
    ours = {signal.SIGINT, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    try:
        resource_tracker.ensure_running()  # which unblocks Ctrl-C for this process, once
        signal.pthread_sigmask(signal.SIG_BLOCK, ours)
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={
                "dashboard_address": "127.0.0.1:0",  # a port that is free
                "allowed_failures": 0,  # what a killed worker had, work.py sends again
            },
            memory_limit=0,  # no limit but the machine's, as for processes of the local engine
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def answering(client: Any) -> Iterator[None]:
    """Unavailable for what Dask raises when the scheduler goes."""
    import distributed

    try:
        yield
    except (distributed.CancelledError, OSError) as error:
        if isinstance(error, OSError) and client.status == "running":
            raise
        raise Unavailable(
            "The scheduler must answer to the end. Received: it has gone, or its tasks were "
            "cancelled. Start it again; the same command then goes on."
        ) from error


def foreign(address: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> UserError:
    """The sentence for a worker that would give other numbers."""
    other = [
        f"{key} {found.get(key)} instead of {value}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    return UserError(
        f"Every worker must have this code and the same packages. Received: {address} "
        f"{'with ' + ', '.join(other) if found else 'without this project'}. Start `python -m dask "
        "worker` there in a checkout of the same commit, with the same environment and "
        "KERAS_BACKEND."
    )
