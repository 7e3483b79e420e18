"""What does a sweep cost on Dask workers, over the pool of processes of this machine?

The same sweep of 1,000 calls of some milliseconds, each recorded as two runs, as it is typed:
the whole command, from its start to its end, in a database of its own. `local` starts 2 processes;
`cluster` finds 2 workers that are there. They take turns; a ratio is the median over rounds. The
start is also given alone: the same ways for a sweep of 2 calls. Beside the seconds of the clock
stand those of the processor, to which other work on a busy machine adds less; those of `cluster`
lack its workers'.

    python -m benchmarks.engines      about 6 minutes on 2 cores
"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.recording import temporary_database
from pipelines.runtime import provenance
from pipelines.tracking import store, tracked_run

NAME = "no-bad-stationary-points"
GRID = ("d=2:21:1", "l=2:51:1")  # 20 x 50, each a call of its own, which measures both eps
SHORT = ("d=2,3", "l=2")
ROUNDS = 5


def main() -> None:
    """Measure, print the ratios, and record them in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; seconds of a sweep, over those of `local`")
    with temporary_database(), cluster() as address:
        store.client()
        ways = {
            "local": ("--workers", "2"),
            "cluster": ("--scheduler", address),
        }
        rounds = [measure(ways) for _ in range(ROUNDS)]
    with tracked_run.tracked(
        "engines", experiment="benchmarks", kind="benchmark", params={"rounds": ROUNDS}
    ) as run:
        for key in rounds[0]:
            found = [each[key] for each in rounds]
            base = [each["local", *key[1:]] for each in rounds]
            ratios = [a / b for a, b in zip(found, base, strict=True)]
            name = "_".join(key)
            run.log({f"{name}_s": median(found), f"{name}_over_local": median(ratios)})
            spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"{name:<24} {spread:<20} {median(found):>6.1f} s", flush=True)


def measure(ways: Mapping[str, Sequence[str]]) -> dict[tuple[str, str, str], float]:
    """Seconds by way, long or short sweep, clock or processor."""
    found = {}
    for size, grid in (("short", SHORT), ("long", GRID)):
        for way, words in ways.items():
            wall, processor = seconds(grid, words)
            found[way, size, "clock"], found[way, size, "processor"] = wall, processor
            print(f"# {size} {way}: {wall:.1f} s, {processor:.1f} s", file=sys.stderr, flush=True)
    return found


def seconds(grid: Sequence[str], words: Sequence[str]) -> tuple[float, float]:
    """Of the command, in a process of its own: by the clock, and of the processor."""
    axes = [word for axis in grid for word in ("--grid", axis)]
    command = ["pipelines", "sweep", NAME, "--scale", "smoke", "--seeds", "1", "--force"]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", *command, *axes, *words], check=True, stdout=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
