"""The workers of a Dask cluster, as joblib uses them. The only door to Dask.

Imports Dask at the top: import this module inside the functions that need a cluster.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distributed
import joblib
from joblib._dask import DaskDistributedBackend

from pipelines.errors import Unavailable, foreign_worker
from pipelines.measurement import claim_code

CONNECT_S = 10.0  # time that a scheduler has to answer
WORKERS_S = 30.0  # time that a first worker has to appear
PACKAGES = ("numpy", "scipy", "joblib")


class Backend(DaskDistributedBackend):
    """Joblib's backend, which measures nothing in this process and reports every task's end."""

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return the number of threads of the workers, at least 2.

        With one job joblib would call the functions in this process.
        """
        return max(2, int(super().effective_n_jobs(n_jobs)))

    def submit(self, func: Any, callback: Callable[[Any], None]) -> Any:
        """Submit a task; its callback is called also where its workers have been killed.

        Joblib 1.6 does not call it then, and would wait for good.
        """

        def report_error(ended: Any) -> None:
            if error := ended.exception():
                callback(error)

        future = super().submit(func, callback)
        future.add_done_callback(report_error)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """Return the result of a task, or raise the error that ended it."""
        if isinstance(out, BaseException):
            raise out
        return super().retrieve_result_callback(out)


@contextmanager
def connect(scheduler: str, claim: str) -> Iterator[type[Exception]]:
    """Let joblib use the workers of that scheduler; yield the error of a task that kills them.

    Raise Unavailable if no scheduler or no worker answers, or no longer, and UserError if a worker
    would measure the claim by other code or with other packages.
    """
    for name in ("distributed", "distributed.client"):  # the errors raised below say it all
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _check_scheduler(scheduler)
    with distributed.Client(scheduler, timeout=CONNECT_S) as client:
        _check_workers(client, claim)
        backend = Backend(client=client, wait_for_workers_timeout=WORKERS_S)
        try:
            with joblib.parallel_config(backend):
                yield distributed.KilledWorker
        except distributed.CancelledError as error:
            raise Unavailable(
                "The scheduler must answer to the end. Received: it has gone, or its tasks were "
                "cancelled. Start it again; the same command then goes on."
            ) from error
        except TimeoutError as error:
            raise Unavailable(
                f"A cluster must have a worker. Received: none at {scheduler} for {WORKERS_S:g} s. "
                "Start one in a checkout of the same commit: "
                f"python -m dask worker {scheduler} --nthreads 1"
            ) from error


def _check_scheduler(address: str) -> None:
    """Raise Unavailable if no scheduler answers at that address.

    A client itself would wait for good where something else answers.
    """

    async def ask_type() -> str:
        arguments = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, connection_args=arguments) as remote:
            return f"a {(await remote.identity())['type']} answers there"

    try:
        answer = asyncio.run(asyncio.wait_for(ask_type(), CONNECT_S))
    except Exception as error:  # the answer of anything else can be misread in any way
        answer = str(error) or f"no answer in {CONNECT_S:g} s"
    if answer != "a Scheduler answers there":
        raise Unavailable(
            f"A Dask scheduler must answer. Received: {address!r}: {answer}. Start one with "
            "python -m dask scheduler, and give the address that it prints."
        )


def _check_workers(client: distributed.Client, claim: str) -> None:
    """Raise UserError if a worker has other packages or other code, or not this project."""
    versions = client.get_versions(packages=PACKAGES)
    for address, machine in versions["workers"].items():
        _check_versions(address, _package_versions(machine), _package_versions(versions["client"]))
    codes = client.run(claim_code.of_claim, claim, on_error="return")
    for address, code in codes.items():
        theirs = code if isinstance(code, str) else "missing"
        _check_versions(address, {"code": theirs}, {"code": claim_code.of_claim(claim)})


def _package_versions(machine: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that numbers depend on; of Python 3.11.7 only 3.11."""
    versions = machine["packages"]
    python = ".".join(versions["python"].split(".")[:2])
    return {"Python": python, **{name: str(versions[name]) for name in PACKAGES}}


def _check_versions(address: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Raise UserError if a worker's versions are not ours."""
    other = [f"{key} {theirs[key]} instead of {ours[key]}" for key in ours]
    if theirs != ours:
        raise foreign_worker(address, f"with {', '.join(other)}")
