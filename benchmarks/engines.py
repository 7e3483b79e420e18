"""What does a sweep cost on Dask workers, over the pool of processes of this machine?

The same sweep of 1,000 calls of some milliseconds, each recorded as a run, as a person types it:
the whole command, from its start to its end, in a database of its own. `local` has 2 processes;
`dask` starts 2 Dask workers and ends them; `cluster` finds 2 that are there, so that what it costs
more is not their start. They take turns; a ratio is the median over rounds, of which the first is
left out. The start is also given alone: the same ways for a sweep of 2 calls.

    python -m benchmarks.engines      about 5 minutes on 2 cores
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.recording import temporary_database
from pipelines import provenance, store, tracking

NAME = "symmetric-positive-converges"
GRID = ("d=2:6:1", "gamma=0.5:0.95:0.05", "top=1:2.9:0.1")  # 5 x 10 x 20, each a call of its own
SHORT = ("d=2,3", "gamma=0.5", "top=1")
ROUNDS = 2


def main() -> None:
    """Measure, print the ratios, and record them in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; seconds of a sweep, over those of `local`")
    with temporary_database(), cluster() as address:
        store.client()
        ways = {
            "local": ("--workers", "2"),
            "dask": ("--engine", "dask", "--workers", "2"),
            "cluster": ("--engine", "dask", "--scheduler", address),
        }
        rounds = [measure(ways) for _ in range(ROUNDS + 1)][1:]
    with tracking.tracked(
        "engines", experiment="benchmarks", kind="benchmark", params={"rounds": ROUNDS}
    ) as run:
        for size in ("long", "short"):
            for way in ways:
                took = [each[size, way] for each in rounds]
                ratios = [each[size, way] / each[size, "local"] for each in rounds]
                run.log({f"{size}_{way}_s": median(took)})
                run.log({f"{size}_{way}_over_local": median(ratios)})
                spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                print(f"{size:<6} {way:<8} {spread:<20} {median(took):>6.1f} s", flush=True)


def measure(ways: dict[str, tuple[str, ...]]) -> dict[tuple[str, str], float]:
    """Seconds of every way, for the long sweep and for a short one."""
    return {
        (size, way): seconds(grid, words)
        for size, grid in (("long", GRID), ("short", SHORT))
        for way, words in ways.items()
    }


def seconds(grid: tuple[str, ...], words: tuple[str, ...]) -> float:
    """Of the command, in a process of its own."""
    axes = [word for axis in grid for word in ("--grid", axis)]
    start = time.perf_counter()
    command = ["pipelines", "sweep", NAME, "--scale", "smoke", "--seeds", "1", "--force"]
    subprocess.run(
        [sys.executable, "-m", *command, *axes, *words], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - start


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a scheduler with 2 workers on loopback, in processes of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    words = ["scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    workers = ["worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *each],
            cwd=Path(__file__).parents[1],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for each in ([*words, "--no-dashboard"], workers)
    ]
    try:
        yield address
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
